//! An in-memory reader: the real index and the real fold, over changes that its owner applies.
//!
//! Programs use it in tests of their reads. The reader has no log, no file, no thread and no task:
//! one call encodes, decodes, folds and publishes a change, by the same code that a tail runs, so
//! merges, conditions, expiries and drops have their production meaning. Time is a clock that the
//! owner moves; each move writes a heartbeat to every partition.
//!
//! Lock order: the replicas, then the readiness. Callbacks run while neither lock is held.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::catalog::{Catalog, SchemaAt};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody};
use forebay_core::clock::{Clock, ManualClock, Timestamp};
use forebay_core::entropy::Entropy;
use forebay_core::fold::{FoldError, PartitionState, Record};
use forebay_core::id::{
    ClientId, LogId, Offset, PartitionId, PartitionRef, Position, SchemaVersion, Sequence,
};
use forebay_core::outcome::Outcome;
use forebay_core::replica_state::Phase;
use forebay_core::schema::{Alteration, Definition};
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;
use forebay_index::{Index, PartitionWriter};
use forebay_log::{AppendReceipt, MemoryLog};
use forebay_replica::{Barriers, CatchUp, Counts, Readiness, ReplicaContext, ServedState, closed};
use forebay_wire::entry::{decode_entry, encode_entry};
use forebay_wire::outcome::ChangeResult;
use parking_lot::Mutex;

use crate::followed_version::FollowedVersion;
use crate::memory_limit::MemoryLimit;
use crate::options::{ReaderOptions, ReaderParts};
use crate::reader::Reader;
use crate::version_opener::open_index;

/// A state that the owner simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedState {
    /// No simulated state: the reader is ready, and as fresh as its clock.
    None,
    /// The reader has not caught up: reads return `Unavailable`, even after `await_ready`, until
    /// another state is simulated. Changes that are applied in this state are visible after it.
    NotReady,
    /// The served data is this old and ages with the clock: reads with a lower age bound return
    /// `Stale`, and the reader is ready only if the age is within its readiness bound.
    Stale(Duration),
    /// The reader is closed permanently.
    Closed,
}

/// The state that the partitions publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublishedState {
    Serving,
    Bootstrapping,
    /// Serving the data appended up to this time.
    Since(Timestamp),
}

/// A reader whose owner applies its changes.
pub struct MemoryReader {
    reader: Reader,
    replicas: Arc<Replicas>,
}

/// The replicas of all partitions, and the state that they publish.
struct Replicas {
    clock: Arc<ManualClock>,
    client: ClientId,
    /// Weak reference to the reader's context; set once, right after the reader is created.
    context: OnceLock<Weak<ReplicaContext>>,
    table: Mutex<ReplicaTable>,
}

struct ReplicaTable {
    /// The replicas, by partition id.
    replicas: Vec<Replica>,
    published: PublishedState,
}

/// The replica of one partition: the fold's state and the index's writer, which advance together.
struct Replica {
    log_id: LogId,
    state: PartitionState,
    writer: PartitionWriter,
    sequence: Sequence,
    counts: Counts,
    /// Whether state and rows may differ.
    is_broken: bool,
}

impl MemoryReader {
    /// Returns a ready reader of an empty store of this definition; its clock shows `now`. Needs no
    /// runtime.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a stream, `LimitExceeded` if the system grants no address
    /// space for the index, and `Internal` without randomness.
    pub fn open(definition: Definition, now: Timestamp, entropy: Arc<dyn Entropy>) -> Result<Self> {
        definition.check_is_of_documents()?;
        let clock = Arc::new(ManualClock::at(now));
        let client = entropy.client_id()?;
        let table = ReplicaTable { replicas: Vec::new(), published: PublishedState::Serving };
        let replicas = Replicas {
            clock: Arc::clone(&clock),
            client,
            context: OnceLock::new(),
            table: Mutex::new(table),
        };
        let replicas = Arc::new(replicas);
        let parts = ReaderParts {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as Arc<dyn Clock>)),
            catalog: Arc::new(CatalogFollower::standing(Catalog::default())),
            clock,
            entropy,
            barriers: Arc::clone(&replicas) as Arc<dyn Barriers>,
            disk: None,
            replicator: None,
        };
        let version = definition.version;
        let options = ReaderOptions::new(&definition.name);
        let versions = vec![SchemaAt::of(definition)];
        let limit = MemoryLimit::new(options.memory_limit);
        let (context, index) = open_index(options, parts, versions, None, limit)?;
        replicas.fill(&context, &index, version)?;
        // No other thread has seen the cell yet, so this `set` is the first and only one.
        let _ = replicas.context.set(Arc::downgrade(&context));
        context.note_progress(version);
        context.observe_readiness(now);
        Ok(Self { reader: Reader::over(FollowedVersion { context, index }), replicas })
    }

    /// Returns the reader.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Applies changes of one partition as one entry of this schema version: all of them or none.
    /// Assigns their sequences. Returns the entry's position and the outcome of each change.
    ///
    /// # Errors
    /// Returns `Closed`; the error for which the fold skips an entry; `LimitExceeded` for an entry
    /// that is too long, or if the memory does not suffice, after which the reader answers
    /// `Internal`.
    pub fn apply(
        &self,
        partition: PartitionId,
        version: SchemaVersion,
        mut changes: Vec<Change>,
    ) -> Result<(LogId, Position, Vec<ChangeResult>)> {
        let context = &*self.open_context()?;
        let mut table = self.replicas.table.lock();
        let published = table.published;
        let replica = table.replica(partition)?;
        let first = replica.sequence.0;
        for (change, sequence) in changes.iter_mut().zip(first..) {
            change.sequence = Sequence(sequence);
        }
        let conditional: Vec<_> = changes.iter().map(|change| change.condition.is_some()).collect();
        let batch = ClientBatch { client: self.replicas.client, changes };
        let now = self.replicas.clock.now();
        let body = EntryBody::Changes(vec![batch]);
        let outcomes = replica.append(context, now, version, body)?;
        replica.sequence = Sequence(first + conditional.len() as u64);
        replica.publish(context, published);
        let (log_id, position) = (replica.log_id, replica.state.position);
        let outcome_of = |sequence| {
            outcomes.iter().find(|write_outcome| write_outcome.sequence == Sequence(sequence))
        };
        let result = |(place, _): (u64, &bool)| match outcome_of(first + place) {
            Some(outcome) => ChangeResult::conditional(outcome.position, outcome.condition),
            None => ChangeResult::appended(position),
        };
        let results = (0..).zip(&conditional).map(result).collect();
        drop(table);
        context.note_progress(version);
        Ok((log_id, position, results))
    }

    /// Gives the store its next schema version, in all partitions: all alterations or none.
    ///
    /// # Errors
    /// Returns `Closed`, and `InvalidArgument`, `NotFound` or `LimitExceeded` with the reason if an
    /// alteration is impossible.
    pub fn alter(&self, alterations: &[Alteration]) -> Result<Arc<SchemaAt>> {
        let context = &*self.open_context()?;
        let mut table = self.replicas.table.lock();
        let newest = Arc::clone(context.storage.schemas().newest());
        let definition = newest.definition.altered(alterations);
        let definition = definition.map_err(|error| error.with_store(&context.name))?;
        let version = definition.version;
        let schema = SchemaAt::of(definition);
        context.storage.schemas().add(Arc::clone(&schema))?;
        self.replicas.append_to_all(&mut table, context, version, &EntryBody::Definition)?;
        drop(table);
        context.note_progress(version);
        Ok(schema)
    }

    /// Returns the time of its clock.
    pub fn now(&self) -> Timestamp {
        self.replicas.clock.now()
    }

    /// Moves the clock, and every partition's time, to `now`: documents and fields that expire by
    /// then are absent. While an age is simulated, the partitions' time stays, so they age.
    ///
    /// # Errors
    /// Returns `Closed`, and `InvalidArgument` for a time before the current one.
    pub fn set_clock(&self, now: Timestamp) -> Result<()> {
        let context = &*self.open_context()?;
        let mut table = self.replicas.table.lock();
        if now < self.replicas.clock.now() {
            let message = "the clock of a reader in memory cannot go back; open another reader for \
                an earlier time";
            return Err(Error::invalid_argument(message).with_store(&context.name));
        }
        if !matches!(table.published, PublishedState::Since(_)) {
            table.beat(context, now)?;
        }
        // The clock is set after the heartbeats, so that no read sees an age in between.
        self.replicas.clock.set(now);
        drop(table);
        context.note_progress(context.schema_version());
        Ok(())
    }

    /// Puts the reader into a state, from any other state. The state changes at once, without the
    /// grace period that readiness has in production.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    pub fn simulate(&self, state: SimulatedState) -> Result<()> {
        let context = &*self.open_context()?;
        let mut table = self.replicas.table.lock();
        let now = self.replicas.clock.now();
        table.published = match state {
            SimulatedState::None => PublishedState::Serving,
            SimulatedState::NotReady => PublishedState::Bootstrapping,
            SimulatedState::Stale(age) => {
                let age_us = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                PublishedState::Since(now.plus_micros(age_us.saturating_neg()))
            }
            SimulatedState::Closed => {
                self.reader.begin_close();
                return Ok(());
            }
        };
        if state == SimulatedState::None {
            table.beat(context, now)?;
        }
        let published = table.published;
        table.replicas.iter_mut().for_each(|replica| replica.publish(context, published));
        *context.readiness.lock() = Readiness::new(context.options.ready_max_staleness);
        drop(table);
        context.note_progress(context.schema_version());
        Ok(())
    }

    fn open_context(&self) -> Result<Arc<ReplicaContext>> {
        let context = self.reader.context();
        context.close_signal.check().map_err(|error| error.with_store(&context.name))?;
        Ok(context)
    }
}

impl Replicas {
    /// Takes the writer of each partition, and opens each log with the store's first definition.
    fn fill(&self, context: &ReplicaContext, index: &Index, version: SchemaVersion) -> Result<()> {
        let mut table = self.table.lock();
        for partition in context.followed() {
            let mut replica = Replica::new(partition.at, context, index)?;
            partition.board.set_clock_error(0);
            replica.append(context, self.clock.now(), SchemaVersion(0), EntryBody::LogHeader)?;
            table.replicas.push(replica);
        }
        self.append_to_all(&mut table, context, version, &EntryBody::Definition)
    }

    fn append_to_all(
        &self,
        table: &mut ReplicaTable,
        context: &ReplicaContext,
        version: SchemaVersion,
        body: &EntryBody,
    ) -> Result<()> {
        let (now, published) = (self.clock.now(), table.published);
        table.replicas.iter_mut().try_for_each(|replica| {
            replica.append(context, now, version, body.clone())?;
            replica.publish(context, published);
            Ok(())
        })
    }
}

#[async_trait]
impl Barriers for Replicas {
    async fn append_barrier(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let context = self.context.get().and_then(Weak::upgrade);
        let context = context.ok_or_else(closed)?;
        let mut table = self.table.lock();
        let (now, published) = (self.clock.now(), table.published);
        let replica = table.replica(at.partition)?;
        let offset = replica.state.offset_applied;
        let version = replica.state.schema_version;
        replica.append(&context, now, version, decode_entry(&entry)?.body)?;
        replica.publish(&context, published);
        Ok(AppendReceipt { offset, append_time: now })
    }
}

impl ReplicaTable {
    fn replica(&mut self, partition: PartitionId) -> Result<&mut Replica> {
        let found = self.replicas.get_mut(partition.0 as usize);
        found.ok_or_else(|| {
            let message = "the store has no such partition; route by the store's definition";
            Error::invalid_argument(message).with_partition(partition)
        })
    }

    /// Applies a heartbeat of this time to every partition.
    fn beat(&mut self, context: &ReplicaContext, now: Timestamp) -> Result<()> {
        let published = self.published;
        self.replicas.iter_mut().try_for_each(|replica| {
            let version = replica.state.schema_version;
            replica.append(context, now, version, EntryBody::Heartbeat)?;
            replica.publish(context, published);
            Ok(())
        })
    }
}

impl Replica {
    fn new(at: PartitionRef, context: &ReplicaContext, index: &Index) -> Result<Self> {
        Ok(Self {
            log_id: context.parts.entropy.log_id()?,
            state: PartitionState::new(at, context.count),
            writer: index.writer(at.partition)?,
            sequence: Sequence(1),
            counts: Counts::default(),
            is_broken: false,
        })
    }

    /// Folds one entry, as if a log had returned it; returns the outcomes of its changes.
    fn append(
        &mut self,
        context: &ReplicaContext,
        now: Timestamp,
        schema_version: SchemaVersion,
        body: EntryBody,
    ) -> Result<Vec<Outcome>> {
        let partition = self.state.partition.partition;
        let at_partition = |error: Error| error.with_store(&context.name).with_partition(partition);
        if self.is_broken {
            let message = "a change was cut short by an error; open another reader";
            return Err(at_partition(Error::internal(message)));
        }
        let entry = encode_entry(&Entry::original(self.log_id, schema_version, body));
        let entry = entry.map_err(at_partition)?;
        let offset = self.state.offset_applied;
        let record = Record { offset, append_time: now, entry: decode_entry(&entry) };
        let effects = self.state.apply(record, &self.writer, context.storage.schemas());
        let effects = effects.map_err(|error| at_partition(corrupt_fold(error)))?;
        if let Err(error) = self.writer.apply(&effects, &self.state) {
            self.is_broken = true;
            return Err(error.with_store(&context.name));
        }
        self.counts.log_bytes_read += entry.len() as u64;
        match effects.skipped {
            None => self.counts.records_applied += 1,
            Some(reason) => {
                self.counts.records_skipped += 1;
                return Err(reason.with_store(&context.name));
            }
        }
        Ok(effects.outcomes)
    }

    /// Publishes the replica's progress, in the simulated state.
    fn publish(&mut self, context: &ReplicaContext, published: PublishedState) {
        let phase = match published {
            _ if self.is_broken => Phase::Poisoned,
            PublishedState::Bootstrapping => Phase::Bootstrapping,
            PublishedState::Serving | PublishedState::Since(_) => Phase::Serving,
        };
        let append_time = match published {
            PublishedState::Since(time) => time,
            _ => self.state.partition_time,
        };
        let Ok(partition) = context.partition(self.state.partition.partition) else { return };
        let offset_applied = self.state.offset_applied;
        let missing = u64::from(published == PublishedState::Bootstrapping);
        let end = Offset(offset_applied.0 + missing);
        partition.board.publish(|progress| {
            self.writer.set_phase(phase);
            progress.phase = phase;
            progress.generation = 1;
            progress.served = ServedState {
                log_id: Some(self.log_id),
                position: Some(self.state.position),
                offset_applied,
                append_time: Some(append_time),
                schema_version: self.state.schema_version,
            };
            progress.catch_up = CatchUp { start: Offset(0), offset_applied, target: end };
            progress.end_offset = end;
            // There is no other log: every requested check has found this one.
            progress.checked = u64::MAX;
            progress.checked_log_id = Some(self.log_id);
            progress.counts = self.counts;
        });
    }
}

fn corrupt_fold(error: FoldError) -> Error {
    error.into_error(|version| {
        let message = "in the reader in memory; report this as a bug";
        Error::internal(format!("no definition of schema version {version} {message}"))
    })
}
