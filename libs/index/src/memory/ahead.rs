//! Pre-faulting of the blocks that are written next.
//!
//! The system clears a huge page at the first touch, which takes some milliseconds. A writer that
//! reached a fresh block without pre-faulting would wait for that inside one `apply`.

use std::sync::atomic::Ordering;

use super::geometry::BLOCK_BYTES;
use super::{Advice, Memory};

/// Maximum number of pre-faulted blocks: a writer may fill some while the thread that pre-faults
/// waits for a core.
const BLOCKS_AHEAD_MAX: u64 = 4;
/// Blocks in a space per pre-faulted block: pre-faulted memory is a small part of the total.
const BLOCKS_FOR_ONE_AHEAD: u64 = 16;

impl Memory {
    /// Whether a large space has fewer pre-faulted blocks than it should.
    pub(crate) fn wants_blocks(&self) -> bool {
        self.next_block().is_some()
    }

    /// Returns the next fresh block that has no pages yet and will be needed.
    fn next_block(&self) -> Option<u64> {
        let opened = self.opened();
        let next = self.prepared.load(Ordering::Relaxed).max(opened);
        let ahead = (opened / BLOCK_BYTES / BLOCKS_FOR_ONE_AHEAD).min(BLOCKS_AHEAD_MAX);
        let is_near = next < opened + ahead * BLOCK_BYTES;
        let has_addresses = next + BLOCK_BYTES <= self.reserved;
        let may_grow = self.budget.get().is_none_or(|budget| budget.has_room(BLOCK_BYTES));
        (is_near && has_addresses && may_grow).then_some(next)
    }

    /// Pre-faults the blocks that are written next. Takes no lock: a writer may reach such a block
    /// at the same time, because its content stays.
    pub(crate) fn prepare_blocks(&self) {
        for _ in 0..BLOCKS_AHEAD_MAX {
            let Some(block) = self.next_block() else { return };
            // If there is no room, the writer that reaches the block gets the error.
            if self.make_usable(block, BLOCK_BYTES).is_ok() {
                if !self.is_live() {
                    self.advise(block, BLOCK_BYTES, Advice::LinuxHugepage);
                }
                // SAFETY: a block of our own mapping; its pages are allocated as if it were written
                // to, and its content stays. A system that does not know the advice refuses it.
                let _refused = unsafe {
                    let start = self.pointer(block).cast();
                    libc::madvise(start, BLOCK_BYTES as usize, libc::MADV_POPULATE_WRITE)
                };
            }
            self.prepared.store(block + BLOCK_BYTES, Ordering::Relaxed);
        }
    }
}
