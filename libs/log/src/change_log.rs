//! The trait that every log implements and that one conformance suite holds all of them to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

/// One record as a log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its offset.
    pub offset: Offset,
    /// When the log appended it.
    pub append_time: Timestamp,
    /// The entry with its frame.
    pub entry: Bytes,
}

/// What an append answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset that the entry got.
    pub offset: Offset,
    /// When the log appended it.
    pub append_time: Timestamp,
}

/// How much one read returns, and how long it waits for a first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most bytes of entries that are returned; one record is returned even when it is larger.
    pub bytes_max: usize,
    /// Wait this long for a first record at the log's end; zero answers at once.
    pub wait_max: Duration,
}

/// What a read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Records by ascending offset, the first at or after the offset asked for; empty at the end.
    pub records: Vec<LogRecord>,
    /// The offset that the next append gets, as known when the read was answered.
    pub end: Offset,
}

/// Where a partition's log starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// First offset that the log still holds.
    pub start: Offset,
    /// The offset that the next append gets.
    pub end: Offset,
    /// The clock that stamps the log, where it tells it; gives the clock error of a reader. Never
    /// below the last append time: append times do not fall when their clock does, and a reader
    /// whose clock fell with it would take old data for fresh.
    pub server_time: Option<Timestamp>,
}

/// An ordered, durable log per partition.
///
/// Every method may be called from many tasks at once. Appends to one partition by one caller, each
/// awaited before the next, keep their order. The control log is
/// [`PartitionRef::CONTROL`] and exists always.
#[async_trait]
pub trait ChangeLog: Send + Sync + 'static {
    /// Makes the empty logs of a store's partitions. Making them again changes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` when the store's logs exist with another partition count; `Unavailable`,
    /// `LimitExceeded` (disk full), `Unsupported` where the log only reads.
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()>;

    /// Removes the logs of a store. Removing what is not there changes nothing.
    async fn delete(&self, store: StoreId) -> Result<()>;

    /// Appends one entry and answers when it is durable.
    ///
    /// # Errors
    /// `NotFound` for a log that was never made; `LimitExceeded` for an entry over
    /// [`ENTRY_FRAME_BYTES_MAX`] or a full disk, with nothing appended; `Unavailable` when it is
    /// certain that nothing was appended; `UnknownOutcome` when it is not.
    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<Appended>;

    /// Reads records from an offset on, in order, without gaps in what the log still holds. Only
    /// durable records are ever returned.
    ///
    /// # Errors
    /// `TokenLost` when the offset lies below the log's start or above its end: the caller's place
    /// is gone and it must bootstrap anew; `Corrupt` for damage behind which nothing can be
    /// trusted; `NotFound`, `Unavailable`.
    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records>;

    /// Where a partition's log starts and ends now.
    async fn bounds(&self, at: PartitionRef) -> Result<Bounds>;

    /// Lets go of records below an offset; the log may keep some of them. The caller answers for
    /// it that a verified snapshot covers them, or that a stream retains them no longer. What was
    /// trimmed at the log's end goes as a whole with another call behind the next append.
    ///
    /// # Errors
    /// `Unsupported` where the log only reads, `InvalidArgument` above the log's end.
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

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<Appended> {
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
    /// Refuses a place that this log does not hold: below its start or above its end.
    ///
    /// # Errors
    /// `TokenLost`, with the bound that was passed.
    pub fn check(&self, at: PartitionRef, from: Offset) -> Result<()> {
        let (side, bound) = if from < self.start {
            ("starts", self.start)
        } else if from > self.end {
            ("ends", self.end)
        } else {
            return Ok(());
        };
        Err(Error::token_lost(format!(
            "offset {from} of log {at} is lost: the log {side} at {bound}; bootstrap anew"
        ))
        .with_partition(at.partition))
    }
}

/// Refuses an entry that no log may hold.
pub(crate) fn check_entry(at: PartitionRef, entry: &Bytes) -> Result<()> {
    if entry.len() <= ENTRY_FRAME_BYTES_MAX {
        return Ok(());
    }
    let advice = "send smaller entries: split the batch";
    Err(Error::limit_exceeded(advice, ENTRY_FRAME_BYTES_MAX as u64, entry.len() as u64)
        .with_partition(at.partition))
}

/// What a log answers about a partition whose log was never made, or was deleted.
pub(crate) fn no_such_log(at: PartitionRef) -> Error {
    Error::not_found(format!("there is no log {at}; create the store first"))
        .with_partition(at.partition)
}

/// What a log answers when a store's logs are made again with another count.
pub(crate) fn check_same_count(
    store: StoreId,
    held: PartitionCount,
    asked: PartitionCount,
) -> Result<()> {
    if held == asked {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "the logs of store {store} exist with {held} partitions, not {asked}; a count is fixed"
    )))
}

/// Refuses to touch the control log, which exists always.
pub(crate) fn check_not_control(store: StoreId) -> Result<()> {
    if store == PartitionRef::CONTROL.store {
        let message = "store 0 is the control log, which always exists and is never deleted";
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

/// What a log answers when it is asked to let go of what was never appended.
pub(crate) fn trim_above_end(at: PartitionRef, before: Offset, end: Offset) -> Error {
    Error::invalid_argument(format!(
        "log {at} ends at {end} and cannot be trimmed up to {before}; trim at most to its end"
    ))
    .with_partition(at.partition)
}
