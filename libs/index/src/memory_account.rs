//! The memory limit of an index: a bound on the memory of all its spaces together, and on their
//! disk space for spilled documents.
//!
//! A chunk counts from its allocation until its memory is free again, including the time in which
//! earlier readers may still be in it. Reserved addresses do not count.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Error, Result};

/// The memory that an index uses, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of documents, their index and memory that waits for its reuse.
    pub used: u64,
    /// Bound of these bytes; `None` without a bound.
    pub limit: Option<u64>,
    /// Bytes on disk of spilled documents.
    pub spilled: u64,
    /// Bound of these bytes; 0 if nothing is spilled.
    pub spill_limit: u64,
}

impl MemoryUse {
    /// Whether nine tenths of the memory bound are used, or of the disk bound if documents are
    /// spilled: time to raise the bound.
    pub fn is_under_pressure(&self) -> bool {
        let is_nearly = |used: u64, limit: u64| used >= limit - limit / 10;
        match self.spill_limit {
            0 => self.limit.is_some_and(|limit| is_nearly(self.used, limit)),
            limit => is_nearly(self.spilled, limit),
        }
    }
}

/// The memory that writers may allocate.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    limit: AtomicU64,
    used: AtomicU64,
    spill_limit: AtomicU64,
    spilled: AtomicU64,
}

/// Memory is short once less than this part of the bound is left.
const HEADROOM_SHARE: u64 = 32;

impl MemoryAccount {
    /// Creates an account without a bound.
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

    /// Whether spilling is allowed.
    pub(crate) fn may_spill(&self) -> bool {
        self.spill_limit.load(Ordering::Relaxed) > 0
    }

    /// Whether so little is left that records should be spilled early.
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
                "the memory limit is reached, so the reader applies nothing more; raise the \
                 reader's memory limit (and the process's memory), let the reader spill, or \
                 follow fewer partitions"
            }
            true => {
                "the memory limit is reached, so the reader can neither spill nor apply more; \
                 raise the reader's memory limit (and the process's memory) or the limit of \
                 spilled documents, or follow fewer partitions"
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
        let message = "the memory limit and the limit of spilled documents are reached, so the \
            reader applies nothing more; raise one of the two, or follow fewer partitions";
        Err(Error::limit_exceeded(message, limit, spilled))
    }

    pub(crate) fn give_back_spill(&self, bytes: u64) {
        self.spilled.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges bytes that are in use already, in memory and on disk.
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
