//! Huge pages of live memory: brought about block by block, beside whoever writes and reads there.

use std::sync::atomic::Ordering;

use super::{BLOCK_BYTES, Memory, SMALL_SPACE_BYTES};

impl Memory {
    /// The next block of a memory file system that lies in small pages. Such a system may give huge
    /// ones on nobody's advice; those of a file on disk it never gives.
    fn scattered_block(&self) -> Option<u64> {
        let next = self.collapsed.load(Ordering::Relaxed);
        let is_large = self.opened() > BLOCK_BYTES + SMALL_SPACE_BYTES;
        let is_scattered = is_large && next + BLOCK_BYTES <= self.opened();
        self.live().filter(|file| is_scattered && file.is_in_memory()).map(|_| next)
    }

    /// Whether a block lies in small pages that may lie in a huge one.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scattered_block().is_some()
    }

    /// Brings blocks into huge pages, at most so many, each of which takes some ten milliseconds.
    /// Whoever reads or writes there meanwhile waits for its page at most.
    pub(crate) fn collapse(&self, most: usize) {
        for _ in 0..most {
            let (Some(block), Some(file)) = (self.scattered_block(), self.live()) else { return };
            // One that cannot be had now, for want of memory, stays as it is.
            let next = if file.collapse(block) { block + BLOCK_BYTES } else { u64::MAX / 2 };
            self.collapsed.store(next, Ordering::Relaxed);
        }
    }
}
