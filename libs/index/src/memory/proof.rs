//! Which blocks of an image were proved: a bit each, of this process's own.
//!
//! A block is proved by whoever comes to it first, and again by nobody. Two may do it at the same
//! time; and a writer may change a block, once it has proved it, while a reader who began before is
//! still comparing. That reader finds a difference, looks at the bit again, and sees that the block
//! was proved before it changed: the writer set the bit before it stored anything, and what it
//! stores it stores with release.
//!
//! A block that is damaged is mended by whoever finds it so, one at a time, behind a lock that
//! nobody takes otherwise. Only the words that differ are stored, so until the last of them is
//! nobody finds the block sound, and behind it the mender stores nothing there: whoever changes the
//! block, which takes the bit, comes later. The bit is set by release, behind the words, and looked
//! at by acquire, so who sees it sees them; and so does who found the block sound in between, for
//! the words are stored by release and compared by acquire as well. Who saw some of them finds a
//! difference, waits for the lock and finds the bit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Error, Result};
use parking_lot::Mutex;

use super::CHUNK_BYTES_MIN;
use crate::image::{Block, Blocks, Extent, Image, damaged};

const WORDS: usize = CHUNK_BYTES_MIN as usize / 8;
/// How long a reader waits at most for others that mend: in a process that was forked while some
/// other thread did, nobody ever lets go.
const MEND_WAIT_MAX: Duration = Duration::from_secs(10);

/// What is proved of the image that a memory was made of.
pub(super) struct Proof {
    /// By block of addresses: whether it was proved, or is none of the image. All behind are none.
    proved: Box<[AtomicU64]>,
    /// Ascending.
    extents: Vec<Extent>,
    blocks: Arc<Blocks>,
    /// Held by who mends: the classes of blocks that could not be mended.
    hopeless: Mutex<BTreeSet<u64>>,
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
        let (extents, blocks) = (image.extents().to_vec(), image.blocks().clone());
        let (hopeless, is_damaged) = (Mutex::default(), AtomicBool::new(false));
        Self { proved, extents, blocks, hopeless, is_damaged }
    }

    #[inline]
    pub(super) fn is_proved(&self, block: u64) -> bool {
        let word = self.proved.get((block / 64) as usize);
        // Acquire: a block that was mended is seen mended.
        word.is_none_or(|word| word.load(Ordering::Acquire) >> (block % 64) & 1 == 1)
    }

    fn set_proved(&self, block: u64) {
        if let Some(word) = self.proved.get((block / 64) as usize) {
            word.fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    /// These bytes, whole blocks, are none of the image any more: they are about to be written.
    pub(super) fn disown(&self, address: u64, bytes: u64) {
        let first = address / CHUNK_BYTES_MIN;
        let behind = (first + bytes / CHUNK_BYTES_MIN).min(self.proved.len() as u64 * 64);
        for block in (first..behind).filter(|block| !self.is_proved(*block)) {
            // Nobody is mending it any more, or will.
            let _mending = self.hopeless.lock();
            self.set_proved(block);
        }
    }

    /// Compares a block with its checksum, and mends it where it does not fit.
    ///
    /// # Safety
    /// The block can be read and written, and nobody changes it but by atomic words after it was
    /// proved.
    #[cold]
    pub(super) unsafe fn prove_block(&self, block: u64, start: *mut u8) -> Result<()> {
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
            let word = unsafe { &*words.add(place) };
            // Acquire: pairs with the release of whatever change is seen.
            *bytes = word.load(Ordering::Acquire).to_le_bytes();
        }
        if self.blocks.check(in_file, &copy).is_err() && !self.is_proved(block) {
            // SAFETY: the caller's promise.
            return unsafe { self.mend(block, in_file, start) };
        }
        self.set_proved(block);
        Ok(())
    }

    /// Mends a block that was found damaged, unless somebody else has done so meanwhile.
    ///
    /// # Safety
    /// As [`Proof::prove_block`].
    unsafe fn mend(&self, block: u64, in_file: u64, start: *mut u8) -> Result<()> {
        let Some(mut hopeless) = self.hopeless.try_lock_for(MEND_WAIT_MAX) else {
            return Err(self.note_damage("a block that was not mended in time"));
        };
        if self.is_proved(block) {
            return Ok(());
        }
        let class = self.blocks.class_of(in_file);
        if class.is_some_and(|class| hopeless.contains(&class)) {
            return Err(self.note_damage("a block that cannot be mended"));
        }
        let mended = self.blocks.mend(in_file).map_err(|_| {
            hopeless.extend(class);
            self.note_damage("a block that cannot be mended")
        })?;
        let words = start.cast::<AtomicU64>();
        for (place, bytes) in mended.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: a word of the block, by the caller's promise; blocks are aligned.
            let (word, mended) = (unsafe { &*words.add(place) }, u64::from_le_bytes(*bytes));
            if word.load(Ordering::Relaxed) != mended {
                word.store(mended, Ordering::Release);
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
