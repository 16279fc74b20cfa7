//! The trait that every log implements, and to which one conformance suite holds every log; and the
//! reads of a range of records through it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::limits::READER_READ_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

/// Longest wait of a read for records that should exist.
const READ_WAIT: Duration = Duration::from_secs(5);

/// A record as a log stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Offset of the record.
    pub offset: Offset,
    /// Time at which the log appended the record.
    pub append_time: Timestamp,
    /// The entry with its frame.
    pub entry: Bytes,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendReceipt {
    /// The offset that the log assigned to the entry.
    pub offset: Offset,
    /// Time at which the log appended the entry.
    pub append_time: Timestamp,
}

/// Limit on the bytes that one read returns, and on its wait for a first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most bytes of entries to return; a read returns one record even if the record is larger.
    pub bytes_max: usize,
    /// Longest wait for a first record at the end of the log; zero returns at once.
    pub wait_max: Duration,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Records by ascending offset, the first at or after the requested offset; empty at the end.
    pub records: Vec<LogRecord>,
    /// The offset that the next append gets, as known when the log answered the read.
    pub end: Offset,
}

/// Start and end of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// First offset that the log still stores.
    pub start: Offset,
    /// The offset that the next append gets.
    pub end: Offset,
    /// Current time of the clock that stamps the log, if the log reports it; a reader derives its
    /// clock error from this time. The time is never below the last append time: append times do
    /// not fall if the clock does, and a reader whose clock fell with the log's clock would take
    /// old data for fresh.
    pub server_time: Option<Timestamp>,
}

/// An ordered, durable log per partition.
///
/// Many tasks may call every method at once. If one caller awaits each append to a partition before
/// the next, these appends keep their order. The control log is [`PartitionRef::CONTROL`] and
/// always exists.
#[async_trait]
pub trait ChangeLog: Send + Sync + 'static {
    /// Creates the empty logs of a store's partitions. Creating them again changes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` if the store's logs exist with another partition count; `LimitExceeded` if
    /// the disk is full; `Unsupported` if the log only reads; `Unavailable`.
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()>;

    /// Removes the logs of a store. Removing a store without logs changes nothing.
    async fn delete(&self, store: StoreId) -> Result<()>;

    /// Appends one entry and returns when the entry is durable.
    ///
    /// # Errors
    /// - `NotFound`: the log was never created.
    /// - `LimitExceeded`: the entry exceeds [`ENTRY_FRAME_BYTES_MAX`] or the disk is full; nothing
    ///   was appended.
    /// - `Unavailable`: nothing was appended for certain.
    /// - `UnknownOutcome`: the entry may or may not have been appended.
    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt>;

    /// Reads records from an offset on, in order, without gaps in what the log still stores. A log
    /// returns only durable records.
    ///
    /// # Errors
    /// - `TokenLost`: the offset is below the start of the log or above its end; the caller's
    ///   position is lost and the caller must bootstrap again.
    /// - `Corrupt`: damage after which nothing can be trusted.
    /// - `NotFound`, `Unavailable`.
    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records>;

    /// Returns the current start and end of a partition's log.
    async fn bounds(&self, at: PartitionRef) -> Result<Bounds>;

    /// Removes records below an offset; the log may retain some of them. The caller guarantees that
    /// a verified snapshot covers the records, or that the stream's retention has expired them.
    /// After a trim at the end of the log, the rest of the trimmed records goes with the first trim
    /// that follows another append.
    ///
    /// # Errors
    /// `Unsupported` if the log only reads; `InvalidArgument` if `before` is above the end of the
    /// log.
    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()>;
}

#[async_trait]
impl<L: ChangeLog + ?Sized> ChangeLog for Arc<L> {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        (**self).create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        (**self).delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        (**self).append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        (**self).read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        (**self).bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        (**self).trim(at, before).await
    }
}

impl Bounds {
    /// Rejects an offset that this log does not cover: below its start or above its end.
    ///
    /// # Errors
    /// `TokenLost`, with the bound that the offset passed.
    pub fn check(&self, at: PartitionRef, from: Offset) -> Result<()> {
        let (side, bound) = if from < self.start {
            ("starts", self.start)
        } else if from > self.end {
            ("ends", self.end)
        } else {
            return Ok(());
        };
        Err(Error::token_lost(format!(
            "offset {from} of log {at} is lost: the log {side} at {bound}; bootstrap again"
        ))
        .with_partition(at.partition))
    }
}

/// The rest of a range of records.
pub struct RecordRange<'l> {
    /// The log.
    pub log: &'l dyn ChangeLog,
    /// Partition of the range.
    pub at: PartitionRef,
    /// Offsets that were not read yet.
    pub offsets: Range<Offset>,
}

impl RecordRange<'_> {
    /// Returns the next records; none at the end of the range.
    ///
    /// # Errors
    /// - `TokenLost`: the log no longer stores the records.
    /// - `Unavailable`: the log ends before the range does.
    /// - The errors of the log.
    pub async fn next(&mut self) -> Result<Vec<LogRecord>> {
        let Range { start, end } = self.offsets;
        if start >= end {
            return Ok(Vec::new());
        }
        let limit = ReadLimit { bytes_max: READER_READ_BYTES_MAX, wait_max: READ_WAIT };
        let mut read = self.log.read(self.at, start, limit).await?;
        // Records that were received before later appends report an earlier end.
        if read.records.is_empty() && read.end < end {
            let message = format!(
                "the read of log {} up to offset {end} failed: the log ends at {}; try again, and \
                 restore the log if it stays short",
                self.at, read.end
            );
            return Err(Error::unavailable(message).with_partition(self.at.partition));
        }
        // After the last record there may be offsets without a record, as in Kafka.
        self.offsets.start = read.records.last().map_or(end, |last| last.offset.next());
        read.records.retain(|record| record.offset < end);
        Ok(read.records)
    }
}

/// Rejects an entry that is too large for any log.
pub(crate) fn check_entry(at: PartitionRef, entry: &Bytes) -> Result<()> {
    if entry.len() <= ENTRY_FRAME_BYTES_MAX {
        return Ok(());
    }
    let advice = "the entry is too large; split the batch into smaller entries";
    Err(Error::limit_exceeded(advice, ENTRY_FRAME_BYTES_MAX as u64, entry.len() as u64)
        .with_partition(at.partition))
}

/// Returns the error for a partition whose log was never created, or was deleted.
pub(crate) fn no_such_log(at: PartitionRef) -> Error {
    Error::not_found(format!("there is no log {at}; create the store first"))
        .with_partition(at.partition)
}

/// Rejects the creation of a store's logs with a second, different partition count.
pub(crate) fn check_same_count(
    store: StoreId,
    actual: PartitionCount,
    requested: PartitionCount,
) -> Result<()> {
    if actual == requested {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "the logs of store {store} exist with {actual} partitions, not {requested}; a partition \
         count is fixed: ask for {actual} partitions"
    )))
}

/// Rejects the control log, which always exists.
pub(crate) fn check_not_control(store: StoreId) -> Result<()> {
    if store == PartitionRef::CONTROL.store {
        let message = "store 0 is the control log, which always exists and is never deleted";
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

/// Returns the error for a trim above the end of a log.
pub(crate) fn trim_above_end(at: PartitionRef, before: Offset, end: Offset) -> Error {
    Error::invalid_argument(format!(
        "log {at} ends at offset {end} and cannot be trimmed up to offset {before}; trim at most \
         up to the end"
    ))
    .with_partition(at.partition)
}
