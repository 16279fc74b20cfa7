//! One open shard: what many may read and one writes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::state_rows::{HEAD, Head, skipped_key};
use forebay_core::{Error, Result};
use rocksdb::properties::{
    CUR_SIZE_ALL_MEM_TABLES as UNWRITTEN_BYTES, ESTIMATE_LIVE_DATA_SIZE as LIVE_BYTES,
    ESTIMATE_NUM_KEYS as KEYS, num_files_at_level,
};
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBPinnableSlice, DEFAULT_COLUMN_FAMILY_NAME, ErrorKind, Options,
    WriteBatch, WriteOptions,
};

use crate::error::{explained, explained_open};
use crate::events::{EVENTS, EventFloor};
use crate::expiry::DurableTime;
use crate::resources::Resources;
use crate::view::View;

/// The documents of one partition, and what they were made of. Any number of threads may read.
pub struct Shard {
    pub(crate) db: DB,
    pub(crate) order: KeyOrder,
    at: PartitionRef,
    path: PathBuf,
    /// Of the last entry that was written, in microseconds.
    partition_time: AtomicI64,
    durable: DurableTime,
    pub(crate) floor: EventFloor,
}

impl Shard {
    pub(crate) fn open(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        Self::open_with(path, at, order, |durable| resources.options(durable))
    }

    /// As [`Shard::open`], of one with events.
    pub(crate) fn open_with_events(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        let (durable, floor) = (DurableTime::new(), EventFloor::default());
        let (options, events) = resources.event_options(&durable, &floor);
        let parts = [
            ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone()),
            ColumnFamilyDescriptor::new(EVENTS, events),
        ];
        let db = DB::open_cf_descriptors(&options, path, parts);
        let shard = Self::opened(db, path, at, order, durable, floor)?;
        shard.resume_events()?;
        Ok(shard)
    }

    /// As [`Shard::open`], with options of its own.
    pub(crate) fn open_with(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        options: impl FnOnce(&DurableTime) -> Options,
    ) -> Result<Self> {
        let durable = DurableTime::new();
        let db = DB::open(&options(&durable), path);
        Self::opened(db, path, at, order, durable, EventFloor::default())
    }

    fn opened(
        db: std::result::Result<DB, rocksdb::Error>,
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        durable: DurableTime,
        floor: EventFloor,
    ) -> Result<Self> {
        let db = db.map_err(|error| explained_open(&error, path).with_partition(at.partition))?;
        let partition_time = AtomicI64::new(Timestamp::MIN.as_micros());
        Ok(Self { db, order, at, path: path.to_owned(), partition_time, durable, floor })
    }

    /// Which partition.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// Where its files are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its documents are ordered.
    pub fn order(&self) -> KeyOrder {
        self.order
    }

    /// Running maximum of the append times of what was applied. Whatever expires at or before it
    /// is not there any more, and may be gone from the disk.
    pub fn partition_time(&self) -> Timestamp {
        Timestamp::from_micros(self.partition_time.load(Ordering::Acquire))
    }

    /// The row under these identity bytes, as of the last entry applied; expired ones too, until
    /// they are gone.
    ///
    /// # Errors
    /// `Corrupt` for a key that is none of this store or a damaged file, `Unavailable` for a disk
    /// that refuses.
    pub fn row(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        let found = self.db.get_pinned(self.order.stored(key)?);
        found.map_err(|error| self.explained(&error, "reading a document"))
    }

    /// About how many documents there are, and how many bytes their files and what is not on disk
    /// yet take: the engine estimates.
    pub fn estimate(&self) -> (u64, u64) {
        let number = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        let bytes = number(LIVE_BYTES) + number(UNWRITTEN_BYTES);
        (number(KEYS), bytes)
    }

    /// All documents at one position, for as long as the view lives; it keeps files on the disk.
    ///
    /// # Errors
    /// As [`Shard::row`].
    pub fn view(&self) -> Result<View<'_>> {
        View::open(self)
    }

    /// Puts everything that was written on disk. Waits for the disk; others go on meanwhile.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses; what was written stays readable.
    pub fn flush(&self) -> Result<()> {
        // Whatever is written meanwhile is of a later time.
        let time = self.partition_time();
        self.flush_all().map_err(|error| self.explained(&error, "writing a shard to disk"))?;
        self.durable.note(time);
        Ok(())
    }

    /// Forgets the records up to this offset that were skipped: their dead letters are durable. A
    /// kill may bring them back.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn settle_skipped(&self, until: Offset) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(skipped_key(Offset(0)), skipped_key(until.next()));
        self.write(batch, self.partition_time())
    }

    /// Rewrites all files, without what was deleted or has expired. Takes as long as reading and
    /// writing all of it.
    pub fn compact(&self) {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
    }

    /// How many files there are that may hold any key, each of which a read looks into.
    ///
    /// # Errors
    /// `Internal` for an engine that does not tell.
    pub fn overlapping_files(&self) -> Result<u64> {
        let told = self.db.property_value(num_files_at_level(0));
        let told = told.map_err(|error| self.explained(&error, "counting a shard's files"))?;
        let unknown = || self.located(Error::internal("the engine does not count its files"));
        told.and_then(|told| told.parse().ok()).ok_or_else(unknown)
    }

    /// The head on disk or in memory; `None` in a shard to which nothing was written.
    pub(crate) fn head(&self) -> Result<Option<Head>> {
        let bytes = self.db.get_pinned(HEAD);
        let bytes = bytes.map_err(|error| self.explained(&error, "reading a shard's head"))?;
        bytes.map(|bytes| Head::decode(&bytes)).transpose().map_err(|error| self.located(error))
    }

    /// Writes a batch whole, or not at all. Waits where the engine makes writers wait, until it has
    /// compacted what is there.
    pub(crate) fn write(&self, batch: WriteBatch, partition_time: Timestamp) -> Result<()> {
        self.write_with(batch, partition_time, &unlogged())
            .map_err(|error| self.explained(&error, "writing an entry"))
    }

    /// As [`Shard::write`], but writes nothing and answers `false` where it would have to wait.
    pub(crate) fn try_write(&self, batch: WriteBatch, partition_time: Timestamp) -> Result<bool> {
        let mut options = unlogged();
        options.set_no_slowdown(true);
        match self.write_with(batch, partition_time, &options) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(false),
            Err(error) => Err(self.explained(&error, "writing an entry")),
        }
    }

    fn write_with(
        &self,
        batch: WriteBatch,
        partition_time: Timestamp,
        options: &WriteOptions,
    ) -> std::result::Result<(), rocksdb::Error> {
        self.db.write_opt(batch, options)?;
        self.note_time(partition_time);
        Ok(())
    }

    pub(crate) fn note_time(&self, partition_time: Timestamp) {
        self.partition_time.fetch_max(partition_time.as_micros(), Ordering::AcqRel);
    }

    /// Notes that the state of this time is on disk, as after an open.
    pub(crate) fn note_durable(&self, partition_time: Timestamp) {
        self.durable.note(partition_time);
    }

    pub(crate) fn explained(&self, error: &rocksdb::Error, doing: &str) -> Error {
        self.located(explained(error, doing))
    }

    pub(crate) fn located(&self, error: Error) -> Error {
        error.with_partition(self.at.partition)
    }
}

/// The partition's log is the shard's.
fn unlogged() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("at", &self.at).field("path", &self.path).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_core::id::{PartitionId, StoreId};
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use parking_lot::RwLock;
    use rocksdb::CompactionDecision;

    use super::*;

    /// Writes that are more than enough to be held up.
    const WRITES: usize = 1_000;

    /// A shard that makes writers wait while the lock is taken: its files are merged no further.
    fn shard_that_waits(path: &Path, lock: &Arc<RwLock<()>>) -> Shard {
        let definition = StoreSpec::documents("users", KeyType::Bytes, 1).define(StoreId(1));
        let order = KeyOrder::of(&definition.unwrap());
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let lock = Arc::clone(lock);
        Shard::open_with(path, at, order, |durable| {
            let mut options = Resources::new(16 << 20).unwrap().options(durable);
            options.set_write_buffer_size(64 << 10);
            options.set_level_zero_file_num_compaction_trigger(2);
            options.set_level_zero_stop_writes_trigger(3);
            options.set_compaction_filter("waits", move |_level, _key, _row| {
                drop(lock.read());
                CompactionDecision::Keep
            });
            options
        })
        .unwrap()
    }

    #[test]
    fn a_write_that_would_have_to_wait_is_none_until_it_may() {
        let (dir, lock) = (tempfile::tempdir().unwrap(), Arc::new(RwLock::new(())));
        let shard = shard_that_waits(dir.path(), &lock);
        let held = lock.write();
        let batch = |number: usize| {
            let mut batch = WriteBatch::default();
            let row: Vec<u8> = (0..16 << 10).map(|at| (at * number % 251) as u8).collect();
            batch.put(number.to_le_bytes(), row);
            batch
        };
        let time = |number: usize| Timestamp::from_micros(number as i64);
        let is_there = |number: usize| shard.db.get(number.to_le_bytes()).unwrap().is_some();
        let mut written = (0..WRITES).take_while(|at| {
            let is_written = shard.try_write(batch(*at), time(*at)).unwrap();
            assert_eq!(is_there(*at), is_written);
            is_written
        });
        let last = written.by_ref().last().unwrap();
        assert!(last < WRITES - 1, "it never had to wait");
        assert_eq!(shard.partition_time(), time(last));
        let next = last + 1;
        std::thread::scope(|scope| {
            scope.spawn(|| shard.write(batch(next), time(next)).unwrap());
            drop(held);
        });
        assert!(is_there(next) && shard.partition_time() == time(next));
    }
}
