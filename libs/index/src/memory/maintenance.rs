//! Maintenance of a memory's pages, by another thread than the writer's: pre-faulting of the blocks
//! that are written next, and moves of blocks of shared memory into huge pages.
//!
//! The system clears a huge page at the first touch, which takes some milliseconds. A writer that
//! reached a fresh block without pre-faulting would wait for that inside one `apply`. Blocks of
//! shared memory get huge pages one by one, while others write and read there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::mm::Advice;

use super::Memory;
use super::geometry::{BLOCK_BYTES, SMALL_SPACE_BYTES};

/// Maximum number of pre-faulted blocks: a writer may fill some while the thread that pre-faults
/// waits for a core.
const BLOCKS_AHEAD_MAX: u64 = 4;
/// Blocks in a space per pre-faulted block: pre-faulted memory is a small part of the total.
const BLOCKS_FOR_ONE_AHEAD: u64 = 16;

/// Blocks of 2 MiB that one call moves into huge pages, each in some ten milliseconds.
const BLOCKS_COLLAPSED: usize = 8;

/// A memory maintenance task for another thread; see
/// [`PartitionWriter::maintenance_task`](crate::PartitionWriter::maintenance_task).
#[derive(Debug)]
pub struct MaintenanceTask(Arc<Memory>);

impl MaintenanceTask {
    pub(crate) fn of(memory: &Arc<Memory>) -> Option<Self> {
        let task = Self(Arc::clone(memory));
        task.is_wanted().then_some(task)
    }

    fn is_wanted(&self) -> bool {
        // Memory without another owner is about to be freed.
        let is_held = Arc::strong_count(&self.0) > 1;
        is_held && (self.0.wants_blocks() || self.0.is_scattered())
    }

    /// Runs a part of the task, for a tenth of a second at most; returns whether work remains. Any
    /// thread may call this while the writer continues.
    pub fn run(&self) -> bool {
        self.0.prepare_blocks();
        self.0.collapse(BLOCKS_COLLAPSED);
        self.is_wanted()
    }
}

impl Memory {
    /// Whether a large space has fewer pre-faulted blocks than it should.
    pub(crate) fn wants_blocks(&self) -> bool {
        self.next_block().is_some()
    }

    /// Returns the next fresh block that has no pages yet and will be needed.
    fn next_block(&self) -> Option<u64> {
        let opened = self.opened();
        let next = self.prepared.load(Ordering::Relaxed).max(opened);
        let blocks_ahead = (opened / BLOCK_BYTES / BLOCKS_FOR_ONE_AHEAD).min(BLOCKS_AHEAD_MAX);
        let is_near = next < opened + blocks_ahead * BLOCK_BYTES;
        let has_addresses = next + BLOCK_BYTES <= self.reserved;
        let may_grow = self.account.get().is_none_or(|account| account.has_room(BLOCK_BYTES));
        (is_near && has_addresses && may_grow).then_some(next)
    }

    /// Pre-faults the blocks that are written next. Takes no lock: a writer may reach such a block
    /// at the same time, because its content stays.
    pub(crate) fn prepare_blocks(&self) {
        for _ in 0..BLOCKS_AHEAD_MAX {
            let Some(block) = self.next_block() else { return };
            // If there is no room, the writer that reaches the block gets the error.
            if self.make_usable(block, BLOCK_BYTES).is_ok() {
                if !self.is_shared() {
                    self.advise(block, BLOCK_BYTES, Advice::LinuxHugepage);
                }
                // SAFETY: a block of our own mapping; its pages are allocated as if it were written
                // to, and its content stays. A system that does not know the advice refuses it.
                let _result = unsafe {
                    let start = self.pointer(block).cast();
                    libc::madvise(start, BLOCK_BYTES as usize, libc::MADV_POPULATE_WRITE)
                };
            }
            self.prepared.store(block + BLOCK_BYTES, Ordering::Relaxed);
        }
    }

    /// Returns the next block of a memory file system that is in small pages. By default such a
    /// file system gives no huge pages, even if advised to; a file on disk never gets them.
    fn scattered_block(&self) -> Option<u64> {
        let next = self.collapsed.load(Ordering::Relaxed);
        let is_large = self.opened() > BLOCK_BYTES + SMALL_SPACE_BYTES;
        let is_scattered = is_large && next + BLOCK_BYTES <= self.opened();
        self.file().filter(|file| is_scattered && file.is_in_memory()).map(|_| next)
    }

    /// Whether some block is in small pages that could be in a huge page.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scattered_block().is_some()
    }

    /// Moves blocks into huge pages, at most this many; each takes some ten milliseconds. A reader
    /// or writer of the block waits for its page at most.
    pub(crate) fn collapse(&self, blocks_max: usize) {
        for _ in 0..blocks_max {
            let (Some(block), Some(file)) = (self.scattered_block(), self.file()) else { return };
            // A block that gets no huge page now, for want of memory, stays in small pages.
            let next = if file.collapse(block) { block + BLOCK_BYTES } else { u64::MAX / 2 };
            self.collapsed.store(next, Ordering::Relaxed);
        }
    }
}
