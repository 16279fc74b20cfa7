//! Selects of a stream's events: the attributes of each event, requests that the client refuses,
//! and a node that is killed. The criteria are tested next to the service, and in every language.

use std::ops::Bound;

use forebay::reads::{DocumentKey, EventQuery, EventQueryResult, Presence, ReadOptions};
use forebay::schema::{
    ColumnIndex, ColumnRules, FieldSpec, FieldType, KeyType, KeyValue, StoreSpec, StreamSpec,
    Timestamp, Value,
};
use forebay::writes::Token;
use forebay::{ErrorCode, Reader, Store};

use crate::world::{INT64, PATIENCE, SOON, STRING, World, counters};

/// Creates orders of numbered users, with a time, a city and a price; returns the token of the log.
async fn orders(world: &World) -> (Store, Token) {
    let indexed = |name: &str, column_type, index| {
        let rules = ColumnRules { index: Some(index), ..ColumnRules::default() };
        FieldSpec { rules, ..FieldSpec::new(name, column_type) }
    };
    let timestamp = FieldType::Scalar(forebay::schema::ScalarType::Timestamp);
    let mut spec = StoreSpec::stream("orders", KeyType::Int64)
        .partitions(3)
        .field("at", timestamp)
        .field("note", STRING);
    spec.fields.push(indexed("city", STRING, ColumnIndex::Exact));
    spec.fields.push(indexed("price", INT64, ColumnIndex::Range));
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    let orders = world.client().await.create_store(&spec).await.unwrap();
    let mut token = Token::new(orders.definition().store);
    for n in 0..20_i64 {
        let event = orders.insert(n % 4).set("at", Value::Timestamp(n)).set("price", n * 10);
        let event = match n % 2 {
            0 => event.set("city", "Rome").set_null("note"),
            _ => event.set("city", "Oslo"),
        };
        token.merge(&event.send().await.unwrap().token).unwrap();
    }
    (orders, token)
}

fn prices(selected: &EventQueryResult) -> Vec<i64> {
    let price = |value: Option<&Value>| match value {
        Some(Value::Int64(price)) => *price,
        other => panic!("{other:?}"),
    };
    selected.events.iter().map(|event| price(event.value("price"))).collect()
}

#[tokio::test]
async fn select_returns_events_with_key_times_and_columns() {
    let world = World::start().await;
    let (orders, token) = orders(&world).await;
    let after = ReadOptions::after(token, PATIENCE);
    let select = || orders.select().read(after.clone());
    let all = select().send().await.unwrap();
    assert_eq!(prices(&all), (0..20).map(|n| n * 10).collect::<Vec<_>>());
    let names: Vec<_> = all.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["at", "note", "city", "price"]);
    let (first, second) = (&all.events[0], &all.events[1]);
    assert_eq!(first.key().unwrap(), KeyValue::Int64(0));
    assert_eq!(first.time, Timestamp::from_micros(0));
    assert!(first.append_time > first.time);
    assert!(first.partition.0 < 3 && first.index_in_entry == 0);
    assert_eq!(first.value("city"), Some(&"Rome".into()));
    assert_eq!((first.value("note"), first.presence("note")), (None, Presence::Null));
    assert_eq!(second.presence("note"), Presence::Absent);
    assert_eq!((first.values().count(), second.values().count()), (4, 3));

    let first_events = select().key(1_i64).columns(["price"]).limit(2).send().await.unwrap();
    assert_eq!(prices(&first_events), [10, 50]);
    assert_eq!(first_events.events[0].presence("city"), Presence::Absent, "it was not asked for");
    let dear = select().equal("city", "Rome").order_by("price").descending().limit(3);
    assert_eq!(prices(&dear.send().await.unwrap()), [180, 160, 140]);
    let events_between = select().between("price", 50..80).send().await.unwrap();
    assert_eq!(prices(&events_between), [50, 60, 70]);
    assert_eq!(prices(&select().between("price", ..20).send().await.unwrap()), [0, 10]);
    assert_eq!(prices(&select().between("price", 180..).send().await.unwrap()), [180, 190]);
    let span = select().start(Timestamp::from_micros(3)).end(Timestamp::from_micros(5));
    let found = span.send().await.unwrap();
    assert_eq!(prices(&found), [30, 40]);
    let later_select = orders.select().read(ReadOptions::after(found.token, PATIENCE)).send();
    assert_eq!(later_select.await.unwrap().events.len(), 20, "its token is one to wait for");
}

async fn refusal(select: EventQuery) -> (ErrorCode, Option<String>) {
    let error = select.send().await.unwrap_err();
    assert!(error.context().store.is_some(), "{error}");
    (error.code(), error.context().field.clone())
}

#[tokio::test]
async fn invalid_select_is_refused_before_it_is_sent() {
    let mut world = World::start().await;
    let (orders, _) = orders(&world).await;
    let documents = counters(&world.client().await, 1).await;
    world.kill();
    let invalid = |column: Option<&str>| (ErrorCode::InvalidArgument, column.map(str::to_owned));
    assert_eq!(refusal(documents.select()).await, invalid(None));
    assert_eq!(refusal(orders.select().key("text")).await, invalid(None));
    let partitioned_key = DocumentKey::from(1_i64).with_partition_key(2_i64);
    assert_eq!(refusal(orders.select().key(partitioned_key)).await, invalid(None));
    let two_criteria = orders.select().key(1_i64).equal("city", "Rome");
    assert_eq!(refusal(two_criteria).await, invalid(None));
    assert_eq!(refusal(orders.select().between("price", 1..=2)).await, invalid(Some("price")));
    let exclusive_start = (Bound::Excluded(1_i64), Bound::Unbounded);
    assert_eq!(
        refusal(orders.select().between("price", exclusive_start)).await,
        invalid(Some("price"))
    );
    let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
    let memory = Reader::in_memory(&spec, []).unwrap();
    let error = refusal(memory.as_store().select()).await;
    assert_eq!(error.0, ErrorCode::Unsupported);
}

#[tokio::test]
async fn select_waits_for_a_killed_node() {
    let mut world = World::start().await;
    let (orders, token) = orders(&world).await;
    world.kill();
    let select = orders.select().equal("city", "Oslo").read(ReadOptions::after(token, PATIENCE));
    let sent = tokio::spawn(select.send());
    tokio::time::sleep(SOON).await;
    assert!(!sent.is_finished());
    world.restart().await;
    assert_eq!(sent.await.unwrap().unwrap().events.len(), 10);
}
