//! Scratch memory: the copies of records until a view, or a turn of it, ends.

use std::cell::{Cell, UnsafeCell};

/// Words of a piece of scratch memory.
const PIECE_WORDS: usize = 1_024;
/// Words of the largest piece that a thread retains for its next view.
const SPARE_WORDS_MAX: usize = 16 * PIECE_WORDS;

/// The copies of records until a view, or a turn of it, ends.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The piece that copies go to.
    current: UnsafeCell<Vec<u64>>,
    /// The pieces that are full.
    full: UnsafeCell<Vec<Vec<u64>>>,
    /// Whether only records in memory may be copied.
    is_for_memory: bool,
}

thread_local! {
    /// The piece that the thread's next view begins with.
    static SPARE: Cell<Option<Vec<u64>>> = const { Cell::new(None) };
}

impl Scratch {
    /// Creates a scratch; `is_for_memory` says whether only records in memory may be copied to it.
    #[inline]
    pub(crate) fn new(is_for_memory: bool) -> Self {
        Self { current: UnsafeCell::default(), full: UnsafeCell::default(), is_for_memory }
    }

    /// Whether the reader that copies may wait for a disk.
    pub(super) fn may_wait(&self) -> bool {
        !self.is_for_memory
    }

    /// Returns exclusive words, which stay at their address until the scratch is cleared or
    /// dropped.
    #[expect(clippy::mut_from_ref, reason = "each call hands out words that no other has")]
    pub(super) fn words(&self, count: usize) -> &mut [u64] {
        // SAFETY: a scratch belongs to one thread, and no reference to the pieces outlives a call.
        let (current, full) = unsafe { (&mut *self.current.get(), &mut *self.full.get()) };
        if current.capacity() - current.len() < count {
            let spare = SPARE.take().filter(|spare| spare.capacity() >= count);
            let next = spare.unwrap_or_else(|| Vec::with_capacity(count.max(PIECE_WORDS)));
            let full_piece = std::mem::replace(current, next);
            if full_piece.capacity() > 0 {
                full.push(full_piece);
            }
        }
        let start = current.len();
        // The size stays within the capacity, so earlier slices stay at their addresses.
        current.resize(start + count, 0);
        // SAFETY: the words were just added, and a piece is neither moved nor truncated while a
        // slice of it is borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(current.as_mut_ptr().add(start), count) }
    }

    /// As [`Scratch::words`], for bytes.
    #[expect(clippy::mut_from_ref, reason = "each call hands out bytes that no other has")]
    pub(super) fn bytes(&self, count: usize) -> &mut [u8] {
        let words = self.words(count.div_ceil(8));
        // SAFETY: the words are exclusive to the caller, and any byte is valid.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) }
    }

    /// Drops all copies.
    pub(crate) fn clear(&mut self) {
        self.full.get_mut().clear();
        self.current.get_mut().clear();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let piece = self.current.get_mut();
        if piece.capacity() > 0 && piece.capacity() <= SPARE_WORDS_MAX {
            piece.clear();
            SPARE.set(Some(std::mem::take(piece)));
        }
    }
}
