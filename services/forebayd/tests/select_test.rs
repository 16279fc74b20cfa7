//! `forebayd select` as a process: events of a stream, printed as JSON lines and as CSV.

mod daemon;

use std::process::{Command, Output};
use std::time::Duration;

use daemon::{Daemon, FOREBAYD, LONG, read_error};
use forebay::schema::{
    ColumnIndex, ColumnRules, FieldSpec, FieldType, KeyType, ScalarType, StoreSpec, StreamSpec,
    Value,
};
use forebay::{Client, ClientOptions};

const JSON: &str = concat!(
    "\n",
    r#"{"key":"ada","time":"2026-11-27T12:00:01.500000Z","columns":{"#,
    r#""at":"2026-11-27T12:00:01.500000Z","city":"Rome","price":1,"weight":0.1,"note":null}}"#,
    "\n",
    r#"{"key":"bob","time":"2026-11-27T12:00:02.500000Z","columns":{"#,
    r#""at":"2026-11-27T12:00:02.500000Z","city":"a, \"b\"","price":2,"weight":"NaN","#,
    r#""tags":["x","y"]}}"#,
    "\n",
    r#"{"key":"bob","time":-5,"columns":{"at":-5,"city":"Rome","price":3,"raw":"00ff"}}"#,
    "\n",
);
const CSV: &str = "
bob,-5,Rome,3,,
ada,2026-11-27T12:00:01.500000Z,Rome,1,,0.1
bob,2026-11-27T12:00:02.500000Z,\"a, \"\"b\"\"\",2,\"[\"\"x\"\",\"\"y\"\"]\",NaN
";

/// Noon of some day.
const NOON_US: i64 = 1_795_780_800_000_000;

async fn shop(daemon: &Daemon) {
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let scalar = FieldType::Scalar;
    let indexed = |name: &str, of, index| {
        let rules = ColumnRules { index: Some(index), ..ColumnRules::default() };
        FieldSpec { rules, ..FieldSpec::new(name, scalar(of)) }
    };
    let mut spec = StoreSpec::stream("orders", KeyType::String)
        .partitions(2)
        .field("at", scalar(ScalarType::Timestamp));
    spec.fields.push(indexed("city", ScalarType::String, ColumnIndex::Exact));
    spec.fields.push(indexed("price", ScalarType::Int64, ColumnIndex::Range));
    let spec = spec
        .field("weight", scalar(ScalarType::Float32))
        .field("note", scalar(ScalarType::String))
        .field("tags", FieldType::List(ScalarType::String))
        .field("raw", scalar(ScalarType::Bytes));
    let stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    let orders = client.create_store(&StoreSpec { stream, ..spec }).await.unwrap();
    let at = |after_us| Value::Timestamp(NOON_US + after_us);
    let event = |key: &str, price: i64| orders.insert(key).set("price", price);
    let ada = event("ada", 1).set("at", at(1_500_000)).set("city", "Rome").set("weight", 0.1_f32);
    ada.set_null("note").send().await.unwrap();
    let tags = Value::List(ScalarType::String, vec!["x".into(), "y".into()]);
    let bob = event("bob", 2).set("at", at(2_500_000)).set("city", "a, \"b\"").set("tags", tags);
    bob.set("weight", f32::NAN).send().await.unwrap();
    let early = event("bob", 3).set("at", Value::Timestamp(-5)).set("city", "Rome");
    early.set("raw", vec![0_u8, 255]).send().await.unwrap();
    wait(daemon).await;
}

fn output(daemon: &Daemon, arguments: &[&str]) -> Output {
    let mut select = Command::new(FOREBAYD);
    select.args(["select", "--node", &daemon.address, "orders"]).args(arguments);
    select.output().unwrap()
}

fn select(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = output(daemon, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the three events are found, which the stream first reads from its log.
async fn wait(daemon: &Daemon) {
    let wait = async {
        while String::from_utf8(output(daemon, &[]).stdout).unwrap().lines().count() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the events are not found");
}

/// Removes the parts of the lines that differ between runs: the append time and the position.
fn without_places(json: &str) -> String {
    let line = |line: &str| {
        let (head, rest) = line.split_once(r#","append_time""#).unwrap();
        let (_, columns) = rest.split_once(r#","columns""#).unwrap();
        format!("{head},\"columns\"{columns}\n")
    };
    json.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_selected_and_printed() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    shop(&daemon).await;
    let by_price = select(&daemon, &["--order-by", "price"]);
    assert_eq!(without_places(&by_price), JSON.trim_start());
    let prices = |arguments: &[&str]| {
        let found = select(&daemon, &[&["--columns", "price"], arguments].concat());
        let price = |line: &str| line.rsplit_once(r#""price":"#).unwrap().1.replace("}}", "");
        found.lines().map(price).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(prices(&["--key", "bob"]), "3 2");
    assert_eq!(prices(&["--equal", "city=Rome"]), "3 1");
    assert_eq!(prices(&["--equal", r#"city=a, "b""#]), "2");
    assert_eq!(prices(&["--between", "price=2..", "--descending"]), "2 3");
    assert_eq!(prices(&["--between", "price=1..3", "--limit", "1"]), "1");
    assert_eq!(prices(&["--between", "price=..3"]), "1 2");
    assert_eq!(prices(&["--start", "2026-11-27T12:00:02Z"]), "2");
    assert_eq!(prices(&["--start", "-6", "--end", "2026-11-27T12:00:02Z"]), "3 1");
    assert_eq!(prices(&["--order-by", "price", "--descending"]), "3 2 1");

    let columns = ["--columns", "city,price,tags,weight", "--format", "csv"];
    let table = select(&daemon, &columns);
    let (names, rows) = table.split_once('\n').unwrap();
    assert_eq!(
        names,
        "key,time,append_time,partition,offset,index_in_entry,city,price,tags,weight"
    );
    let rows = rows.lines().map(|line| {
        let cells: Vec<_> = line.splitn(7, ',').collect();
        format!("{},{},{}\n", cells[0], cells[1], cells[6])
    });
    assert_eq!(rows.collect::<String>(), CSV.trim_start());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_select_command_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    shop(&daemon).await;
    for (arguments, said) in [
        (["--equal", "colour=red"], "NotFound"),
        (["--equal", "city"], "COLUMN="),
        (["--equal", "price=dear"], "`dear` is not of type int64"),
        (["--equal", "tags=x"], "only scalar columns"),
        (["--equal", "note=x"], "no index"),
        (["--between", "price=5"], "START..END"),
        (["--between", "city=a..b"], "range index"),
        (["--start", "noon"], "2026-11-27T12:00:00Z"),
        (["--limit", "10001"], "fewer events"),
    ] {
        let error = read_error(
            &[&["select", "--node", &daemon.address, "orders"], &arguments[..]].concat(),
        );
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let error = read_error(&["select", "--node", &daemon.address, "nothing"]);
    assert!(error.contains("NotFound") && error.contains("nothing"), "{error}");
}
