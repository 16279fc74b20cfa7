//! The header of a space, which its readers and its next writer need: the table's root, and a redo
//! record for each change of several words.
//!
//! The header of a space in private memory is in the process's own memory. The header of a shared
//! space is in the first block of its file, which is never allocated (`space_words` in
//! `proto/spec/shared-copy.md`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::schedule;

/// Directory entries that are updated together: see [`SpaceHeader::begin_directory_update`]. The
/// format (`proto/spec/shared-copy.md`) calls the words of such an update `update_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryUpdate {
    /// Address of the first entry.
    pub(crate) entry: u64,
    /// Number of entries, half of them for each group.
    pub(crate) count: u64,
    /// New value of the entries of the first half.
    pub(crate) low: u32,
    /// New value of the entries of the second half.
    pub(crate) high: u32,
}

/// The redo record of an entry's writes: a successor that takes over finishes them by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redo {
    /// Address of the list of writes.
    pub(crate) list: u64,
    /// Number of writes in the list.
    pub(crate) count: u64,
    /// Root of the table that replaces the current table, if [`Redo::serial`] is not 0.
    pub(crate) root: u64,
    /// Serial of the new table.
    pub(crate) serial: u64,
}

/// The header of one space; the words that every read loads are on the first line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SpaceHeader {
    /// Root of the documents' table.
    pub(crate) root: AtomicU64,
    /// Counter that is incremented before memory is reused that a reader may still be in.
    pub(crate) reuse: AtomicU64,
    /// End of the opened addresses.
    pub(crate) opened: AtomicU64,
    _line: [u64; 5],
    pub(crate) hash_seed: AtomicU64,
    /// Serial of the documents' table, which its segments carry.
    pub(crate) serial: AtomicU64,
    /// Root of the fold-state table: `windows` in the format.
    pub(crate) fold_state: AtomicU64,
    /// Whether the redo words below describe writes that may be half done: the turn of the status
    /// that results from the writes, or 0.
    redo_turn: AtomicU64,
    redo: [AtomicU64; 4],
    update_count: AtomicU64,
    update: [AtomicU64; 2],
    /// Number of blocks, from the first on, that another space refers to; the upper half counts
    /// the requests to donate.
    donated: AtomicU64,
    /// Number of bytes of its donor's memory that this space refers to.
    pub(crate) donor_bytes: AtomicU64,
}

/// The bits of `donated` with the number of blocks.
const DONATED_BLOCKS: u64 = u32::MAX as u64;

impl SpaceHeader {
    /// Notes the writes that are about to be published. From here on, this writer or a successor
    /// publishes them.
    pub(crate) fn arm(&self, turn: u64, redo: &Redo) {
        let Redo { list, count, root, serial } = *redo;
        for (word, value) in self.redo.iter().zip([list, count, root, serial]) {
            schedule::store();
            word.store(value, Ordering::Relaxed);
        }
        schedule::store();
        // A process that is killed leaves its stores behind in the order in which it made them.
        self.redo_turn.store(turn, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Notes that all writes are published.
    pub(crate) fn disarm(&self) {
        schedule::store();
        self.redo_turn.store(0, Ordering::Release);
    }

    /// Returns the writes that an earlier writer has left to do, and the turn of the resulting
    /// status.
    pub(crate) fn armed(&self) -> Option<(u64, Redo)> {
        let turn = self.redo_turn.load(Ordering::Acquire);
        let [list, count, root, serial] = std::array::from_fn(|word| self.load_redo(word));
        (turn != 0).then_some((turn, Redo { list, count, root, serial }))
    }

    fn load_redo(&self, word: usize) -> u64 {
        self.redo[word].load(Ordering::Relaxed)
    }

    /// Notes directory entries that are about to be stored.
    pub(crate) fn begin_directory_update(&self, update: DirectoryUpdate) {
        schedule::store();
        self.update[0].store(update.entry, Ordering::Relaxed);
        schedule::store();
        let groups = u64::from(update.high) << 32 | u64::from(update.low);
        self.update[1].store(groups, Ordering::Relaxed);
        schedule::store();
        self.update_count.store(update.count, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Notes that all directory entries are stored.
    pub(crate) fn end_directory_update(&self) {
        schedule::store();
        self.update_count.store(0, Ordering::Release);
    }

    /// Donates this many blocks: from here on no memory in them is reused, see [`crate::sharing`].
    pub(crate) fn donate(&self, blocks: u64) {
        schedule::store();
        let donate = |donated: u64| {
            let next_request = (donated >> 32).wrapping_add(1) << 32;
            Some(next_request | (donated & DONATED_BLOCKS).max(blocks))
        };
        let _result = self.donated.fetch_update(Ordering::SeqCst, Ordering::SeqCst, donate);
        // Pairs with the fence of `donated_blocks`: either the donor that takes memory out of use
        // sees that the memory is donated, or the recipient sees that nothing leads there any more.
        fence(Ordering::SeqCst);
    }

    /// Returns how many blocks are donated, and the value by which [`SpaceHeader::end_donation`]
    /// ends that.
    pub(crate) fn donated_blocks(&self) -> (u64, u64) {
        fence(Ordering::SeqCst);
        schedule::load();
        let donated = self.donated.load(Ordering::SeqCst);
        (donated & DONATED_BLOCKS, donated)
    }

    /// Ends the donation, unless there was a new request since; returns whether the donation ended.
    pub(crate) fn end_donation(&self, donated: u64) -> bool {
        schedule::store();
        let ended_donation = donated & !DONATED_BLOCKS;
        self.donated
            .compare_exchange(donated, ended_donation, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Returns directory entries that an earlier writer may have left half stored.
    pub(crate) fn begun_directory_update(&self) -> Option<DirectoryUpdate> {
        let count = self.update_count.load(Ordering::Acquire);
        let (entry, groups) =
            (self.update[0].load(Ordering::Relaxed), self.update[1].load(Ordering::Relaxed));
        let (low, high) = (groups as u32, (groups >> 32) as u32);
        (count != 0).then_some(DirectoryUpdate { entry, count, low, high })
    }
}
