//! Materialization as readers see it: a view's values are fields of documents, decrease as time
//! passes, and expire once no process materializes them.

use std::sync::Arc;
use std::time::Duration;

use forebay::schema::Value;
use forebay::{Client, ClientOptions, Reader, ReaderOptions, Store};
use forebay_core::clock::SystemClock;
use forebay_log::{ChangeLog, MemoryLog};

use crate::daemon::LONG;
use crate::overlap::LocalNode;
use crate::{ViewClients, World, client, orders};

const VIEW: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: spending
source: orders
entity: [key]
allowed_lateness: 1m
windows:
  2s: {sliding: 2s, slide: 1s}
  5m: {sliding: 5m, slide: 10s}
  1h: {sliding: 1h, slide: 1m}
  1d: {sliding: 1d, slide: 30m}
  30d: {sliding: 30d, slide: 12h}
  ever: unbounded
features:
  orders: {count: '*'}
  spent: {sum: price}
materialize:
  store: users
  interval: 20ms
  expiry_grace: 1s
";

async fn reader(address: &str) -> Reader {
    let reader = Reader::open(address, ReaderOptions::new("users")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader
}

/// Returns a field of a user's document, as the reader holds it.
fn field(reader: &Reader, user: &str, name: &str) -> Option<Value> {
    let id = reader.definition().field(name).unwrap().id;
    reader.get_document(user).unwrap()?.value(id).cloned()
}

async fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}

async fn insert(orders: &Store, user: &str, price: i64) {
    orders.insert(user).set("price", price).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn materialized_document_has_all_windows_and_updates_passed_windows() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let orders = orders(&client).await;
    let clients = ViewClients::at(&daemon.address);
    clients.apply(VIEW).await;
    let reader = reader(&daemon.address).await;
    insert(&orders, "ann", 5).await;
    insert(&orders, "ann", 7).await;
    let number = |number| Some(Value::Int64(number));
    let spent = |window: &str| field(&reader, "ann", &format!("spent_{window}"));
    eventually("the last value comes", || spent("ever") == number(12)).await;
    for window in ["5m", "1h", "1d", "30d", "ever"] {
        assert_eq!(spent(window), number(12), "{window}");
    }
    // No event arrives, and the shortest window passes: its count is 0, and its sum is missing.
    let short = |name: &str| field(&reader, "ann", name);
    eventually("the window passes", || short("orders_2s") == number(0)).await;
    assert_eq!(spent("2s"), None);
    assert_eq!(spent("ever"), number(12));
    let stats = clients.stats("spending").await.unwrap();
    assert!(stats.materialized_documents >= 2 && stats.materialize_delay_p50_us > 0, "{stats:?}");
    assert!(stats.materialize_delay_p50_us <= stats.materialize_delay_p99_us);
    assert!(stats.materialize_delay_p99_us <= stats.materialize_delay_max_us);
    assert_eq!(field(&reader, "bob", "spent_ever"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmaterialized_windows_become_absent_and_never_wrong() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let data = tempfile::tempdir().unwrap();
    let node = LocalNode::start(&log, data.path()).await;
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    let orders = orders(&client).await;
    // The window is long enough that the node ends before it passes.
    let view = VIEW.replace("{sliding: 2s, slide: 1s}", "{sliding: 6s, slide: 3s}");
    ViewClients::at(&node.address).apply(&view).await;
    insert(&orders, "ann", 5).await;
    let first = reader(&node.address).await;
    let five = Some(Value::Int64(5));
    eventually("the value comes", || field(&first, "ann", "spent_ever") == five).await;
    first.begin_close();
    node.stop().await;
    // The same node without feature views.
    let node = LocalNode::start_as(&log, data.path(), false).await;
    let reader = reader(&node.address).await;
    eventually("the window is none", || field(&reader, "ann", "orders_2s").is_none()).await;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(field(&reader, "ann", "orders_2s"), None, "somebody materializes still");
    }
    assert_eq!(field(&reader, "ann", "spent_ever"), five, "no window cuts it");
    reader.begin_close();
    node.stop().await;
    // The values come back with the next node, from the stored state.
    let node = LocalNode::start(&log, data.path()).await;
    let again = Reader::open(&node.address, ReaderOptions::new("users")).await.unwrap();
    again.await_ready(LONG).await.unwrap();
    eventually("the window is told again", || {
        field(&again, "ann", "orders_2s") == Some(Value::Int64(0))
    })
    .await;
    again.begin_close();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn altered_view_has_its_new_values_in_all_documents() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let orders = orders(&client).await;
    let clients = ViewClients::at(&daemon.address);
    clients.apply(VIEW).await;
    for user in ["ann", "bob"] {
        insert(&orders, user, 3).await;
        insert(&orders, user, 4).await;
    }
    let three = Some(Value::Int64(3));
    clients.apply(&VIEW.replace("  orders: {count: '*'}\n", "  least: {min: price}\n")).await;
    let wait = async {
        while client.describe_store("users", None).await.unwrap().field("least_ever").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap();
    let reader = reader(&daemon.address).await;
    for user in ["ann", "bob"] {
        eventually("the new value comes", || field(&reader, user, "least_ever") == three).await;
        assert_eq!(field(&reader, user, "spent_ever"), Some(Value::Int64(7)));
    }
    assert!(reader.definition().field("orders_ever").is_none(), "nobody materializes it");
}
