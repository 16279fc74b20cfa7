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
    ESTIMATE_NUM_KEYS as KEYS,
};
use rocksdb::{DB, DBPinnableSlice, WriteBatch, WriteOptions};

use crate::error::{explained, explained_open};
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
}

impl Shard {
    pub(crate) fn open(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        let durable = DurableTime::new();
        let options = resources.options(&durable);
        let db = DB::open(&options, path)
            .map_err(|error| explained_open(&error, path).with_partition(at.partition))?;
        let partition_time = AtomicI64::new(Timestamp::MIN.as_micros());
        Ok(Self { db, order, at, path: path.to_owned(), partition_time, durable })
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
        self.db.flush().map_err(|error| self.explained(&error, "writing a shard to disk"))?;
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

    /// The head on disk or in memory; `None` in a shard to which nothing was written.
    pub(crate) fn head(&self) -> Result<Option<Head>> {
        let bytes = self.db.get_pinned(HEAD);
        let bytes = bytes.map_err(|error| self.explained(&error, "reading a shard's head"))?;
        bytes.map(|bytes| Head::decode(&bytes)).transpose().map_err(|error| self.located(error))
    }

    /// Writes a batch whole, or not at all.
    pub(crate) fn write(&self, batch: WriteBatch, partition_time: Timestamp) -> Result<()> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        let written = self.db.write_opt(batch, &options);
        written.map_err(|error| self.explained(&error, "writing an entry"))?;
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

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("at", &self.at).field("path", &self.path).finish()
    }
}
