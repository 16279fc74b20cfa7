//! A store with its real fold and index, driven by hand: the work of a tail, without a log.

#![allow(dead_code, reason = "each test binary uses its own part of the support")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, FoldError, PartitionState, Record};
use forebay_core::id::{
    ClientId, Epoch, FieldId, LogId, Offset, PartitionId, PartitionRef, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::partition::partition_of;
use forebay_core::replica_state::{LogCursor, Phase, Progress};
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_index::{ImageFile, ImageSink, Index, PartitionWriter, ReadAt, SharedCopyDirectory};

pub const BOOL: FieldType = FieldType::BOOL;
pub const INT32: FieldType = FieldType::INT32;
pub const INT64: FieldType = FieldType::INT64;
pub const FLOAT32: FieldType = FieldType::FLOAT32;
pub const FLOAT64: FieldType = FieldType::FLOAT64;
pub const STRING: FieldType = FieldType::STRING;
pub const BYTES: FieldType = FieldType::BYTES;
pub const TIMESTAMP: FieldType = FieldType::TIMESTAMP;

/// Wraps a definition as an index takes it.
pub fn schema_at(definition: &Definition) -> Arc<SchemaAt> {
    SchemaAt::of(definition.clone())
}

/// A followed partition: its writer and the fold's state.
pub struct FollowedPartition {
    pub writer: PartitionWriter,
    pub state: PartitionState,
}

impl FollowedPartition {
    /// Folds one entry, appended at this time, and publishes its effect.
    pub fn append(
        &mut self,
        index: &Index,
        schema: &Definition,
        body: EntryBody,
        time: i64,
    ) -> FoldEffects {
        let effects = self.fold(index, schema, body, time).unwrap();
        self.writer.apply(&effects, &self.state).unwrap();
        effects
    }

    /// Folds one entry, appended at this time, without applying it to the index.
    pub fn fold(
        &mut self,
        index: &Index,
        schema: &Definition,
        body: EntryBody,
        time: i64,
    ) -> std::result::Result<FoldEffects, FoldError> {
        let entry = Entry {
            log_id: LogId(9),
            epoch: Epoch(1),
            schema_version: schema.version,
            source: None,
            body,
        };
        let offset = self.state.offset_applied;
        let record = Record { offset, append_time: Timestamp::from_micros(time), entry: Ok(entry) };
        let effects = self.state.apply(record, &self.writer, index.schemas())?;
        assert_eq!(effects.skipped, None);
        Ok(effects)
    }
}

/// A whole store: definition, index and every partition's writer.
pub struct Store {
    pub definition: Definition,
    pub index: Index,
    pub partitions: BTreeMap<PartitionId, FollowedPartition>,
    sequence: u64,
}

impl Store {
    /// Creates a store whose partitions are all followed and serving.
    pub fn new(spec: StoreSpec) -> Self {
        Self::following(spec, |_| true)
    }

    /// Creates a store of which only the chosen partitions are followed, and serving.
    pub fn following(spec: StoreSpec, follow: impl Fn(PartitionId) -> bool) -> Self {
        Self::with_storage_id(StoreId(1), spec, follow)
    }

    /// Creates such a store under this id.
    pub fn with_storage_id(
        store: StoreId,
        spec: StoreSpec,
        follow: impl Fn(PartitionId) -> bool,
    ) -> Self {
        let definition = spec.define(store).unwrap();
        let followed = definition.partitions.partitions().filter(|id| follow(*id));
        let index = Index::new([schema_at(&definition)], followed, 42).unwrap();
        let partitions = index.followed().map(|id| (id, take(&index, &definition, id)));
        let partitions = partitions.collect();
        Self { definition, index, partitions, sequence: 0 }
    }

    /// Creates a store whose partitions are all shared copies in this directory, held and serving.
    pub fn shared(spec: StoreSpec, dir: &Path) -> Self {
        Self::shared_as(StoreId(1), spec, dir)
    }

    /// As [`Store::shared`], under this id.
    pub fn shared_as(store: StoreId, spec: StoreSpec, dir: &Path) -> Self {
        let definition = spec.define(store).unwrap();
        let directory = SharedCopyDirectory { dir: dir.to_owned(), memory_dir: None };
        let ids: Vec<_> = definition.partitions.partitions().collect();
        directory.make(definition.store, ids.iter().copied(), 42).unwrap();
        let schemas = [schema_at(&definition)];
        let index = Index::open_shared(schemas, ids.iter().copied(), 43, directory).unwrap();
        index.prepare();
        let copy_of = |id: PartitionId| {
            let (mut writer, resumed) = index.acquire_writer(id).unwrap();
            assert_eq!(resumed, None);
            writer.set_phase(Phase::Serving);
            writer.note_cursor(opened());
            FollowedPartition { writer, state: empty_state(&definition, id) }
        };
        let partitions = ids.into_iter().map(|id| (id, copy_of(id))).collect();
        Self { definition, index, partitions, sequence: 0 }
    }

    /// Lets another owner take over a partition with a shared copy, as if the previous owner had
    /// been killed.
    pub fn take_over(&mut self, id: PartitionId) {
        let followed = self.partitions.remove(&id).unwrap();
        let (usage, state) = (followed.writer.usage(), followed.state);
        let has_published = followed.writer.progress() != Progress::START;
        drop(followed.writer);
        let (mut writer, resumed) = self.index.acquire_writer(id).unwrap();
        if has_published {
            let resumed = resumed.unwrap();
            assert_eq!(resumed.state, state);
            assert_eq!(resumed.phase, Phase::Serving);
            assert_eq!(writer.usage(), usage);
        }
        writer.set_phase(Phase::Serving);
        writer.note_cursor(opened());
        self.partitions.insert(id, FollowedPartition { writer, state });
    }

    /// Continues the sequence numbers of another store: no write counts as a repeat.
    pub fn write_as(&mut self, other: &Self) {
        self.sequence = other.sequence;
    }

    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> FieldId {
        self.definition.field(name).unwrap().id
    }

    /// Builds a change of one document.
    pub fn change(
        &mut self,
        key: &str,
        verb: Verb,
        fields: Vec<FieldChange>,
        ttl_us: Option<i64>,
    ) -> Change {
        self.sequence += 1;
        let (sequence, key) = (Sequence(self.sequence), Key::plain(key.as_bytes()).unwrap());
        Change { sequence, key, verb, fields, condition: None, ttl_us }
    }

    /// Builds an upsert, the default verb, of fields by name.
    pub fn upsert(&mut self, key: &str, fields: &[(&str, Option<Value>)]) -> Change {
        let set = |(name, value): &(&str, Option<Value>)| FieldChange {
            field: self.field(name),
            op: FieldOp::Set(value.clone()),
            ttl_us: None,
        };
        let fields = fields.iter().map(set).collect();
        self.change(key, Verb::Upsert, fields, None)
    }

    /// Builds a delete of a document.
    pub fn delete(&mut self, key: &str) -> Change {
        self.change(key, Verb::Delete, Vec::new(), None)
    }

    /// Appends changes at this time: one entry for each partition that they belong to.
    pub fn write(&mut self, changes: Vec<Change>, time: i64) {
        let mut entries: BTreeMap<PartitionId, Vec<Change>> = BTreeMap::new();
        for change in changes {
            let partition = partition_of(change.key.as_bytes(), self.definition.partitions);
            entries.entry(partition).or_default().push(change);
        }
        for (partition, changes) in entries {
            let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(5), changes }]);
            let followed = self.partitions.get_mut(&partition).unwrap();
            followed.append(&self.index, &self.definition, body, time);
        }
    }

    /// Alters the definition and brings it into every partition.
    pub fn alter(&mut self, alterations: &[Alteration], time: i64) {
        self.define(alterations);
        for followed in self.partitions.values_mut() {
            followed.append(&self.index, &self.definition, EntryBody::Definition, time);
        }
    }

    /// Alters the definition; no partition knows of it yet.
    pub fn define(&mut self, alterations: &[Alteration]) {
        self.definition = self.definition.altered(alterations).unwrap();
        self.index.schemas().add(schema_at(&self.definition)).unwrap();
    }
}

fn take(index: &Index, definition: &Definition, partition: PartitionId) -> FollowedPartition {
    let mut writer = index.writer(partition).unwrap();
    writer.set_phase(Phase::Serving);
    FollowedPartition { writer, state: empty_state(definition, partition) }
}

/// Returns the fold's state after the log's header entry.
pub fn empty_state(definition: &Definition, partition: PartitionId) -> PartitionState {
    let partition_ref = PartitionRef { store: definition.store, partition };
    let mut state = PartitionState::new(partition_ref, definition.partitions);
    state.log_id = Some(LogId(9));
    state
}

/// Returns the notes of an owner about a log that it has opened.
pub fn opened() -> LogCursor {
    LogCursor { opened: Some((Offset(0), Offset(0))), ..LogCursor::default() }
}

/// Reads at a time.
pub fn at(micros: i64) -> ReadAt<'static> {
    ReadAt::new(Timestamp::from_micros(micros))
}

/// Specifies a document store with string keys.
pub fn spec(partitions: u32, fields: &[(&str, FieldType)]) -> StoreSpec {
    let store = StoreSpec::documents("users", KeyType::String).partitions(partitions);
    fields.iter().fold(store, |store, (name, field_type)| store.field(*name, *field_type))
}

/// Returns a key of a document store with string keys that belongs to this partition.
pub fn key_in(partition: u32, partitions: u32) -> String {
    let count = forebay_core::id::PartitionCount(partitions);
    let mut keys = (0..).map(|n| format!("key-{n}"));
    keys.find(|key| partition_of(key.as_bytes(), count).0 == partition).unwrap()
}

/// An image in memory, which is read and not mapped.
#[derive(Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl ImageSink for Bytes {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset as usize + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

impl ImageFile for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
