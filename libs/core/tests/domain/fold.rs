//! The fold, rule by rule (`tools/docs/src/semantics.md`, sections 1 to 4). `fold_model.rs`
//! compares it with a model.

use crate::fixture::*;
use forebay_core::change::{ClientBatch, Condition, Entry, EntryBody, FieldOp, Source};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, FoldError, PartitionState, Record};
use forebay_core::id::{
    ClientId, Epoch, FieldId, LogId, Offset, PartitionId, Position, SchemaVersion,
};
use forebay_core::key::KeyType;
use forebay_core::limits::{DEDUP_IDLE_US, ENTRY_CHANGES_MAX, SCHEMA_VERSION_MAX, VALUE_BYTES_MAX};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, ErrorCode};

const COUNT: FieldId = FieldId(1);
const NAME: FieldId = FieldId(2);
const SCORE: FieldId = FieldId(3);
const TAGS: FieldId = FieldId(4);
const V1: SchemaVersion = SchemaVersion(1);

fn spec() -> StoreSpec {
    StoreSpec::documents("users", KeyType::Bytes)
        .partitions(1)
        .field("count", FieldType::INT32)
        .field("name", FieldType::STRING)
        .field("score", FieldType::FLOAT64)
        .field("tags", FieldType::List(ScalarType::Bytes))
}

fn definition() -> Definition {
    spec().define(STORE).unwrap()
}

fn replica() -> Replica {
    Replica::new(&definition())
}

fn versioned() -> Replica {
    let mut spec = spec();
    spec.options.versioned = true;
    Replica::new(&spec.define(STORE).unwrap())
}

fn int(value: i32) -> Value {
    Value::Int32(value)
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn at(micros: i64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(micros))
}

#[test]
fn entry_writes_the_last_state_of_each_key_once_in_key_order() {
    let mut replica = replica();
    let effects = replica.write(
        10,
        vec![
            upsert(1, b"b", vec![set(COUNT, int(1))]),
            upsert(2, b"a", vec![set(COUNT, int(5))]),
            upsert(3, b"b", vec![op(COUNT, FieldOp::Increment(int(2))), set(NAME, text("x"))]),
            delete(4, b"a"),
            put(5, b"a", vec![set(NAME, text("y"))]),
        ],
    );
    let keys: Vec<_> = effects.writes.iter().map(|(key, _)| key.as_bytes().to_vec()).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert_eq!(replica.value(b"b", COUNT), Some(int(3)));
    assert_eq!(replica.value(b"b", NAME), Some(text("x")));
    assert_eq!(replica.value(b"a", COUNT), None);
    assert_eq!(replica.value(b"a", NAME), Some(text("y")));
}

#[test]
fn put_removes_the_fields_that_an_upsert_preserves() {
    let mut replica = replica();
    replica.write(10, vec![upsert(1, b"k", vec![set(COUNT, int(1)), set(NAME, text("x"))])]);
    replica.write(10, vec![upsert(2, b"k", vec![set(COUNT, int(2))])]);
    assert_eq!(replica.value(b"k", NAME), Some(text("x")));
    replica.write(10, vec![put(3, b"k", vec![set(COUNT, int(3))])]);
    assert_eq!(replica.value(b"k", NAME), None);
}

#[test]
fn removal_from_an_absent_document_makes_none_and_an_empty_upsert_does() {
    let mut replica = replica();
    let removals = vec![op(COUNT, FieldOp::Remove), op(TAGS, FieldOp::SetRemove { items: vec![] })];
    let effects = replica.write(10, vec![upsert(1, b"k", removals), delete(2, b"k")]);
    assert!(effects.writes.is_empty());
    replica.write(10, vec![upsert(3, b"k", vec![])]);
    assert_eq!(replica.document(b"k").unwrap().cells(), []);
}

#[test]
fn values_expire_exactly_at_their_time() {
    let mut replica = replica();
    let counting =
        |sequence, key: &[u8]| upsert(sequence, key, vec![op(COUNT, FieldOp::Increment(int(1)))]);
    replica.write(100, vec![with_ttl(50, counting(1, b"k"))]);
    assert_eq!(replica.document(b"k").unwrap().expires_at, at(150));
    replica.write(149, vec![counting(2, b"k")]);
    assert_eq!(replica.value(b"k", COUNT), Some(int(2)));
    assert_eq!(replica.document(b"k").unwrap().expires_at, at(150));
    replica.write(150, vec![counting(3, b"k")]);
    assert_eq!(replica.value(b"k", COUNT), Some(int(1)));
    assert_eq!(replica.document(b"k").unwrap().expires_at, None);
}

#[test]
fn expiry_counts_from_partition_time_not_from_a_late_append_time() {
    let mut replica = replica();
    replica.apply(1_000, heartbeat(V1)).unwrap();
    replica.write(10, vec![with_ttl(5, put(1, b"k", vec![]))]);
    assert_eq!(replica.document(b"k").unwrap().expires_at, at(1_005));
    assert_eq!(replica.state.partition_time, Timestamp::from_micros(1_000));
}

#[test]
fn every_write_of_a_field_resets_its_expiry() {
    let mut replica = replica();
    let max = |ttl, value| op_for(ttl, SCORE, FieldOp::Max(Value::Float64(value)));
    let expiry =
        |replica: &Replica| replica.document(b"k").unwrap().cell(SCORE).unwrap().expires_at;
    replica.write(100, vec![upsert(1, b"k", vec![max(10, 2.0)])]);
    assert_eq!(expiry(&replica), at(110));
    replica.write(105, vec![upsert(2, b"k", vec![max(10, 1.0)])]);
    assert_eq!(expiry(&replica), at(115));
    replica.write(106, vec![upsert(3, b"k", vec![set(SCORE, Value::Float64(0.5))])]);
    assert_eq!(expiry(&replica), None);
    replica.write(107, vec![upsert(4, b"k", vec![max(3, 0.1)])]);
    replica.write(110, vec![upsert(5, b"k", vec![op(SCORE, FieldOp::Max(Value::Float64(0.2)))])]);
    assert_eq!(replica.value(b"k", SCORE), Some(Value::Float64(0.2)));
}

#[test]
fn store_and_field_ttls_apply_to_writes_without_a_ttl() {
    let mut spec = spec();
    spec.options.ttl_us = Some(1_000);
    spec.fields[0].ttl_us = Some(7);
    let mut replica = Replica::new(&spec.define(STORE).unwrap());
    replica.write(100, vec![upsert(1, b"k", vec![set(COUNT, int(1))])]);
    let document = replica.document(b"k").unwrap();
    assert_eq!(
        (document.expires_at, document.cell(COUNT).unwrap().expires_at),
        (at(1_100), at(107))
    );
    replica.write(200, vec![upsert(2, b"k", vec![set(NAME, text("x"))])]);
    assert_eq!(replica.document(b"k").unwrap().expires_at, at(1_100));
    replica.write(300, vec![put(3, b"k", vec![])]);
    assert_eq!(replica.document(b"k").unwrap().expires_at, at(1_300));
}

#[test]
fn conditions_see_earlier_changes_of_their_entry() {
    let mut replica = versioned();
    let effects = replica.write(
        10,
        vec![
            when(Condition::IfAbsent, put(1, b"k", vec![set(COUNT, int(1))])),
            when(Condition::IfAbsent, put(2, b"k", vec![set(COUNT, int(2))])),
            when(Condition::IfNewer(COUNT), upsert(3, b"k", vec![set(COUNT, int(1))])),
            when(Condition::IfNewer(COUNT), upsert(4, b"k", vec![set(COUNT, int(3))])),
        ],
    );
    let conditions: Vec<_> = effects.outcomes.iter().map(|outcome| outcome.condition).collect();
    let position = |index_in_entry| Position { epoch: Epoch(0), offset: Offset(0), index_in_entry };
    let first = ConditionOutcome::ConditionFailed(Some(position(0).document_version()));
    assert_eq!(conditions, [ConditionOutcome::Applied, first, first, ConditionOutcome::Applied]);
    assert_eq!(replica.document(b"k").unwrap().version, Some(position(3).document_version()));
    let version = position(3).document_version();
    let stale_version = position(0).document_version();
    let effects = replica.write(
        11,
        vec![
            when(Condition::IfVersion(stale_version), delete(5, b"k")),
            when(Condition::IfVersion(version), delete(6, b"k")),
            when(Condition::IfVersion(version), put(7, b"k", vec![])),
        ],
    );
    let conditions: Vec<_> = effects.outcomes.iter().map(|outcome| outcome.condition).collect();
    let condition_failed =
        [ConditionOutcome::ConditionFailed(Some(version)), ConditionOutcome::ConditionFailed(None)];
    assert_eq!(conditions, [condition_failed[0], ConditionOutcome::Applied, condition_failed[1]]);
    assert_eq!(replica.document(b"k"), None);
}

#[test]
fn if_absent_holds_once_the_document_has_expired() {
    let mut replica = replica();
    replica.write(100, vec![with_ttl(50, put(1, b"k", vec![]))]);
    let claim = |sequence| when(Condition::IfAbsent, put(sequence, b"k", vec![set(COUNT, int(1))]));
    assert_eq!(
        replica.write(149, vec![claim(2)]).outcomes[0].condition,
        ConditionOutcome::ConditionFailed(None)
    );
    assert_eq!(replica.write(150, vec![claim(3)]).outcomes[0].condition, ConditionOutcome::Applied);
}

#[test]
fn nan_is_never_newer_and_any_number_is_newer_than_nan() {
    let mut replica = replica();
    let newer = |sequence, score| {
        let fields = vec![set(SCORE, Value::Float64(score))];
        when(Condition::IfNewer(SCORE), upsert(sequence, b"k", fields))
    };
    let condition_outcome =
        |replica: &mut Replica, change| replica.write(1, vec![change]).outcomes[0].condition;
    assert_eq!(
        condition_outcome(&mut replica, newer(1, f64::NAN)),
        ConditionOutcome::ConditionFailed(None)
    );
    replica.write(1, vec![upsert(2, b"k", vec![set(SCORE, Value::Float64(f64::NAN))])]);
    assert_eq!(
        condition_outcome(&mut replica, newer(3, f64::NEG_INFINITY)),
        ConditionOutcome::Applied
    );
    assert_eq!(
        condition_outcome(&mut replica, newer(4, f64::NAN)),
        ConditionOutcome::ConditionFailed(None)
    );
}

#[test]
fn repeats_are_skipped_and_any_entry_expires_idle_clients() {
    let mut replica = replica();
    let counting = || vec![upsert(1, b"k", vec![op(COUNT, FieldOp::Increment(int(1)))])];
    replica.write(0, counting());
    assert_eq!(replica.write(0, counting()).repeats, 1);
    assert_eq!(replica.value(b"k", COUNT), Some(int(1)));
    replica.apply(DEDUP_IDLE_US, heartbeat(V1)).unwrap();
    assert!(replica.state.dedup.windows().is_empty());
    assert_eq!(replica.write(0, counting()).repeats, 0);
    assert_eq!(replica.value(b"k", COUNT), Some(int(2)));
}

#[test]
fn too_large_change_has_no_effect_and_its_repeat_has_none() {
    let mut replica = replica();
    let half = vec![Value::Bytes(vec![7; VALUE_BYTES_MAX / 2])];
    let append = || {
        let op = FieldOp::ListAppend { items: half.clone(), bound: 9 };
        crate::fixture::op(TAGS, op)
    };
    let counting = |sequence| upsert(sequence, b"k", vec![op(COUNT, FieldOp::Increment(int(1)))]);
    replica.write(1, vec![upsert(1, b"k", vec![append()])]);
    let append_and_set = || upsert(2, b"k", vec![append(), set(NAME, text("lost"))]);
    let effects = replica.write(2, vec![append_and_set(), counting(3)]);
    assert_eq!(effects.outcomes.len(), 1);
    assert_eq!(effects.outcomes[0].condition, ConditionOutcome::TooLarge);
    assert_eq!(replica.value(b"k", NAME), None);
    assert_eq!(replica.value(b"k", COUNT), Some(int(1)));
    assert_eq!(replica.write(3, vec![append_and_set()]).repeats, 1);
}

#[test]
fn nan_sums_have_the_same_bytes_on_every_processor() {
    let mut replica = replica();
    let adding = |sequence, increment| {
        let increment = FieldOp::Increment(Value::Float64(increment));
        upsert(sequence, b"k", vec![op(SCORE, increment)])
    };
    replica.write(1, vec![adding(1, f64::INFINITY), adding(2, f64::NEG_INFINITY)]);
    let Some(Value::Float64(sum)) = replica.value(b"k", SCORE) else { panic!("no sum") };
    assert_eq!(sum.to_bits(), 0x7ff8_0000_0000_0000);
}

#[test]
fn first_log_header_names_the_log_and_earlier_entries_are_skipped() {
    let mut replica = replica();
    replica.state.log_id = None;
    let header = |log_id| Entry { log_id, body: EntryBody::LogHeader, ..heartbeat(V1) };
    let early_entry = entry(V1, vec![upsert(1, b"k", vec![set(COUNT, Value::Int64(1))])]);
    let effects = replica.apply(1, Entry { log_id: LogId(8), ..early_entry }).unwrap();
    assert_eq!(effects.skipped.unwrap().code(), ErrorCode::Corrupt);
    assert_eq!(replica.state.log_id, None);
    assert_eq!(replica.state.partition_time, Timestamp::MIN);
    assert_eq!(replica.apply(2, header(LOG)).unwrap().skipped, None);
    let effects = replica.apply(3, Entry { log_id: LogId(8), ..heartbeat(V1) }).unwrap();
    assert_eq!(effects.skipped.unwrap().context().partition, Some(PartitionId(0)));
    assert_eq!(replica.state.log_id, Some(LOG));
    assert_eq!(replica.state.offset_applied, Offset(3));
    assert_eq!(replica.state.partition_time, Timestamp::from_micros(2));
}

#[test]
fn second_log_header_changes_no_state_and_is_no_dead_letter() {
    let mut replica = replica();
    let late = Entry { log_id: LogId(9), body: EntryBody::LogHeader, ..heartbeat(V1) };
    let before = replica.state.clone();
    assert_eq!(replica.apply(3, late).unwrap(), FoldEffects::default());
    assert_eq!(replica.state, PartitionState { offset_applied: Offset(1), ..before });
}

#[test]
fn log_header_that_waits_for_its_definition_changes_no_state() {
    let mut replica = replica();
    replica.state.log_id = None;
    let before = replica.state.clone();
    let header = Entry { body: EntryBody::LogHeader, ..heartbeat(SchemaVersion(9)) };
    let error = replica.apply(1, header).unwrap_err();
    assert!(matches!(error, FoldError::NeedsDefinition(SchemaVersion(9))));
    assert_eq!(replica.state, before);
}

#[test]
fn invalid_records_are_skipped_and_newer_records_halt_the_replica() {
    let mut replica = replica();
    let record = |offset, error| Record {
        offset: Offset(offset),
        append_time: Timestamp::from_micros(5),
        entry: Err(error),
    };
    let effects = replica.record(record(0, Error::corrupt("bad frame"))).unwrap();
    assert!(effects.skipped.is_some());
    let before = replica.state.clone();
    let error = replica.record(record(1, Error::upgrade_needed("format 9"))).unwrap_err();
    assert!(matches!(error, FoldError::UpgradeNeeded(_)));
    assert_eq!(replica.state, before);
    let error = replica.record(record(0, Error::corrupt("bad frame"))).unwrap_err();
    assert!(matches!(error, FoldError::Internal(_)));
}

#[test]
fn skipped_entry_is_skipped_whole() {
    let mut replica = replica();
    let bad = upsert(2, b"k", vec![set(FieldId(77), int(1))]);
    let good = upsert(1, b"k", vec![set(COUNT, int(1))]);
    let effects = replica.apply(1, entry(V1, vec![good, bad])).unwrap();
    assert!(effects.skipped.is_some());
    assert_eq!(replica.document(b"k"), None);
    assert!(replica.state.dedup.windows().is_empty());
}

#[test]
fn replica_awaits_an_unknown_definition_and_skips_an_impossible_version() {
    let mut replica = replica();
    let next = definition().altered(&[Alteration::DropAll]).unwrap();
    let write = entry(next.version, vec![upsert(1, b"k", vec![set(COUNT, int(1))])]);
    let before = replica.state.clone();
    let error = replica.apply(1, write.clone()).unwrap_err();
    assert_eq!(error, FoldError::NeedsDefinition(next.version));
    assert_eq!(replica.state, before);
    replica.define(&next);
    assert!(replica.apply(1, write).unwrap().drop_all);
    let impossible = heartbeat(SchemaVersion(SCHEMA_VERSION_MAX + 1));
    assert!(replica.apply(1, impossible).unwrap().skipped.is_some());
    let unversioned_entry = entry(SchemaVersion(0), vec![upsert(2, b"k", vec![])]);
    assert!(replica.apply(1, unversioned_entry).unwrap().skipped.is_some());
}

/// Proves that a replica which restarts with fewer definitions than its rows need waits for them.
#[test]
fn replica_awaits_the_definition_of_a_row_without_changing_state() {
    let mut replica = replica();
    replica.write(1, vec![upsert(1, b"k", vec![set(COUNT, int(1))])]);
    let next = replica.alter(&[Alteration::DropField("name".to_owned())]);
    replica.apply(2, heartbeat(next.version)).unwrap();
    let mut row = replica.rows.0[&b"k"[..]].clone();
    row[..2].copy_from_slice(&9u16.to_le_bytes());
    replica.rows.0.insert(b"k".to_vec(), row);
    let before = replica.state.clone();
    let write = entry(next.version, vec![upsert(2, b"k", vec![set(COUNT, int(2))])]);
    let error = replica.apply(99, write.clone()).unwrap_err();
    assert_eq!(error, FoldError::NeedsDefinition(SchemaVersion(9)));
    assert_eq!(replica.state, before);
    replica.rows.0.insert(b"k".to_vec(), vec![1]);
    assert!(matches!(replica.apply(99, write).unwrap_err(), FoldError::Internal(_)));
    assert_eq!(replica.state, before);
}

#[test]
fn drop_all_precedes_the_changes_of_its_first_entry_and_happens_once() {
    let mut replica = replica();
    replica.write(
        1,
        vec![
            upsert(1, b"old", vec![set(COUNT, int(1))]),
            upsert(2, b"k", vec![set(COUNT, int(1))]),
        ],
    );
    let next = replica.alter(&[Alteration::DropAll]);
    let counting = |sequence| upsert(sequence, b"k", vec![op(COUNT, FieldOp::Increment(int(1)))]);
    let effects = replica.apply(2, entry(next.version, vec![counting(3)])).unwrap();
    assert!(effects.drop_all);
    assert_eq!(replica.document(b"old"), None);
    assert_eq!(replica.value(b"k", COUNT), Some(int(1)));
    let late = replica.apply(3, entry(V1, vec![counting(4)])).unwrap();
    assert!(!late.drop_all);
    assert_eq!(replica.value(b"k", COUNT), Some(int(2)));
}

#[test]
fn late_entry_is_decoded_by_its_schema_and_written_by_the_newest() {
    let mut replica = replica();
    replica.write(1, vec![upsert(1, b"k", vec![set(COUNT, int(1)), set(NAME, text("x"))])]);
    let next = replica.alter(&[
        Alteration::DropField("name".to_owned()),
        Alteration::WidenField { name: "count".to_owned(), to: FieldType::INT64 },
        Alteration::AddField(FieldSpec::new("name", FieldType::BOOL)),
    ]);
    replica.apply(2, heartbeat(next.version)).unwrap();
    let fields = vec![set(NAME, text("late")), op(COUNT, FieldOp::Increment(int(5)))];
    let late = entry(V1, vec![upsert(2, b"k", fields)]);
    assert_eq!(replica.apply(3, late).unwrap().skipped, None);
    let new_id = next.field("name").unwrap().id;
    assert_ne!(new_id, NAME);
    assert_eq!(replica.value(b"k", COUNT), Some(Value::Int64(6)));
    assert_eq!(replica.value(b"k", NAME), None);
    assert_eq!(replica.value(b"k", new_id), None);
    let narrow = entry(next.version, vec![upsert(3, b"k", vec![set(COUNT, int(1))])]);
    assert!(replica.apply(4, narrow).unwrap().skipped.is_some());
}

#[test]
fn condition_on_a_retired_field_is_not_met() {
    let mut replica = replica();
    let next = replica.alter(&[Alteration::DropField("score".to_owned())]);
    replica.apply(1, heartbeat(next.version)).unwrap();
    let fields = vec![set(SCORE, Value::Float64(1.0)), set(COUNT, int(1))];
    let late = when(Condition::IfNewer(SCORE), upsert(1, b"k", fields));
    let effects = replica.apply(2, entry(V1, vec![late])).unwrap();
    assert_eq!(effects.outcomes[0].condition, ConditionOutcome::ConditionFailed(None));
    assert_eq!(replica.document(b"k"), None);
}

#[test]
fn keys_of_other_partitions_are_skipped() {
    let mut spec = spec();
    spec.partitions = 2;
    let mut replica = Replica::new(&spec.define(STORE).unwrap());
    let mut skipped = 0;
    for number in 0..64u8 {
        let write = entry(V1, vec![upsert(u64::from(number) + 1, &[number], vec![])]);
        skipped += u32::from(replica.apply(1, write).unwrap().skipped.is_some());
    }
    assert_eq!(replica.rows.0.len() as u32 + skipped, 64);
    assert!(skipped > 16 && skipped < 48, "{skipped} of 64 skipped");
}

#[test]
fn document_contains_its_declared_partition_key() {
    let mut spec = spec().field("tenant", FieldType::INT64);
    spec.partition_key = Some("tenant".to_owned());
    let mut replica = Replica::new(&spec.define(STORE).unwrap());
    let tenant = FieldId(5);
    let key = forebay_core::key::Key::partitioned(&7i64.to_le_bytes(), b"k").unwrap();
    replica.write(1, vec![put(1, key.as_bytes(), vec![set(COUNT, int(1))])]);
    assert_eq!(replica.value(key.as_bytes(), tenant), Some(Value::Int64(7)));
    let sets = upsert(2, key.as_bytes(), vec![set(tenant, Value::Int64(7))]);
    assert!(replica.apply(1, entry(V1, vec![sets])).unwrap().skipped.is_some());
    let short_key_change = upsert(3, b"\x02\0\0\0xyk", vec![]);
    assert!(replica.apply(1, entry(V1, vec![short_key_change])).unwrap().skipped.is_some());
}

fn copied_entry(
    position: u64,
    previous: Option<u64>,
    changes: Vec<forebay_core::change::Change>,
) -> Entry {
    let position_of = |offset| Position { offset: Offset(offset), ..Position::default() };
    let source = Source {
        partition: PartitionId(3),
        position: position_of(position),
        previous: previous.map(position_of),
        append_time: Timestamp::from_micros(position as i64),
        is_forwarded: false,
    };
    Entry { source: Some(source), ..entry(V1, changes) }
}

#[test]
fn copied_entries_apply_only_in_their_chain_with_their_append_time() {
    let mut replica = replica();
    let counting =
        |sequence| vec![upsert(sequence, b"k", vec![op(COUNT, FieldOp::Increment(int(1)))])];
    assert!(replica.apply(900, copied_entry(5, None, counting(1))).unwrap().skipped.is_none());
    assert_eq!(replica.state.partition_time, Timestamp::from_micros(5));
    assert_eq!(replica.state.position.offset, Offset(5));
    assert!(replica.apply(900, copied_entry(5, None, counting(1))).unwrap().skipped.is_some());
    assert!(replica.apply(900, copied_entry(9, Some(8), counting(3))).unwrap().skipped.is_some());
    assert!(replica.apply(900, copied_entry(8, Some(5), counting(2))).unwrap().skipped.is_none());
    assert!(replica.apply(900, copied_entry(9, Some(8), counting(3))).unwrap().skipped.is_none());
    assert_eq!(replica.value(b"k", COUNT), Some(int(3)));
}

/// Proves that a refused copied entry advances its chain; otherwise the copier would resend it
/// forever.
#[test]
fn refused_copy_does_not_block_later_copies() {
    let mut replica = replica();
    let refused_changes = vec![upsert(1, b"k", vec![set(COUNT, text("no int"))])];
    assert!(replica.apply(1, copied_entry(5, None, refused_changes)).unwrap().skipped.is_some());
    let next = copied_entry(6, Some(5), vec![upsert(2, b"k", vec![set(COUNT, int(1))])]);
    assert_eq!(replica.apply(1, next).unwrap().skipped, None);
    assert_eq!(replica.value(b"k", COUNT), Some(int(1)));
}

#[test]
fn entry_of_more_changes_than_the_limit_is_skipped() {
    let mut replica = replica();
    let changes = (1..=ENTRY_CHANGES_MAX as u64 + 1).map(|n| upsert(n, b"k", vec![])).collect();
    let effects = replica.apply(1, entry(V1, changes)).unwrap();
    assert_eq!(effects.skipped.unwrap().code(), ErrorCode::LimitExceeded);
}

#[test]
fn versions_stop_with_the_option_and_clients_are_distinguished() {
    let mut replica = versioned();
    replica.write(1, vec![put(1, b"k", vec![])]);
    assert!(replica.document(b"k").unwrap().version.is_some());
    replica.alter(&[Alteration::SetOptions(StoreOptions::default())]);
    let body = EntryBody::Changes(
        [1, 2]
            .map(|client| ClientBatch {
                client: ClientId(client),
                changes: vec![upsert(2, b"k", vec![op(COUNT, FieldOp::Increment(int(1)))])],
            })
            .into(),
    );
    let version = replica.definition().version;
    let effects = replica.apply(2, Entry { body, ..heartbeat(version) }).unwrap();
    assert_eq!((effects.skipped, effects.repeats), (None, 0));
    assert_eq!(replica.document(b"k").unwrap().version, None);
    assert_eq!(replica.value(b"k", COUNT), Some(int(2)));
}
