//! An open shard, which has many readers and one writer.

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

use crate::error::{from_rocksdb, from_rocksdb_open};
use crate::event_position::{EVENTS, RetentionFloor};
use crate::expiry::DurableWatermark;
use crate::open_shard_count::OpenShardGuard;
use crate::resources::Resources;

/// The documents of one partition and the state that they were derived with. Any number of threads
/// may read.
pub struct Shard {
    pub(crate) db: DB,
    pub(crate) order: KeyOrder,
    at: PartitionRef,
    path: PathBuf,
    /// Partition time at the last written entry, in microseconds.
    partition_time: AtomicI64,
    durable: DurableWatermark,
    pub(crate) floor: RetentionFloor,
    /// Declared after the database, which closes first.
    _open: OpenShardGuard,
}

impl Shard {
    pub(crate) fn open(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        Self::open_with(path, at, order, resources, |durable| resources.options(durable))
    }

    /// Opens a shard with events; else as [`Shard::open`].
    pub(crate) fn open_with_events(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        let (durable, floor) = (DurableWatermark::new(), RetentionFloor::default());
        let (options, events) = resources.event_options(&durable, &floor);
        let parts = [
            ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone()),
            ColumnFamilyDescriptor::new(EVENTS, events),
        ];
        let db = DB::open_cf_descriptors(&options, path, parts);
        let shard = Self::with_db(db, path, at, order, (durable, floor), resources)?;
        shard.resume_events()?;
        Ok(shard)
    }

    /// Opens a shard with the given options; else as [`Shard::open`].
    pub(crate) fn open_with(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
        options: impl FnOnce(&DurableWatermark) -> Options,
    ) -> Result<Self> {
        let durable = DurableWatermark::new();
        let db = DB::open(&options(&durable), path);
        Self::with_db(db, path, at, order, (durable, RetentionFloor::default()), resources)
    }

    fn with_db(
        db: std::result::Result<DB, rocksdb::Error>,
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        (durable, floor): (DurableWatermark, RetentionFloor),
        resources: &Resources,
    ) -> Result<Self> {
        let db =
            db.map_err(|error| from_rocksdb_open(&error, path).with_partition(at.partition))?;
        let partition_time = AtomicI64::new(Timestamp::MIN.as_micros());
        let (path, _open) = (path.to_owned(), resources.register_shard());
        Ok(Self { db, order, at, path, partition_time, durable, floor, _open })
    }

    /// Returns the partition of the shard.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// Returns the path of the shard's files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the order of the documents.
    pub fn order(&self) -> KeyOrder {
        self.order
    }

    /// Returns the partition time: the running maximum of the append times of the applied entries.
    /// Documents that expire at or before this time are invisible, and may be gone from the disk.
    pub fn partition_time(&self) -> Timestamp {
        Timestamp::from_micros(self.partition_time.load(Ordering::Acquire))
    }

    /// Returns the row under these identity bytes, as of the last applied entry; includes expired
    /// rows that compaction has not removed yet.
    ///
    /// # Errors
    /// `Corrupt` for a key that is invalid in this store, or for a damaged file; `Unavailable` if
    /// the disk refuses.
    pub fn row(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        let found = self.db.get_pinned(self.order.stored(key)?);
        found.map_err(|error| self.engine_error(&error, "reading a document"))
    }

    /// Estimates the number of documents, and the bytes of their files and of unflushed writes.
    pub fn estimate(&self) -> (u64, u64) {
        let number = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        let bytes = number(LIVE_BYTES) + number(UNWRITTEN_BYTES);
        (number(KEYS), bytes)
    }

    /// Flushes all writes. Blocks on the disk; other threads continue.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; the writes stay readable.
    pub fn flush(&self) -> Result<()> {
        // Concurrent writes have a later time.
        let time = self.partition_time();
        self.flush_all().map_err(|error| self.engine_error(&error, "writing a shard to disk"))?;
        self.durable.note(time);
        Ok(())
    }

    /// Deletes the skipped records up to this offset, whose dead letters are durable. A kill may
    /// bring the records back.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn forget_skipped(&self, last_offset: Offset) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(skipped_key(Offset(0)), skipped_key(last_offset.next()));
        self.write(batch, self.partition_time())
    }

    /// Compacts all files, and removes deleted and expired rows. Takes as long as reading and
    /// writing the whole shard.
    pub fn compact(&self) {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
    }

    /// Returns the number of L0 files: each may contain any key, so a read looks into each.
    ///
    /// # Errors
    /// `Internal` if the engine does not report the number.
    pub fn overlapping_files(&self) -> Result<u64> {
        let property = self.db.property_value(num_files_at_level(0));
        let property =
            property.map_err(|error| self.engine_error(&error, "counting a shard's files"))?;
        let count_error =
            || self.with_location(Error::internal("the engine does not count its files"));
        property.and_then(|property| property.parse().ok()).ok_or_else(count_error)
    }

    /// Returns the head, on disk or in memory; `None` if nothing was written to the shard.
    pub(crate) fn head(&self) -> Result<Option<Head>> {
        let bytes = self.db.get_pinned(HEAD);
        let bytes = bytes.map_err(|error| self.engine_error(&error, "reading a shard's head"))?;
        bytes
            .map(|bytes| Head::decode(&bytes))
            .transpose()
            .map_err(|error| self.with_location(error))
    }

    /// Writes a batch atomically. Waits during a write stall of the engine, until compaction
    /// catches up.
    pub(crate) fn write(&self, batch: WriteBatch, partition_time: Timestamp) -> Result<()> {
        self.write_with(batch, partition_time, &unlogged())
            .map_err(|error| self.engine_error(&error, "writing an entry"))
    }

    /// Writes like [`Shard::write`], but writes nothing and returns `false` during a write stall.
    pub(crate) fn try_write(&self, batch: WriteBatch, partition_time: Timestamp) -> Result<bool> {
        let mut options = unlogged();
        options.set_no_slowdown(true);
        match self.write_with(batch, partition_time, &options) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(false),
            Err(error) => Err(self.engine_error(&error, "writing an entry")),
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

    /// Notes that the state of this time is on disk, for example after an open.
    pub(crate) fn note_durable(&self, partition_time: Timestamp) {
        self.durable.note(partition_time);
    }

    pub(crate) fn engine_error(&self, error: &rocksdb::Error, doing: &str) -> Error {
        self.with_location(from_rocksdb(error, doing))
    }

    pub(crate) fn with_location(&self, error: Error) -> Error {
        error.with_partition(self.at.partition)
    }
}

/// Removes the files of a shard.
///
/// # Errors
/// `Unavailable` if the disk refuses, or the shard is open.
pub(crate) fn destroy(path: &Path) -> Result<()> {
    DB::destroy(&Options::default(), path)
        .map_err(|error| from_rocksdb(&error, "removing a shard"))?;
    // The folder may contain files that the engine does not know.
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::unavailable(
            format!("removing a shard: {error}; look at the folder and its disk"),
        )),
        _ => Ok(()),
    }
}

/// Returns write options without a WAL, because the partition's log replaces it.
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

    /// Number of writes that certainly causes a write stall.
    const WRITES: usize = 1_000;

    /// Returns a shard with write stalls while the lock is held, because its compaction filter
    /// waits for the lock.
    fn shard_that_waits(path: &Path, lock: &Arc<RwLock<()>>) -> Shard {
        let definition =
            StoreSpec::documents("users", KeyType::Bytes).partitions(1).define(StoreId(1));
        let order = KeyOrder::of(&definition.unwrap());
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let lock = Arc::clone(lock);
        let resources = Resources::new(16 << 20).unwrap();
        Shard::open_with(path, at, order, &resources, |durable| {
            let mut options = resources.options(durable);
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
    fn try_write_returns_false_during_a_write_stall() {
        let (dir, lock) = (tempfile::tempdir().unwrap(), Arc::new(RwLock::new(())));
        let shard = shard_that_waits(dir.path(), &lock);
        let guard = lock.write();
        let batch = |number: usize| {
            let mut batch = WriteBatch::default();
            let row: Vec<u8> = (0..16 << 10).map(|at| (at * number % 251) as u8).collect();
            batch.put(number.to_le_bytes(), row);
            batch
        };
        let time = |number: usize| Timestamp::from_micros(number as i64);
        let is_there = |number: usize| shard.db.get(number.to_le_bytes()).unwrap().is_some();
        let mut writes = (0..WRITES).take_while(|at| {
            let is_written = shard.try_write(batch(*at), time(*at)).unwrap();
            assert_eq!(is_there(*at), is_written);
            is_written
        });
        let last = writes.by_ref().last().unwrap();
        assert!(last < WRITES - 1, "it never had to wait");
        assert_eq!(shard.partition_time(), time(last));
        let next = last + 1;
        std::thread::scope(|scope| {
            scope.spawn(|| shard.write(batch(next), time(next)).unwrap());
            drop(guard);
        });
        assert!(is_there(next) && shard.partition_time() == time(next));
    }
}
