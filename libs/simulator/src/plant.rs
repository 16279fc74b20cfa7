//! Planted bugs, which check the checker.
//!
//! Product code contains no plant. A plant is a wrapper at a seam of the product (the log that a
//! node or a reader sees, the disk's bytes, the options that a component is opened with), or the
//! simulator calls a reader or client in the wrong way in place of the product.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::change::{ClientBatch, Entry, EntryBody};
use forebay_core::clock::Clock;
use forebay_core::id::{
    ClientId, Offset, PartitionCount, PartitionId, PartitionRef, Sequence, StoreId,
};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, LogRecord, ReadLimit, Records};
use forebay_wire::entry::{decode_entry, encode_entry};

use super::clock::SimClock;
use super::store::PARTITIONS;

/// Fraction of entries that go wrong, for plants that concern some entries: one in this many.
const ENTRIES_PER_FAULT: u64 = 8;

macro_rules! plants {
    ($($(#[doc = $what:literal])+ $plant:ident),+ $(,)?) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plant {
            $($(#[doc = $what])+ $plant,)+
        }

        impl Plant {
            /// All plants.
            pub const ALL: &[Self] = &[$(Self::$plant),+];
        }
    };
}

plants! {
    /// The log acknowledges entries before it syncs them.
    AcknowledgesBeforeSync,
    /// Recovery cuts off the last whole entry of a log, as if it were torn.
    LosesTail,
    /// A write of unknown outcome is retried under a new sequence.
    RetriesUnderNewSequence,
    /// An unknown outcome is taken for success.
    TakesUnknownForDone,
    /// The writer appends some entries to the log of another partition.
    WrongPartition,
    /// The client evaluates a condition, instead of the replica that applies the change.
    ConditionAtWriter,
    /// A reader ignores the age bound.
    ServesStale,
    /// A reader shows an older state after a newer one.
    ReadsBackwards,
    /// A read after a token does not wait.
    TokenNotAwaited,
    /// A read of the latest appends no barrier.
    LatestWithoutBarrier,
    /// A reader answers *absent* before it has caught up.
    AbsentBeforeCaughtUp,
    /// Expiry counts from the time at which a reader applied a change, not from its append time.
    ExpiryByReaderClock,
    /// Some entries are applied without their last change.
    EntryHalfApplied,
    /// A checkpoint does not contain the sequences that it has seen.
    WindowsNotInCheckpoint,
    /// A checkpoint is restored at the position after its own.
    CheckpointOneTooFar,
}

impl Plant {
    /// Returns whether the bug is in the log that a reader sees.
    pub(crate) fn is_in_readers_log(self) -> bool {
        matches!(
            self,
            Self::ExpiryByReaderClock
                | Self::EntryHalfApplied
                | Self::WindowsNotInCheckpoint
                | Self::CheckpointOneTooFar
        )
    }
}

/// The state that survives the restarts of one reader, for plants that concern restarts.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// Offset at which each change was first read.
    first_read: Mutex<BTreeMap<(PartitionId, ClientId, Sequence), Offset>>,
}

/// The log that a reader or node with a bug sees.
pub(crate) struct PlantedLog {
    inner: Arc<dyn ChangeLog>,
    plant: Plant,
    clock: Arc<SimClock>,
    lineage: Arc<Lineage>,
    /// Offset at which each partition's tail started to read.
    tail_starts: Mutex<BTreeMap<PartitionRef, Offset>>,
    /// Records that a reader never sees.
    hidden: Mutex<BTreeSet<(PartitionRef, Offset)>>,
}

impl PlantedLog {
    pub(crate) fn new(
        inner: Arc<dyn ChangeLog>,
        plant: Plant,
        clock: Arc<SimClock>,
        lineage: Arc<Lineage>,
    ) -> Self {
        let (tail_starts, hidden) = (Mutex::default(), Mutex::default());
        Self { inner, plant, clock, lineage, tail_starts, hidden }
    }

    fn change(
        &self,
        at: PartitionRef,
        tail_start: Offset,
        mut record: LogRecord,
    ) -> Option<LogRecord> {
        match self.plant {
            Plant::ExpiryByReaderClock => record.append_time = self.clock.now(),
            Plant::EntryHalfApplied if record.offset.0.is_multiple_of(ENTRIES_PER_FAULT) => {
                rewrite(&mut record, drop_last_change);
            }
            Plant::WindowsNotInCheckpoint => {
                self.note_first_reads(at, &record);
                rewrite(&mut record, |batches| self.forget_window(at, tail_start, batches));
            }
            Plant::CheckpointOneTooFar => {
                let mut hidden = lock(&self.hidden);
                if record.offset == tail_start && tail_start > Offset(0) {
                    hidden.insert((at, record.offset));
                }
                if hidden.contains(&(at, record.offset)) {
                    return None;
                }
            }
            _ => {}
        }
        Some(record)
    }

    fn note_first_reads(&self, at: PartitionRef, record: &LogRecord) {
        let Ok(Entry { body: EntryBody::Changes(batches), .. }) = decode_entry(&record.entry)
        else {
            return;
        };
        let mut first_read = lock(&self.lineage.first_read);
        for batch in &batches {
            for change in &batch.changes {
                let change = (at.partition, batch.client, change.sequence);
                first_read.entry(change).or_insert(record.offset);
            }
        }
    }

    /// Presents a duplicate of a change from before the checkpoint as if from another client.
    fn forget_window(&self, at: PartitionRef, tail_start: Offset, batches: &mut Vec<ClientBatch>) {
        let first_read = lock(&self.lineage.first_read);
        for batch in batches {
            let is_forgotten = batch.changes.iter().any(|change| {
                let change = (at.partition, batch.client, change.sequence);
                first_read.get(&change).is_some_and(|first| *first < tail_start)
            });
            if is_forgotten {
                batch.client = ClientId(batch.client.0 ^ 1);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rewrite(record: &mut LogRecord, edit: impl FnOnce(&mut Vec<ClientBatch>)) {
    let Ok(mut entry) = decode_entry(&record.entry) else { return };
    let EntryBody::Changes(batches) = &mut entry.body else { return };
    edit(batches);
    if let Ok(bytes) = encode_entry(&entry) {
        record.entry = bytes;
    }
}

fn drop_last_change(batches: &mut Vec<ClientBatch>) {
    let count: usize = batches.iter().map(|batch| batch.changes.len()).sum();
    if count < 2 {
        return;
    }
    if let Some(last) = batches.last_mut() {
        last.changes.pop();
    }
    batches.retain(|batch| !batch.changes.is_empty());
}

#[async_trait]
impl ChangeLog for PlantedLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.inner.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.inner.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let is_hit = |entry: &Bytes| {
            let holds_changes =
                decode_entry(entry).is_ok_and(|entry| matches!(entry.body, EntryBody::Changes(_)));
            holds_changes && entry.iter().map(|byte| u64::from(*byte)).sum::<u64>() % 32 == 0
        };
        if self.plant != Plant::WrongPartition || !is_hit(&entry) {
            return self.inner.append(at, entry).await;
        }
        let next_partition = PartitionId((at.partition.0 + 1) % PARTITIONS);
        self.inner.append(PartitionRef { partition: next_partition, ..at }, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        let mut read = self.inner.read(at, from, limit).await?;
        if at == PartitionRef::CONTROL {
            return Ok(read);
        }
        let tail_start = {
            let mut tail_starts = lock(&self.tail_starts);
            // Only a tail waits for records; a query of a log's id or a second read of one record
            // does not.
            if limit.wait_max > Duration::ZERO {
                tail_starts.entry(at).or_insert(from);
            }
            tail_starts.get(&at).copied()
        };
        if let Some(tail_start) = tail_start {
            let records = std::mem::take(&mut read.records).into_iter();
            read.records =
                records.filter_map(|record| self.change(at, tail_start, record)).collect();
        }
        Ok(read)
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.inner.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.inner.trim(at, before).await
    }
}
