//! The blocks of an image in its file: each is compared with its checksum, and a damaged block is
//! repaired from parity.
//!
//! The last `p` blocks are parity. Blocks whose numbers are equal modulo `p` are a *class*; one
//! block of a class is its parity block, the XOR of the others. Therefore any block is the XOR of
//! all others of its class, and a run of up to `p` damaged blocks has one block of each class. A
//! repaired block is accepted only if it matches the damaged block's own checksum, whatever the
//! other blocks contained.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Result;

use super::format::{BLOCK, BlockBytes, checksum};
use super::{ImageFile, damaged, read_exactly};
use crate::memory::CHUNK_BYTES_MIN;

/// The blocks of one image.
pub(crate) struct Blocks {
    file: Arc<dyn ImageFile>,
    /// The checksums by block of the file; those of parity blocks are last.
    checksums: Arc<[u64]>,
    parities: u64,
    repaired: Arc<AtomicU64>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Blocks {
    /// Creates the set of blocks; the last `parities` blocks are parity.
    pub(super) fn new(file: Arc<dyn ImageFile>, checksums: Arc<[u64]>, parities: u64) -> Self {
        Self { file, checksums, parities, repaired: Arc::default() }
    }

    /// Number of blocks that were repaired so far.
    pub(super) fn repaired(&self) -> &Arc<AtomicU64> {
        &self.repaired
    }

    /// The class of a block; `None` without parity.
    pub(crate) fn class_of(&self, number: u64) -> Option<u64> {
        number.checked_rem(self.parities)
    }

    /// Compares a block with its checksum.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check(&self, number: u64, block: &BlockBytes) -> Result<()> {
        match self.checksums.get(number as usize) == Some(&checksum(block, number)) {
            true => Ok(()),
            false => Err(damaged("a block fails its checksum")),
        }
    }

    /// Reads a block without verifying it.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt` if the file ends before the block.
    pub(super) fn read(&self, number: u64, block: &mut BlockBytes) -> Result<()> {
        // The file's first block is the header.
        read_exactly(&*self.file, block, (number + 1) * CHUNK_BYTES_MIN)
    }

    /// Recomputes a block as it was written, from the others of its class. All of them are read
    /// from the file, because they may have changed in memory.
    ///
    /// # Errors
    /// `Corrupt` if another block of the class is damaged as well, or there is no parity;
    /// `Unavailable` for a block that cannot be read.
    pub(crate) fn repair(&self, number: u64) -> Result<Box<BlockBytes>> {
        let Some(class) = self.class_of(number) else {
            return Err(damaged("a block fails its checksum and has no parity"));
        };
        let (mut repaired, mut other) = (Box::new([0; BLOCK]), Box::new([0; BLOCK]));
        let all = class..self.checksums.len() as u64;
        for other_number in
            all.step_by(self.parities as usize).filter(|other_number| *other_number != number)
        {
            self.read(other_number, &mut other)?;
            add(&mut repaired, &other);
        }
        if self.check(number, &repaired).is_err() {
            return Err(damaged(
                "a damaged block cannot be repaired, because other blocks are damaged too",
            ));
        }
        self.repaired.fetch_add(1, Ordering::Relaxed);
        Ok(repaired)
    }
}

/// The parity of blocks that are being written.
#[derive(Default)]
pub(super) struct Parity {
    /// The XOR of each class.
    sums: Vec<BlockBytes>,
}

impl Parity {
    pub(super) fn new(parities: u64) -> Self {
        Self { sums: vec![[0; BLOCK]; parities as usize] }
    }

    /// Adds the block of this number; every block must be added.
    pub(super) fn take(&mut self, number: u64, block: &BlockBytes) {
        let class = (number as usize).checked_rem(self.sums.len());
        if let Some(sum) = class.and_then(|class| self.sums.get_mut(class)) {
            add(sum, block);
        }
    }

    /// Returns the parity blocks that follow this many other blocks.
    pub(super) fn into_blocks(mut self, blocks: u64) -> Vec<BlockBytes> {
        let first = (blocks as usize).checked_rem(self.sums.len()).unwrap_or(0);
        self.sums.rotate_left(first);
        self.sums
    }
}

fn add(sum: &mut BlockBytes, block: &BlockBytes) {
    sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
}
