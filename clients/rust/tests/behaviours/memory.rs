//! In-memory readers: a program under test gets the same answers as from any other reader.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::reads::{
    Conversion, FieldRead, GatherField, GatherOut, KeyAnswer, KeyStatus, Presence, ReadOptions,
};
use forebay::schema::{Alteration, FieldSpec, FieldType, StoreSpec, Timestamp};
use forebay::testing::{InMemoryReader, Row, SimulatedState};
use forebay::writes::{Write, WriteResult};
use forebay::{ErrorCode, Reader, Result};

use crate::world::{
    FLOAT64, Fields, INT32, INT64, SOON, STRING, StoreFixture, after, assert_refused, document,
    fields, int, keys, latest, named, ready_reader, scalar, spec, value,
};

const HOUR: Duration = Duration::from_secs(3600);

fn open_memory_reader<const N: usize>(
    types: [(&str, FieldType); N],
    rows: impl IntoIterator<Item = Row>,
) -> InMemoryReader {
    Reader::in_memory(&spec(types), rows).unwrap()
}

/// Returns the document as this process has it now.
fn found(reader: &Reader, key: &str) -> Option<Fields> {
    let document = reader.get_document(key).unwrap();
    document.map(|document| named(document, &reader.definition()))
}

/// Makes the reads of a ranking, by any reader: the program under test.
fn profile(users: &Reader, keys: &[String]) -> Result<Vec<(i64, f64, String)>> {
    let visits = users.field_as("visits", INT64)?;
    let score = users.field_as("score", FLOAT64)?;
    let city = users.field_as("city", STRING)?;
    let bound = Some(Duration::from_secs(60));
    let read_profile = |key: &String| {
        users.read_local(bound, |view| {
            let city = view.get_str_owned(&city, key)?.value().unwrap_or_default();
            Ok((view.get_i64(&visits, key, -1)?, view.get_f64(&score, key, 0.5)?, city))
        })
    };
    keys.iter().map(read_profile).collect()
}

pub async fn in_memory_reader_is_ready_with_its_rows() {
    let rows = keys(100).into_iter().zip(0..).map(|(key, place)| Row::new(&key).set("a", place));
    let reader = open_memory_reader([("a", INT64), ("s", STRING)], rows);
    assert!(reader.is_ready());
    reader.await_ready(Duration::ZERO).await.unwrap();
    let status = reader.status();
    assert!(status.is_ready);
    assert_eq!(status.age, Some(Duration::ZERO));
    assert_eq!(status.partitions.iter().map(|partition| partition.documents).sum::<u64>(), 100);
    let visited = reader.scan_next(&mut reader.scan(), None, 1_000, |_| Ok(()));
    assert_eq!(visited.unwrap(), 100);
    assert_eq!(found(&reader, "k42"), Some(fields([("a", int(42))])));
    assert_eq!(found(&reader, "none"), None);
    let spec = spec([("a", INT64)]);
    let refused_row =
        |row| assert_refused(Reader::in_memory(&spec, [row]).map(drop), ErrorCode::NotFound);
    assert_eq!(refused_row(Row::new("k").set("b", 1)).context().field.as_deref(), Some("b"));
    let wrong = Reader::in_memory(&spec, [Row::new(7).set("a", 1)]);
    assert_refused(wrong.map(drop), ErrorCode::InvalidArgument);
}

pub async fn in_memory_writes_have_the_meaning_of_store_writes() {
    let mut spec = spec([("a", INT64), ("l", FieldType::List(forebay::schema::ScalarType::Int64))]);
    spec.options.versioned = true;
    let reader = Reader::in_memory(&spec, [Row::new("k").set("a", 1)]).unwrap();
    let store = reader.as_store();
    let sent = async |write: Write| write.send().await.unwrap();
    let token =
        sent(store.upsert("k").increment("a", 4).list_append("l", [1, 2, 3], 2)).await.token;
    let list =
        forebay::schema::Value::List(forebay::schema::ScalarType::Int64, vec![int(2), int(3)]);
    let expected = fields([("a", int(5)), ("l", list)]);
    assert_eq!(found(&reader, "k"), Some(expected.clone()));
    assert_eq!(document(&reader, &after(&token), "k").await.unwrap(), Some(expected.clone()));
    assert_eq!(document(&reader, &latest(), "k").await.unwrap(), Some(expected));
    let version = reader.get_document("k").unwrap().unwrap().version.unwrap();
    let second_outcome = sent(store.upsert("k").set("a", 0).if_absent()).await;
    assert_eq!(second_outcome.result, WriteResult::ConditionFailed(Some(version)));
    let matching_outcome = sent(store.upsert("k").set("a", 9).if_version(version)).await;
    assert_eq!(matching_outcome.result, WriteResult::Applied);
    let not_newer = sent(store.upsert("k").set("a", 8).if_newer("a")).await;
    assert!(matches!(not_newer.result, WriteResult::ConditionFailed(_)));
    sent(store.put("k").set("a", 1)).await;
    assert_eq!(found(&reader, "k"), Some(fields([("a", int(1))])));
    sent(store.upsert("k").set_null("a")).await;
    assert_eq!(found(&reader, "k"), Some(Fields::from([("a".to_owned(), None)])));
    sent(store.delete("k")).await;
    assert_eq!(found(&reader, "k"), None);
    let mut batch = store.batch();
    for key in keys(3_000) {
        batch.add(store.upsert(&key).increment("a", 1)).unwrap();
        batch.add(store.upsert(&key).increment("a", 1)).unwrap();
    }
    assert_eq!(batch.send().await.unwrap().require_complete().unwrap().results.len(), 6_000);
    assert!(keys(3_000).iter().all(|key| found(&reader, key).unwrap()["a"] == Some(int(2))));
    assert_refused(reader.write(store.upsert("k").set("b", 1)), ErrorCode::NotFound);
    assert_refused(reader.write(store.upsert("k").set("a", "x")), ErrorCode::InvalidArgument);
    let other = Reader::in_memory(&spec, []).unwrap();
    let foreign = other.write(other.upsert("k").set("a", 1)).unwrap().token;
    assert_refused(document(&reader, &after(&foreign), "k").await, ErrorCode::InvalidArgument);
}

pub async fn in_memory_clock_moves_only_on_request() {
    let row = Row::new("k").set("a", 1).ttl(Duration::from_secs(10));
    let reader = open_memory_reader([("a", INT64), ("b", INT64)], [row]);
    let began = reader.clock();
    let write = reader.upsert("k").set("b", 2).field_ttl("b", Duration::from_secs(4));
    reader.write(write).unwrap();
    let both_fields = fields([("a", int(1)), ("b", int(2))]);
    for (after_us, expected) in [
        (3_999_999, Some(both_fields)),
        (4_000_000, Some(fields([("a", int(1))]))),
        (9_999_999, Some(fields([("a", int(1))]))),
        (10_000_000, None),
    ] {
        reader.set_clock(began.plus_micros(after_us)).unwrap();
        assert_eq!(found(&reader, "k"), expected, "{after_us} us later");
        let fresh_bound = Some(Duration::from_secs(2));
        assert!(reader.read_local(fresh_bound, |view| view.get("k").map(drop)).is_ok(), "fresh");
    }
    let past = Timestamp::from_micros(reader.clock().as_micros() - 1);
    assert_refused(reader.set_clock(past), ErrorCode::InvalidArgument);
    reader.write(reader.upsert("k").increment("a", 1)).unwrap();
    assert_eq!(found(&reader, "k"), Some(fields([("a", int(1))])), "absent counts as 0");
    reader.advance(Duration::from_secs(1_000_000)).unwrap();
    assert!(reader.is_ready());
    assert_eq!(reader.status().age, Some(Duration::ZERO));
    reader.write(reader.upsert("k").increment("a", 1)).unwrap();
    assert_eq!(found(&reader, "k"), Some(fields([("a", int(2))])), "after days without a write");
}

pub async fn in_memory_reader_accepts_alterations() {
    let types = [("x_a", INT32), ("x_b", INT32), ("y", INT32)];
    let row = Row::new("k").set("x_a", 1).set("x_b", 2).set("y", 3);
    let reader = open_memory_reader(types, [row]);
    let (y, x_a) = (reader.field_as("y", INT32).unwrap(), reader.field_as("x_a", INT32).unwrap());
    let rename = Alteration::RenameField { from: "y".to_owned(), to: "z".to_owned() };
    let widen = Alteration::WidenField { name: "z".to_owned(), to: INT64 };
    let add = Alteration::AddField(FieldSpec::new("n", STRING));
    let drops = Alteration::DropFieldsByPrefix("x_".to_owned());
    let altered = reader.alter(&[rename, widen, add, drops]).unwrap();
    assert_eq!(reader.schema_version(), altered.version);
    assert_eq!(found(&reader, "k"), Some(fields([("z", int(3))])));
    assert_eq!(scalar::<i32>(&reader, &y, "k").unwrap(), FieldRead::Value(3));
    assert_eq!(value(&reader, &x_a, "k").unwrap(), FieldRead::Absent);
    reader.write(reader.upsert("k").set("y", 1_i64 << 40).set("n", "new")).unwrap();
    assert_refused(scalar::<i32>(&reader, &y, "k"), ErrorCode::InvalidArgument);
    let expected = fields([("z", int(1 << 40)), ("n", "new".into())]);
    assert_eq!(found(&reader, "k"), Some(expected));
    assert_refused(reader.alter(&[Alteration::DropField("y2".to_owned())]), ErrorCode::NotFound);
    reader.alter(&[Alteration::DropAll]).unwrap();
    assert_eq!(found(&reader, "k"), None);
    reader.write(reader.upsert("k").set("z", 5)).unwrap();
    assert_eq!(found(&reader, "k"), Some(fields([("z", int(5))])));
}

/// Returns the status of each key of a batch.
fn statuses(reader: &Reader, bound: Option<Duration>, keys: &[String]) -> Vec<KeyStatus> {
    let mut statuses = Vec::new();
    let read = reader.read_local(bound, |view| {
        view.get_many(keys, |_, answer| {
            statuses.push(match answer {
                KeyAnswer::Found(_) => KeyStatus::Found,
                KeyAnswer::None(status) => status,
            });
            Ok(())
        })
    });
    read.unwrap();
    statuses
}

/// Gathers the field `a` with the default 5 for two keys; asserts that neither answers.
fn gathers_nothing(reader: &Reader, bound: Option<Duration>, status: KeyStatus) {
    let fields = [GatherField::new("a").or(int(5))];
    let plan = reader.plan_gather::<i64>(&fields, Conversion::Exact).unwrap();
    let (mut values, mut statuses) = ([7; 2], [KeyStatus::Found; 2]);
    let mut cells = [Presence::Null; 2];
    let mut gather_out =
        GatherOut { values: &mut values, statuses: Some(&mut statuses), cells: Some(&mut cells) };
    let keys = keys(2);
    reader.read_local(bound, |view| view.gather(&plan, &keys[..], &mut gather_out)).unwrap();
    assert_eq!((values, statuses, cells), ([5; 2], [status; 2], [Presence::Absent; 2]));
}

pub async fn in_memory_reader_simulates_not_ready() {
    let reader = open_memory_reader([("a", INT64)], [Row::new("k0").set("a", 1)]);
    reader.simulate(SimulatedState::NotReady).unwrap();
    assert!(!reader.is_ready() && !reader.status().is_ready);
    assert_refused(reader.get_document("k0"), ErrorCode::Unavailable);
    assert_eq!(statuses(&reader, None, &keys(2)), [KeyStatus::Unavailable; 2]);
    gathers_nothing(&reader, None, KeyStatus::Unavailable);
    assert_refused(reader.await_ready(SOON).await, ErrorCode::Unavailable);
    let token = reader.write(reader.upsert("k1").set("a", 2)).unwrap().token;
    let waits = ReadOptions::after(token.clone(), SOON);
    assert_refused(document(&reader, &waits, "k1").await, ErrorCode::Unavailable);
    let waiting = async { document(&reader, &after(&token), "k1").await };
    let simulating = async { reader.simulate(SimulatedState::None) };
    let (found, simulated) = futures::future::join(waiting, simulating).await;
    simulated.unwrap();
    assert_eq!(found.unwrap(), Some(fields([("a", int(2))])), "the wait ends with the state");
    assert!(reader.is_ready());
    assert_eq!(statuses(&reader, None, &keys(3))[..2], [KeyStatus::Found; 2]);
}

pub async fn in_memory_reader_simulates_staleness() {
    let reader = open_memory_reader([("a", INT64)], [Row::new("k0").set("a", 1)]);
    reader.simulate(SimulatedState::Stale(HOUR)).unwrap();
    assert!(!reader.is_ready());
    assert_eq!(reader.status().age, Some(HOUR));
    let read_within = |bound| reader.read_local(Some(bound), |view| view.get("k0").map(drop));
    assert_refused(read_within(HOUR - Duration::from_micros(1)), ErrorCode::Stale);
    read_within(HOUR).unwrap();
    reader.write(reader.upsert("k0").set("a", 2)).unwrap();
    assert_refused(read_within(HOUR / 2), ErrorCode::Stale);
    assert_eq!(statuses(&reader, Some(HOUR / 2), &keys(2)), [KeyStatus::Stale; 2]);
    gathers_nothing(&reader, Some(HOUR / 2), KeyStatus::Stale);
    assert_eq!(found(&reader, "k0"), Some(fields([("a", int(2))])), "without a bound");
    reader.advance(HOUR).unwrap();
    assert_eq!(reader.status().age, Some(2 * HOUR), "it ages");
    reader.simulate(SimulatedState::None).unwrap();
    read_within(Duration::from_secs(2)).unwrap();
    assert!(reader.is_ready());
}

pub async fn in_memory_reader_simulates_closed() {
    let reader = open_memory_reader([("a", INT64)], [Row::new("k").set("a", 1)]);
    let a = reader.field_as("a", INT64).unwrap();
    reader.simulate(SimulatedState::Closed).unwrap();
    assert_refused(scalar::<i64>(&reader, &a, "k"), ErrorCode::Closed);
    assert_refused(reader.field_as("a", INT64), ErrorCode::Closed);
    assert_refused(reader.await_ready(SOON).await, ErrorCode::Closed);
    assert_refused(reader.write(reader.upsert("k").set("a", 2)), ErrorCode::Closed);
    assert_refused(reader.advance(HOUR), ErrorCode::Closed);
    assert_refused(reader.alter(&[Alteration::DropAll]), ErrorCode::Closed);
    assert_refused(reader.simulate(SimulatedState::None), ErrorCode::Closed);
    assert!(!reader.is_ready());
    reader.begin_close();
}

pub async fn in_memory_reader_answers_like_a_node() {
    let types = [("visits", INT64), ("score", FLOAT64), ("city", STRING)];
    let writes_of = |store: &forebay::Store| {
        let key = keys(40);
        let mut writes = Vec::new();
        for (place, key) in key.iter().enumerate() {
            let number = place as i64;
            writes.push(store.put(key).set("visits", number).set("city", format!("c{place}")));
            writes.push(store.upsert(key).increment("visits", 100).set("score", number as f64));
            if place % 3 == 0 {
                writes.push(store.upsert(key).remove_field("score").set_null("city"));
            }
            if place % 7 == 0 {
                writes.push(store.delete(key));
            }
        }
        writes
    };
    let fixture = StoreFixture::with(types).await;
    let token = fixture.write_all(writes_of(&fixture.store)).await;
    let node = ready_reader(&fixture.client, forebay::ReaderOptions::new(fixture.name())).await;
    node.await_token(&token, crate::world::PATIENCE).await.unwrap();
    let spec = StoreSpec { name: fixture.name().to_owned(), ..spec(types) };
    let memory = Reader::in_memory(&spec, []).unwrap();
    writes_of(memory.as_store()).into_iter().for_each(|write| drop(memory.write(write).unwrap()));
    let requested_keys = keys(45);
    assert_eq!(
        profile(&memory, &requested_keys).unwrap(),
        profile(&node, &requested_keys).unwrap()
    );
    let dumped = |reader: &Reader| -> BTreeMap<String, Fields> { crate::world::scan(reader) };
    assert_eq!(dumped(&memory), dumped(&node));
    assert_refused(profile(&memory, &["k".repeat(65_537)]), ErrorCode::LimitExceeded);
    let drop_field = Alteration::DropField("score".to_owned());
    memory.alter(std::slice::from_ref(&drop_field)).unwrap();
    fixture.alter(drop_field).await;
    assert_refused(profile(&memory, &requested_keys), ErrorCode::NotFound);
    crate::world::eventually("the drop is seen", async || profile(&node, &requested_keys).is_err())
        .await;
    assert_refused(profile(&node, &requested_keys), ErrorCode::NotFound);
}
