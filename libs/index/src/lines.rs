//! Lines of the memory that documents lie in, for whoever measures what one access to it costs.
//!
//! What stands in a line is of no meaning: a record, a bucket, or what was there before. It is
//! loaded as a word that any thread or process may be writing, and never leads to anything.

use std::fmt;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use crate::index::Inner;
use crate::memory::{BLOCK_BYTES, Memory};
use crate::reclaim::Pin;

/// Bytes of a line.
const LINE_BYTES: u64 = 64;

/// The memory of the followed partitions as readers see it, line by line. Keeps all of it mapped,
/// and delays its reclaim, while it lives.
#[doc(hidden)]
pub struct MemoryLines<'a> {
    partitions: Vec<Lines<'a>>,
    _pin: Pin<'a>,
}

struct Lines<'a> {
    memory: &'a Memory,
    /// How many there are; none goes, for addresses that were opened stay so.
    count: u64,
}

impl<'a> MemoryLines<'a> {
    pub(crate) fn of(inner: &'a Inner) -> Result<Self> {
        let pin = inner.reclaim.enter();
        let lines = |id| {
            // SAFETY: the pin was taken before, and stays as long as what is made of this.
            let space = unsafe { inner.followed(id)?.header.load_space(&inner.reclaim) }?;
            let memory: &Memory = &space.memory;
            Ok(Lines { memory, count: (memory.opened() - BLOCK_BYTES) / LINE_BYTES })
        };
        let partitions = inner.followed_ids().map(lines).collect::<Result<_>>()?;
        Ok(Self { partitions, _pin: pin })
    }

    /// How many lines each followed partition has.
    pub fn counts(&self) -> Vec<u64> {
        self.partitions.iter().map(|lines| lines.count).collect()
    }

    /// The first word of a line of the partition at this place among the followed ones; `None`
    /// where there is none.
    #[inline]
    pub fn load(&self, place: usize, line: u64) -> Option<u64> {
        let lines = self.partitions.get(place).filter(|lines| line < lines.count)?;
        // SAFETY: the first word of a line below the end of what is opened, above the first block,
        // which nothing is in; readable while the pin is held, and loaded as an atomic.
        let word = unsafe { lines.memory.word(BLOCK_BYTES + line * LINE_BYTES) };
        Some(word.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for MemoryLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLines").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
