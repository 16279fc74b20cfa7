//! Training sets. Proves that each label has the values of its group as of the label's time, even
//! if the view was applied later; and that the stored values equal a replay of the log.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use forebay::Store;
use forebay::schema::Value;
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::training_client::TrainingClient;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tonic::{Code, Status};

use crate::daemon::{FOREBAYD, LONG};
use crate::oracle::{HOUR_US, Order, expected};
use crate::{LOOK_EVERY, ViewClients, World, client, number, orders};

const ROUNDS: usize = 4;
const ORDERS: usize = 120;
const USERS: u64 = 6;
/// Time span around a label within which a value may miss or include an event.
const TOGETHER_US: i64 = 100_000;

const VIEW: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: by_user\n\
    source: orders\nentity: [key]\nallowed_lateness: 4h\n\
    windows:\n  all: unbounded\n  1h: {sliding: 1h, slide: 1m}\n\
    features:\n  orders: {count: '*'}\n  spent: {sum: price}\n  dearest: {max: price}\n  \
    average: {avg: price}\n  cities: {approx_count_distinct: city}\n  \
    prices: {approx_quantile: price, q: [0.5, 0.9]}\n  last: {last: city}\n";

/// A label and its row of the training set.
#[derive(Debug)]
struct Row {
    id: i64,
    user: Option<String>,
    moment: i64,
    orders: Option<i64>,
    spent_1h: Option<i64>,
    average: Option<f64>,
}

fn some_orders(seed: u64, now: i64) -> Vec<Order> {
    let entropy = SeededEntropy::new(seed);
    let below = |bound: u64| entropy.next_u64().unwrap() % bound;
    let order = |_| Order {
        user: format!("user-{}", below(USERS)),
        at: now - below(3 * HOUR_US as u64) as i64,
        city: format!("city-{}", below(5)),
        price: below(100) as i64,
    };
    (0..ORDERS).map(order).collect()
}

async fn insert(store: &Store, orders: &[Order]) {
    let mut batch = store.batch();
    for order in orders {
        let event = store.insert(&order.user).set("at", Value::Timestamp(order.at));
        batch.add(event.set("city", order.city.as_str()).set("price", order.price)).unwrap();
    }
    let sent = batch.send().await.unwrap();
    assert!(sent.results.iter().all(Result::is_ok), "{:?}", sent.results);
}

/// Returns the append times of this many events; waits until they are there.
async fn appended(clients: &ViewClients, count: usize) -> Vec<i64> {
    let mut events = EventsClient::new(clients.channel.clone());
    let columns = vec!["price".to_owned()];
    let stream = "orders".to_owned();
    let ask = v1::SelectEventsRequest { stream, columns, limit: 10_000, ..Default::default() };
    let wait = async {
        loop {
            if let Ok(answer) = events.select_events(ask.clone()).await {
                let mut times: Vec<_> =
                    answer.get_ref().events.iter().map(|event| event.append_time_us).collect();
                if times.len() == count {
                    times.sort_unstable();
                    return times;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the events are not found")
}

/// Writes labels of all users and an unknown one at each time, and one without a user.
fn write_labels(path: &Path, moments: &[i64]) -> usize {
    let (mut users, mut times) = (Vec::new(), Vec::new());
    for moment in moments {
        for user in 0..=USERS {
            users.push(Some(format!("user-{user}")));
            times.push(*moment);
        }
    }
    users.push(None);
    times.push(moments[0]);
    let count = users.len();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..count as i64))),
        ("key", Arc::new(StringArray::from(users))),
        ("moment", Arc::new(TimestampMicrosecondArray::from(times))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(path).unwrap();
    let mut file = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    file.write(&batch).unwrap();
    file.close().unwrap();
    count
}

async fn join(
    clients: &ViewClients,
    labels: &str,
    to: &str,
) -> Result<v1::CreateTrainingSetResponse, Status> {
    let request = v1::CreateTrainingSetRequest {
        view: "by_user".to_owned(),
        labels: labels.to_owned(),
        time_column: "moment".to_owned(),
        to: to.to_owned(),
    };
    let mut progress = TrainingClient::new(clients.channel.clone())
        .create_training_set(request)
        .await?
        .into_inner();
    let mut last = v1::CreateTrainingSetResponse::default();
    while let Some(step) = progress.message().await? {
        last = step;
    }
    assert!(last.is_done);
    Ok(last)
}

fn rows(folder: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let file = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        for batch in file.build().unwrap() {
            rows.extend(rows_of(&batch.unwrap()));
        }
    }
    rows.sort_by_key(|row| row.id);
    rows
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let integer = |name: &str, row: usize| {
        let column = column(name).as_primitive::<Int64Type>();
        (!column.is_null(row)).then(|| column.value(row))
    };
    let row = |row: usize| {
        let users = column("key").as_string::<i32>();
        let average = column("average_all").as_primitive::<Float64Type>();
        Row {
            id: integer("id", row).unwrap(),
            user: (!users.is_null(row)).then(|| users.value(row).to_owned()),
            moment: column("moment").as_primitive::<TimestampMicrosecondType>().value(row),
            orders: integer("orders_all", row),
            spent_1h: integer("spent_1h", row),
            average: (!average.is_null(row)).then(|| average.value(row)),
        }
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Asserts that a row has the values of the rounds of orders before its moment.
fn assert_is_expected(row: &Row, rounds: &[Vec<Order>], moments: &[i64]) {
    let Some(user) = &row.user else {
        assert_eq!((row.orders, row.spent_1h, row.average), (None, None, None));
        return;
    };
    let before = moments.iter().position(|moment| *moment == row.moment).unwrap();
    let known = rounds[..before].iter().flatten().filter(|order| order.user == *user);
    let expected = expected(known, row.moment);
    let has = |name: &str, value: Option<Value>| assert_eq!(expected[name], value, "{row:?}");
    has("orders_all", row.orders.map(Value::Int64));
    has("spent_1h", row.spent_1h.map(Value::Int64));
    has("average_all", row.average.map(Value::Float64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_have_the_values_of_their_moments() {
    let (world, files) = (World::new(), tempfile::tempdir().unwrap());
    let daemon = world.start("127.0.0.1:0");
    let store = orders(&client(&daemon.address).await).await;
    let clients = ViewClients::at(&daemon.address);
    let now = SystemClock.now().as_micros();
    let (mut all, mut moments) = (Vec::new(), vec![now - 24 * HOUR_US]);
    for round in 0..ROUNDS {
        all.push(some_orders(round as u64, now));
        insert(&store, &all[round]).await;
        let times = appended(&clients, (round + 1) * ORDERS).await;
        if let Some(before) = moments.get(round).filter(|_| round > 0) {
            assert!(times[round * ORDERS] > *before, "the rounds lie too close together");
        }
        moments.push(times[times.len() - 1] + TOGETHER_US + 1);
        tokio::time::sleep(Duration::from_micros(2 * TOGETHER_US as u64)).await;
        // Events from before the view also count from their append time.
        if round == 1 {
            clients.apply(VIEW).await;
        }
    }
    let count = (ROUNDS * ORDERS) as i64;
    let folded = async {
        while clients.stats("by_user").await.map_or(0, |stats| stats.folded_events) < count as u64 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(LONG, folded).await.expect("the events are not folded");
    let labels = files.path().join("labels.parquet");
    let labelled = write_labels(&labels, &moments);
    let url = |path: &Path| format!("file://{}", path.display());
    let (labels, to) = (url(&labels), files.path().join("set"));
    let done = join(&clients, &labels, &url(&to)).await.unwrap();
    assert_eq!(done.rows as usize, labelled);
    let rows = rows(&to);
    assert_eq!(rows.len(), labelled);
    rows.iter().for_each(|row| assert_is_expected(row, &all, &moments));
    let last = clients.values("by_user", &["user-1".into()]).await.unwrap();
    let row = rows.iter().rfind(|row| row.user.as_deref() == Some("user-1")).unwrap();
    assert_eq!(number(&last, "orders_all"), row.orders);

    let again = join(&clients, &labels, &url(&to)).await.unwrap_err();
    assert_eq!(again.code(), Code::Aborted, "{again}");
    let compared = compared(&clients).await;
    assert_eq!(compared.groups, USERS);
    assert_eq!(compared.values, USERS * 2 * 8);
    let verify = ["view", "verify", "by_user", "--node", &daemon.address];
    assert_eq!(said(&verify), "6 groups, 96 values: 0 differ\n");
    let to = url(&files.path().join("other"));
    let command = ["training-set", "--node", &daemon.address, "--view", "by_user", "--labels"];
    let said = said(&[&command[..], &[&labels, "--time", "moment", "--to", &to]].concat());
    assert!(said.contains(&format!("done: {labelled} rows")), "{said}");
    daemon.terminate();
}

fn said(arguments: &[&str]) -> String {
    let output = Command::new(FOREBAYD).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the result of a comparison, after checking that nothing differs.
async fn compared(clients: &ViewClients) -> v1::VerifyViewResponse {
    let request = v1::VerifyViewRequest { view: "by_user".to_owned(), groups: 0 };
    let answer = TrainingClient::new(clients.channel.clone()).verify_view(request).await.unwrap();
    let answer = answer.into_inner();
    assert_eq!(answer.differing, [""; 0]);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_joins_report_their_cause() {
    let (world, files) = (World::new(), tempfile::tempdir().unwrap());
    let daemon = world.start("127.0.0.1:0");
    orders(&client(&daemon.address).await).await;
    let clients = ViewClients::at(&daemon.address);
    let labels = files.path().join("labels.parquet");
    write_labels(&labels, &[1]);
    let url = |name: &str| format!("file://{}", files.path().join(name).display());
    let nothing = v1::VerifyViewRequest { view: "by_user".to_owned(), groups: 0 };
    let refused = async |labels: &str| join(&clients, labels, &url("set")).await.unwrap_err();
    let error = refused(&url("labels.parquet")).await;
    assert_eq!(error.code(), Code::NotFound, "{error}");
    clients.apply(VIEW).await;
    clients.values_once("by_user", &["user-1".into()], |_| true).await;
    let compared = TrainingClient::new(clients.channel.clone()).verify_view(nothing).await;
    assert_eq!(compared.unwrap_err().code(), Code::Unavailable);
    let error = refused(&url("nowhere")).await;
    assert_eq!(error.code(), Code::NotFound, "{error}");
    std::fs::write(files.path().join("text.parquet"), "no labels").unwrap();
    let error = refused(&url("text.parquet")).await;
    assert_eq!(error.code(), Code::DataLoss, "{error}");
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values([1]));
    let batch = RecordBatch::try_from_iter([("other", column)]).unwrap();
    let file = File::create(files.path().join("other.parquet")).unwrap();
    let mut file = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    file.write(&batch).unwrap();
    file.close().unwrap();
    let error = refused(&url("other.parquet")).await;
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert!(!files.path().join("set").exists(), "nothing is written");
    daemon.terminate();
}
