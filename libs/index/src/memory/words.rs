//! The words of a space that its readers and its next writer need: where the table begins, and how
//! far a change of several words has come.
//!
//! Of a space in private memory they lie in the process's own memory; of a live space in the first
//! block of its file, which is never handed out.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::schedule;

/// How many directory entries a swing names at once: see [`SpaceWords::begin_swing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swing {
    /// Address of the first entry.
    pub(crate) entry: u64,
    /// How many entries, half of them for each group.
    pub(crate) count: u64,
    /// What the entries of the first half become.
    pub(crate) low: u32,
    /// What those of the second half become.
    pub(crate) high: u32,
}

/// What an entry's writes come to, so that whoever takes over can finish them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redo {
    /// Address of the list of writes.
    pub(crate) list: u64,
    /// How many writes it names.
    pub(crate) count: u64,
    /// The root of the table that takes the place of the one before, if [`Redo::serial`] is not 0.
    pub(crate) root: u64,
    /// Its serial.
    pub(crate) serial: u64,
}

/// The words of one space; those that every read loads are on the first line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SpaceWords {
    /// Where the documents' table begins.
    pub(crate) root: AtomicU64,
    /// Raised before memory is used again that a reader may still be in.
    pub(crate) reuse: AtomicU64,
    /// From this address on nothing is there.
    pub(crate) opened: AtomicU64,
    _line: [u64; 5],
    pub(crate) hash_seed: AtomicU64,
    /// Serial of the documents' table: its segments carry it.
    pub(crate) serial: AtomicU64,
    /// Where the table of the fold's windows begins.
    pub(crate) windows: AtomicU64,
    /// Whether the words below stand for writes that may be half done: the turn of the status that
    /// they lead to, or 0.
    redo_turn: AtomicU64,
    redo: [AtomicU64; 4],
    swing_count: AtomicU64,
    swing: [AtomicU64; 2],
    /// The blocks, from the first on, that another space has borrowed; in the upper half how often
    /// that was asked for.
    lent: AtomicU64,
    /// How many bytes this space has borrowed of another.
    pub(crate) borrowed: AtomicU64,
}

/// The bits of `lent` that say how many blocks.
const LENT_BLOCKS: u64 = u32::MAX as u64;

impl SpaceWords {
    /// Notes what is about to be shown; from here on it will be, by whomever.
    pub(crate) fn arm(&self, turn: u64, redo: &Redo) {
        let Redo { list, count, root, serial } = *redo;
        for (word, value) in self.redo.iter().zip([list, count, root, serial]) {
            schedule::store();
            word.store(value, Ordering::Relaxed);
        }
        schedule::store();
        // A process that is killed leaves what it has stored, in the order of its stores.
        self.redo_turn.store(turn, Ordering::Release);
        fence(Ordering::Release);
    }

    /// All of it is shown.
    pub(crate) fn disarm(&self) {
        schedule::store();
        self.redo_turn.store(0, Ordering::Release);
    }

    /// What an earlier writer has left to do, and the turn of the status that it leads to.
    pub(crate) fn armed(&self) -> Option<(u64, Redo)> {
        let turn = self.redo_turn.load(Ordering::Acquire);
        let [list, count, root, serial] = std::array::from_fn(|at| self.load_redo(at));
        (turn != 0).then_some((turn, Redo { list, count, root, serial }))
    }

    fn load_redo(&self, at: usize) -> u64 {
        self.redo[at].load(Ordering::Relaxed)
    }

    /// Notes directory entries that are about to be stored.
    pub(crate) fn begin_swing(&self, swing: Swing) {
        schedule::store();
        self.swing[0].store(swing.entry, Ordering::Relaxed);
        schedule::store();
        let groups = u64::from(swing.high) << 32 | u64::from(swing.low);
        self.swing[1].store(groups, Ordering::Relaxed);
        schedule::store();
        self.swing_count.store(swing.count, Ordering::Release);
        fence(Ordering::Release);
    }

    /// All of them are stored.
    pub(crate) fn end_swing(&self) {
        schedule::store();
        self.swing_count.store(0, Ordering::Release);
    }

    /// Lends so many blocks: from here on nothing in them is used again, see [`super::lending`].
    pub(super) fn lend(&self, blocks: u64) {
        schedule::store();
        let lend = |lent: u64| {
            let asked = (lent >> 32).wrapping_add(1) << 32;
            Some(asked | (lent & LENT_BLOCKS).max(blocks))
        };
        let _always = self.lent.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lend);
        // Pairs with that of `lent_blocks`: either whoever takes memory out of use sees that it is
        // lent, or whoever borrows sees that nothing leads there any more.
        fence(Ordering::SeqCst);
    }

    /// How many blocks are lent, and what to end that by.
    pub(super) fn lent_blocks(&self) -> (u64, u64) {
        fence(Ordering::SeqCst);
        schedule::load();
        let lent = self.lent.load(Ordering::SeqCst);
        (lent & LENT_BLOCKS, lent)
    }

    /// Nothing is lent any more, unless that was asked for since; answers whether it is so.
    pub(super) fn end_lending(&self, lent: u64) -> bool {
        schedule::store();
        let none = lent & !LENT_BLOCKS;
        self.lent.compare_exchange(lent, none, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Directory entries that an earlier writer may have left half stored.
    pub(crate) fn swung(&self) -> Option<Swing> {
        let count = self.swing_count.load(Ordering::Acquire);
        let (entry, groups) =
            (self.swing[0].load(Ordering::Relaxed), self.swing[1].load(Ordering::Relaxed));
        let (low, high) = (groups as u32, (groups >> 32) as u32);
        (count != 0).then_some(Swing { entry, count, low, high })
    }
}
