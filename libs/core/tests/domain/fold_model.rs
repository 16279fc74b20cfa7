//! Compares the fold with a naive model over random logs. For any log, both have the same documents
//! after every record, and a replica that restarts in between ends with the same bytes.

use std::collections::BTreeMap;

use crate::fixture::{Replica, STORE};
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, Source};
use forebay_core::clock::Timestamp;
use forebay_core::dedup::Dedup;
use forebay_core::fold::{FoldEffects, FoldError, PartitionState, Record};
use forebay_core::id::{
    ClientId, Epoch, FieldId, LogId, Offset, PartitionId, Position, SchemaVersion, Sequence,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::{DEDUP_IDLE_US, SCHEMA_VERSION_MAX};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::partition::partition_of;
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, change::Condition};
use forebay_testkit::model::Model;
use forebay_testkit::random::SeededRng;

const SEEDS: u64 = 200;
const RECORDS: usize = 120;
const PARTITIONS: u32 = 4;

/// Count of each kind of event over all seeds; a kind that never occurred proves nothing.
type Counts = BTreeMap<&'static str, u64>;

#[derive(Clone)]
struct GeneratedRecord {
    append_time: Timestamp,
    entry: Result<Entry, Error>,
}

impl GeneratedRecord {
    fn record(&self, offset: Offset) -> Record {
        Record { offset, append_time: self.append_time, entry: self.entry.clone() }
    }
}

/// Generates a random log, record by record, and knows which records a replica must skip.
struct Scribe {
    dice: SeededRng,
    definitions: Vec<Definition>,
    keys: Vec<Key>,
    strangers: Vec<Key>,
    sequences: BTreeMap<ClientId, u64>,
    sent: Vec<(ClientId, Change)>,
    now: i64,
    copied_position: Option<Position>,
}

impl Scribe {
    fn new(seed: u64) -> Self {
        let mut dice = SeededRng::new(seed);
        let key_type = *dice.pick(&KeyType::ALL);
        let mut spec = StoreSpec::documents("random", key_type).partitions(PARTITIONS);
        for number in 0..4 + dice.below(6) {
            spec = spec.field(format!("name{number}"), dice.field_type());
        }
        if dice.chance(40) {
            let types = [ScalarType::String, ScalarType::Bytes, ScalarType::Int64];
            spec = spec.field("home", FieldType::Scalar(*dice.pick(&types)));
            spec.partition_key = Some("home".to_owned());
        }
        spec.options.versioned = dice.chance(50);
        let definition = spec.define(STORE).unwrap();
        let (mut keys, mut strangers) = (Vec::new(), Vec::new());
        while keys.len() < 7 || strangers.is_empty() {
            let (key, partition) = draw_key(&mut dice, &definition);
            let side = if partition == PartitionId(0) { &mut keys } else { &mut strangers };
            side.push(key);
        }
        keys.truncate(7);
        Self {
            dice,
            definitions: vec![definition],
            keys,
            strangers,
            sequences: BTreeMap::new(),
            sent: Vec::new(),
            now: 1_000_000,
            copied_position: None,
        }
    }

    fn newest(&self) -> &Definition {
        self.definitions.last().unwrap()
    }

    fn append_time(&mut self) -> Timestamp {
        self.now += match self.dice.below(100) {
            0 => DEDUP_IDLE_US + self.dice.below(2) as i64 - 1,
            1..=10 => -(self.dice.below(200) as i64),
            _ => self.dice.below(40) as i64,
        };
        Timestamp::from_micros(self.now)
    }

    fn entry(&self, schema_version: SchemaVersion, body: EntryBody) -> Entry {
        Entry::original(crate::fixture::LOG, schema_version, body)
    }

    /// Returns the next record and the reason to skip it, if it must be skipped.
    fn next(&mut self, model: &Model) -> (GeneratedRecord, Option<&'static str>) {
        if self.dice.chance(8) {
            let alteration = self.dice.alteration(self.definitions.last().unwrap());
            self.definitions.extend(self.newest().altered(&[alteration]).ok());
        }
        let late = if self.dice.chance(25) { self.dice.below(4) } else { 0 };
        let place = self.definitions.len().saturating_sub(1 + late);
        let definition = self.definitions[place].clone();
        let body = match self.dice.below(20) {
            0 => EntryBody::Heartbeat,
            1 => EntryBody::Barrier,
            2 => EntryBody::Definition,
            3 => EntryBody::LogHeader,
            _ => EntryBody::Changes(self.batches(&definition, model)),
        };
        let mut entry = self.entry(definition.version, body);
        let append_time = self.append_time();
        if self.dice.chance(10) {
            entry.source = Some(self.source());
        }
        let fault = if self.dice.chance(12) { self.spoil(&mut entry, &definition) } else { None };
        if fault == Some("garbage") {
            return (GeneratedRecord { append_time, entry: Err(Error::corrupt("garbage")) }, fault);
        }
        // A copied entry that is refused for its changes advances the chain; an entry that is
        // refused for its log or its position in the chain does not.
        let chained = !matches!(fault, Some("log" | "control" | "version" | "chain"));
        if let Some(source) = entry.source.filter(|_| chained) {
            self.copied_position = Some(source.position);
        }
        (GeneratedRecord { append_time, entry: Ok(entry) }, fault)
    }

    fn source(&mut self) -> Source {
        let offset = self.copied_position.map_or(0, |position| position.offset.0);
        let position = Position {
            epoch: Epoch(0),
            offset: Offset(offset + 1 + self.dice.below(3) as u64),
            index_in_entry: 0,
        };
        let append_time = Timestamp::from_micros(self.now + self.dice.below(50) as i64);
        Source {
            partition: PartitionId(2),
            position,
            previous: self.copied_position,
            append_time,
            is_forwarded: false,
        }
    }

    fn batches(&mut self, definition: &Definition, model: &Model) -> Vec<ClientBatch> {
        (0..1 + self.dice.below(3))
            .map(|_| {
                let client = ClientId(1 + self.dice.below(3) as u128);
                let changes = 1 + self.dice.below(4);
                let changes =
                    (0..changes).map(|_| self.change(client, definition, model)).collect();
                ClientBatch { client, changes }
            })
            .collect()
    }

    fn change(&mut self, client: ClientId, definition: &Definition, model: &Model) -> Change {
        let client_changes: Vec<_> =
            self.sent.iter().filter(|(sender, _)| *sender == client).collect();
        if !client_changes.is_empty() && self.dice.chance(12) {
            let (_, sent) = (*self.dice.pick(&client_changes)).clone();
            if sent.check(definition).is_ok() {
                return sent;
            }
        }
        let key = self.dice.pick(&self.keys).clone();
        let version = model.documents().get(&key).and_then(|document| document.version);
        let mut change = self.dice.change(definition, key, version);
        let top = self.sequences.entry(client).or_default();
        change.sequence = match self.dice.below(20) {
            0 => Sequence(*top + 1 + self.dice.below(900) as u64),
            1..=2 => Sequence(top.saturating_sub(self.dice.below(1_500) as u64).max(1)),
            _ => Sequence(*top + 1),
        };
        *top = change.sequence.0.max(*top);
        self.sent.push((client, change.clone()));
        change
    }

    /// Corrupts the entry so that every replica must skip it, and returns the kind of corruption.
    fn spoil(&mut self, entry: &mut Entry, definition: &Definition) -> Option<&'static str> {
        let opens = matches!(entry.body, EntryBody::LogHeader);
        let first_change = match &mut entry.body {
            EntryBody::Changes(batches) => batches.first_mut().and_then(|b| b.changes.last_mut()),
            _ => None,
        };
        match (self.dice.below(8), first_change) {
            // A second log header entry is ignored, not skipped.
            (0, _) if !opens => {
                entry.log_id = LogId(77);
                Some("log")
            }
            (1, _) => {
                entry.body = match self.dice.chance(50) {
                    true => EntryBody::Control(ControlRecord::Delete(STORE)),
                    false => EntryBody::DeadLetters(Vec::new()),
                };
                Some("control")
            }
            (2, _) => {
                entry.schema_version = SchemaVersion(SCHEMA_VERSION_MAX + 7);
                Some("version")
            }
            (3, _) => {
                let mut source = self.source();
                source.previous = Some(Position { index_in_entry: 9, ..source.position });
                entry.source = Some(source);
                Some("chain")
            }
            (4, Some(change)) => {
                change.key = self.dice.pick(&self.strangers).clone();
                Some("partition")
            }
            (5, Some(change)) if !change.fields.is_empty() => {
                change.fields[0].field = FieldId(60_000);
                Some("field")
            }
            (6, Some(change)) => {
                let field = change.fields.iter_mut().find(|field_change| {
                    definition
                        .field_by_id(field_change.field)
                        .is_some_and(|field| !matches!(field.field_type, FieldType::Vector(..)))
                })?;
                let value = Value::VectorI8(vec![1; 99]);
                field.op = forebay_core::change::FieldOp::Set(Some(value));
                Some("type")
            }
            _ => Some("garbage"),
        }
    }
}

fn draw_key(dice: &mut SeededRng, definition: &Definition) -> (Key, PartitionId) {
    let mut part = |integer: bool| {
        if integer {
            dice.bits().to_le_bytes().to_vec()
        } else {
            vec![b'a' + dice.below(26) as u8; dice.below(9)]
        }
    };
    let primary = part(definition.key_type == KeyType::Int64);
    let Some(field) = definition.partition_key.and_then(|id| definition.field_by_id(id)) else {
        return (Key::plain(&primary).unwrap(), partition_of(&primary, definition.partitions));
    };
    let partition_key = part(field.field_type == FieldType::INT64);
    let key = Key::partitioned(&partition_key, &primary).unwrap();
    (key, partition_of(&partition_key, definition.partitions))
}

/// Applies a record. Hands over definitions only on request, and checks that a request changes
/// nothing.
fn apply(
    replica: &mut Replica,
    generated_record: &GeneratedRecord,
    definitions: &[Definition],
) -> FoldEffects {
    loop {
        let before = replica.state.clone();
        let offset = replica.state.offset_applied;
        match replica.record(generated_record.record(offset)) {
            Ok(effects) => return effects,
            Err(FoldError::NeedsDefinition(version)) => {
                assert_eq!(replica.state, before);
                let known_version = replica.definition().version;
                assert!(version > known_version, "{version} was told already");
                let missing_definitions =
                    definitions.iter().filter(|definition| definition.version > known_version);
                missing_definitions
                    .take_while(|next| next.version <= version)
                    .for_each(|next| replica.define(next));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn check_documents(replica: &Replica, model: &Model) {
    let mut expected = model.documents().clone();
    for key in replica.rows.0.keys() {
        let document = replica.document(key).unwrap();
        let found = model.meaning(&document);
        assert_eq!(found, expected.remove(&Key::from_identity_bytes(key)));
    }
    assert!(expected.is_empty(), "documents without a row: {expected:?}");
}

fn count(
    counts: &mut Counts,
    effects: &FoldEffects,
    fault: Option<&'static str>,
    generated_record: &GeneratedRecord,
) {
    let mut add = |kind, amount| *counts.entry(kind).or_default() += amount;
    add(fault.unwrap_or("sound"), 1);
    add("repeats", effects.repeats);
    add("drop-alls", u64::from(effects.drop_all));
    add("deletes", effects.writes.iter().filter(|(_, row)| row.is_none()).count() as u64);
    add("writes", effects.writes.iter().filter(|(_, row)| row.is_some()).count() as u64);
    let changes = generated_record.entry.as_ref().map_or(0, Entry::change_count);
    add("changes", changes as u64);
    for outcome in &effects.outcomes {
        add(
            if outcome.condition == ConditionOutcome::Applied { "met" } else { "condition failed" },
            1,
        );
    }
    let Ok(Entry { body: EntryBody::Changes(batches), source, .. }) = &generated_record.entry
    else {
        return;
    };
    add("copies", u64::from(source.is_some()));
    for change in batches.iter().flat_map(|batch| &batch.changes) {
        match change.condition {
            Some(Condition::IfVersion(_)) => add("if-version", 1),
            Some(Condition::IfNewer(_)) => add("if-newer", 1),
            Some(Condition::IfAbsent) => add("if-absent", 1),
            None => {}
        }
    }
}

/// Generates a log of this seed and applies it to the fold and to the model, comparing both after
/// every record.
fn run(
    seed: u64,
    counts: &mut Counts,
) -> (Vec<(GeneratedRecord, FoldEffects)>, Vec<Definition>, Replica) {
    let mut scribe = Scribe::new(seed);
    let mut replica = Replica::new(scribe.newest());
    let mut model = Model::new(replica.state.partition, replica.state.partitions);
    let header = scribe.entry(scribe.newest().version, EntryBody::LogHeader);
    let header = GeneratedRecord { append_time: scribe.append_time(), entry: Ok(header) };
    let mut log = Vec::new();
    let mut next = (header, None);
    for _ in 0..RECORDS {
        let (generated_record, fault) = next;
        scribe.definitions.iter().for_each(|definition| model.define(definition.clone()));
        let offset = replica.state.offset_applied;
        let effects = apply(&mut replica, &generated_record, &scribe.definitions);
        assert_eq!(effects.skipped.is_some(), fault.is_some(), "{fault:?}: {:?}", effects.skipped);
        if let Ok(entry) = &generated_record.entry {
            let expected = model.apply(offset, generated_record.append_time, entry);
            assert_eq!(effects.skipped.is_some(), expected.skipped);
            assert_eq!(effects.repeats, expected.repeats);
            assert_eq!(effects.outcomes, expected.outcomes);
        }
        check_documents(&replica, &model);
        assert_eq!(replica.state.partition_time, model.partition_time());
        count(counts, &effects, fault, &generated_record);
        log.push((generated_record, effects));
        next = scribe.next(&model);
    }
    (log, scribe.definitions, replica)
}

/// Returns a state as a checkpoint restores it: each part separately, de-duplication window by
/// window.
fn restore(state: &PartitionState) -> PartitionState {
    let mut dedup = Dedup::default();
    for (client, window) in state.dedup.windows().into_iter().rev() {
        dedup.restore(client, window.clone());
    }
    PartitionState { dedup, sources: state.sources.clone(), ..state.clone() }
}

#[test]
fn fold_agrees_with_the_model_at_any_restart_point() {
    let mut counts = Counts::new();
    for seed in 0..SEEDS {
        let (log, definitions, whole_replica) = run_or_name(seed, &mut counts);
        let dice = &mut SeededRng::new(!seed);
        let mut restarted_replica = Replica::new(&definitions[0]);
        for (generated_record, effects) in &log {
            if dice.chance(20) {
                let versions = restarted_replica.versions.clone();
                restarted_replica = Replica {
                    state: restore(&restarted_replica.state),
                    rows: restarted_replica.rows.clone(),
                    versions,
                };
            }
            assert_eq!(
                &apply(&mut restarted_replica, generated_record, &definitions),
                effects,
                "seed {seed}"
            );
        }
        assert_eq!(restarted_replica.state, whole_replica.state, "seed {seed}");
        assert_eq!(restarted_replica.rows, whole_replica.rows, "seed {seed}");
    }
    let kinds = [
        "sound",
        "garbage",
        "log",
        "control",
        "version",
        "chain",
        "partition",
        "field",
        "type",
        "repeats",
        "drop-alls",
        "deletes",
        "writes",
        "changes",
        "met",
        "condition failed",
        "copies",
        "if-version",
        "if-newer",
        "if-absent",
    ];
    for kind in kinds {
        assert!(
            counts.get(kind).is_some_and(|count| *count >= 20),
            "{kind} hardly came: {counts:?}"
        );
    }
}

/// Runs a seed and names it if the run panics.
fn run_or_name(
    seed: u64,
    counts: &mut Counts,
) -> (Vec<(GeneratedRecord, FoldEffects)>, Vec<Definition>, Replica) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, counts)));
    result.unwrap_or_else(|_| panic!("the log of seed {seed} is folded wrongly"))
}
