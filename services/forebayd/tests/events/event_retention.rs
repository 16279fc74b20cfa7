//! Retention of events by age and by bytes, and for as long as a view needs them.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::schema::{Alteration, StoreOptions, Value};
use forebay::{Client, Store};
use forebay_wire::v1;
use forebay_wire::v1::features_client::FeaturesClient;
use forebay_wire::v1::writer_client::WriterClient;
use tonic::transport::Endpoint;

use crate::daemon::LONG;
use crate::{LOOK_EVERY, World, after, all_of, client, orders, select};

/// Returns the number of each selected event, with its partition and offset.
async fn numbers(address: &str, ask: &v1::SelectEventsRequest) -> BTreeMap<i64, (u32, u64)> {
    let answer = select(address, ask).await.unwrap();
    let id = answer.columns.iter().find(|column| column.name == "n").unwrap().id;
    let number = |event: &v1::Event| {
        let field = event.columns.iter().find(|field| field.field == id).unwrap();
        match field.value.clone().unwrap().try_into().unwrap() {
            Value::Int64(n) => (n, (event.partition, event.offset)),
            other => panic!("{other:?}"),
        }
    };
    answer.events.iter().map(number).collect()
}

async fn insert(store: &Store, numbers: std::ops::Range<i64>) -> forebay::writes::Token {
    let mut batch = store.batch();
    for n in numbers {
        let event = store.insert(&*format!("user-{}", n % 50)).set("n", n);
        batch.add(event.set("city", "Rome").set("price", 1_i32)).unwrap();
    }
    let sent = batch.send().await.unwrap();
    assert!(sent.results.iter().all(Result::is_ok), "{:?}", sent.results);
    sent.token
}

async fn retain(client: &Client, retention_us: Option<i64>, bytes: Option<u64>) {
    let options = StoreOptions {
        log_retention_us: retention_us,
        log_retention_bytes: bytes,
        ..StoreOptions::default()
    };
    client.alter_store("orders", None, &[Alteration::SetOptions(options)]).await.unwrap();
}

/// Waits until the selected numbers are as wanted.
async fn numbers_once(
    address: &str,
    ask: &v1::SelectEventsRequest,
    is_wanted: impl Fn(&BTreeMap<i64, (u32, u64)>) -> bool,
) -> BTreeMap<i64, (u32, u64)> {
    let mut last = BTreeMap::new();
    let wait = async {
        loop {
            last = numbers(address, ask).await;
            if is_wanted(&last) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let is_over = tokio::time::timeout(LONG, wait).await.is_err();
    assert!(!is_over, "{} stay, from {:?} on", last.len(), last.first_key_value());
    last
}

fn by_city() -> v1::SelectEventsRequest {
    let value = Some((&Value::String("Rome".to_owned())).into());
    let equal = v1::select_events_request::Equal { column: "city".to_owned(), value };
    let by = Some(v1::select_events_request::By::Equal(equal));
    v1::SelectEventsRequest { by, ..all_of("orders") }
}

/// Returns a view's count of all events ever inserted.
async fn counted(address: &str) -> Option<i64> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut features = FeaturesClient::new(endpoint.connect_lazy());
    let group = vec![(&Value::String("Rome".to_owned())).into()];
    let request = v1::GetViewValuesRequest { view: "by_city".to_owned(), group };
    let answer = features.get_view_values(request).await.ok()?.into_inner();
    let count = answer.values.into_iter().find(|named| named.name == "orders_all")?;
    match Value::try_from(count.value?).unwrap() {
        Value::Int64(count) => Some(count),
        other => panic!("{other:?}"),
    }
}

async fn counted_once(address: &str, wanted: i64) {
    let wait = async {
        while counted(address).await != Some(wanted) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let waited = tokio::time::timeout(LONG, wait).await;
    waited.unwrap_or_else(|_| panic!("the view does not come to {wanted}"));
}

async fn apply_view(address: &str) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let declaration = "apiVersion: forebay/v1\nkind: FeatureView\nname: by_city\n\
                       source: orders\nentity: [city]\nwindows:\n  all: \
                       unbounded\nfeatures:\n  orders: {count: '*'}\n";
    let request =
        v1::ApplyViewRequest { declaration: declaration.to_owned(), dry_run: false, first_line: 1 };
    WriterClient::new(endpoint.connect_lazy()).apply_view(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_events_are_removed_and_their_aggregates_remain() {
    let world = World::new();
    let daemon = world.start(&[]);
    let client_of = client(&daemon.address).await;
    let store = client_of.create_store(&orders()).await.unwrap();
    apply_view(&daemon.address).await;
    let token = insert(&store, 0..1_000).await;
    let waiting = v1::SelectEventsRequest { read: after(&token), ..all_of("orders") };
    assert_eq!(numbers(&daemon.address, &waiting).await.len(), 1_000);
    counted_once(&daemon.address, 1_000).await;

    retain(&client_of, Some(1_000_000), None).await;
    for ask in [all_of("orders"), by_city()] {
        numbers_once(&daemon.address, &ask, BTreeMap::is_empty).await;
    }
    retain(&client_of, Some(3_600_000_000), None).await;
    let store = client_of.store("orders").await.unwrap();
    let token = insert(&store, 1_000..1_100).await;
    let waiting = v1::SelectEventsRequest { read: after(&token), ..by_city() };
    let is_whole = |found: &BTreeMap<i64, _>| found.keys().copied().eq(1_000..1_100);
    let kept = numbers(&daemon.address, &waiting).await;
    assert!(is_whole(&kept), "{kept:?}");
    counted_once(&daemon.address, 1_100).await;

    daemon.kill();
    let daemon = world.start(&[]);
    assert_eq!(numbers_once(&daemon.address, &by_city(), is_whole).await, kept);
    counted_once(&daemon.address, 1_100).await;

    // After a loss of the stored events, they are rebuilt from the log, which is trimmed in whole
    // segments.
    daemon.kill();
    std::fs::remove_dir_all(world.data().join("features/events")).unwrap();
    std::fs::remove_dir_all(world.data().join("features/derived")).unwrap();
    let daemon = world.start(&[]);
    let has_all = |found: &BTreeMap<i64, _>| kept.iter().all(|(n, at)| found.get(n) == Some(at));
    numbers_once(&daemon.address, &by_city(), has_all).await;
    let store = client(&daemon.address).await.store("orders").await.unwrap();
    insert(&store, 1_100..1_150).await;
    // Events that were derived before their deletion are not derived again.
    counted_once(&daemon.address, 1_150).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(counted(&daemon.address).await, Some(1_150));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_over_the_byte_limit_are_removed_oldest_first() {
    const BYTES: u64 = 20_000;
    let world = World::new();
    let daemon = world.start(&[]);
    let client_of = client(&daemon.address).await;
    let mut spec = orders();
    spec.options.log_retention_bytes = Some(BYTES);
    let store = client_of.create_store(&spec).await.unwrap();
    for round in 0..20 {
        insert(&store, round * 200..(round + 1) * 200).await;
    }
    let last = 20 * 200;
    let of = |found: &BTreeMap<i64, (u32, u64)>, partition| {
        found.values().filter(|(of, _)| *of == partition).count() as u64
    };
    // An event takes from 40 to 400 bytes.
    let is_bounded =
        |found: &BTreeMap<i64, _>| (0..3).all(|partition| of(found, partition) * 40 < BYTES);
    let ask = all_of("orders");
    let kept = numbers_once(&daemon.address, &ask, is_bounded).await;
    // Each partition retains its newest events, about as many as fit.
    for partition in 0..3 {
        let of = kept.iter().filter(|(_, (of, _))| *of == partition);
        let of: Vec<_> = of.map(|(n, (_, offset))| (*offset, *n)).collect();
        let mine = (0..last).filter(|n| of.iter().any(|(_, kept)| kept % 50 == n % 50));
        let newest: Vec<_> = mine.rev().take(of.len()).collect();
        let mut found: Vec<_> = of.iter().map(|(_, n)| *n).collect();
        found.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        assert_eq!(found, newest, "of partition {partition} others than the newest stay");
        assert!(of.len() as u64 * 400 > BYTES, "{}", of.len());
    }
    assert_eq!(numbers(&daemon.address, &by_city()).await, kept);
}
