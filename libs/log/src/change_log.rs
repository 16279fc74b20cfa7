//! The trait that every log implements and that one conformance suite holds all of them to.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};

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
    /// Stop after this many bytes of entries; one record is returned even when it is larger.
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
    /// The clock of whoever serves the log, where it tells it; gives the clock error of a reader.
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
    /// `Unavailable`, `LimitExceeded` (disk full), `Unsupported` where the log only reads.
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()>;

    /// Removes the logs of a store. Removing what is not there changes nothing.
    async fn delete(&self, store: StoreId) -> Result<()>;

    /// Appends one entry and answers when it is durable.
    ///
    /// # Errors
    /// `NotFound` for a log that was never made; `LimitExceeded` for an entry over
    /// [`ENTRY_BYTES_MAX`](forebay_core::limits::ENTRY_BYTES_MAX) plus its frame or a full disk,
    /// with nothing appended; `Unavailable` when it is certain that nothing was appended;
    /// `UnknownOutcome` when it is not.
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
    /// it that a verified snapshot covers them.
    ///
    /// # Errors
    /// `Unsupported` where the log only reads, `InvalidArgument` above the log's end.
    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()>;
}
