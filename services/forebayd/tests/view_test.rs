//! `forebayd view` as a process: feature views are applied from files, described, listed, dropped.

mod daemon;

use std::io::Write;
use std::process::{Command, Stdio};

use daemon::{Daemon, FOREBAYD, refused};
use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec};
use forebay::{Client, ClientOptions};

const SPENDING: &str = "\
view: spending
stream: orders
filter: price > 0 and (device <> 'tv' or device is null)
lookups:
  - store: users
    required: true
    columns:
      country: {field: country, default: nowhere}
group_by: [country, key]
keep: [weight]
lateness: 5m
windows:
  1h: {sliding: 1h, hop: 1m}
  ever: lifetime
features:
  orders: count
  price: {quantiles: price, ranks: [0.5, 0.99]}
emit: {store: user_features, cadence: 1s}
";
const DESCRIBED: &str = "\
view spending, version 1
stream: orders
filter: price > 0 and (device <> 'tv' or device is null)
lookup: users by key, required
  country: country, else 'nowhere'
group by: country, key
keep: weight
window 1h: sliding 1h by 1m
window ever: lifetime
lateness: 5m
partitions: 4
emit: to user_features, cadence 1s, grace 30s
  position: spending_position
feature orders: count
  orders_1h: int64
  orders_ever: int64
feature price: quantiles of price, ranks [0.5, 0.99], k 100
  price_1h_p50: float64
  price_1h_p99: float64
  price_ever_p50: float64
  price_ever_p99: float64
";

async fn shop(daemon: &Daemon) {
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let scalar = FieldType::Scalar;
    let orders = StoreSpec::stream("orders", KeyType::String, 4)
        .field("price", scalar(ScalarType::Int64))
        .field("device", scalar(ScalarType::String))
        .field("weight", scalar(ScalarType::Float64));
    client.create_store(&orders).await.unwrap();
    let users = StoreSpec::documents("users", KeyType::String, 2)
        .field("country", scalar(ScalarType::String));
    client.create_store(&users).await.unwrap();
}

/// Returns the output of `forebayd view` with these arguments and this input.
fn view(daemon: &Daemon, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(FOREBAYD)
        .args(["view", arguments[0], "--node", &daemon.address])
        .args(&arguments[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_applied_described_listed_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    shop(&daemon).await;
    let file = data.path().join("spending.yaml");
    let file = file.to_str().unwrap();
    let refuses =
        |verb: &str, argument: &str| refused(&["view", verb, "--node", &daemon.address, argument]);

    std::fs::write(file, SPENDING.replace("price, ranks", "prize, ranks")).unwrap();
    let error = refuses("apply", file);
    assert!(error.contains("NotFound: line 17, column 3: "), "{error}");
    std::fs::write(file, SPENDING.replace("lateness: 5m", "lateness: soon")).unwrap();
    let error = refuses("apply", file);
    assert!(error.contains("InvalidArgument: line 11, column 11: "), "{error}");
    assert!(refuses("apply", "not-there.yaml").contains("not-there.yaml"));
    assert_eq!(view(&daemon, &["list"], ""), "");

    std::fs::write(file, SPENDING).unwrap();
    let would = view(&daemon, &["apply", "--dry-run", file], "");
    assert_eq!(would, "would create spending, version 1\n");
    assert!(refuses("describe", "spending").contains("NotFound"));
    assert_eq!(view(&daemon, &["apply", file], ""), "created spending, version 1\n");
    assert_eq!(view(&daemon, &["apply", file], ""), "left as it was: spending, version 1\n");
    assert_eq!(view(&daemon, &["describe", "spending"], ""), DESCRIBED);

    let more = SPENDING.replace("orders: count", "orders: count\n  heavy: {max: weight}");
    let altered = view(&daemon, &["apply", "-"], &more);
    assert_eq!(altered, "altered spending, version 2\n");
    let described = view(&daemon, &["describe", "spending"], "");
    assert!(described.contains("\nfeature heavy: max of weight\n  heavy_1h: float64\n"));
    let listed = view(&daemon, &["list"], "");
    assert_eq!(listed, "spending  version 2  of orders  3 features\n");

    assert!(refuses("drop", "orders").contains("no feature view"));
    assert_eq!(view(&daemon, &["drop", "spending"], ""), "dropped spending\n");
    assert_eq!(view(&daemon, &["list"], ""), "");
    assert!(refuses("drop", "spending").contains("NotFound"));
}
