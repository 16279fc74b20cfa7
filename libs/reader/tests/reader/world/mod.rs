//! The shared parts of the reader's tests: a store over an in-memory log, written entry by entry,
//! with a clock that follows tokio's paused one.

pub mod checkpoints;
mod rim;
pub mod shared_directory;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::catalog::{ControlRecord, SchemaAt};
use forebay_core::change::{
    Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, FieldOp, Verb,
};
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{
    ClientId, Epoch, FieldId, LogId, PartitionId, PartitionRef, Position, SchemaVersion, Sequence,
    StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::partition::partition_of;
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_core::versions::StoreVersions;
use forebay_entries::CatalogFollower;
use forebay_log::{AppendReceipt, ChangeLog, MemoryLog};
use forebay_reader::{LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_replica::{MemoryStorage, ReplicaOptions, ReplicaParts, StoreReplica};
use forebay_wire::entry::encode_entry;
use forebay_wire::token::Token;

pub use rim::Rim;

pub const STORE: StoreId = StoreId(42);
pub const LOG: LogId = LogId(0xfeed);
pub const CLIENT: ClientId = ClientId(7);
pub const SECOND: Duration = Duration::from_secs(1);

/// Tokio's clock as a wall clock, plus an offset that a test adds.
pub struct TokioClock {
    began: tokio::time::Instant,
    ahead_us: AtomicI64,
}

impl TokioClock {
    #[allow(clippy::disallowed_methods, reason = "the rim of these tests: tokio's paused clock")]
    pub fn new() -> Arc<Self> {
        let began = tokio::time::Instant::now();
        Arc::new(Self { began, ahead_us: AtomicI64::new(0) })
    }

    pub fn jump_micros(&self, micros: i64) {
        self.ahead_us.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    #[allow(clippy::disallowed_methods, reason = "the rim of these tests: tokio's paused clock")]
    fn now(&self) -> Timestamp {
        let elapsed = tokio::time::Instant::now() - self.began;
        let ahead_us = self.ahead_us.load(Ordering::SeqCst);
        Timestamp::from_micros(1_000_000_000 + elapsed.as_micros() as i64 + ahead_us)
    }
}

/// A store with its log, its catalog, and its writer.
pub struct World {
    pub log: Arc<dyn ChangeLog>,
    pub catalog: Arc<CatalogFollower>,
    /// Clock of the readers; the log has its own.
    pub clock: Arc<TokioClock>,
    pub entropy: Arc<SeededEntropy>,
    pub definition: Definition,
    sequence: AtomicU64,
}

impl World {
    /// Returns a store `users` with this many partitions, with the log header entry in each log.
    pub async fn new(partitions: u32) -> Self {
        Self::over(Arc::new(MemoryLog::new(TokioClock::new())), partitions).await
    }

    /// Returns the same store over another log.
    pub async fn over(log: Arc<dyn ChangeLog>, partitions: u32) -> Self {
        let number = FieldType::INT64;
        let definition = StoreSpec::documents("users", KeyType::String)
            .partitions(partitions)
            .field("age", number)
            .field("score", number)
            .define(STORE)
            .unwrap();
        let entropy = Arc::new(SeededEntropy::new(11));
        let catalog = CatalogFollower::start(log.clone(), entropy.clone());
        let world = Self {
            log,
            catalog: Arc::new(catalog),
            clock: TokioClock::new(),
            entropy,
            definition,
            sequence: AtomicU64::new(0),
        };
        world.control(EntryBody::LogHeader).await;
        world.define(&world.definition).await;
        world.make_logs(LOG).await;
        world
    }

    /// Creates the logs of the store, each with its log header entry.
    pub async fn make_logs(&self, log_id: LogId) {
        self.log.create(STORE, self.definition.partitions).await.unwrap();
        for partition in self.definition.partitions.partitions() {
            self.append_to(partition.0, log_id, EntryBody::LogHeader).await;
        }
    }

    /// Deletes the logs and creates them again under another id.
    pub async fn replace_logs(&self, log_id: LogId) {
        self.log.delete(STORE).await.unwrap();
        self.make_logs(log_id).await;
    }

    pub async fn define(&self, definition: &Definition) {
        let record = ControlRecord::Define(Box::new(definition.clone()));
        self.control(EntryBody::Control(record)).await;
    }

    /// Deletes the store, and creates another one under its name.
    pub async fn remake(&mut self, store: StoreId) {
        self.control(EntryBody::Control(ControlRecord::Delete(self.definition.store))).await;
        let versions = StoreVersions::first(store, self.definition.partitions);
        self.definition = Definition { store, versions, ..self.definition.clone() };
        self.define(&self.definition).await;
        self.log.create(store, self.definition.partitions).await.unwrap();
    }

    /// Starts a follower of the control log that knows nothing yet, like that of a new process.
    pub fn forget_catalog(&mut self) {
        let catalog = CatalogFollower::start(self.log.clone(), self.entropy.clone());
        self.catalog = Arc::new(catalog);
    }

    async fn control(&self, body: EntryBody) {
        let entry = self.entry(LogId(1), SchemaVersion(0), body);
        self.log.append(PartitionRef::CONTROL, encode_entry(&entry).unwrap()).await.unwrap();
    }

    pub fn entry(&self, log_id: LogId, schema_version: SchemaVersion, body: EntryBody) -> Entry {
        Entry::original(log_id, schema_version, body)
    }

    pub async fn append_to(&self, partition: u32, log_id: LogId, body: EntryBody) -> AppendReceipt {
        let entry = self.entry(log_id, self.definition.version, body);
        self.append_bytes(partition, encode_entry(&entry).unwrap()).await
    }

    pub async fn append_bytes(&self, partition: u32, entry: Bytes) -> AppendReceipt {
        self.log.append(at(partition), entry).await.unwrap()
    }

    pub async fn heartbeat(&self, partition: u32) -> AppendReceipt {
        self.append_to(partition, LOG, EntryBody::Heartbeat).await
    }

    pub fn partition_of(&self, key: &str) -> u32 {
        partition_of(key.as_bytes(), self.definition.partitions).0
    }

    /// Returns the body of an entry with one change, under the client's next sequence.
    pub fn change(&self, change: Change) -> EntryBody {
        let sequence = Sequence(self.sequence.fetch_add(1, Ordering::SeqCst) + 1);
        let changes = vec![Change { sequence, ..change }];
        EntryBody::Changes(vec![ClientBatch { client: CLIENT, changes }])
    }

    /// Appends one change to the log of its key; returns its token.
    pub async fn write(&self, change: Change) -> Token {
        self.write_to(LOG, change).await
    }

    pub async fn write_to(&self, log_id: LogId, change: Change) -> Token {
        let key = std::str::from_utf8(change.key.as_bytes()).unwrap();
        let partition = self.partition_of(key);
        let body = self.change(change);
        let appended = self.append_to(partition, log_id, body).await;
        token(partition, log_id, appended.offset.0)
    }

    pub async fn put(&self, key: &str, age: i64) -> Token {
        self.write(change(key, Verb::Put, &[("age", age)])).await
    }

    pub fn options(&self) -> ReaderOptions {
        ReaderOptions::new("users")
    }

    pub fn parts(&self) -> ReaderParts {
        ReaderParts {
            log: self.log.clone(),
            catalog: self.catalog.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            barriers: Arc::new(LogBarriers(self.log.clone())),
            disk: None,
            replicator: None,
        }
    }

    /// Starts a replica of the store in memory, as a service does in its shards.
    pub fn replica(&self, options: ReplicaOptions) -> StoreReplica {
        let parts = ReplicaParts {
            log: self.log.clone(),
            catalog: self.catalog.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            barriers: Arc::new(LogBarriers(self.log.clone())),
            replicator: None,
        };
        let schema = SchemaAt::of(self.definition.clone());
        let storage = Arc::new(MemoryStorage::new([schema.clone()]).unwrap());
        StoreReplica::start(options, parts, &schema, storage).unwrap()
    }

    pub async fn open(&self) -> Reader {
        self.open_with(self.options()).await
    }

    pub async fn open_with(&self, options: ReaderOptions) -> Reader {
        Reader::open(options, self.parts()).await.unwrap()
    }

    /// Returns a reader that has applied everything in the logs.
    pub async fn caught_up(&self) -> Reader {
        let reader = self.open().await;
        reader.await_ready(10 * SECOND).await.unwrap();
        reader
    }
}

pub fn at(partition: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(partition) }
}

pub fn position(offset: u64) -> Position {
    Position { epoch: Epoch(0), offset: forebay_core::id::Offset(offset), index_in_entry: 0 }
}

pub fn token(partition: u32, log_id: LogId, offset: u64) -> Token {
    let mut token = Token::new(STORE);
    token.advance(PartitionId(partition), log_id, position(offset)).unwrap();
    token
}

pub fn field(name: &str) -> FieldId {
    match name {
        "age" => FieldId(1),
        "score" => FieldId(2),
        _ => panic!("no field {name}"),
    }
}

pub fn change(key: &str, verb: Verb, values: &[(&str, i64)]) -> Change {
    let set = |(name, value): &(&str, i64)| FieldChange {
        field: field(name),
        op: FieldOp::Set(Some(Value::Int64(*value))),
        ttl_us: None,
    };
    Change {
        sequence: Sequence(0),
        key: Key::plain(key.as_bytes()).unwrap(),
        verb,
        fields: values.iter().map(set).collect(),
        condition: None,
        ttl_us: None,
    }
}

pub fn if_absent(mut change: Change) -> Change {
    change.condition = Some(Condition::IfAbsent);
    change
}

/// Returns the value of a field in the reader; `None` if document or field is absent.
pub fn value(reader: &Reader, key: &str, name: &str) -> Result<Option<i64>> {
    let document = reader.get_document(key)?;
    Ok(document.and_then(|document| match document.value(field(name)) {
        Some(Value::Int64(value)) => Some(*value),
        Some(other) => panic!("{other:?} in an int64 field"),
        None => None,
    }))
}

pub fn age(reader: &Reader, key: &str) -> Result<Option<i64>> {
    value(reader, key, "age")
}

/// Returns a key of this partition.
pub fn key_in(world: &World, partition: u32) -> String {
    let mut keys = (0..10_000).map(|number| format!("key-{number}"));
    keys.find(|key| world.partition_of(key) == partition).unwrap()
}
