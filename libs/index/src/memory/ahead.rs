//! Pages of the blocks that are written next: had before a writer comes there.
//!
//! The system clears a huge page when it is first touched, which takes it some milliseconds, and a
//! writer that comes to a fresh block would wait for that inside of one `apply`.

use std::sync::atomic::Ordering;

use super::{Advice, BLOCK_BYTES, Memory};

/// Blocks that have their pages before they are handed out: a writer may fill some while whoever
/// prepares them waits for a core.
const BLOCKS_AHEAD_MAX: u64 = 4;
/// How many a space has for each of them: what lies ahead is a small part of all.
const BLOCKS_FOR_ONE_AHEAD: u64 = 16;

impl Memory {
    /// Whether a large space has fewer blocks ahead than it should.
    pub(crate) fn wants_blocks(&self) -> bool {
        self.next_block().is_some()
    }

    /// The next fresh block that has no pages yet and will be wanted.
    fn next_block(&self) -> Option<u64> {
        let opened = self.opened();
        let next = self.prepared.load(Ordering::Relaxed).max(opened);
        let ahead = (opened / BLOCK_BYTES / BLOCKS_FOR_ONE_AHEAD).min(BLOCKS_AHEAD_MAX);
        let is_near = next < opened + ahead * BLOCK_BYTES;
        let has_addresses = next + BLOCK_BYTES <= self.reserved;
        let may_grow = self.budget.get().is_none_or(|budget| budget.has_room(BLOCK_BYTES));
        (is_near && has_addresses && may_grow).then_some(next)
    }

    /// Gives the blocks that are written next their pages. Takes no lock: a writer may come there
    /// meanwhile, for what lies in them stays.
    pub(crate) fn prepare_blocks(&self) {
        for _ in 0..BLOCKS_AHEAD_MAX {
            let Some(block) = self.next_block() else { return };
            // Without room the writer that comes there is told so.
            if self.make_usable(block, BLOCK_BYTES).is_ok() {
                if !self.is_live() {
                    self.advise(block, BLOCK_BYTES, Advice::LinuxHugepage);
                }
                // SAFETY: a block of our own mapping; its pages come as if it were written to, and
                // what lies there stays. A system that does not know the advice refuses it.
                let _refused = unsafe {
                    let start = self.pointer(block).cast();
                    libc::madvise(start, BLOCK_BYTES as usize, libc::MADV_POPULATE_WRITE)
                };
            }
            self.prepared.store(block + BLOCK_BYTES, Ordering::Relaxed);
        }
    }
}
