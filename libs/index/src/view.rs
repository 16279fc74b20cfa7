//! Views: the context of one call's reads, all at one time, over all partitions.
//!
//! `lookup` finds the documents of a view; `get`, `batch`, `gather` and `scan` read them.

use std::cell::Cell;

use forebay_core::clock::{Clock, Timestamp};
use forebay_core::id::PartitionId;

use crate::inner::Inner;
use crate::reclaim::Pin;
use crate::table::Scratch;

/// The decision of the layer above about a partition, at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAdmission {
    /// The partition may be read.
    Serve,
    /// The partition is not reachable or not ready.
    Unavailable,
    /// The partition is older than the caller's bound.
    Stale,
}

/// The options of one view's reads.
#[derive(Clone, Copy)]
pub struct ReadAt<'a> {
    time: Time<'a>,
    pub(crate) allow_incomplete_reads: bool,
    /// Whether reads are limited to documents in memory.
    is_for_memory: bool,
    pub(crate) admission: Option<&'a dyn Fn(PartitionId) -> ReadAdmission>,
}

/// The time of one view's reads.
#[derive(Clone, Copy)]
enum Time<'a> {
    At(Timestamp),
    Of(&'a dyn Clock),
}

impl<'a> ReadAt<'a> {
    /// Reads at this time; a partition with a later partition time is read at that time.
    #[inline]
    pub fn new(now: Timestamp) -> Self {
        Self {
            time: Time::At(now),
            allow_incomplete_reads: false,
            is_for_memory: false,
            admission: None,
        }
    }

    /// Reads at the time that this clock shows when the view finds the first document that may
    /// expire: in a store where no document expires, no read pays for the clock.
    #[inline]
    pub fn by(clock: &'a dyn Clock) -> Self {
        Self {
            time: Time::Of(clock),
            allow_incomplete_reads: false,
            is_for_memory: false,
            admission: None,
        }
    }

    /// Reads partitions that are still bootstrapping, too: *absent* then means *not seen yet*.
    #[must_use]
    #[inline]
    pub fn allow_incomplete_reads(mut self, allow_incomplete_reads: bool) -> Self {
        self.allow_incomplete_reads = allow_incomplete_reads;
        self
    }

    /// Reads only documents in memory: a spilled document is `Unavailable`, and no read waits for
    /// the disk.
    #[must_use]
    #[inline]
    pub fn only_memory(mut self) -> Self {
        self.is_for_memory = true;
        self
    }

    /// Calls this function before each key is read, with the key's partition.
    #[must_use]
    pub fn admission(mut self, admission: &'a dyn Fn(PartitionId) -> ReadAdmission) -> Self {
        self.admission = Some(admission);
        self
    }
}

/// The status of one key of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyStatus {
    /// The key has no live document.
    #[default]
    Absent = 0,
    /// The key has a document.
    Found = 1,
    /// The key's partition is still bootstrapping or not reachable, or the document is in a damaged
    /// part of an image.
    Unavailable = 2,
    /// The key's partition is older than the caller's bound.
    Stale = 3,
    /// The key's partition is not followed by this reader.
    NotFollowed = 4,
}

/// The reads of one call. A view belongs to the thread that opened it; keep it for one call, not
/// longer.
///
/// A view is no snapshot: each read finds the newest document, whole.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) at: ReadAt<'a>,
    /// The time of the view's reads, once a read has needed it.
    now: Cell<Option<Timestamp>>,
    /// Copies of records that were found in shared copies.
    pub(crate) scratch: Scratch,
    /// Keeps all other memory that a read finds until the view ends.
    _pin: Pin<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn open(inner: &'a Inner, at: ReadAt<'a>) -> Self {
        let (now, scratch) = (Cell::new(None), Scratch::new(at.is_for_memory));
        Self { inner, at, now, scratch, _pin: inner.resources.reclaim.enter() }
    }

    /// Returns new scratch memory, for the record copies of one batch.
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::new(self.at.is_for_memory)
    }

    /// Returns the time of this view's reads.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.get().unwrap_or_else(|| {
            let now = match self.at.time {
                Time::At(now) => now,
                Time::Of(clock) => clock.now(),
            };
            self.now.set(Some(now));
            now
        })
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("now", &self.now.get()).finish_non_exhaustive()
    }
}
