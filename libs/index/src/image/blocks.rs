//! The blocks of an image in its file: each is compared with its checksum, and a damaged one is
//! mended.
//!
//! The last `p` blocks are parity. Those whose number by `p` leaves the same are a *class*; one of
//! it is a parity block, which is the XOR of the others. So any block is the XOR of all others of
//! its class, and a run of up to `p` damaged blocks has one of each. What comes of it is believed
//! once it fits the damaged block's own checksum, whatever the others were.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Result;

use super::format::{BLOCK, Block, checksum};
use super::open::read_exactly;
use super::{ImageFile, damaged};
use crate::memory::CHUNK_BYTES_MIN;

/// The blocks of one image.
pub(crate) struct Blocks {
    file: Arc<dyn ImageFile>,
    /// By block of the file, the parity blocks behind the others.
    checksums: Arc<[u64]>,
    parities: u64,
    mended: Arc<AtomicU64>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Blocks {
    /// The last so many of the blocks are the parity.
    pub(super) fn new(file: Arc<dyn ImageFile>, checksums: Arc<[u64]>, parities: u64) -> Self {
        Self { file, checksums, parities, mended: Arc::default() }
    }

    /// How many were mended so far.
    pub(super) fn mended(&self) -> &Arc<AtomicU64> {
        &self.mended
    }

    /// The class of a block; `None` without parity.
    pub(crate) fn class_of(&self, number: u64) -> Option<u64> {
        number.checked_rem(self.parities)
    }

    /// Compares a block with its checksum.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check(&self, number: u64, block: &Block) -> Result<()> {
        match self.checksums.get(number as usize) == Some(&checksum(block, number)) {
            true => Ok(()),
            false => Err(damaged("a block whose checksum does not fit")),
        }
    }

    /// Reads a block; nothing is proved by that.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt` where the file ends before it.
    pub(super) fn read(&self, number: u64, block: &mut Block) -> Result<()> {
        // The first block of the file is the header.
        read_exactly(&*self.file, block, (number + 1) * CHUNK_BYTES_MIN)
    }

    /// A block as it was written, made of the others of its class, all of which are read from the
    /// file: in memory they may have changed since.
    ///
    /// # Errors
    /// `Corrupt` where another of its class is damaged as well, or there is no parity;
    /// `Unavailable` for one that cannot be read.
    pub(crate) fn mend(&self, number: u64) -> Result<Box<Block>> {
        let Some(class) = self.class_of(number) else {
            return Err(damaged("a block whose checksum does not fit, without parity"));
        };
        let (mut mended, mut other) = (Box::new([0; BLOCK]), Box::new([0; BLOCK]));
        let all = class..self.checksums.len() as u64;
        for at in all.step_by(self.parities as usize).filter(|at| *at != number) {
            self.read(at, &mut other)?;
            add(&mut mended, &other);
        }
        if self.check(number, &mended).is_err() {
            return Err(damaged("a block that cannot be mended, for it is not the only one"));
        }
        self.mended.fetch_add(1, Ordering::Relaxed);
        Ok(mended)
    }
}

/// The parity of blocks that are being written.
#[derive(Default)]
pub(super) struct Parity {
    /// By class.
    sums: Vec<Block>,
}

impl Parity {
    pub(super) fn new(parities: u64) -> Self {
        Self { sums: vec![[0; BLOCK]; parities as usize] }
    }

    /// Takes in the block of this number; all are taken in.
    pub(super) fn take(&mut self, number: u64, block: &Block) {
        let class = (number as usize).checked_rem(self.sums.len());
        if let Some(sum) = class.and_then(|class| self.sums.get_mut(class)) {
            add(sum, block);
        }
    }

    /// The parity blocks that come behind so many others.
    pub(super) fn behind(mut self, blocks: u64) -> Vec<Block> {
        let first = (blocks as usize).checked_rem(self.sums.len()).unwrap_or(0);
        self.sums.rotate_left(first);
        self.sums
    }
}

fn add(sum: &mut Block, block: &Block) {
    sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
}
