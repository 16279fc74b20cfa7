//! Scratch memory: where copies of records lie until a view, or a turn of it, ends.

use std::cell::{Cell, UnsafeCell};

/// Words of a piece of scratch memory.
const PIECE_WORDS: usize = 1_024;
/// Words of the largest piece that a thread keeps for its next view.
const SPARE_WORDS_MAX: usize = 16 * PIECE_WORDS;

/// Where copies of records lie until a view, or a turn of it, ends.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The piece that copies go to.
    current: UnsafeCell<Vec<u64>>,
    /// Those that had no room any more.
    full: UnsafeCell<Vec<Vec<u64>>>,
    /// Whether only what lies in memory may be copied.
    is_for_memory: bool,
}

thread_local! {
    /// A piece that the thread's next view begins with.
    static SPARE: Cell<Option<Vec<u64>>> = const { Cell::new(None) };
}

impl Scratch {
    /// One of which this says whether only what lies in memory may be copied to it.
    #[inline]
    pub(crate) fn new(is_for_memory: bool) -> Self {
        Self { current: UnsafeCell::default(), full: UnsafeCell::default(), is_for_memory }
    }

    /// Whether whoever copies may wait for a disk.
    pub(super) fn may_wait(&self) -> bool {
        !self.is_for_memory
    }

    /// Words of their own, which stay where they are until the scratch is cleared or goes.
    #[expect(clippy::mut_from_ref, reason = "each call hands out words that no other has")]
    pub(super) fn words(&self, count: usize) -> &mut [u64] {
        // SAFETY: a scratch belongs to one thread, and no reference to the pieces outlives a call.
        let (current, full) = unsafe { (&mut *self.current.get(), &mut *self.full.get()) };
        if current.capacity() - current.len() < count {
            let spare = SPARE.take().filter(|spare| spare.capacity() >= count);
            let next = spare.unwrap_or_else(|| Vec::with_capacity(count.max(PIECE_WORDS)));
            let before = std::mem::replace(current, next);
            if before.capacity() > 0 {
                full.push(before);
            }
        }
        let start = current.len();
        // Within the capacity, so that what was handed out stays in its place.
        current.resize(start + count, 0);
        // SAFETY: the words were just added, and a piece is neither moved nor cut while a slice of
        // it is borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(current.as_mut_ptr().add(start), count) }
    }

    /// As [`Scratch::words`], for bytes.
    #[expect(clippy::mut_from_ref, reason = "each call hands out bytes that no other has")]
    pub(super) fn bytes(&self, count: usize) -> &mut [u8] {
        let words = self.words(count.div_ceil(8));
        // SAFETY: the words are the caller's alone, and any byte is one.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) }
    }

    /// Lets all copies go.
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
