//! Alterations, as existing readers and handles see them.

use std::sync::Arc;

use forebay::ErrorCode;
use forebay::reads::{Conversion, FieldRead, GatherField};
use forebay::schema::{Alteration, FieldSpec, Value};
use parking_lot::Mutex;

use crate::world::{
    INT32, INT64, STRING, StoreFixture, assert_refused, eventually, fields, int, keys, scalar,
    sent, value,
};

pub async fn field_added_under_an_open_reader_is_readable() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    sent(store.upsert("old").set("a", 1)).await;
    let versions_heard = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&versions_heard);
    reader.on_schema_change(Arc::new(move |definition| {
        teller.lock().push(definition.version);
    }));
    let altered = fixture.alter(Alteration::AddField(FieldSpec::new("b", STRING))).await;
    let token = sent(store.upsert("new").set("a", 2).set("b", "x")).await;
    let new = fields([("a", int(2)), ("b", "x".into())]);
    assert_eq!(fixture.after(&token, "new").await, Some(new));
    assert_eq!(fixture.latest("old").await, Some(fields([("a", int(1))])));
    let added = reader.field_as("b", STRING).unwrap();
    assert_eq!(value(reader, &added, "old").unwrap(), FieldRead::Absent);
    eventually("the callback is told", async || *versions_heard.lock() == [altered.version]).await;
    assert_eq!(reader.schema_version(), altered.version);
    assert!(reader.definition().field("b").is_some());
}

pub async fn dropped_field_is_absent_in_every_document() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let token = sent(store.upsert("k").set("a", 1).set("b", 2)).await;
    let both_fields = fields([("a", int(1)), ("b", int(2))]);
    assert_eq!(fixture.after(&token, "k").await, Some(both_fields));
    let handle = reader.field_as("b", INT64).unwrap();
    assert_eq!(value(reader, &handle, "k").unwrap(), FieldRead::Value(int(2)));
    fixture.alter(Alteration::DropField("b".to_owned())).await;
    eventually("the drop is seen", async || {
        value(reader, &handle, "k").unwrap() == FieldRead::Absent
    })
    .await;
    assert_eq!(fixture.latest("k").await, Some(fields([("a", int(1))])));
    fixture.alter(Alteration::AddField(FieldSpec::new("b", STRING))).await;
    let token = sent(store.upsert("k").set("b", "new")).await;
    let renewed = fields([("a", int(1)), ("b", "new".into())]);
    assert_eq!(fixture.after(&token, "k").await, Some(renewed));
    assert_eq!(value(reader, &handle, "k").unwrap(), FieldRead::Absent);
    let renewed = reader.field_as("b", STRING).unwrap();
    assert_eq!(value(reader, &renewed, "k").unwrap(), FieldRead::Value("new".into()));
}

pub async fn drop_by_prefix_drops_only_matching_fields() {
    let fixture =
        StoreFixture::with([("x_a", INT64), ("x_b", INT64), ("xc", INT64), ("y", INT64)]).await;
    let write = fixture.store.upsert("k").set("x_a", 1).set("x_b", 2).set("xc", 3).set("y", 4);
    let token = sent(write).await;
    assert_eq!(fixture.after(&token, "k").await.unwrap().len(), 4);
    let altered = fixture.alter(Alteration::DropFieldsByPrefix("x_".to_owned())).await;
    let remaining_fields = Some(fields([("xc", int(3)), ("y", int(4))]));
    eventually("the drop is seen", async || fixture.latest("k").await == remaining_fields).await;
    let names: Vec<_> = altered.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["xc", "y"]);
}

pub async fn drop_all_makes_every_document_absent() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let keys = keys(100);
    fixture.write_all(keys.iter().map(|key| fixture.store.upsert(key).set("a", 1))).await;
    assert_eq!(fixture.numbers(&keys[..], "a").await, [Some(1); 100]);
    fixture.alter(Alteration::DropAll).await;
    sent(fixture.store.upsert("new").increment("a", 1)).await;
    eventually("all is dropped", async || fixture.numbers(&keys[..], "a").await == [None; 100])
        .await;
    assert_eq!(fixture.latest("new").await, Some(fields([("a", int(1))])));
    assert_eq!(fixture.scan(), [("new".to_owned(), fields([("a", int(1))]))].into());
}

pub async fn handle_survives_a_rename_of_its_field() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let token = sent(store.upsert("k").set("a", 1)).await;
    assert!(fixture.after(&token, "k").await.is_some());
    let handle = reader.field_as("a", INT64).unwrap();
    let plan = reader.plan_gather::<i64>(&[GatherField::new("a")], Conversion::Exact).unwrap();
    let rename = Alteration::RenameField { from: "a".to_owned(), to: "b".to_owned() };
    fixture.alter(rename).await;
    let token = sent(store.upsert("k").set("b", 2)).await;
    assert_eq!(fixture.after(&token, "k").await, Some(fields([("b", int(2))])));
    assert_eq!(scalar::<i64>(reader, &handle, "k").unwrap(), FieldRead::Value(2));
    assert_eq!(fixture.gather(&plan, &["k"][..]).await, [2]);
    let token = sent(store.upsert("k").set("a", 3)).await;
    assert_eq!(fixture.after(&token, "k").await, Some(fields([("b", int(3))])));
    for name in ["a", "b"] {
        let handle = reader.field_as(name, INT64).unwrap();
        assert_eq!(scalar::<i64>(reader, &handle, "k").unwrap(), FieldRead::Value(3));
    }
}

pub async fn handle_survives_a_widening_of_its_field() {
    let fixture = StoreFixture::with([("a", INT32)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    sent(store.upsert("old").set("a", 1)).await;
    let narrow = reader.field_as("a", INT32).unwrap();
    fixture.alter(Alteration::WidenField { name: "a".to_owned(), to: INT64 }).await;
    sent(store.upsert("fits").set("a", 2)).await;
    sent(store.upsert("wide").set("a", 1i64 << 40)).await;
    let read = async |key: &'static str| {
        fixture.read_latest(&[key][..], |view| view.get_scalar::<i32>(&narrow, key)).await
    };
    assert_eq!(read("old").await.unwrap(), FieldRead::Value(1));
    assert_eq!(read("fits").await.unwrap(), FieldRead::Value(2));
    let error = assert_refused(read("wide").await, ErrorCode::InvalidArgument);
    assert!(error.message().contains("int64") && error.message().contains("int32"), "{error}");
    let wide = reader.field_as("a", INT64).unwrap();
    for (key, number) in [("old", 1), ("fits", 2), ("wide", 1 << 40)] {
        assert_eq!(value(reader, &wide, key).unwrap(), FieldRead::Value(Value::Int64(number)));
    }
}
