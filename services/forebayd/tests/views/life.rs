//! Life of a view from its declaration to its drop: filters, joins, alterations.

use std::time::Duration;

use forebay::schema::{KeyType, ScalarType, StoreSpec, Value};
use forebay_core::clock::{Clock, SystemClock};
use tonic::Code;

use crate::daemon::LONG;
use crate::{ViewClients, World, client, number, orders, scalar};

const TOTALS: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: totals
source: orders
entity: [country]
joins:
  - store: cities
    key: city
    columns:
      country: {field: country, default: nowhere}
extra_columns: [price]
features:
  orders: {count: '*'}
";

fn group(name: &str) -> [Value; 1] {
    [Value::String(name.to_owned())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looked_up_columns_are_stored_with_the_event() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let spec = StoreSpec::documents("cities", KeyType::String)
        .partitions(2)
        .field("country", scalar(ScalarType::String));
    let cities = client.create_store(&spec).await.unwrap();
    cities.upsert("Rome").set("country", "Italy").send().await.unwrap();
    let orders = orders(&client).await;
    let clients = ViewClients::at(&daemon.address);
    clients.apply(TOTALS).await;
    let required = TOTALS
        .replace("name: totals", "name: known")
        .replace("    key: city\n", "    key: city\n    required: true\n");
    clients.apply(&required).await;
    for city in ["Rome", "Rome", "Atlantis"] {
        orders.insert("user").set("city", city).set("price", 5).send().await.unwrap();
    }
    orders.insert("user").set("price", 5).send().await.unwrap();
    let two = |answer: &_| number(answer, "orders") == Some(2);
    for view in ["totals", "known"] {
        clients.values_once(view, &group("Italy"), two).await;
    }
    clients.values_once("totals", &group("nowhere"), two).await;
    let (values, _) = clients.values("known", &group("nowhere")).await.unwrap();
    assert_eq!(values["orders"], Some(Value::Int64(0)));
    assert_eq!(clients.stats("known").await.unwrap().join_dropped, 2);

    // The store's document has changed, but the view is folded again from its own events.
    cities.upsert("Rome").set("country", "Roman Empire").send().await.unwrap();
    clients.apply(&format!("{TOTALS}  spent: {{sum: price}}\n")).await;
    let again = |answer: &_| number(answer, "spent") == Some(10);
    let (values, _) = clients.values_once("totals", &group("Italy"), again).await;
    assert_eq!(values["orders"], Some(Value::Int64(2)));
    let (values, _) = clients.values("totals", &group("Roman Empire")).await.unwrap();
    assert_eq!(values["spent"], None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_groupless_events_are_only_counted() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let orders = orders(&client).await;
    let clients = ViewClients::at(&daemon.address);
    let declaration = "apiVersion: forebay/v1\nkind: FeatureView\nname: cities\n\
                       source: orders\nentity: [city]\nallowed_lateness: 10m\n\
                       features: {orders: {count: '*'}}\n";
    clients.apply(declaration).await;
    let now = SystemClock.now().as_micros();
    let minute = 60_000_000;
    for ago in [0, 5 * minute, 30 * minute] {
        let at = Value::Timestamp(now - ago);
        orders.insert("user").set("city", "Rome").set("at", at).send().await.unwrap();
    }
    orders.insert("user").set("price", 1).send().await.unwrap();
    orders.insert("user").set("city", "Oslo").send().await.unwrap();
    let one = |answer: &_| number(answer, "orders") == Some(1);
    clients.values_once("cities", &group("Oslo"), one).await;
    let two = |answer: &_| number(answer, "orders") == Some(2);
    clients.values_once("cities", &group("Rome"), two).await;
    let wait = async {
        loop {
            let stats = clients.stats("cities").await.unwrap();
            if stats.folded_events + stats.late_dropped == 4 {
                return stats;
            }
            tokio::time::sleep(crate::LOOK_EVERY).await;
        }
    };
    let stats = tokio::time::timeout(LONG, wait).await.unwrap();
    assert_eq!((stats.input_events, stats.folded_events, stats.late_dropped), (5, 3, 1));
    assert_eq!((stats.ungrouped_dropped, stats.invalid_dropped, stats.future_dropped), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_includes_earlier_events_and_its_drop_removes_its_data() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let orders = orders(&client).await;
    for price in 0..50_i64 {
        orders.insert("user").set("price", price).send().await.unwrap();
    }
    let clients = ViewClients::at(&daemon.address);
    let declaration = "apiVersion: forebay/v1\nkind: FeatureView\nname: spent\n\
                       source: orders\nentity: [key]\nallowed_lateness: 1h\n\
                       features: {spent: {sum: price}}\n";
    clients.apply(declaration).await;
    let all = |answer: &_| number(answer, "spent") == Some(49 * 25);
    clients.values_once("spent", &group("user"), all).await;
    let unknown = clients.values("spent", &[Value::Int64(1)]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument, "{unknown}");
    let tiles = world.data().join("features").join("tiles");
    let kept = || std::fs::read_dir(&tiles).unwrap().count();
    assert!(kept() > 0);
    client.delete_store("spent").await.unwrap();
    let wait = async {
        while kept() > 0 {
            tokio::time::sleep(crate::LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("what was kept of the view stays");
    let gone = clients.values("spent", &group("user")).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound, "{gone}");
    // Another view of the same name starts from scratch.
    clients.apply(declaration).await;
    clients.values_once("spent", &group("user"), all).await;
}

/// Proves that lateness is measured at the insert of an event, not at the creation of the view.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_from_long_before_a_view_are_not_late() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let orders = orders(&client(&daemon.address).await).await;
    for price in 0..20_i64 {
        orders.insert("user").set("price", price).send().await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    let clients = ViewClients::at(&daemon.address);
    let declaration = "apiVersion: forebay/v1\nkind: FeatureView\nname: spent\n\
                       source: orders\nentity: [key]\nallowed_lateness: 200ms\n\
                       features: {spent: {sum: price}}\n";
    clients.apply(declaration).await;
    let all = |answer: &_| number(answer, "spent") == Some(19 * 10);
    clients.values_once("spent", &group("user"), all).await;
    assert_eq!(clients.stats("spent").await.unwrap().late_dropped, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_advances_without_events() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let client = client(&daemon.address).await;
    let orders = orders(&client).await;
    let clients = ViewClients::at(&daemon.address);
    let declaration = "apiVersion: forebay/v1\nkind: FeatureView\nname: recent\n\
                       source: orders\nentity: [key]\nallowed_lateness: 1m\n\
                       windows:\n  2s: {sliding: 2s, slide: 1s}\n  all: unbounded\n\
                       features: {orders: {count: '*'}}\n";
    clients.apply(declaration).await;
    orders.insert("user").set("price", 1).send().await.unwrap();
    let is_in = |answer: &_| number(answer, "orders_2s") == Some(1);
    clients.values_once("recent", &group("user"), is_in).await;
    let has_left = |answer: &_| number(answer, "orders_2s") == Some(0);
    let answer = clients.values_once("recent", &group("user"), has_left).await;
    assert_eq!(number(&answer, "orders_all"), Some(1));
}
