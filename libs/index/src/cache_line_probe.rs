//! A probe of the cache lines of the documents' memory, for benchmarks that measure the cost of one
//! access. No other part of the index uses the probe.
//!
//! The content of a line has no meaning: a record, a bucket, or old bytes. A line is loaded as a
//! word that any thread or process may be writing, and the word is never used as an address.

use std::fmt;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use crate::index::Index;
use crate::inner::Inner;
use crate::memory::{BLOCK_BYTES, Memory};
use crate::reclaim::Pin;

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

/// The memory of the followed partitions as readers see it, line by line. While it exists, all of
/// it stays mapped, and its reclaim is delayed.
#[doc(hidden)]
pub struct CacheLineProbe<'a> {
    partitions: Vec<Lines<'a>>,
    _pin: Pin<'a>,
}

struct Lines<'a> {
    memory: &'a Memory,
    /// Number of lines; never decreases, because opened addresses stay open.
    count: u64,
}

impl<'a> CacheLineProbe<'a> {
    pub(crate) fn of(inner: &'a Inner) -> Result<Self> {
        let pin = inner.resources.reclaim.enter();
        let lines = |id| {
            // SAFETY: the pin was entered before, and lives as long as the references derived from
            // this.
            let space = unsafe {
                inner.followed_partition(id)?.header.load_space(&inner.resources.reclaim)
            }?;
            let memory: &Memory = &space.memory;
            Ok(Lines { memory, count: (memory.opened() - BLOCK_BYTES) / LINE_BYTES })
        };
        let partitions = inner.followed_ids().map(lines).collect::<Result<_>>()?;
        Ok(Self { partitions, _pin: pin })
    }

    /// Number of lines of each followed partition.
    pub fn counts(&self) -> Vec<u64> {
        self.partitions.iter().map(|lines| lines.count).collect()
    }

    /// Loads the first word of a line of the n-th followed partition; `None` if there is no such
    /// line.
    #[inline]
    pub fn load(&self, place: usize, line: u64) -> Option<u64> {
        let lines = self.partitions.get(place).filter(|lines| line < lines.count)?;
        // SAFETY: the first word of a line below the end of the opened addresses and above the
        // first block, which is never used; readable while the pin is held, and loaded as an
        // atomic.
        let word = unsafe { lines.memory.word(BLOCK_BYTES + line * LINE_BYTES) };
        Some(word.load(Ordering::Relaxed))
    }
}

impl Index {
    /// The memory of the partitions, for benchmarks of memory access.
    ///
    /// # Errors
    /// `Unavailable` when a shared copy cannot be mapped.
    #[doc(hidden)]
    pub fn memory_lines(&self) -> Result<CacheLineProbe<'_>> {
        CacheLineProbe::of(&self.inner)
    }
}

impl fmt::Debug for CacheLineProbe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLineProbe").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
