//! Huge pages of live memory: created block by block, while others write and read there.

use std::sync::atomic::Ordering;

use super::Memory;
use super::geometry::{BLOCK_BYTES, SMALL_SPACE_BYTES};

impl Memory {
    /// Returns the next block of a memory file system that is in small pages. By default such a
    /// file system gives no huge pages, even if advised to; a file on disk never gets them.
    fn scattered_block(&self) -> Option<u64> {
        let next = self.collapsed.load(Ordering::Relaxed);
        let is_large = self.opened() > BLOCK_BYTES + SMALL_SPACE_BYTES;
        let is_scattered = is_large && next + BLOCK_BYTES <= self.opened();
        self.live().filter(|file| is_scattered && file.is_in_memory()).map(|_| next)
    }

    /// Whether some block is in small pages that could be in a huge page.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scattered_block().is_some()
    }

    /// Moves blocks into huge pages, at most this many; each takes some ten milliseconds. A reader
    /// or writer of the block waits for its page at most.
    pub(crate) fn collapse(&self, most: usize) {
        for _ in 0..most {
            let (Some(block), Some(file)) = (self.scattered_block(), self.live()) else { return };
            // A block that gets no huge page now, for want of memory, stays in small pages.
            let next = if file.collapse(block) { block + BLOCK_BYTES } else { u64::MAX / 2 };
            self.collapsed.store(next, Ordering::Relaxed);
        }
    }
}
