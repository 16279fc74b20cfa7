//! Behaviours of reads: presence, time to live, freshness, batches, gather, scans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay::environment::{Clock, SystemClock};
use forebay::reads::{
    Conversion, CopyOut, Element, FieldHandle, FieldRead, GatherField, GatherOut, GatherPlan,
    KeyStatus, PartitionFilter, Presence, ReadOptions, SnapshotStore,
};
use forebay::schema::{FieldSpec, FieldType, KeyType, PartitionId, ScalarType, Value, VectorType};
use forebay::status::Phase;
use forebay::writes::Token;
use forebay::{ErrorCode, Reader, ReaderOptions};
use half::f16;

use crate::world::{
    BYTES, FLOAT32, FLOAT64, Fields, INT32, INT64, PATIENCE, STRING, StoreFixture, after,
    assert_refused, document, eventually, fields, int, keyed, keys, latest, memory_node,
    node_with_snapshots, ready_reader, scalar, sent, spec, value,
};

const NUMBERS: FieldType = FieldType::List(ScalarType::Int64);

pub async fn absent_null_and_empty_differ() {
    let types = [("s", STRING), ("b", BYTES), ("l", NUMBERS), ("i", INT64)];
    let fixture = StoreFixture::with(types).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let empty = fields([
        ("s", "".into()),
        ("b", b"".into()),
        ("l", Value::List(ScalarType::Int64, Vec::new())),
        ("i", int(0)),
    ]);
    let null: Fields = types.iter().map(|(name, _)| ((*name).to_owned(), None)).collect();
    let (mut puts_empty, mut puts_null) = (store.put("empty"), store.put("null"));
    for (name, value) in &empty {
        puts_empty = puts_empty.set(name, value.clone().unwrap());
        puts_null = puts_null.set_null(name);
    }
    fixture.write_all([puts_empty, puts_null, store.put("absent")]).await;
    assert_eq!(fixture.latest("empty").await.as_ref(), Some(&empty));
    assert_eq!(fixture.latest("null").await, Some(null));
    assert_eq!(fixture.latest("absent").await, Some(Fields::new()));
    assert_eq!(fixture.latest("none").await, None);
    for (name, field_type) in types {
        let handle = reader.field_as(name, field_type).unwrap();
        let read = |key: &str| value(reader, &handle, key).unwrap();
        assert_eq!(read("empty"), FieldRead::Value(empty[name].clone().unwrap()));
        assert_eq!(read("null"), FieldRead::Null);
        assert_eq!(read("absent"), FieldRead::Absent);
        assert_eq!(read("none"), FieldRead::Absent);
    }
}

pub async fn get_copies_a_value_into_the_callers_buffer() {
    let fixture = StoreFixture::with([("s", STRING), ("b", BYTES)]).await;
    let put_write = fixture.store.put("k").set("s", "h\u{e9}llo").set("b", b"".as_slice());
    let token = fixture.write_all([put_write, fixture.store.put("null").set_null("s")]).await;
    fixture.reader.await_token(&token, PATIENCE).await.unwrap();
    let text = fixture.reader.field_as("s", STRING).unwrap();
    let bytes = fixture.reader.field_as("b", BYTES).unwrap();
    for (room, answer, expected_buffer) in [
        (8, CopyOut::Length(6), "h\u{e9}llo..".as_bytes()),
        (6, CopyOut::Length(6), "h\u{e9}llo".as_bytes()),
        (5, CopyOut::SizeNeeded(6), b"....."),
        (0, CopyOut::SizeNeeded(6), b""),
    ] {
        let mut buffer = vec![b'.'; room];
        let read = fixture.reader.get_str(&text, "k", &mut buffer);
        assert_eq!((read.unwrap(), &buffer[..]), (answer, expected_buffer));
    }
    let mut buffer = *b"..";
    let mut read = |handle: &FieldHandle, key| {
        let read = fixture.reader.read_local(None, |view| match handle.asked() {
            STRING => view.get_str(handle, key, &mut buffer),
            _ => view.get_bytes(handle, key, &mut buffer),
        });
        assert_eq!(&buffer, b"..");
        read.unwrap()
    };
    assert_eq!(read(&bytes, "k"), CopyOut::Length(0));
    assert_eq!(read(&text, "null"), CopyOut::Null);
    assert_eq!(read(&bytes, "null"), CopyOut::Absent);
    assert_eq!(read(&text, "none"), CopyOut::Absent);
}

pub async fn document_expires_exactly_at_its_time() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    // If the machine stalls for longer than the document lives, the test tries a longer life.
    let mut was_read_alive = false;
    for ttl_ms in [500, 4_000, 32_000] {
        was_read_alive = lives_exactly(&fixture, Duration::from_millis(ttl_ms)).await;
        if was_read_alive {
            break;
        }
    }
    assert!(was_read_alive, "never read alive");
    sent(fixture.store.put("stays").set("a", 1)).await;
    assert_eq!(fixture.numbers(&["k", "stays"][..], "a").await, [None, Some(1)]);
    assert_eq!(fixture.scan().into_keys().collect::<Vec<_>>(), ["stays"]);

    let mut by_default = spec([("a", INT64)]);
    by_default.options.ttl_us = Some(200_000);
    let fixture = StoreFixture::create(by_default).await;
    sent(fixture.store.put("k").set("a", 1)).await;
    eventually("the store's time to live", async || fixture.latest("k").await.is_none()).await;
}

/// Reads a document until it is gone; returns whether it was ever read.
async fn lives_exactly(fixture: &StoreFixture, ttl: Duration) -> bool {
    let now = || SystemClock.now().as_micros();
    let ttl_us = i64::try_from(ttl.as_micros()).unwrap();
    let began = now();
    let mut token = sent(fixture.store.put("k").set("a", 1).ttl(ttl)).await;
    let acknowledged = now();
    token.merge(&sent(fixture.store.upsert("k").set("b", 2)).await).unwrap();
    let alive = fields([("a", int(1)), ("b", int(2))]);
    let mut was_read = false;
    loop {
        // The document expires one life after its append, which was between the two times.
        let asked_at = now();
        match fixture.after(&token, "k").await {
            Some(found) if found == alive => {
                assert!(asked_at < acknowledged + ttl_us, "read after it had expired");
                was_read = true;
            }
            // The upsert came after the document was gone, and created a document without an
            // expiry.
            Some(found) => {
                assert_eq!(found, fields([("b", int(2))]));
                assert!(now() >= began + ttl_us, "expired too early");
                sent(fixture.store.delete("k")).await;
                return false;
            }
            None => {
                assert!(now() >= began + ttl_us, "expired too early");
                return was_read;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn field_expires_at_its_own_time() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    let write = fixture.store.put("k").set("a", 1).set("b", 2);
    let token = sent(write.field_ttl("b", Duration::from_millis(500))).await;
    let found = fixture.after(&token, "k").await.unwrap();
    assert_eq!(found["a"], Some(int(1)));
    let handle = fixture.reader.field_as("b", INT64).unwrap();
    eventually("the field expires", async || {
        scalar::<i64>(&fixture.reader, &handle, "k").unwrap() == FieldRead::Absent
    })
    .await;
    assert_eq!(fixture.latest("k").await, Some(fields([("a", int(1))])));
}

pub async fn read_after_a_token_waits_for_its_write() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let mut token = Token::new(fixture.store.definition().store);
    for number in 0..50 {
        token = sent(fixture.store.upsert("k").set("a", number)).await;
        let bytes = token.encode();
        let travelled = Token::decode(&bytes).unwrap();
        assert_eq!(fixture.after(&travelled, "k").await, Some(fields([("a", int(number))])));
    }
    let bytes = token.encode().to_vec();
    let mut forged = bytes.clone();
    forged[1..].iter_mut().for_each(|byte| *byte ^= 1);
    for wrong in [&b""[..], b"token", &forged, &bytes[..bytes.len() - 1]] {
        assert_refused(Token::decode(wrong), ErrorCode::InvalidArgument);
    }
    let other = StoreFixture::with([("a", INT64)]).await;
    let foreign = sent(other.store.upsert("k").set("a", 1)).await;
    let read = document(&fixture.reader, &after(&foreign), "k").await;
    let error = assert_refused(read, ErrorCode::InvalidArgument);
    assert_eq!(error.context().store.as_deref(), Some(fixture.name()));
    let wait = fixture.reader.await_token(&foreign, PATIENCE).await;
    assert_refused(wait, ErrorCode::InvalidArgument);
}

pub async fn latest_read_sees_every_acknowledged_write() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let keys = keys(8);
    for number in 0..20 {
        let key = &keys[number as usize % 8];
        sent(fixture.store.upsert(key).set("a", number)).await;
        assert_eq!(fixture.latest(key).await, Some(fields([("a", int(number))])));
    }
    let mut numbers = fixture.numbers(&keys[..], "a").await;
    numbers.sort_unstable();
    assert_eq!(numbers, (12..20).map(Some).collect::<Vec<_>>());
}

pub async fn read_beyond_its_staleness_bound_is_stale() {
    let mut node = memory_node().await;
    let mut beating = keyed(KeyType::String, 1, [("a", INT64)]);
    beating.options.heartbeat_ms = 200;
    let fixture = StoreFixture::create_at(&node.endpoint(), beating).await;
    let reader = &fixture.reader;
    sent(fixture.store.upsert("k").set("a", 1)).await;
    let found = document(reader, &latest().max_staleness(Duration::from_secs(30)), "k").await;
    assert_eq!(found.unwrap(), Some(fields([("a", int(1))])));
    let too_small = ReadOptions::local().max_staleness(Duration::from_millis(399));
    assert_refused(document(reader, &too_small, "k").await, ErrorCode::InvalidArgument);

    node.kill();
    let bound = Some(Duration::from_secs(1));
    let status = || {
        let mut status = KeyStatus::Absent;
        let read = reader.read_local(bound, |view| {
            view.get_many(&["k"][..], |_, answer| {
                status = answer.status();
                Ok(())
            })
        });
        read.unwrap();
        status
    };
    eventually("the reader is stale", async || status() == KeyStatus::Stale).await;
    let plan = reader.plan_gather::<i64>(&[GatherField::new("a")], Conversion::Exact).unwrap();
    let handle = reader.field_as("a", INT64).unwrap();
    let mut cell = [0];
    let mut gather_out = GatherOut::values(&mut cell);
    let gathered = reader.read_local(bound, |view| view.gather(&plan, &["k"][..], &mut gather_out));
    let one_value = reader.read_local(bound, |view| view.get_scalar::<i64>(&handle, "k"));
    let whole_document = reader.read_local(bound, |view| view.get_document("k"));
    let scanned = reader.scan_next(&mut reader.scan(), bound, 10, |_| Ok(()));
    let refusals = [gathered, one_value.map(drop), whole_document.map(drop), scanned.map(drop)];
    for read in refusals {
        let error = assert_refused(read, ErrorCode::Stale);
        assert_eq!(error.context().partition, Some(PartitionId(0)));
    }
    assert_eq!(scalar::<i64>(reader, &handle, "k").unwrap(), FieldRead::Value(1));

    node.restart().await;
    eventually("the reader is fresh again", async || status() == KeyStatus::Found).await;
}

pub async fn ready_reader_reports_status_and_metrics() {
    let fixture = StoreFixture::create(keyed(KeyType::String, 3, [("a", INT64)])).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let keys = keys(30);
    let token = fixture.write_all(keys.iter().map(|key| store.upsert(key).set("a", 1))).await;
    reader.await_token(&token, PATIENCE).await.unwrap();
    assert!(reader.is_ready());
    let before = reader.metrics();
    let requested_keys = ["k1", "k2", "none"];
    reader.read_local(None, |view| view.get_many(&requested_keys[..], |_, _| Ok(()))).unwrap();
    let after = reader.metrics();
    assert_eq!(after.reads.hits - before.reads.hits, 2);
    assert_eq!(after.reads.misses - before.reads.misses, 1);
    assert!(after.memory_bytes > 0 && after.counts.records_applied >= 3);
    let status = reader.status();
    assert_eq!(
        (status.store.as_str(), status.phase, status.bootstrap_percent),
        (fixture.name(), Phase::Serving, 100)
    );
    assert!(status.is_ready && status.age.unwrap() < PATIENCE);
    let partitions: Vec<_> = status.partitions.iter().map(|status| status.partition.0).collect();
    assert_eq!(partitions, [0, 1, 2]);
    assert_eq!(status.partitions.iter().map(|status| status.documents).sum::<u64>(), 30);
    for partition in &status.partitions {
        assert_eq!((partition.phase, &partition.fatal_error), (Phase::Serving, &None));
        assert!(partition.position.is_some() && partition.age.is_some());
        assert_eq!(partition.lag_records, partition.end_offset.0 - partition.offset_applied.0);
    }
}

pub async fn filtered_reader_answers_only_its_partitions() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let keys = keys(20);
    fixture.write_all(keys.iter().map(|key| fixture.store.upsert(key).set("a", 1))).await;
    let filtered = |partition: u32| {
        let partitions = PartitionFilter::Only(BTreeSet::from([PartitionId(partition)]));
        ReaderOptions::new(fixture.name()).partitions(partitions)
    };
    let reader = ready_reader(&fixture.client, filtered(1)).await;
    let answers = reader.read_local(None, |view| view.get_documents(&keys[..])).unwrap();
    let mut followed = BTreeMap::new();
    for (key, (status, found)) in keys.iter().zip(answers) {
        let is_followed = fixture.reader.partition_of(key).unwrap() == PartitionId(1);
        let expected = if is_followed { KeyStatus::Found } else { KeyStatus::NotFollowed };
        assert_eq!((status, found.is_some()), (expected, is_followed));
        if is_followed {
            followed.insert(key.clone(), fields([("a", int(1))]));
        }
    }
    assert!(!followed.is_empty() && followed.len() < keys.len());
    assert_eq!(crate::world::scan(&reader), followed);

    let other = keys.iter().find(|key| !followed.contains_key(*key)).unwrap();
    let handle = reader.field_as("a", INT64).unwrap();
    let plan = reader.plan_gather::<i64>(&[GatherField::new("a")], Conversion::Exact).unwrap();
    let mut cell = [0];
    let mut gather_out = GatherOut::values(&mut cell);
    let other_keys = std::slice::from_ref(other);
    let gathered = reader.read_local(None, |view| view.gather(&plan, other_keys, &mut gather_out));
    let outcome = document(&reader, &latest(), other).await;
    let refusals = [scalar::<i64>(&reader, &handle, other).map(drop), gathered, outcome.map(drop)];
    for read in refusals {
        let error = assert_refused(read, ErrorCode::InvalidArgument);
        assert_eq!(error.context().partition, Some(PartitionId(0)));
    }
    assert_eq!(fixture.numbers(&keys[..], "a").await, [Some(1); 20]);
    assert_refused(fixture.client.reader(filtered(2)).await, ErrorCode::InvalidArgument);
}

pub async fn reader_is_verified_with_its_node() {
    let fixture = StoreFixture::create(keyed(KeyType::Int64, 2, [("a", INT64)])).await;
    let (store, write_count) = (&fixture.store, 200_i64);
    let token =
        fixture.write_all((0..write_count).map(|key| store.upsert(key).set("a", key))).await;
    fixture.reader.await_token(&token, PATIENCE).await.unwrap();
    sent(store.delete(0_i64)).await;
    let mut documents = 0;
    for partition in [0, 1].map(PartitionId) {
        let key = write_count + i64::from(partition.0);
        let writing = sent(store.upsert(key).set("a", key));
        let (verified, _) = tokio::join!(fixture.reader.verify(partition, PATIENCE), writing);
        let verified = verified.unwrap();
        assert!(verified.is_same() && verified.at.partition == partition, "{verified:?}");
        assert_eq!(verified.documents.0, verified.documents.1);
        documents += verified.documents.0;
    }
    assert!((199..=201).contains(&documents), "{documents} documents");
    let unknown = fixture.reader.verify(PartitionId(2), PATIENCE).await;
    assert_refused(unknown, ErrorCode::InvalidArgument);
    let memory = Reader::in_memory(&keyed(KeyType::Int64, 1, [("a", INT64)]), []).unwrap();
    assert_refused(memory.verify(PartitionId(0), PATIENCE).await, ErrorCode::Unsupported);
}

pub async fn reader_opened_later_finds_earlier_writes() {
    let fixture = StoreFixture::create(keyed(KeyType::Int64, 4, [("a", INT64)])).await;
    for part in 0..4 {
        let numbers = part * 500..part * 500 + 500;
        fixture
            .write_all(numbers.map(|number| fixture.store.upsert(number).set("a", number)))
            .await;
    }
    sent(fixture.store.delete(0)).await;
    let reader = ready_reader(&fixture.client, ReaderOptions::new(fixture.name())).await;
    let handle = reader.field_as("a", INT64).unwrap();
    assert_eq!(scalar::<i64>(&reader, &handle, 0).unwrap(), FieldRead::Absent);
    for number in 1..2_000i64 {
        assert_eq!(scalar(&reader, &handle, number).unwrap(), FieldRead::Value(number));
    }
}

pub async fn reader_bootstraps_from_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let node = node_with_snapshots(Some(&url)).await;
    let mut spec = keyed(KeyType::Int64, 2, [("a", INT64)]);
    spec.options.log_retention_us = Some(0);
    let fixture = StoreFixture::create_at(&node.endpoint(), spec).await;
    let (store, write_count) = (&fixture.store, 100_i64);
    for number in 0..write_count {
        sent(store.upsert(number).set("a", number)).await;
    }
    sent(store.delete(0)).await;
    let snapshots = Some(SnapshotStore::open(&url).unwrap());
    let options = ReaderOptions::new(fixture.name()).snapshots(snapshots);
    let mut round = 0_i64;
    let has_begun = eventually("a reader begins with snapshots", async || {
        let reader = ready_reader(&fixture.client, options.clone()).await;
        let a = reader.field_as("a", INT64).unwrap();
        assert_eq!(scalar::<i64>(&reader, &a, 0).unwrap(), FieldRead::Absent);
        for number in 1..write_count {
            assert_eq!(scalar(&reader, &a, number).unwrap(), FieldRead::Value(number));
        }
        round += 1;
        let token = sent(store.upsert(write_count).increment("a", 1)).await;
        reader.await_token(&token, PATIENCE).await.unwrap();
        assert_eq!(scalar(&reader, &a, write_count).unwrap(), FieldRead::Value(round));
        let counts: Vec<_> =
            reader.status().partitions.iter().map(|partition| partition.counts).collect();
        let applied = counts.iter().map(|counts| counts.records_applied).sum::<u64>();
        counts.iter().all(|counts| counts.bootstraps > 0) && applied < write_count as u64
    });
    has_begun.await;
    assert_refused(SnapshotStore::open("nowhere"), ErrorCode::InvalidArgument);
}

pub async fn reader_answers_from_the_live_version() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("file://{}", folder.path().join(name).display());
    let node = node_with_snapshots(Some(&url("snapshots"))).await;
    let fixture =
        StoreFixture::create_at(&node.endpoint(), keyed(KeyType::Int64, 2, [("a", INT64)])).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    fixture.write_all((0..100).map(|number| store.upsert(number).set("a", number))).await;
    let rows = (50..150).map(|number| format!("{number},{}\n", 1_000 + number)).collect::<String>();
    std::fs::write(folder.path().join("pushed.csv"), format!("id,a\n{rows}")).unwrap();
    let a = reader.field_as("a", INT64).unwrap();
    let read = |number: i64| scalar::<i64>(reader, &a, number).unwrap();
    let is_pushed = |number| match number {
        0..50 => FieldRead::Absent,
        _ => FieldRead::Value(1_000 + number),
    };
    let is_before = |number| match number {
        0..100 => FieldRead::Value(number),
        _ => FieldRead::Absent,
    };
    let answers = async |expected: &dyn Fn(i64) -> FieldRead<i64>, written_numbers: &[i64]| {
        eventually("the reader answers from the live version", async || read(0) == expected(0))
            .await;
        for number in 0..150 {
            assert_eq!(read(number), expected(number));
        }
        for number in written_numbers {
            assert_eq!(read(*number), FieldRead::Value(*number));
        }
    };
    let write = async |number: i64| {
        let token = sent(store.upsert(number).set("a", number)).await;
        reader.await_token(&token, PATIENCE).await.unwrap();
    };
    assert_eq!(node.push(fixture.name(), &url("pushed.csv"), None).await, 2);
    write(200).await;
    answers(&is_pushed, &[200]).await;
    node.activate_version(fixture.name(), 1).await;
    write(201).await;
    answers(&is_before, &[200, 201]).await;
    assert_eq!(node.push(fixture.name(), &url("pushed.csv"), Some(3)).await, 3);
    write(202).await;
    answers(&is_pushed, &[202]).await;
    assert_eq!(reader.status().partitions.len(), 3);
}

pub async fn batch_answers_duplicate_keys_twice() {
    let fixture = StoreFixture::create(keyed(KeyType::Int64, 2, [("a", INT64)])).await;
    let store = &fixture.store;
    fixture.write_all((0..3).map(|number| store.upsert(number).set("a", number * 10))).await;
    let keys = [2i64, 0, 2, 1, 2];
    let expected = [20, 0, 20, 10, 20];
    assert_eq!(fixture.numbers(&keys[..], "a").await, expected.map(Some));
    let a = store.definition().field("a").unwrap().id;
    let documents = fixture.reader.read_local(None, |view| view.get_documents(&keys[..]));
    for ((status, found), number) in documents.unwrap().into_iter().zip(expected) {
        assert_eq!(status, KeyStatus::Found);
        assert_eq!(found.unwrap().value(a), Some(&int(number)));
    }
}

pub async fn batch_reports_missing_keys_as_absent() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    fixture.write_all([store.upsert("k").set("a", 1), store.upsert("null").set_null("a")]).await;
    let keys = ["x", "k", "y", "null", "k"];
    assert_eq!(fixture.numbers(&keys[..], "a").await, [None, Some(1), None, None, Some(1)]);
    let documents = reader.read_local(None, |view| view.get_documents(&keys[..])).unwrap();
    let a = store.definition().field("a").unwrap().id;
    let values = documents.into_iter().map(|(status, found)| {
        (status, found.map(|document| document.cell(a).unwrap().value.clone()))
    });
    let (absent, found) = (KeyStatus::Absent, KeyStatus::Found);
    let expected = [
        (absent, None),
        (found, Some(Some(int(1)))),
        (absent, None),
        (found, Some(None)),
        (found, Some(Some(int(1)))),
    ];
    assert_eq!(values.collect::<Vec<_>>(), expected);
}

pub async fn empty_batch_answers_nothing() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let reader = &fixture.reader;
    let no_keys: [&str; 0] = [];
    assert_eq!(fixture.numbers(&no_keys[..], "a").await, []);
    let documents = reader.read_local(None, |view| view.get_documents(&no_keys[..]));
    assert_eq!(documents.unwrap(), []);
    let plan = plan::<i64>(reader, &["a"]);
    assert_eq!(fixture.gather(&plan, &no_keys[..]).await, [0i64; 0]);
    let outcome = fixture.store.batch().send().await.unwrap();
    assert_eq!(outcome.results, []);
}

fn plan<E: Element>(reader: &Reader, names: &[&str]) -> GatherPlan<E> {
    let fields: Vec<_> = names.iter().map(|name| GatherField::new(name)).collect();
    reader.plan_gather(&fields, Conversion::Exact).unwrap()
}

pub async fn gather_fills_defaults() {
    let mut defaulting = spec([("a", FLOAT32), ("b", FLOAT32), ("c", FLOAT32)]);
    defaulting.fields[0].default = Some(Value::Float32(-1.0));
    defaulting.fields[1] =
        FieldSpec { default: Some(Value::Float32(-2.0)), ..FieldSpec::new("b", FLOAT32) };
    let fixture = StoreFixture::create(defaulting).await;
    let store = &fixture.store;
    sent(store.upsert("k").set("a", 1f32).set("b", 2f32).set("c", 3f32)).await;
    sent(store.upsert("null").set_null("a").set_null("b").set_null("c")).await;
    let columns = [
        GatherField::new("a"),
        GatherField::new("b").or(Value::Float32(7.5)),
        GatherField::new("c"),
    ];
    let plan = fixture.reader.plan_gather::<f32>(&columns, Conversion::Exact).unwrap();
    let matrix = fixture.gather(&plan, &["k", "null", "none"][..]).await;
    assert_eq!(matrix, [1.0, 2.0, 3.0, -1.0, 7.5, 0.0, -1.0, 7.5, 0.0]);
}

pub async fn gather_mask_distinguishes_absent_null_and_value() {
    let fixture = StoreFixture::with([("a", INT32), ("b", INT32)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    fixture.write_all([store.upsert("k").set("a", 1).set_null("b")]).await;
    fixture.write_all([store.upsert("l").set("b", 2)]).await;
    let plan = plan::<i32>(reader, &["a", "b"]);
    let keys = ["k", "none", "l"];
    let (mut values, mut cells) = ([9; 6], [Presence::Null; 6]);
    let mut statuses = [KeyStatus::Stale; 3];
    let mut gather_out =
        GatherOut { values: &mut values, statuses: Some(&mut statuses), cells: Some(&mut cells) };
    let read =
        fixture.read_latest(&keys[..], |view| view.gather(&plan, &keys[..], &mut gather_out));
    read.await.unwrap();
    let (absent, null, value) = (Presence::Absent, Presence::Null, Presence::Value);
    assert_eq!(values, [1, 0, 0, 0, 0, 2]);
    assert_eq!(cells, [value, null, absent, absent, absent, value]);
    assert_eq!(statuses, [KeyStatus::Found, KeyStatus::Absent, KeyStatus::Found]);
}

pub async fn gather_spreads_vectors_over_columns() {
    let fixture = StoreFixture::with([
        ("a", FLOAT32),
        ("e", FieldType::Vector(VectorType::F32, 3)),
        ("h", FieldType::Vector(VectorType::F16, 2)),
        ("i", FieldType::Vector(VectorType::I8, 1)),
    ])
    .await;
    let halves = |numbers: [f32; 2]| numbers.map(f16::from_f32).to_vec();
    let write = fixture.store.upsert("k").set("a", 9f32).set("e", vec![1f32, 2.0, 3.0]);
    sent(write.set("h", halves([4.0, 5.0])).set("i", vec![6i8])).await;
    let columns = [
        GatherField::new("e"),
        GatherField::new("a"),
        GatherField::new("h").or(halves([7.0, 8.0]).into()),
        GatherField::new("i"),
    ];
    let plan = fixture.reader.plan_gather::<f32>(&columns, Conversion::Exact).unwrap();
    let places: Vec<_> =
        plan.columns().map(|columns| (columns.field, columns.first, columns.count)).collect();
    let expected = [("e", 0, 3), ("a", 3, 1), ("h", 4, 2), ("i", 6, 1)];
    assert_eq!(places, expected.map(|(name, first, count)| (name.to_owned(), first, count)));
    let matrix = fixture.gather(&plan, &["k", "none"][..]).await;
    assert_eq!(matrix[..7], [1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0]);
    assert_eq!(matrix[7..], [0.0, 0.0, 0.0, 0.0, 7.0, 8.0, 0.0]);
}

pub async fn gather_repeats_duplicate_keys() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let store = &fixture.store;
    fixture.write_all([store.upsert("k").set("a", 1), store.upsert("l").set("a", 2)]).await;
    let plan = plan::<i64>(&fixture.reader, &["a"]);
    assert_eq!(fixture.gather(&plan, &["l", "k", "l", "l"][..]).await, [2, 1, 2, 2]);
}

pub async fn gather_refuses_too_small_arrays_untouched() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64)]).await;
    let reader = &fixture.reader;
    sent(fixture.store.upsert("k").set("a", 1).set("b", 2)).await;
    let plan = plan::<i64>(reader, &["a", "b"]);
    let keys = ["k"; 3];
    assert_eq!(fixture.gather(&plan, &keys[..]).await, [1, 2, 1, 2, 1, 2]);
    for (rooms, named) in [([5, 3, 6], "matrix"), ([6, 2, 6], "statuses"), ([6, 3, 5], "mask")] {
        let [values, statuses, cells] = rooms;
        let mut values = vec![9; values];
        let mut statuses = vec![KeyStatus::Stale; statuses];
        let mut cells = vec![Presence::Null; cells];
        let mut gather_out = GatherOut {
            values: &mut values,
            statuses: Some(&mut statuses),
            cells: Some(&mut cells),
        };
        let gathered =
            reader.read_local(None, |view| view.gather(&plan, &keys[..], &mut gather_out));
        let error = assert_refused(gathered, ErrorCode::InvalidArgument);
        assert!(error.message().contains(named), "{error}");
        assert!(values.iter().all(|value| *value == 9));
        assert!(statuses.iter().all(|status| *status == KeyStatus::Stale));
        assert!(cells.iter().all(|cell| *cell == Presence::Null));
    }
}

pub async fn gather_plan_refuses_inexact_conversions() {
    let types = [("i", INT64), ("f", FLOAT64), ("s", STRING), ("l", NUMBERS), ("b", BYTES)];
    let fixture = StoreFixture::with(types).await;
    let reader = &fixture.reader;
    sent(fixture.store.upsert("k").set("i", (1i64 << 53) + 1).set("f", 0.1)).await;
    refuses::<f32>(reader, &["i", "f", "s", "l", "b"], Conversion::Exact);
    refuses::<f64>(reader, &["i", "s", "l", "b"], Conversion::Exact);
    refuses::<i64>(reader, &["f", "s", "l", "b"], Conversion::Exact);
    refuses::<f64>(reader, &["s", "l", "b"], Conversion::Lossy);
    let columns = [GatherField::new("i"), GatherField::new("f")];
    let lossy = reader.plan_gather::<f32>(&columns, Conversion::Lossy).unwrap();
    assert_eq!(fixture.gather(&lossy, &["k"][..]).await, [(1i64 << 53) as f32, 0.1]);
    let exact = plan::<i64>(reader, &["i"]);
    assert_eq!(fixture.gather(&exact, &["k"][..]).await, [(1 << 53) + 1]);
}

fn refuses<E: Element>(reader: &Reader, names: &[&str], conversion: Conversion) {
    for name in names {
        let plan = reader.plan_gather::<E>(&[GatherField::new(name)], conversion);
        let error = assert_refused(plan, ErrorCode::InvalidArgument);
        assert_eq!(error.context().field.as_deref(), Some(*name));
    }
}

pub async fn scan_equals_gets() {
    let fixture =
        StoreFixture::create(keyed(KeyType::String, 4, [("a", INT64), ("s", STRING)])).await;
    let (store, keys) = (&fixture.store, keys(3_000));
    let put_write = |number: usize| store.put(&keys[number]).set("a", number as i64);
    fixture
        .write_all((0..3_000).map(|number| put_write(number).set("s", "x".repeat(number % 50))))
        .await;
    fixture.write_all(keys.iter().step_by(7).map(|key| store.delete(key))).await;
    assert_eq!(fixture.numbers(&keys[..], "a").await[..2], [None, Some(1)]);
    let scanned = fixture.scan();
    let gets = keys.iter().filter_map(|key| {
        let found = fixture.reader.get_document(key).unwrap()?;
        let definition = fixture.reader.definition();
        Some((key.clone(), crate::world::named(found, &definition)))
    });
    assert_eq!(scanned, gets.collect());
    assert_eq!(scanned.len(), 3_000 - 3_000usize.div_ceil(7));
}
