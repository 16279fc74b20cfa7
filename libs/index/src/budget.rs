//! How much memory the spaces of one index may take, all together.
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
}

impl MemoryUse {
    /// Whether nine tenths of the bound are used: time to raise it.
    pub fn is_scarce(&self) -> bool {
        self.limit.is_some_and(|limit| self.used >= limit - limit / 10)
    }
}

/// The memory that writers may hand out.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// One without a bound.
    pub(crate) fn new() -> Self {
        Self { limit: AtomicU64::new(u64::MAX), used: AtomicU64::new(0) }
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
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
        let message = "the memory budget is used up, and nothing more is applied; raise the \
            reader's memory budget (and the process's memory), or follow fewer partitions";
        Err(Error::limit_exceeded(message, limit, used))
    }

    /// Counts bytes that are in use already.
    pub(crate) fn count(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn in_use(&self) -> MemoryUse {
        let limit = self.limit.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        MemoryUse { used, limit: (limit != u64::MAX).then_some(limit) }
    }
}
