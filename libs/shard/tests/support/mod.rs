//! A log that is a function of its offsets, and a model of the expected shard over a plain map.
#![allow(dead_code, reason = "each test crate uses a part")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{
    Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, FieldOp, Source, Verb,
};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState, Record, RowLookup, Schemas};
use forebay_core::id::{
    ClientId, Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position,
    SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_core::outcome::OutcomeTable;
use forebay_core::row::row_expires_at;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::state_rows::{FollowState, RestoredState};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_shard::{Resources, ShardDirectory, ShardWriter};
use forebay_testkit::random::SeededRng;

pub const AT: PartitionRef = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
pub const ONE: PartitionCount = PartitionCount(1);
pub const LOG: LogId = LogId(0xf00d);
pub const KEYS: usize = 3_000;
/// Number of entries after which all documents are dropped.
const ENTRIES_PER_DROP: u64 = 700;
const DROPS_MAX: usize = 60;
const CLIENTS: usize = 5;

/// Returns the smallest resources that shards accept, so that they flush often.
pub fn resources() -> Resources {
    Resources::new(16 << 20).unwrap()
}

pub fn directory(dir: &Path) -> ShardDirectory {
    ShardDirectory::new(dir, resources())
}

/// Rows by identity bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl RowLookup for Rows {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.0.get(key).map(Cow::from))
    }
}

/// Definitions of the store: each drops all documents once more than the previous one.
pub struct World(pub Vec<Arc<SchemaAt>>);

impl Schemas for World {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.0.get((version.0 as usize).checked_sub(1)?).cloned()
    }
}

impl World {
    pub fn new() -> Self {
        let field = |ty| FieldType::Scalar(ty);
        let mut spec = StoreSpec::documents("users", KeyType::Bytes)
            .partitions(1)
            .field("count", field(ScalarType::Int64))
            .field("text", field(ScalarType::String));
        spec.options.versioned = true;
        let first = spec.define(AT.store).unwrap();
        let next = |at: &Definition| Some(at.altered(&[Alteration::DropAll]).unwrap());
        let definitions = std::iter::successors(Some(first), next).take(DROPS_MAX);
        Self(definitions.map(SchemaAt::of).collect())
    }

    pub fn order(&self) -> KeyOrder {
        KeyOrder::of(&self.0[0].definition)
    }

    /// Returns the record at an offset.
    pub fn record(&self, offset: Offset) -> Record {
        let mut dice = SeededRng::new(offset.0);
        let append_time = Timestamp::from_micros(offset.0 as i64 * 1_000 - dice.below(5) as i64);
        let drops = (offset.0 / ENTRIES_PER_DROP) as usize % DROPS_MAX;
        let definition = &self.0[drops].definition;
        let body = match offset.0 {
            0 => EntryBody::LogHeader,
            n if n % 17 == 3 => EntryBody::Heartbeat,
            n => EntryBody::Changes(batches(&mut dice, definition, n)),
        };
        let schema_version = match body {
            EntryBody::LogHeader => SchemaVersion(0),
            _ => definition.version,
        };
        let source = (offset.0 % 23 == 5).then(|| {
            let position =
                |offset| Position { epoch: Epoch(1), offset: Offset(offset), index_in_entry: 0 };
            let previous = offset.0.checked_sub(23).map(position);
            let position = position(offset.0);
            Source {
                partition: PartitionId(6),
                position,
                previous,
                append_time,
                is_forwarded: false,
            }
        });
        let entry = Ok(Entry { source, ..Entry::original(LOG, schema_version, body) });
        Record { offset, append_time, entry }
    }

    pub fn model(&self) -> Model<'_> {
        let (state, rows) = (PartitionState::new(AT, ONE), Rows::default());
        Model { world: self, state, rows, outcomes: OutcomeTable::default() }
    }

    /// Opens the shard in a folder, with its state from before.
    pub fn resume(&self, dir: &Path) -> Replica<'_> {
        self.resume_in(&directory(dir))
    }

    /// Opens the shard like [`World::resume`], with the resources of the directory.
    pub fn resume_in(&self, directory: &ShardDirectory) -> Replica<'_> {
        let found = directory.resume(AT, ONE, self.order()).unwrap();
        let (writer, state, outcomes) = match found {
            Some((writer, RestoredState { state, outcomes, .. })) => (writer, state, outcomes),
            None => {
                let writer = directory.create(AT, self.order()).unwrap();
                (writer, PartitionState::new(AT, ONE), OutcomeTable::default())
            }
        };
        Replica { world: self, writer, state, outcomes }
    }
}

fn batches(dice: &mut SeededRng, definition: &Definition, n: u64) -> Vec<ClientBatch> {
    let count = if n % 50 == 7 { 1_000 } else { 1 + dice.below(40) };
    let first = n * 1_000 / CLIENTS as u64;
    let batch_of =
        |client: usize, changes| ClientBatch { client: ClientId(client as u128), changes };
    let mut changes: Vec<_> =
        (0..count as u64).map(|i| change(dice, definition, n, first + i)).collect();
    if n % 9 == 4 {
        // A client sends a change twice.
        changes.extend(changes.first().cloned());
    }
    let rest = changes.split_off(changes.len() / 2);
    let client = n as usize % CLIENTS;
    vec![batch_of(client, changes), batch_of(CLIENTS + client, rest)]
}

fn change(dice: &mut SeededRng, definition: &Definition, n: u64, sequence: u64) -> Change {
    let field = |name: &str| definition.field(name).unwrap().id;
    let verb = *dice.pick(&[Verb::Delete, Verb::Put, Verb::Upsert, Verb::Upsert, Verb::Upsert]);
    let mut fields = Vec::new();
    if verb != Verb::Delete {
        let text = "x".repeat(dice.below(200));
        let op = FieldOp::Set(Some(Value::String(format!("{n}-{text}"))));
        fields.push(FieldChange { field: field("text"), op, ttl_us: None });
    }
    if verb == Verb::Upsert {
        let op = FieldOp::Increment(Value::Int64(1));
        fields.push(FieldChange { field: field("count"), op, ttl_us: None });
    }
    let condition = dice.chance(10).then_some(Condition::IfAbsent);
    let ttl_us = (verb != Verb::Delete && dice.chance(25)).then(|| 1 + dice.below(400_000) as i64);
    let (sequence, key) = (Sequence(sequence + 1), key(dice.below(KEYS)));
    Change { sequence, key, verb, fields, condition, ttl_us }
}

/// Returns keys of several lengths; one is empty, and some contain zero bytes.
pub fn key(number: usize) -> Key {
    let name = format!("{number}");
    Key::plain(if number == 0 { b"" } else { name.as_bytes() }).unwrap()
}

/// A model of the documents after the entries up to an offset.
#[derive(Clone)]
pub struct Model<'w> {
    world: &'w World,
    pub state: PartitionState,
    pub rows: Rows,
    pub outcomes: OutcomeTable,
}

impl Model<'_> {
    pub fn step(&mut self) {
        let record = self.world.record(self.state.offset_applied);
        let effects = self.state.apply(record, &self.rows, self.world).unwrap();
        assert_eq!(effects.skipped, None, "the log holds nothing that is to be skipped");
        effects.outcomes.iter().for_each(|outcome| self.outcomes.keep(*outcome));
        if effects.drop_all {
            self.rows.0.clear();
        }
        for (key, row) in effects.writes {
            match row {
                Some(row) => self.rows.0.insert(key.as_bytes().to_vec(), row),
                None => self.rows.0.remove(key.as_bytes()),
            };
        }
    }

    /// Returns the documents that have not expired, in key order.
    pub fn live(&self) -> Vec<(Key, Vec<u8>)> {
        let now = self.state.partition_time;
        let rows =
            self.rows.0.iter().filter(|(_, row)| row_expires_at(row).is_none_or(|at| at > now));
        rows.map(|(key, row)| (Key::from_identity_bytes(key), row.clone())).collect()
    }
}

/// A shard that follows the log.
pub struct Replica<'w> {
    pub world: &'w World,
    pub writer: ShardWriter,
    pub state: PartitionState,
    pub outcomes: OutcomeTable,
}

impl Replica<'_> {
    pub fn step(&mut self) -> FoldEffects {
        self.take(self.world.record(self.state.offset_applied))
    }

    /// Applies entries outside the log, with `documents` documents that do not compress together.
    pub fn fill(&mut self, documents: usize) {
        let mut dice = SeededRng::new(documents as u64);
        for first in (0..documents).step_by(1_000) {
            let definition = &self.world.0[self.state.schema_version.0 as usize - 1].definition;
            let field = definition.field("text").unwrap().id;
            let changes = (first..documents.min(first + 1_000)).map(|number| {
                let text: String = (0..10).map(|_| format!("{:016x}", dice.bits())).collect();
                let op = FieldOp::Set(Some(Value::String(text)));
                let fields = vec![FieldChange { field, op, ttl_us: None }];
                let key = Key::plain(format!("{:x}-{number}", dice.bits()).as_bytes()).unwrap();
                let sequence = Sequence(number as u64 + 1);
                Change { sequence, key, verb: Verb::Put, fields, condition: None, ttl_us: None }
            });
            let batch = ClientBatch { client: ClientId(99), changes: changes.collect() };
            let (offset, schema_version) = (self.state.offset_applied, definition.version);
            let entry = Entry::original(LOG, schema_version, EntryBody::Changes(vec![batch]));
            let append_time = self.world.record(offset).append_time;
            self.take(Record { offset, append_time, entry: Ok(entry) });
        }
    }

    fn take(&mut self, record: Record) -> FoldEffects {
        let append_time = Some(record.append_time);
        let effects = self.state.apply(record, &self.writer, self.world).unwrap();
        effects.outcomes.iter().for_each(|outcome| self.outcomes.keep(*outcome));
        let follow_state = FollowState { append_time, is_served: true, copy: 1, opened: None };
        self.writer.apply(&effects, &self.state, follow_state).unwrap();
        effects
    }

    /// Returns the documents that have not expired, in key order.
    pub fn live(&self) -> Vec<(Key, Vec<u8>)> {
        let view = self.writer.shard().view().unwrap();
        let now = view.read_time(Timestamp::MIN);
        let mut scan = view.scan(&self.world.order().all(), Direction::Forward);
        std::iter::from_fn(|| scan.next_live(now).unwrap()).collect()
    }

    /// Checks that the shard equals the model.
    pub fn assert_is(&self, model: &Model<'_>) {
        assert_eq!(self.state, model.state);
        assert_eq!(self.live(), model.live());
        for client in 0..2 * CLIENTS as u128 {
            for sequence in (0..self.state.offset_applied.0 * 200).rev().take(2_000) {
                let (client, sequence) = (ClientId(client), Sequence(sequence));
                let outcome = self.outcomes.get(client, sequence);
                assert_eq!(outcome, model.outcomes.get(client, sequence));
            }
        }
    }
}
