//! Which blocks of an image were proved: a bit each, of this process's own.
//!
//! A block is proved by whoever comes to it first, and again by nobody. Two may do it at the same
//! time; and a writer may change a block, once it has proved it, while a reader who began before is
//! still comparing. That reader finds a difference, looks at the bit again, and sees that the block
//! was proved before it changed: the writer set the bit before it stored anything, and what it
//! stores it stores with release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use forebay_core::{Error, Result};

use super::CHUNK_BYTES_MIN;
use crate::image::{Block, Extent, Image, checksum, damaged};

const WORDS: usize = CHUNK_BYTES_MIN as usize / 8;

/// What is proved of the image that a memory was made of.
pub(super) struct Proof {
    /// By block of addresses: whether it was proved, or is none of the image. All behind are none.
    proved: Box<[AtomicU64]>,
    /// Ascending.
    extents: Vec<Extent>,
    /// By block of the file.
    checksums: Arc<[u64]>,
    is_damaged: AtomicBool,
}

impl Proof {
    pub(super) fn new(image: &Image, end: u64) -> Self {
        let mut proved = vec![u64::MAX; (end / CHUNK_BYTES_MIN).div_ceil(64) as usize];
        for extent in image.extents().iter().filter(|extent| !extent.is_spilled()) {
            for block in extent.first..extent.first + extent.blocks {
                proved[(block / 64) as usize] &= !(1 << (block % 64));
            }
        }
        let proved = proved.into_iter().map(AtomicU64::new).collect();
        let (extents, checksums) = (image.extents().to_vec(), image.checksums().clone());
        Self { proved, extents, checksums, is_damaged: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn is_proved(&self, block: u64) -> bool {
        let word = self.proved.get((block / 64) as usize);
        word.is_none_or(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1)
    }

    fn set_proved(&self, block: u64) {
        if let Some(word) = self.proved.get((block / 64) as usize) {
            // Relaxed will do: what a writer stores behind this it stores with release.
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
    }

    /// These bytes, whole blocks, are none of the image any more: they are about to be written.
    pub(super) fn disown(&self, address: u64, bytes: u64) {
        let first = address / CHUNK_BYTES_MIN;
        let behind = (first + bytes / CHUNK_BYTES_MIN).min(self.proved.len() as u64 * 64);
        (first..behind).filter(|block| !self.is_proved(*block)).for_each(|b| self.set_proved(b));
    }

    /// Compares a block with its checksum.
    ///
    /// # Safety
    /// The block can be read, and nobody changes it but by atomic words after it was proved.
    #[cold]
    pub(super) unsafe fn prove_block(&self, block: u64, start: *const u8) -> Result<()> {
        let behind = self.extents.partition_point(|extent| extent.first <= block);
        let extent = behind.checked_sub(1).map(|place| &self.extents[place]);
        let Some(extent) = extent.filter(|extent| block < extent.first + extent.blocks) else {
            self.set_proved(block);
            return Ok(());
        };
        let in_file = extent.first_in_file + (block - extent.first);
        let mut copy: Block = [0; CHUNK_BYTES_MIN as usize];
        let words = start.cast::<AtomicU64>();
        for (place, bytes) in (0..WORDS).zip(copy.as_chunks_mut::<8>().0) {
            // SAFETY: a word of the block, by the caller's promise; blocks are aligned.
            let word = unsafe { &*words.add(place) }.load(Ordering::Relaxed);
            *bytes = word.to_le_bytes();
        }
        let is_sound = self.checksums.get(in_file as usize) == Some(&checksum(&copy, in_file));
        if !is_sound {
            // Pairs with the release of whatever change was seen.
            fence(Ordering::Acquire);
            if !self.is_proved(block) {
                return Err(self.note_damage("a block whose checksum does not fit"));
            }
        }
        self.set_proved(block);
        Ok(())
    }

    pub(super) fn note_damage(&self, what: &str) -> Error {
        self.is_damaged.store(true, Ordering::Relaxed);
        damaged(what)
    }

    pub(super) fn check_sound(&self) -> Result<()> {
        match self.is_damaged.load(Ordering::Relaxed) {
            true => Err(damaged("a block that was read")),
            false => Ok(()),
        }
    }
}
