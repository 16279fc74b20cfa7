//! Handles and typed reads: absent, null and empty are distinct; wrong types are refused, never
//! converted; a handle survives every alteration.

use crate::support::*;
use forebay_core::clock::Timestamp;
use forebay_core::key::{Key, KeyType};
use forebay_core::replica_state::Phase;
use forebay_core::row::Presence;
use forebay_core::schema::{Alteration, FieldSpec, StoreSpec};
use forebay_core::value::Value;
use forebay_core::{Error, ErrorCode};
use forebay_index::{
    CopyOut, DocumentKey, FieldRead, KeyAnswer, KeyStatus, PackedKeys, PackedValues, ReadAdmission,
};

fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, code: ErrorCode, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{error} does not say {part}");
    }
}

fn people() -> Store {
    let fields = [("name", STRING), ("photo", BYTES), ("age", INT32), ("score", FLOAT32)];
    let mut store = Store::new(spec(4, &fields));
    let ann = store.upsert(
        "ann",
        &[
            ("name", Some(Value::String("Ann".into()))),
            ("photo", Some(Value::Bytes(Vec::new()))),
            ("age", Some(Value::Int32(41))),
            ("score", None),
        ],
    );
    store.write(vec![ann], 1_000);
    store
}

#[test]
fn absent_null_and_empty_are_three_answers() {
    let store = people();
    let view = store.index.view(at(2_000));
    let handle = |name: &str| store.index.field(name).unwrap();
    let presences = |key: &str| {
        ["name", "photo", "score"].map(|name| view.presence(&handle(name), key).unwrap())
    };
    assert_eq!(presences("ann"), [Presence::Value, Presence::Value, Presence::Null]);
    assert_eq!(presences("bob"), [Presence::Absent; 3]);
    assert_eq!(
        view.get_bytes_owned(&handle("photo"), "ann").unwrap(),
        FieldRead::Value(Vec::new())
    );
    assert_eq!(view.get_scalar::<f32>(&handle("score"), "ann").unwrap(), FieldRead::Null);
    assert_eq!(view.get_scalar::<f32>(&handle("score"), "bob").unwrap(), FieldRead::Absent);
    assert_eq!(view.get_f32(&handle("score"), "ann", 0.5).unwrap(), 0.5);
    assert_eq!(view.get_i32(&handle("age"), "ann", 0).unwrap(), 41);
}

#[test]
fn copy_reads_return_length_absent_null_or_the_size_needed() {
    let store = people();
    let view = store.index.view(at(2_000));
    let name = store.index.field_as("name", STRING).unwrap();
    let mut buffer = [b'.'; 5];
    assert_eq!(view.get_str(&name, "ann", &mut buffer[..2]).unwrap(), CopyOut::SizeNeeded(3));
    assert_eq!(view.get_str(&name, "bob", &mut buffer).unwrap(), CopyOut::Absent);
    assert_eq!(&buffer, b".....");
    assert_eq!(view.get_str(&name, "ann", &mut buffer).unwrap(), CopyOut::Length(3));
    assert_eq!(&buffer, b"Ann..");
    let photo = store.index.field_as("photo", BYTES).unwrap();
    assert_eq!(view.get_bytes(&photo, "ann", &mut []).unwrap(), CopyOut::Length(0));
    let owned = view.get_str_owned(&name, "ann").unwrap();
    assert_eq!(owned, FieldRead::Value("Ann".to_owned()));
}

#[test]
fn mismatched_key_and_value_types_are_refused() {
    let store = people();
    let index = &store.index;
    assert_refused(
        index.field_as("age", STRING),
        ErrorCode::InvalidArgument,
        &["int32", "string", "age"],
    );
    assert_refused(
        index.field_as("age", FLOAT32),
        ErrorCode::InvalidArgument,
        &["int32", "float32"],
    );
    assert_refused(index.field_as("size", INT32), ErrorCode::NotFound, &["users", "size"]);
    let view = index.view(at(2_000));
    let age = index.field_as("age", INT32).unwrap();
    for key in ["ann", "nobody"] {
        assert_refused(
            view.get_f32(&age, key, 0.0),
            ErrorCode::InvalidArgument,
            &["int32", "float32"],
        );
        assert_refused(
            view.get_str_owned(&age, key),
            ErrorCode::InvalidArgument,
            &["int32", "string"],
        );
    }
    assert_refused(view.get_i32(&age, 7, 0), ErrorCode::InvalidArgument, &["string", "int64"]);
    assert_refused(view.get_i32(&age, b"ann", 0), ErrorCode::InvalidArgument, &["string", "bytes"]);

    let mut other = spec(4, &[("age", INT32)]);
    other.name = "others".into();
    let definition = other.define(forebay_core::id::StoreId(2)).unwrap();
    let partitions: Vec<_> = definition.partitions.partitions().collect();
    let other = forebay_index::Index::new([schema_at(&definition)], partitions, 1).unwrap();
    let foreign = other.field_as("age", INT32).unwrap();
    for key in ["ann", "nobody"] {
        assert_refused(
            view.get_i32(&foreign, key, 0),
            ErrorCode::InvalidArgument,
            &["another store"],
        );
        assert_refused(
            view.presence(&foreign, key),
            ErrorCode::InvalidArgument,
            &["another store"],
        );
    }
}

#[test]
fn handle_survives_add_rename_and_drop() {
    let mut store = people();
    let age = store.index.field_as("age", INT32).unwrap();
    let score = store.index.field_as("score", FLOAT32).unwrap();
    let add = Alteration::AddField(FieldSpec::new("city", STRING));
    let rename = Alteration::RenameField { from: "age".into(), to: "years".into() };
    store.alter(&[add, rename], 2_000);
    let bob = store.upsert("bob", &[("years", Some(Value::Int32(7)))]);
    store.write(vec![bob], 3_000);
    let read =
        |store: &Store, key: &str| store.index.view(at(4_000)).get_i32(&age, key, -1).unwrap();
    assert_eq!((read(&store, "ann"), read(&store, "bob")), (41, 7));
    assert_eq!(store.index.field_as("age", INT32).unwrap().field(), age.field());

    let drop = Alteration::DropField("years".into());
    let readded = Alteration::AddField(FieldSpec::new("years", INT32));
    store.alter(&[drop, readded], 5_000);
    assert_eq!((read(&store, "ann"), read(&store, "bob")), (-1, -1));
    let ann = store.upsert("ann", &[("years", Some(Value::Int32(42)))]);
    store.write(vec![ann], 6_000);
    assert_eq!(read(&store, "ann"), -1);
    let view = store.index.view(at(7_000));
    let new = store.index.field_as("years", INT32).unwrap();
    assert_eq!(view.get_i32(&new, "ann", -1).unwrap(), 42);
    assert_eq!(view.presence(&score, "ann").unwrap(), Presence::Null);
}

#[test]
fn drop_takes_effect_in_a_partition_that_has_applied_it() {
    let mut store = people();
    let age = store.index.field_as("age", INT32).unwrap();
    store.define(&[Alteration::DropField("age".into())]);
    assert_eq!(store.index.view(at(2_000)).get_i32(&age, "ann", -1).unwrap(), 41);
    store.alter(&[], 3_000);
    assert_eq!(store.index.view(at(4_000)).get_i32(&age, "ann", -1).unwrap(), -1);
}

#[test]
fn read_at_the_narrower_type_works_while_values_fit() {
    let mut store = people();
    let narrow = store.index.field_as("age", INT32).unwrap();
    store.alter(&[Alteration::WidenField { name: "age".into(), to: INT64 }], 2_000);
    let bob = store.upsert("bob", &[("age", Some(Value::Int64(7)))]);
    let cid = store.upsert("cid", &[("age", Some(Value::Int64(1 << 40)))]);
    store.write(vec![bob, cid], 3_000);
    let view = store.index.view(at(4_000));
    assert_eq!(view.get_i32(&narrow, "ann", 0).unwrap(), 41);
    assert_eq!(view.get_i32(&narrow, "bob", 0).unwrap(), 7);
    assert_eq!(view.get_value(&narrow, "bob").unwrap(), FieldRead::Value(Value::Int32(7)));
    let parts = ["int32", "int64", "age"];
    assert_refused(view.get_i32(&narrow, "cid", 0), ErrorCode::InvalidArgument, &parts);
    assert_refused(view.get_value(&narrow, "cid"), ErrorCode::InvalidArgument, &parts);
    let wide = store.index.field_as("age", INT64).unwrap();
    for (key, value) in [("ann", 41), ("bob", 7), ("cid", 1 << 40)] {
        assert_eq!(view.get_i64(&wide, key, 0).unwrap(), value);
        assert_eq!(view.get_value(&wide, key).unwrap(), FieldRead::Value(Value::Int64(value)));
    }
    let document = view.get_document("ann").unwrap().unwrap();
    assert_eq!(document.value(narrow.field()), Some(&Value::Int64(41)));
}

#[test]
fn partition_answers_only_while_followed_and_serving() {
    let mut store = Store::following(spec(4, &[("age", INT32)]), |id| id.0 < 3);
    let (booting, serving, foreign) = (key_in(0, 4), key_in(1, 4), key_in(3, 4));
    for key in [&booting, &serving] {
        let change = store.upsert(key, &[("age", Some(Value::Int32(1)))]);
        store.write(vec![change], 1_000);
    }
    let first = store.partitions.values_mut().next().unwrap();
    first.writer.set_phase(Phase::Bootstrapping);
    let age = store.index.field_as("age", INT32).unwrap();
    let view = store.index.view(at(2_000));
    assert_refused(view.get_i32(&age, &booting, 0), ErrorCode::Unavailable, &["partition 0"]);
    assert_eq!(view.get_i32(&age, &serving, 0).unwrap(), 1);
    let parts = ["partition 3", "0, 1, 2 of 4"];
    assert_refused(view.get_i32(&age, &foreign, 0), ErrorCode::InvalidArgument, &parts);
    let partial = store.index.view(at(2_000).allow_incomplete_reads(true));
    assert_eq!(partial.get_i32(&age, &booting, 0).unwrap(), 1);

    let stale_admission = |id: forebay_core::id::PartitionId| match id.0 {
        1 => ReadAdmission::Stale,
        _ => ReadAdmission::Serve,
    };
    let bounded = store.index.view(at(2_000).admission(&stale_admission));
    assert_refused(bounded.get(&*serving), ErrorCode::Stale, &["partition 1"]);
    let keys = [booting, serving, foreign, key_in(2, 4)];
    let mut statuses = Vec::new();
    bounded
        .get_many(&keys[..], |_, answer| {
            statuses.push(answer.status());
            Ok(())
        })
        .unwrap();
    use KeyStatus::{Absent, NotFollowed, Stale, Unavailable};
    assert_eq!(statuses, [Unavailable, Stale, NotFollowed, Absent]);

    store.partitions.values_mut().for_each(|p| p.writer.set_phase(Phase::Poisoned));
    let view = store.index.view(at(2_000));
    assert_refused(view.get_i32(&age, &keys[1], 0), ErrorCode::Internal, &["partition 1"]);
}

#[test]
fn batch_answers_in_order_and_repeats_duplicate_keys() {
    let store = people();
    let view = store.index.view(at(2_000));
    let keys = ["ann", "bob", "ann"];
    let age = store.index.field_as("age", INT32).unwrap();
    let mut ages = Vec::new();
    view.get_many(&keys[..], |place, answer| {
        ages.push((
            place,
            match answer {
                KeyAnswer::Found(row) => row.scalar::<i32>(&age)?.value(),
                KeyAnswer::None(status) => {
                    assert_eq!(status, KeyStatus::Absent);
                    None
                }
            },
        ));
        Ok(())
    })
    .unwrap();
    assert_eq!(ages, [(0, Some(41)), (1, None), (2, Some(41))]);

    let name = store.index.field_as("name", STRING).unwrap();
    let packed_keys = PackedKeys::strings(b"annbobann", &[3, 6, 9]).unwrap();
    let mut packed = PackedValues::default();
    for _ in 0..2 {
        view.get_packed(&packed_keys, &name, &mut packed).unwrap();
        assert_eq!(packed.bytes, b"AnnAnn");
        assert_eq!(packed.ends, [3, 3, 6]);
        let values: Vec<_> = (0..4).map(|place| packed.value(place)).collect();
        assert_eq!(values, [Some(&b"Ann"[..]), None, Some(&b"Ann"[..]), None]);
    }
    for (room, copied) in [(5, 3), (6, 6)] {
        let length = view.get_packed_within(&packed_keys, &name, room, &mut packed).unwrap();
        assert_eq!((length, packed.bytes.len()), (6, copied));
    }
    assert_refused(
        view.get_packed(&keys[..], &age, &mut packed),
        ErrorCode::InvalidArgument,
        &["int32"],
    );
    let documents = view.get_documents(&keys[..]).unwrap();
    assert_eq!(documents[0], documents[2]);
    assert_eq!(documents[1], (KeyStatus::Absent, None));
}

#[test]
fn document_with_a_partition_key_is_read_by_both_keys() {
    let mut spec = StoreSpec::documents("orders", KeyType::Int64)
        .partitions(8)
        .field("tenant", STRING)
        .field("total", FLOAT64);
    spec.partition_key = Some("tenant".into());
    let mut store = Store::new(spec);
    let mut change = store.upsert("", &[("total", Some(Value::Float64(9.5)))]);
    change.key = Key::partitioned(b"acme", &7_i64.to_le_bytes()).unwrap();
    let key = DocumentKey::from(7).with_partition_key("acme");
    let partition = store.index.partition_of(key).unwrap();
    let body = forebay_core::change::EntryBody::Changes(vec![forebay_core::change::ClientBatch {
        client: forebay_core::id::ClientId(1),
        changes: vec![change],
    }]);
    let (index, definition) = (store.index.clone(), store.definition.clone());
    store.partitions.get_mut(&partition).unwrap().append(&index, &definition, body, 1_000);
    let view = index.view(at(2_000));
    let total = index.field_as("total", FLOAT64).unwrap();
    let tenant = index.field_as("tenant", STRING).unwrap();
    assert_eq!(view.get_f64(&total, key, 0.0).unwrap(), 9.5);
    assert_eq!(view.get_str_owned(&tenant, key).unwrap(), FieldRead::Value("acme".into()));
    let other_key = DocumentKey::from(7).with_partition_key("other");
    assert_eq!(view.get_f64(&total, other_key, 0.0).unwrap(), 0.0);
    assert_refused(view.get(7), ErrorCode::InvalidArgument, &["partition key"]);
    let mut scan = index.scan();
    let scanned = scan.next_batch(at(2_000), 10, |document| {
        assert_eq!((document.partition, document.key), (partition, key));
        Ok(())
    });
    assert_eq!(scanned.unwrap(), 1);
}

#[test]
fn expiry_follows_the_later_of_clock_and_partition_time() {
    let mut store = people();
    let mut short = store.upsert("bob", &[("age", Some(Value::Int32(1)))]);
    short.ttl_us = Some(500);
    let mut field = store.upsert("ann", &[("age", Some(Value::Int32(2)))]);
    field.fields[0].ttl_us = Some(700);
    store.write(vec![short, field], 10_000);
    let age = store.index.field_as("age", INT32).unwrap();
    let read = |store: &Store, key: &str, now: i64| {
        store.index.view(at(now)).get_i32(&age, key, -1).unwrap()
    };
    assert_eq!((read(&store, "bob", 10_499), read(&store, "bob", 10_500)), (1, -1));
    assert_eq!((read(&store, "ann", 10_699), read(&store, "ann", 10_700)), (2, -1));
    assert_eq!(read(&store, "bob", i64::MIN), 1);
    let view = store.index.view(at(10_700));
    assert!(view.get("ann").unwrap().is_some());
    let document = view.get_document("ann").unwrap().unwrap();
    assert!(document.cell(age.field()).is_none() && document.cells().len() == 3);
    drop(view);

    store.alter(&[], 10_500);
    assert_eq!(read(&store, "bob", 0), -1);
    let documents: u64 = store.index.metrics().partitions.iter().map(|p| p.usage.documents).sum();
    assert_eq!(documents, 1);
    let time = Timestamp::from_micros(10_500);
    assert!(store.index.metrics().partitions.iter().all(|p| p.progress.partition_time == time));
}

#[test]
fn metrics_count_documents_and_reads() {
    let mut store = people();
    let long = store.upsert("bob", &[("name", Some(Value::String("b".repeat(1_000))))]);
    store.write(vec![long], 2_000);
    let held_counts = |store: &Store| {
        let metrics = store.index.metrics();
        let sum = |count_of: fn(&forebay_core::replica_state::PartitionUsage) -> u64| -> u64 {
            metrics.partitions.iter().map(|partition| count_of(&partition.usage)).sum()
        };
        (sum(|h| h.documents), sum(|h| h.key_bytes), sum(|h| h.row_bytes), metrics.memory_bytes())
    };
    let (documents, key_bytes, row_bytes, memory) = held_counts(&store);
    assert_eq!((documents, key_bytes), (2, 6));
    assert!(row_bytes > 1_000 && memory > row_bytes + key_bytes);
    let shorter_change = store.upsert("bob", &[("name", Some(Value::String(String::new())))]);
    store.write(vec![shorter_change], 3_000);
    assert_eq!(held_counts(&store).2, row_bytes - 1_000);
    let (ann, bob) = (store.delete("ann"), store.delete("bob"));
    store.write(vec![ann, bob], 4_000);
    // A bucket group and the open segment stay, for future documents.
    let (documents, key_bytes, row_bytes, kept) = held_counts(&store);
    assert_eq!((documents, key_bytes, row_bytes), (0, 0, 0));
    assert!(kept <= memory);
    store.alter(&[Alteration::DropAll], 4_500);
    assert_eq!(held_counts(&store), (0, 0, 0, 0));

    let before = store.index.metrics().reads;
    let view = store.index.view(at(5_000));
    assert!(view.get("ann").unwrap().is_none());
    view.get_documents(&["ann", "bob"][..]).unwrap();
    assert!(view.get(7).is_err());
    let after = store.index.metrics().reads;
    assert_eq!((after.hits - before.hits, after.misses - before.misses), (0, 3));
}

#[test]
fn refused_scan_resumes_at_its_last_document() {
    let mut store = Store::new(spec(1, &[("age", INT32)]));
    let keys: Vec<_> = (0..5).map(|n| format!("key-{n}")).collect();
    let changes = keys.iter().map(|key| store.upsert(key, &[("age", None)])).collect();
    store.write(changes, 1_000);
    // The callback runs once for the list, then once for each key: the third key is refused.
    let admissions_asked = std::cell::Cell::new(0);
    let turns_stale = |_| {
        admissions_asked.set(admissions_asked.get() + 1);
        if admissions_asked.get() == 4 { ReadAdmission::Stale } else { ReadAdmission::Serve }
    };
    let mut documents = Vec::new();
    let mut scan = store.index.scan();
    let mut batch = |documents_max: usize| {
        scan.next_batch(at(2_000).admission(&turns_stale), documents_max, |document| {
            documents.push(format!("{:?}", document.key));
            Ok(())
        })
    };
    assert_refused(batch(10), ErrorCode::Stale, &["partition 0"]);
    assert_eq!(batch(10).unwrap(), 3);
    assert_eq!(batch(10).unwrap(), 0);
    assert_refused(batch(0), ErrorCode::InvalidArgument, &["batch"]);
    documents.sort();
    documents.dedup();
    assert_eq!(documents.len(), keys.len());
}
