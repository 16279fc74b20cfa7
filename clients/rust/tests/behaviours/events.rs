//! Streams: their descriptions, and the events that they accept and refuse. The content of their
//! logs is tested next to the service.

use forebay::schema::{
    Alteration, ColumnIndex, ColumnRules, FieldSpec, KeyType, StoreOptions, StoreSpec, StreamSpec,
    Value,
};
use forebay::writes::{StreamOptions, Write, WriteResult};
use forebay::{Client, ErrorCode, Reader, ReaderOptions, Store};

use crate::world::{
    INT32, INT64, STRING, StoreFixture, TIMESTAMP, assert_refused, client, endpoint, new_name,
};

fn rules<const N: usize>(required: bool, allowed: [Value; N]) -> ColumnRules {
    ColumnRules { required, allowed: allowed.to_vec(), ..ColumnRules::default() }
}

fn city() -> ColumnRules {
    ColumnRules { index: Some(ColumnIndex::Exact), ..rules(true, []) }
}

/// Returns a spec of orders: a time, a required city, one of two devices, a class of one to three.
fn spec() -> StoreSpec {
    let mut spec =
        StoreSpec::stream(new_name(), KeyType::String).partitions(3).field("at", TIMESTAMP);
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec.options.log_retention_us = Some(3_600_000_000);
    spec.options.log_retention_bytes = Some(1 << 40);
    spec.fields.push(FieldSpec { rules: city(), ..FieldSpec::new("city", STRING) });
    spec.fields.push(FieldSpec {
        default: Some("phone".into()),
        rules: rules(false, ["phone".into(), "desktop".into()]),
        ..FieldSpec::new("device", STRING)
    });
    let classes = rules(false, [1_i64, 2, 3].map(Value::from));
    spec.fields.push(FieldSpec { rules: classes, ..FieldSpec::new("class", INT32) });
    spec
}

async fn orders() -> (Client, Store) {
    let client = client().await;
    let orders = client.create_store(&spec()).await.unwrap();
    (client, orders)
}

pub async fn stream_is_described_as_created_and_altered() {
    let (client, orders) = orders().await;
    let definition = orders.definition();
    let name = definition.name.clone();
    assert_eq!(definition.event_time().map(|column| column.name.as_str()), Some("at"));
    assert_eq!(definition.options, spec().options);
    assert_eq!(definition.field("city").unwrap().rules, city());
    let device = definition.field("device").unwrap();
    assert_eq!(device.default, Some("phone".into()));
    assert_eq!(device.rules, rules(false, ["phone".into(), "desktop".into()]));
    let classes = rules(false, [1, 2, 3].map(Value::Int32));
    assert_eq!(definition.field("class").unwrap().rules, classes);
    assert_eq!(client.describe_store(&name, None).await.unwrap(), *definition);
    assert!(client.list_stores().await.unwrap().contains(&definition));
    let set_rules = |rules| Alteration::SetRules { name: "class".to_owned(), rules };
    let only_four = |default| {
        let index = Some(ColumnIndex::Range);
        ColumnRules { index, ..rules(true, [default]) }
    };
    let options = StoreOptions { log_retention_bytes: Some(1), ..StoreOptions::default() };
    let four_rules =
        [set_rules(only_four(Value::Int64(4))), Alteration::SetOptions(options.clone())];
    let altered = client.alter_store(&name, None, &four_rules).await.unwrap();
    assert_eq!(altered.field("class").unwrap().rules, only_four(Value::Int32(4)));
    assert_eq!(altered.options, options);
    assert_eq!(client.describe_store(&name, None).await.unwrap(), altered);
    let text = [set_rules(rules(true, ["four".into()]))];
    let error =
        assert_refused(client.alter_store(&name, None, &text).await, ErrorCode::InvalidArgument);
    assert_eq!(error.context().field.as_deref(), Some("class"));
    let no_time = StoreSpec { fields: Vec::new(), ..spec() };
    assert_refused(client.create_store(&no_time).await, ErrorCode::InvalidArgument);
}

pub async fn stream_appends_every_event_with_its_own_token() {
    let (_client, orders) = orders().await;
    let event = || orders.insert("user-1").set("city", "Rome").set("class", 2);
    let (first, second) = (event().send().await.unwrap(), event().send().await.unwrap());
    assert_eq!((first.result, second.result), (WriteResult::Appended, WriteResult::Appended));
    assert_ne!(first.token, second.token, "events of one key are two");
    let mut batch = orders.batch();
    for number in 0..100 {
        batch.add(orders.insert(&format!("user-{}", number % 7)).set("city", "Rome")).unwrap();
    }
    let batch = batch.send().await.unwrap();
    assert!(batch.results.iter().all(|result| *result == Ok(WriteResult::Appended)));
    let mut stream = orders.write_stream(StreamOptions::default()).unwrap();
    for _ in 0..100 {
        stream.send(event()).await.unwrap();
    }
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.condition_failed, summary.failed), (100, 0, 0));
}

async fn refusal(write: Write) -> Option<String> {
    let error = assert_refused(write.send().await, ErrorCode::InvalidArgument);
    error.context().field.clone()
}

pub async fn stream_refuses_events_against_its_rules() {
    let (client, orders) = orders().await;
    let event = || orders.insert("u").set("city", "Rome");
    let column_name = |column: &str| Some(column.to_owned());
    assert_eq!(refusal(orders.insert("u")).await, column_name("city"));
    assert_eq!(refusal(orders.insert("u").set_null("city")).await, column_name("city"));
    assert_eq!(refusal(orders.insert("u").set("city", 5)).await, column_name("city"));
    assert_eq!(refusal(event().set("device", "tv")).await, column_name("device"));
    assert_eq!(refusal(event().set("class", 4)).await, column_name("class"));
    assert_eq!(refusal(event().increment("class", 1)).await, None);
    assert_eq!(refusal(event().if_absent()).await, None);
    assert_eq!(refusal(orders.upsert("u").set("city", "Rome")).await, None);
    assert_eq!(refusal(orders.put("u").set("city", "Rome")).await, None);
    assert_eq!(refusal(orders.delete("u")).await, None);
    let name = orders.definition().name.clone();
    let wider = Alteration::SetRules { name: "device".to_owned(), rules: rules(false, []) };
    client.alter_store(&name, None, &[wider]).await.unwrap();
    event().set("device", "tv").send().await.unwrap();
    let options = ReaderOptions::new(&name);
    let error =
        assert_refused(Reader::open(&endpoint().await, options).await, ErrorCode::InvalidArgument);
    assert_eq!(error.context().store.as_deref(), Some(name.as_str()));
    let documents = StoreFixture::with([("n", INT64)]).await;
    assert_eq!(refusal(documents.store.insert("u").set("n", 1)).await, None);
    documents.assert_nothing_written().await;
}
