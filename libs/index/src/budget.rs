//! How much memory the spaces of one index may take, all together, and how much of the disk beyond.
//!
//! What a chunk takes counts from the moment that it is handed out until its memory is free again:
//! also while readers of a time before are still in it. Addresses count nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Error, Result};

/// What an index takes of the memory that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that documents, their index and what waits to be used again take.
    pub used: u64,
    /// Bytes that they may take; `None` without a bound.
    pub limit: Option<u64>,
    /// Bytes on disk that documents take which have no room in memory.
    pub spilled: u64,
    /// Bytes on disk that they may take; 0 where nothing is spilled.
    pub spill_limit: u64,
}

impl MemoryUse {
    /// Whether nine tenths of the bound are used, or of that on disk where documents are spilled:
    /// time to raise it.
    pub fn is_scarce(&self) -> bool {
        let is_nearly = |used: u64, limit: u64| used >= limit - limit / 10;
        match self.spill_limit {
            0 => self.limit.is_some_and(|limit| is_nearly(self.used, limit)),
            limit => is_nearly(self.spilled, limit),
        }
    }
}

/// The memory that writers may hand out.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    spill_limit: AtomicU64,
    spilled: AtomicU64,
}

/// Memory is short once less than this part of the bound is left.
const HEADROOM_SHARE: u64 = 32;

impl Budget {
    /// One without a bound.
    pub(crate) fn new() -> Self {
        let [limit, used, spill_limit, spilled] = [u64::MAX, 0, 0, 0].map(AtomicU64::new);
        Self { limit, used, spill_limit, spilled }
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_spill_limit(&self, bytes: u64) {
        self.spill_limit.store(bytes, Ordering::Relaxed);
    }

    /// Whether anything may be spilled at all.
    pub(crate) fn may_spill(&self) -> bool {
        self.spill_limit.load(Ordering::Relaxed) > 0
    }

    /// Whether so little is left that records should be spilled ahead.
    pub(crate) fn is_short(&self) -> bool {
        !self.has_room(0)
    }

    /// Whether this many bytes could be taken, with some to spare.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        used <= limit - limit / HEADROOM_SHARE
    }

    /// Takes this many bytes.
    ///
    /// # Errors
    /// `LimitExceeded` beyond the bound; nothing is taken then.
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used <= limit {
            return Ok(());
        }
        self.give_back(bytes);
        let message = match self.may_spill() {
            false => {
                "the memory budget is used up, and nothing more is applied; raise the reader's \
                 memory budget (and the process's memory), let it spill, or follow fewer partitions"
            }
            true => {
                "the memory budget is used up, and nothing more can be spilled or applied; raise \
                 the reader's memory budget (and the process's memory) or its room for spilled \
                 documents, or follow fewer partitions"
            }
        };
        Err(Error::limit_exceeded(message, limit, used))
    }

    /// Takes this many bytes on disk.
    ///
    /// # Errors
    /// `LimitExceeded` beyond the bound; nothing is taken then.
    pub(crate) fn take_spill(&self, bytes: u64) -> Result<()> {
        let limit = self.spill_limit.load(Ordering::Relaxed);
        let spilled = self.spilled.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if spilled <= limit {
            return Ok(());
        }
        self.give_back_spill(bytes);
        let message = "the memory budget and the room for spilled documents are used up, and \
            nothing more is applied; raise one of them, or follow fewer partitions";
        Err(Error::limit_exceeded(message, limit, spilled))
    }

    pub(crate) fn give_back_spill(&self, bytes: u64) {
        self.spilled.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that are in use already, in memory and on disk.
    pub(crate) fn count(&self, bytes: u64, spilled: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.spilled.fetch_add(spilled, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn in_use(&self) -> MemoryUse {
        let limit = self.limit.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let (spilled, spill_limit) = (&self.spilled, &self.spill_limit);
        MemoryUse {
            used,
            limit: (limit != u64::MAX).then_some(limit),
            spilled: spilled.load(Ordering::Relaxed),
            spill_limit: spill_limit.load(Ordering::Relaxed),
        }
    }
}
