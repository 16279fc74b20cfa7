//! The set of verified blocks of an image: one bit each, per process.
//!
//! The first user of a block verifies it; later users do not. Two threads may verify a block at the
//! same time. After a writer has verified a block, it may change the block while a reader that
//! began earlier is still comparing. The reader then finds a difference, looks at the bit again,
//! and sees that the block was verified before it changed: the writer set the bit before it stored
//! anything, and each of its stores is a release.
//!
//! The thread that finds a block damaged repairs it. Repairs run one at a time, under a lock that
//! serves no other purpose. A repair stores only the words that differ, so until the last of these
//! stores no thread finds the block sound. After the last store the repairing thread stores nothing
//! more to the block; a later change of the block first requires the bit. The bit is set by
//! release, after the words, and loaded by acquire, so a thread that sees the bit sees the words. A
//! thread that found the block sound before the bit was set also sees the words, because the words
//! are stored by release and compared by acquire as well. A thread that saw only some of the words
//! finds a difference, waits for the lock and then finds the bit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Error, Result};
use parking_lot::Mutex;

use super::geometry::CHUNK_BYTES_MIN;
use crate::image::{BlockBytes, Blocks, Extent, Image, damaged};

const WORDS: usize = CHUNK_BYTES_MIN as usize / 8;
/// Maximum wait of a reader for a repair by another thread: in a process that was forked during a
/// repair, no thread ever releases the lock.
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(10);

/// The verification state of the image that a memory was created from.
pub(super) struct VerifiedBlocks {
    /// Per block of addresses: whether the block was verified, or is not part of the image. Blocks
    /// beyond the end are not part of the image.
    verified: Box<[AtomicU64]>,
    /// The image's extents, ascending.
    extents: Vec<Extent>,
    blocks: Arc<Blocks>,
    /// The classes of blocks that cannot be repaired; the lock is held during a repair.
    unrepairable: Mutex<BTreeSet<u64>>,
    is_damaged: AtomicBool,
}

impl VerifiedBlocks {
    pub(super) fn new(image: &Image, end: u64) -> Self {
        let mut verified = vec![u64::MAX; (end / CHUNK_BYTES_MIN).div_ceil(64) as usize];
        for extent in image.extents().iter().filter(|extent| !extent.is_spilled()) {
            for block in extent.first..extent.first + extent.blocks {
                verified[(block / 64) as usize] &= !(1 << (block % 64));
            }
        }
        let verified = verified.into_iter().map(AtomicU64::new).collect();
        let (extents, blocks) = (image.extents().to_vec(), image.blocks().clone());
        let (unrepairable, is_damaged) = (Mutex::default(), AtomicBool::new(false));
        Self { verified, extents, blocks, unrepairable, is_damaged }
    }

    #[inline]
    pub(super) fn is_verified(&self, block: u64) -> bool {
        let word = self.verified.get((block / 64) as usize);
        // Acquire: a repaired block is seen repaired.
        word.is_none_or(|word| word.load(Ordering::Acquire) >> (block % 64) & 1 == 1)
    }

    fn set_verified(&self, block: u64) {
        if let Some(word) = self.verified.get((block / 64) as usize) {
            word.fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    /// Removes these bytes, whole blocks, from the image: they are about to be written.
    pub(super) fn disown(&self, address: u64, bytes: u64) {
        let first = address / CHUNK_BYTES_MIN;
        let end = (first + bytes / CHUNK_BYTES_MIN).min(self.verified.len() as u64 * 64);
        for block in (first..end).filter(|block| !self.is_verified(*block)) {
            // Under the lock: no repair of the block is running, and none will start.
            let _repair = self.unrepairable.lock();
            self.set_verified(block);
        }
    }

    /// Compares a block with its checksum, and repairs it if it does not match.
    ///
    /// # Safety
    /// The block is readable and writable, and all others change it only by atomic words, and only
    /// after it was verified.
    #[cold]
    pub(super) unsafe fn verify_block(&self, block: u64, start: *mut u8) -> Result<()> {
        let next = self.extents.partition_point(|extent| extent.first <= block);
        let extent = next.checked_sub(1).map(|place| &self.extents[place]);
        let Some(extent) = extent.filter(|extent| block < extent.first + extent.blocks) else {
            self.set_verified(block);
            return Ok(());
        };
        let in_file = extent.first_in_file + (block - extent.first);
        let mut copy: BlockBytes = [0; CHUNK_BYTES_MIN as usize];
        let words = start.cast::<AtomicU64>();
        for (place, bytes) in (0..WORDS).zip(copy.as_chunks_mut::<8>().0) {
            // SAFETY: a word of the block, by the caller's promise; blocks are aligned.
            let word = unsafe { &*words.add(place) };
            // Acquire: pairs with the release of each change that is seen.
            *bytes = word.load(Ordering::Acquire).to_le_bytes();
        }
        if self.blocks.check(in_file, &copy).is_err() && !self.is_verified(block) {
            // SAFETY: the caller's promise.
            return unsafe { self.repair(block, in_file, start) };
        }
        self.set_verified(block);
        Ok(())
    }

    /// Repairs a block that was found damaged, unless another thread has repaired it by now.
    ///
    /// # Safety
    /// As [`VerifiedBlocks::verify_block`].
    unsafe fn repair(&self, block: u64, in_file: u64, start: *mut u8) -> Result<()> {
        let Some(mut unrepairable) = self.unrepairable.try_lock_for(REPAIR_WAIT_MAX) else {
            return Err(self.note_damage("a damaged block was not repaired in time"));
        };
        if self.is_verified(block) {
            return Ok(());
        }
        let class = self.blocks.class_of(in_file);
        if class.is_some_and(|class| unrepairable.contains(&class)) {
            return Err(self.note_damage("a damaged block cannot be repaired"));
        }
        let repaired = self.blocks.repair(in_file).map_err(|_| {
            unrepairable.extend(class);
            self.note_damage("a damaged block cannot be repaired")
        })?;
        let words = start.cast::<AtomicU64>();
        for (place, bytes) in repaired.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: a word of the block, by the caller's promise; blocks are aligned.
            let (word, repaired) = (unsafe { &*words.add(place) }, u64::from_le_bytes(*bytes));
            if word.load(Ordering::Relaxed) != repaired {
                word.store(repaired, Ordering::Release);
            }
        }
        self.set_verified(block);
        Ok(())
    }

    pub(super) fn note_damage(&self, damage: &str) -> Error {
        self.is_damaged.store(true, Ordering::Relaxed);
        damaged(damage)
    }

    pub(super) fn check_integrity(&self) -> Result<()> {
        match self.is_damaged.load(Ordering::Relaxed) {
            true => Err(damaged("a block that was read is damaged")),
            false => Ok(()),
        }
    }
}
