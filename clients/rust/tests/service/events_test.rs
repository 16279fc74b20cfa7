//! Events as an application inserts them: singly, in batches and through a write stream; their
//! content in the log, and the events that a stream refuses.

use std::collections::BTreeMap;

use forebay::schema::{
    Alteration, ColumnRules, FieldSpec, FieldType, KeyType, StoreSpec, StreamSpec, Value,
};
use forebay::writes::{StreamOptions, WriteResult};
use forebay::{Client, Store};
use forebay_core::change::{FieldOp, Verb};

use crate::world::{INT64, STRING, World};

const TIME: FieldType = FieldType::TIMESTAMP;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn devices(allowed: &[&str]) -> ColumnRules {
    let allowed = allowed.iter().map(|name| text(name)).collect();
    ColumnRules { allowed, ..ColumnRules::default() }
}

/// Creates a stream of orders: a time, a required city, one of two devices, a price.
async fn orders(client: &Client) -> Store {
    let required = ColumnRules { required: true, ..ColumnRules::default() };
    let mut spec = StoreSpec::stream("orders", KeyType::String).partitions(3).field("at", TIME);
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec.fields.push(FieldSpec { rules: required, ..FieldSpec::new("city", STRING) });
    spec.fields.push(FieldSpec {
        default: Some(text("phone")),
        rules: devices(&["phone", "desktop"]),
        ..FieldSpec::new("device", STRING)
    });
    client.create_store(&spec.field("price", INT64)).await.unwrap()
}

/// Returns the events of all partitions as the log has them: each column's value by its name.
async fn events(world: &World, store: &Store) -> Vec<BTreeMap<String, Option<Value>>> {
    let definition = store.definition();
    let mut events = Vec::new();
    for partition in definition.partitions.partitions() {
        for (_, change) in world.changes(store, partition).await {
            assert_eq!(change.verb, Verb::Insert);
            let column = |change: forebay_core::change::FieldChange| {
                let FieldOp::Set(value) = change.op else { panic!("{change:?} sets nothing") };
                (definition.field_by_id(change.field).unwrap().name.clone(), value)
            };
            events.push(change.fields.into_iter().map(column).collect());
        }
    }
    events
}

#[tokio::test]
async fn logged_event_contains_its_defaults() {
    let world = World::start().await;
    let orders = orders(&world.client().await).await;
    let time = Value::Timestamp(1_750_000_000_000_000);
    let event = || orders.insert("user-1").set("at", time.clone()).set("city", "Rome");
    let first = event().set_null("price").send().await.unwrap();
    let second = event().set("device", "desktop").send().await.unwrap();
    assert_eq!((first.result, second.result), (WriteResult::Appended, WriteResult::Appended));
    assert_ne!(first.token, second.token, "events of one key are two");
    let common = [("at", Some(time)), ("city", Some(text("Rome")))];
    let event_with = |columns_more: &[(&str, Option<Value>)]| {
        let columns = common.iter().chain(columns_more);
        columns.map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let expected: Vec<BTreeMap<_, _>> = vec![
        event_with(&[("device", Some(text("phone"))), ("price", None)]),
        event_with(&[("device", Some(text("desktop")))]),
    ];
    assert_eq!(events(&world, &orders).await, expected);
}

#[tokio::test]
async fn batches_and_streams_insert_each_event_once() {
    let world = World::start().await;
    let orders = orders(&world.client().await).await;
    let event = |number: i64| {
        orders.insert(&format!("user-{}", number % 7)).set("city", "Rome").set("price", number)
    };
    let mut batch = orders.batch();
    for number in 0..500 {
        batch.add(event(number)).unwrap();
    }
    batch.send().await.unwrap().require_complete().unwrap();
    let mut stream = orders.write_stream(StreamOptions::default()).unwrap();
    for number in 500..3_000 {
        stream.send(event(number)).await.unwrap();
    }
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.failed), (2_500, 0));
    let price = |event: BTreeMap<String, Option<Value>>| match event.get("price") {
        Some(Some(Value::Int64(price))) => *price,
        other => panic!("no price: {other:?}"),
    };
    let mut prices: Vec<_> = events(&world, &orders).await.into_iter().map(price).collect();
    prices.sort_unstable();
    assert_eq!(prices, (0..3_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn changed_rules_hold_for_the_next_event_of_every_client() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let orders = orders(&client).await;
    let other_orders = other.store("orders").await.unwrap();
    let tv = || other_orders.insert("u").set("city", "Rome").set("device", "tv");
    assert!(tv().send().await.is_err());
    let rules = devices(&["phone", "desktop", "tv"]);
    let wider = Alteration::SetRules { name: "device".to_owned(), rules };
    let required = ColumnRules { required: true, ..ColumnRules::default() };
    let section = FieldSpec { rules: required, ..FieldSpec::new("section", STRING) };
    let new_rule = Alteration::AddField(section);
    client.alter_store("orders", None, &[wider, new_rule]).await.unwrap();
    // The other client does not know the new column yet, so it does not miss a value for it.
    tv().send().await.unwrap();
    let without_device = orders.insert("u").set("city", "Rome").set("section", "a");
    without_device.send().await.unwrap();
    let error = other_orders.insert("u").set("city", "Rome").send().await.unwrap_err();
    assert_eq!(error.error().context().field.as_deref(), Some("section"), "by now it knows");
}
