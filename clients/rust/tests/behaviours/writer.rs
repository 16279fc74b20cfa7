//! Writes: verbs, keys and values up to their limits, refusals, conditions, administration.

use forebay::reads::{Conversion, DocumentKey, FieldRead, GatherField};
use forebay::schema::{
    Alteration, DocumentVersion, FieldSpec, FieldType, KeyType, KeyValue, ScalarType,
    SchemaVersion, StoreSpec, Value, VectorType,
};
use forebay::writes::{StreamOptions, WriteResult};
use forebay::{ErrorCode, Reader, ReaderOptions};
use forebay_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX};
use futures::FutureExt;
use futures::future::join_all;
use half::f16;

use crate::world::{
    BOOL, BYTES, FLOAT32, FLOAT64, INT32, INT64, PATIENCE, STRING, StoreFixture, TIMESTAMP,
    assert_refused, client, endpoint, fields, int, keyed, keys, new_name, outcome, over_limit,
    sent, spec, value,
};

const NUMBERS: FieldType = FieldType::List(ScalarType::Int64);
const TEXTS: FieldType = FieldType::List(ScalarType::String);

pub async fn get_returns_exactly_the_put_fields() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    sent(fixture.store.put("k").set("a", 1).set("b", 2)).await;
    let token = sent(fixture.store.put("k").set("a", 3)).await;
    assert_eq!(fixture.after(&token, "k").await, Some(fields([("a", int(3))])));
}

pub async fn get_returns_every_upserted_field() {
    let fixture = StoreFixture::with([("a", INT64), ("b", STRING)]).await;
    let write_outcome = outcome(fixture.store.upsert("k").set("a", 1).set("b", "x")).await;
    assert_eq!(write_outcome.result, WriteResult::Appended);
    let found = fixture.after(&write_outcome.token, "k").await;
    assert_eq!(found, Some(fields([("a", int(1)), ("b", "x".into())])));
}

pub async fn upserts_of_different_fields_add_up() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64), ("c", INT64)]).await;
    sent(fixture.store.upsert("k").set("a", 1).set("b", 1)).await;
    let token = sent(fixture.store.upsert("k").set("b", 2).set("c", 3)).await;
    let union = fields([("a", int(1)), ("b", int(2)), ("c", int(3))]);
    assert_eq!(fixture.after(&token, "k").await, Some(union));
}

pub async fn delete_makes_the_document_absent() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    let store = &fixture.store;
    let token = sent(store.upsert("k").set("a", 1).set("b", 1)).await;
    assert!(fixture.after(&token, "k").await.is_some());
    let token = sent(store.delete("k")).await;
    assert_eq!(fixture.after(&token, "k").await, None);
    sent(store.delete("never")).await;
    let token = sent(store.upsert("k").set("b", 2)).await;
    assert_eq!(fixture.after(&token, "k").await, Some(fields([("b", int(2))])));
}

pub async fn removed_field_is_absent_and_others_remain() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    sent(fixture.store.upsert("k").set("a", 1).set("b", 2)).await;
    let token = sent(fixture.store.upsert("k").remove_field("a")).await;
    assert_eq!(fixture.after(&token, "k").await, Some(fields([("b", int(2))])));
}

pub async fn every_value_type_is_read_as_written() {
    let of_list = |scalar, items: &[Value]| Value::List(scalar, items.to_vec());
    let time = |micros: i64| Value::Timestamp(micros);
    let cases: [(&str, FieldType, Vec<Value>); 16] = [
        ("bool", BOOL, vec![true.into(), false.into()]),
        ("int32", INT32, vec![i32::MIN.into(), i32::MAX.into()]),
        ("int64", INT64, vec![i64::MIN.into(), i64::MAX.into()]),
        ("float32", FLOAT32, vec![f32::MAX.into(), f32::NEG_INFINITY.into(), (-0.0f32).into()]),
        ("float64", FLOAT64, vec![5e-324.into(), f64::MAX.into(), 0.1.into(), f64::NAN.into()]),
        ("string", STRING, vec!["grüße 🌊".into(), "e\u{301}\0".into()]),
        ("bytes", BYTES, vec![(0..=255).collect::<Vec<u8>>().into()]),
        ("time", TIMESTAMP, vec![time(i64::MIN), time(i64::MAX), time(1_767_323_045_678_901)]),
        ("numbers", NUMBERS, vec![vec![1, -2, i64::MAX].into()]),
        ("texts", TEXTS, vec![vec!["", "a", "ß"].into()]),
        ("flags", FieldType::List(ScalarType::Bool), vec![vec![true, false].into()]),
        (
            "times",
            FieldType::List(ScalarType::Timestamp),
            vec![of_list(ScalarType::Timestamp, &[time(1), time(-1)])],
        ),
        ("floats", FieldType::List(ScalarType::Float64), vec![vec![1.0, f64::INFINITY].into()]),
        (
            "f32",
            FieldType::Vector(VectorType::F32, 3),
            vec![vec![0.1f32, -0.0, f32::NAN].into(), vec![f32::MAX, f32::MIN, 0.0].into()],
        ),
        ("f16", FieldType::Vector(VectorType::F16, 2), vec![vec![f16::MAX, f16::MIN].into()]),
        ("i8", FieldType::Vector(VectorType::I8, 2), vec![vec![i8::MIN, i8::MAX].into()]),
    ];
    let mut spec = spec([]);
    for (name, field_type, _) in &cases {
        spec = spec.field(*name, *field_type);
    }
    let fixture = StoreFixture::create(spec).await;
    for number in 0..4 {
        let mut write = fixture.store.put("k");
        let values = cases.iter().map(|(name, _, values)| (name, &values[number % values.len()]));
        for (name, value) in values.clone() {
            write = write.set(name, value.clone());
        }
        let token = sent(write).await;
        let found = fixture.after(&token, "k").await.unwrap();
        assert_eq!(found.len(), cases.len());
        for (name, value) in values {
            // Values are compared as text, so that NaN equals itself and the sign of zero counts.
            assert_eq!(format!("{:?}", found[*name]), format!("{:?}", Some(value)), "{name}");
        }
    }
}

pub async fn key_value_store_puts_gets_and_deletes_bytes() {
    let spec = StoreSpec::key_value(new_name(), KeyType::Bytes).partitions(2);
    let fixture = StoreFixture::create(spec).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let mut token = sent(store.put_value(b"empty", b"")).await;
    token.merge(&sent(store.put_value(b"k", b"\x00\xff")).await).unwrap();
    reader.await_token(&token, PATIENCE).await.unwrap();
    let handle = reader.field_as("value", BYTES).unwrap();
    for (key, expected) in [
        (&b"empty"[..], FieldRead::Value(Vec::new())),
        (b"none", FieldRead::Absent),
        (b"k", FieldRead::Value(b"\x00\xff".to_vec())),
    ] {
        let read = reader.get_bytes_owned(&handle, key);
        assert_eq!(read.unwrap(), expected);
    }
    let token = sent(store.delete(b"k")).await;
    assert_eq!(fixture.after(&token, b"k").await, None);
}

pub async fn documents_are_found_under_every_key_type() {
    finds(KeyType::String, &["", "a", "ß", "1"].map(KeyValue::from)).await;
    let bytes = [&b""[..], b"a", b"\xff\x00"];
    finds(KeyType::Bytes, &bytes.map(KeyValue::from)).await;
    finds(KeyType::Int64, &[0, -1, i64::MAX, i64::MIN].map(KeyValue::from)).await;
}

/// Asserts that each key finds the document that was written under it, and that a scan yields
/// just these keys.
async fn finds(key_type: KeyType, keys: &[KeyValue<'_>]) {
    let fixture = StoreFixture::create(keyed(key_type, 4, [("at", INT64)])).await;
    let store = &fixture.store;
    let writes = keys.iter().enumerate();
    let writes =
        writes.map(|(number, key)| store.upsert(DocumentKey::new(*key)).set("at", number as i64));
    fixture.write_all(writes).await;
    let expected: Vec<_> = (0..keys.len() as i64).map(Some).collect();
    assert_eq!(fixture.numbers(keys, "at").await, expected);
    let mut remaining = keys.to_vec();
    let visited = fixture.reader.scan_next(&mut fixture.reader.scan(), None, 10, |found| {
        let place = remaining.iter().position(|key| *key == found.key.primary());
        remaining.swap_remove(place.expect("a key that was written, once"));
        Ok(())
    });
    assert_eq!((visited.unwrap(), remaining.len()), (keys.len(), 0));
}

pub async fn partition_key_is_required_with_every_key() {
    let mut partitioned = keyed(KeyType::String, 4, [("tenant", STRING), ("n", INT64)]);
    partitioned.partition_key = Some("tenant".to_owned());
    let fixture = StoreFixture::create(partitioned).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let key = |tenant: &'static str| DocumentKey::from("k").with_partition_key(tenant);
    let (first, second) = (key("t1"), key("t2"));
    sent(store.upsert(first).set("n", 1)).await;
    sent(store.upsert(second).set("n", 2)).await;
    sent(store.upsert(second).increment("n", 1)).await;
    sent(store.upsert(first).increment("n", 9)).await;
    assert_eq!(fixture.numbers(&[first, second][..], "n").await, [Some(10), Some(3)]);
    let mut found = Vec::new();
    let n = reader.field_as("n", INT64).unwrap();
    let visited = reader.scan_next(&mut reader.scan(), None, 10, |scanned| {
        assert_eq!(scanned.key.primary(), KeyValue::from("k"));
        let tenant = scanned.key.partition_key().unwrap();
        let tenant = tenant.with_bytes(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        found.push((tenant, scanned.row.scalar::<i64>(&n)?.value().unwrap()));
        Ok(())
    });
    assert_eq!(visited.unwrap(), 2);
    found.sort_unstable();
    assert_eq!(found, [("t1".to_owned(), 10), ("t2".to_owned(), 3)]);
    assert_refused(reader.get_document("k"), ErrorCode::InvalidArgument);
    assert_refused(store.upsert("k").set("n", 1).send().await, ErrorCode::InvalidArgument);
}

pub async fn empty_key_is_a_key() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let token = sent(fixture.store.upsert("").set("a", 1)).await;
    assert_eq!(fixture.after(&token, "").await, Some(fields([("a", int(1))])));
    let fixture = StoreFixture::create(keyed(KeyType::Bytes, 2, [("a", INT64)])).await;
    let token = sent(fixture.store.upsert(b"").set("a", 1)).await;
    assert_eq!(fixture.after(&token, b"").await, Some(fields([("a", int(1))])));
}

pub async fn largest_key_is_written_and_found() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let key = "k".repeat(KEY_BYTES_MAX);
    let token = sent(fixture.store.upsert(&key).set("a", 1)).await;
    assert_eq!(fixture.after(&token, &key).await, Some(fields([("a", int(1))])));
    assert_eq!(fixture.latest(&key[1..]).await, None);
}

pub async fn largest_value_is_read_as_written() {
    let fixture = StoreFixture::create(keyed(KeyType::String, 1, [("blob", BYTES)])).await;
    let blob: Vec<u8> =
        (0..VALUE_BYTES_MAX).map(|place| (place ^ (place >> 8) ^ (place >> 16)) as u8).collect();
    let token = sent(fixture.store.upsert("k").set("blob", blob.clone())).await;
    let found = fixture.after(&token, "k").await.unwrap();
    assert!(found["blob"] == Some(blob.into()), "not byte by byte what was written");
}

pub async fn non_utf8_bytes_are_a_key() {
    let fixture = StoreFixture::create(keyed(KeyType::Bytes, 2, [("a", INT64)])).await;
    let keys: [&[u8]; 5] =
        [b"\xff\xfe", b"\xc3\x28", b"\x00", "é".as_bytes(), "e\u{301}".as_bytes()];
    let writes =
        keys.iter().zip(0..).map(|(key, place)| fixture.store.upsert(*key).set("a", place));
    fixture.write_all(writes).await;
    let keys = keys.map(KeyValue::from);
    assert_eq!(fixture.numbers(&keys[..], "a").await, [0, 1, 2, 3, 4].map(Some));
    assert_eq!(fixture.latest(b"\xff").await, None);
}

pub async fn batch_answers_one_outcome_per_change_in_order() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, keys) = (&fixture.store, keys(3_000));
    let mut batch = store.batch();
    for (key, number) in keys.iter().zip(0..) {
        batch.add(store.upsert(key).set("a", number)).unwrap();
    }
    batch.add(store.upsert("k0").increment("a", 5)).unwrap();
    batch.add(store.put("k1").set("a", 9).if_absent()).unwrap();
    let outcome = batch.send().await.unwrap();
    let results: Vec<_> = outcome.results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results[..3_001], [WriteResult::Appended; 3_001]);
    assert_eq!(results[3_001..], [WriteResult::ConditionFailed(None)]);
    // After one wait for the token of all writes, every document is visible.
    fixture.reader.await_token(&outcome.token, PATIENCE).await.unwrap();
    let handle = fixture.reader.field_as("a", INT64).unwrap();
    for (key, number) in keys.iter().zip(0..) {
        let expected = if number == 0 { 5 } else { number };
        assert_eq!(value(&fixture.reader, &handle, key).unwrap(), FieldRead::Value(int(expected)));
    }
}

pub async fn stream_acknowledges_every_write_once_in_order() {
    let fixture = StoreFixture::with([("n", INT64), ("order", NUMBERS)]).await;
    let (store, keys) = (&fixture.store, keys(10));
    // The stream has less space than there are writes: sending waits for space, never for its own
    // write.
    let mut stream = store.write_stream(StreamOptions::default().changes_max(100)).unwrap();
    let mut acknowledgements = Vec::new();
    for number in 0..2_000 {
        let write = store.upsert(&keys[number % keys.len()]).increment("n", 1);
        let write = write.list_append("order", vec![number as i64], 1_000);
        acknowledgements.push(stream.send(write).await.unwrap());
    }
    let refusal = stream.send(store.upsert("k0").set("none", 1)).await;
    assert_refused(refusal, ErrorCode::NotFound);
    let conditional_write = stream.send(store.upsert("k0").set("n", 1).if_absent()).await.unwrap();
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.condition_failed, summary.failed), (2_001, 1, 0));
    for acknowledgement in acknowledgements {
        // All outcomes are known once the stream is closed.
        let acknowledged = tokio::task::unconstrained(acknowledgement).now_or_never();
        let acknowledged = acknowledged.expect("the close waits for all of them");
        assert_eq!(acknowledged.unwrap().result, WriteResult::Appended);
    }
    assert_eq!(conditional_write.await.unwrap().result, WriteResult::ConditionFailed(None));
    for (place, key) in keys.iter().enumerate() {
        let order: Vec<_> = (0..200).map(|round| round * 10 + place as i64).collect();
        let expected = fields([("n", int(200)), ("order", order.into())]);
        assert_eq!(fixture.after(&summary.token, key).await, Some(expected));
    }
}

pub async fn unknown_store_is_not_found() {
    let (client, name) = (client().await, new_name());
    let options = || ReaderOptions::new(&name);
    let calls = [
        client.store(&name).await.map(drop),
        client.reader(options()).await.map(drop),
        Reader::open(&endpoint().await, options()).await.map(drop),
    ];
    for call in calls {
        let error = assert_refused(call, ErrorCode::NotFound);
        assert_eq!(error.context().store.as_ref(), Some(&name));
    }
}

pub async fn unknown_field_is_not_found() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let mut batch = store.batch();
    batch.add(store.upsert("k").set("a", 1)).unwrap();
    batch.add(store.put("k").set("b", 1)).unwrap();
    let columns = [GatherField::new("a"), GatherField::new("b")];
    let outcome_of_two = store.upsert("k").set("a", 1).set("b", 1).send().await;
    let calls: [forebay::Result<()>; 5] = [
        outcome_of_two.map(drop).map_err(Into::into),
        batch.send().await.map(drop).map_err(Into::into),
        reader.field_as("b", INT64).map(drop),
        reader.field("b").map(drop),
        reader.plan_gather::<i64>(&columns, Conversion::Exact).map(drop),
    ];
    for call in calls {
        let error = assert_refused(call, ErrorCode::NotFound);
        assert_eq!(error.context().store.as_deref(), Some(fixture.name()));
        assert_eq!(error.context().field.as_deref(), Some("b"));
    }
    assert_eq!(fixture.latest("k").await, None);
}

pub async fn key_of_another_type_is_refused() {
    let (text, bytes, number) = (KeyValue::from("1"), KeyValue::from(b"1"), KeyValue::from(1i64));
    for (key_type, wrong) in [
        (KeyType::String, [bytes, number]),
        (KeyType::Bytes, [text, number]),
        (KeyType::Int64, [text, bytes]),
    ] {
        let fixture = StoreFixture::create(keyed(key_type, 2, [("a", INT64)])).await;
        let (store, reader) = (&fixture.store, &fixture.reader);
        for key in wrong {
            let key = DocumentKey::new(key);
            let outcome_of_write = store.upsert(key).set("a", 1).send().await;
            assert_refused(outcome_of_write, ErrorCode::InvalidArgument);
            assert_refused(store.delete(key).send().await, ErrorCode::InvalidArgument);
            assert_refused(reader.get_document(key), ErrorCode::InvalidArgument);
            let batch = reader.read_local(None, |view| view.get_documents(&[key][..]));
            assert_refused(batch, ErrorCode::InvalidArgument);
        }
        fixture.assert_nothing_written().await;
    }
}

pub async fn misfitting_value_is_refused() {
    let fixture = StoreFixture::with([
        ("b", BOOL),
        ("i", INT32),
        ("f", FLOAT32),
        ("s", STRING),
        ("t", TIMESTAMP),
        ("l", NUMBERS),
        ("v", FieldType::Vector(VectorType::F32, 2)),
    ])
    .await;
    let wrong: [(&str, Value); 16] = [
        ("b", 1.into()),
        ("i", (1i64 << 31).into()),
        ("i", 1.0.into()),
        ("i", true.into()),
        ("i", "1".into()),
        ("f", 0.1.into()),
        ("f", i32::MAX.into()),
        ("s", b"x".into()),
        ("s", 1.into()),
        ("t", 1.into()),
        ("l", vec!["a"].into()),
        ("l", vec![0.5].into()),
        ("l", 1.into()),
        ("v", vec![0f32; 3].into()),
        ("v", vec![0.1, 0.2].into()),
        ("v", 0f32.into()),
    ];
    for (field, value) in wrong {
        let outcome_of_write = fixture.store.upsert("k").set(field, value.clone()).send().await;
        let error = assert_refused(outcome_of_write, ErrorCode::InvalidArgument);
        assert_eq!(error.context().field.as_deref(), Some(field), "{value:?}");
    }
    fixture.assert_nothing_written().await;
}

pub async fn oversize_key_is_refused() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let key = "k".repeat(KEY_BYTES_MAX + 1);
    let numbers = (KEY_BYTES_MAX as u64, KEY_BYTES_MAX as u64 + 1);
    assert_eq!(over_limit(store.upsert(&key).set("a", 1).send().await), numbers);
    assert_eq!(over_limit(store.delete(&key).send().await), numbers);
    assert_eq!(over_limit(reader.get_document(&key)), numbers);
    let keys = [key];
    let batch = reader.read_local(None, |view| view.get_documents(&keys[..]));
    assert_eq!(over_limit(batch), numbers);
    fixture.assert_nothing_written().await;
}

pub async fn oversize_value_is_refused() {
    let fixture = StoreFixture::with([("blob", BYTES)]).await;
    let write = fixture.store.upsert("k").set("blob", vec![0u8; VALUE_BYTES_MAX + 1]);
    let numbers = (VALUE_BYTES_MAX as u64, VALUE_BYTES_MAX as u64 + 1);
    assert_eq!(over_limit(write.send().await), numbers);
    fixture.assert_nothing_written().await;
}

pub async fn oversize_name_is_refused() {
    let (client, long) = (client().await, "n".repeat(NAME_BYTES_MAX + 1));
    let of_store = StoreSpec::documents(&long, KeyType::String).partitions(1);
    let of_field =
        StoreSpec::documents(new_name(), KeyType::String).partitions(1).field(&long, INT64);
    for spec in [of_store, of_field] {
        assert_eq!(over_limit(client.create_store(&spec).await), (255, 256));
    }
}

pub async fn concurrent_increments_add_up_exactly() {
    let fixture = StoreFixture::with([("n", INT64), ("f", FLOAT64)]).await;
    let tasks = (0..8i64).map(|task| {
        let store = fixture.store.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                sent(store.upsert("k").increment("n", task).increment("f", 0.5)).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let sum = fields([("n", int(50 * (0..8).sum::<i64>())), ("f", 200.0.into())]);
    assert_eq!(fixture.latest("k").await, Some(sum));
}

pub async fn min_max_and_list_merges_take_effect() {
    let types = [("low", INT64), ("high", FLOAT64), ("recent", NUMBERS), ("tags", TEXTS)];
    let fixture = StoreFixture::with(types).await;
    let store = &fixture.store;
    for (low, high, items) in [(5, 1.5, vec![1, 2]), (3, 2.5, vec![3]), (4, 2.0, vec![4, 5])] {
        let write = store.upsert("k").min("low", low).max("high", high);
        let write = write.list_append("recent", items, 4);
        sent(write.set_add("tags", ["a".to_owned(), low.to_string()], 10)).await;
    }
    let merged = fields([
        ("low", int(3)),
        ("high", 2.5.into()),
        ("recent", vec![2i64, 3, 4, 5].into()),
        ("tags", vec!["a", "5", "3", "4"].into()),
    ]);
    assert_eq!(fixture.latest("k").await, Some(merged));
    let token = sent(store.upsert("k").set_remove("tags", ["a", "3", "none"])).await;
    let found = fixture.after(&token, "k").await.unwrap();
    assert_eq!(found["tags"], Some(vec!["5", "4"].into()));
}

pub async fn if_absent_race_has_exactly_one_winner() {
    let fixture = StoreFixture::with([("who", INT64)]).await;
    let clients = join_all((0..8).map(|_| client())).await;
    let name = fixture.name();
    let race = clients.iter().zip(0..).map(|(client, writer)| async move {
        let store = client.store(name).await.unwrap();
        outcome(store.upsert("k").set("who", writer).if_absent()).await.result
    });
    let results = join_all(race).await;
    let applied: Vec<_> =
        (0..8i64).filter(|writer| results[*writer as usize] == WriteResult::Applied).collect();
    assert_eq!(applied.len(), 1);
    let lost_races = results.iter().filter(|result| **result == WriteResult::ConditionFailed(None));
    assert_eq!(lost_races.count(), 7);
    assert_eq!(fixture.latest("k").await, Some(fields([("who", int(applied[0]))])));
}

pub async fn if_version_applies_only_to_the_given_version() {
    let mut versioned = spec([("a", INT64)]);
    versioned.options.versioned = true;
    let fixture = StoreFixture::create(versioned).await;
    let store = &fixture.store;
    sent(store.put("k").set("a", 1)).await;
    let upsert = |number: i64, version: DocumentVersion| {
        outcome(store.upsert("k").set("a", number).if_version(version))
    };
    let condition_failed = |result: WriteResult| match result {
        WriteResult::ConditionFailed(Some(version)) => version,
        other => panic!("not told the version: {other:?}"),
    };
    let first = condition_failed(upsert(2, DocumentVersion::default()).await.result);
    assert_eq!(upsert(3, first).await.result, WriteResult::Applied);
    let second = condition_failed(upsert(4, first).await.result);
    assert!(second > first);
    assert_eq!(fixture.latest("k").await, Some(fields([("a", int(3))])));
    let deleted = outcome(store.delete("k").if_version(second)).await;
    assert_eq!(deleted.result, WriteResult::Applied);
    assert_eq!(fixture.latest("k").await, None);
}

pub async fn if_newer_applies_only_a_larger_value() {
    let fixture = StoreFixture::with([("at", INT64), ("a", STRING)]).await;
    let upsert = |version: i64, text: &str| {
        outcome(fixture.store.upsert("k").set("at", version).set("a", text).if_newer("at"))
    };
    assert_eq!(upsert(5, "five").await.result, WriteResult::Applied);
    assert_eq!(upsert(5, "again").await.result, WriteResult::ConditionFailed(None));
    assert_eq!(upsert(4, "four").await.result, WriteResult::ConditionFailed(None));
    let older = fields([("at", int(5)), ("a", "five".into())]);
    assert_eq!(fixture.latest("k").await, Some(older));
    assert_eq!(upsert(6, "six").await.result, WriteResult::Applied);
    let newer = fields([("at", int(6)), ("a", "six".into())]);
    assert_eq!(fixture.latest("k").await, Some(newer));
}

pub async fn stores_are_created_described_altered_and_deleted() {
    let client = client().await;
    let ttl_us = |seconds: i64| Some(seconds * 1_000_000);
    let mut spec = keyed(KeyType::Int64, 3, [("v", FieldType::Vector(VectorType::F32, 2))]);
    let ageing = FieldSpec::new("a", INT32);
    spec.fields.push(FieldSpec { default: Some(7.into()), ttl_us: ttl_us(60), ..ageing });
    (spec.options.ttl_us, spec.options.versioned) = (ttl_us(90), true);
    spec.options.log_retention_us = Some(3_000_001);
    let name = spec.name.clone();
    let store = client.create_store(&spec).await.unwrap();
    let definition = store.definition();
    assert_eq!((definition.version, &definition.name), (SchemaVersion(1), &name));
    assert_eq!(
        (definition.key_type, definition.partitions.partitions().count()),
        (KeyType::Int64, 3)
    );
    assert_eq!(definition.options, spec.options);
    let field = definition.field("a").unwrap();
    assert_eq!((field.field_type, field.ttl_us), (INT32, ttl_us(60)));
    assert_eq!(field.default, Some(7.into()));
    assert_eq!(client.describe_store(&name, None).await.unwrap(), *definition);
    assert!(client.list_stores().await.unwrap().contains(&definition));
    let second_create =
        client.create_store(&StoreSpec::key_value(&name, KeyType::Int64).partitions(1)).await;
    assert_refused(second_create, ErrorCode::Conflict);
    let drop_field = |name: &str| [Alteration::DropField(name.to_owned())];
    let first = Some(SchemaVersion(1));
    let altered = client.alter_store(&name, first, &drop_field("v")).await.unwrap();
    assert_eq!((altered.version, altered.field("v")), (SchemaVersion(2), None));
    assert_eq!(client.describe_store(&name, first).await.unwrap(), *definition);
    let late = client.alter_store(&name, first, &drop_field("a")).await;
    assert_refused(late, ErrorCode::Conflict);
    let as_described = [Alteration::SetOptions(altered.options)];
    let set = client.alter_store(&name, Some(altered.version), &as_described).await.unwrap();
    assert_eq!(set.options, spec.options);
    let narrow = Alteration::WidenField { name: "a".to_owned(), to: INT32 };
    let refusal = client.alter_store(&name, None, &[narrow]).await;
    assert_refused(refusal, ErrorCode::InvalidArgument);
    client.delete_store(&name).await.unwrap();
    assert_refused(client.store(&name).await, ErrorCode::NotFound);
    assert_refused(store.upsert(1).set("a", 1).send().await, ErrorCode::NotFound);
}

pub async fn refresh_returns_the_newest_definition() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    let (store, name) = (&fixture.store, fixture.name());
    let other = client().await;
    let drop_field = [Alteration::DropField("b".to_owned())];
    let altered = other.alter_store(name, Some(SchemaVersion(1)), &drop_field).await.unwrap();
    assert_eq!(store.definition().version, SchemaVersion(1));
    assert_eq!(*store.refresh().await.unwrap(), altered);
    assert_eq!(*store.definition(), altered);
    other.delete_store(name).await.unwrap();
    assert_refused(store.refresh().await, ErrorCode::NotFound);
    other.create_store(&StoreSpec::key_value(name, KeyType::String).partitions(1)).await.unwrap();
    assert_refused(store.refresh().await, ErrorCode::NotFound);
}
