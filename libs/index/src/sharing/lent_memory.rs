//! Lent memory: blocks of a donor, in which no memory is reused while a borrower may read there.

use std::sync::atomic::Ordering;

use crate::memory::{BLOCK_BYTES, Chunk, LiveFile, Memory, State};

impl Memory {
    /// Lends all current memory; returns how many bytes that is. Records found there from here on
    /// stay unchanged for as long as the file has a name or a lock of the borrower's.
    pub(crate) fn lend(&self) -> u64 {
        let opened = self.opened();
        self.header().lend(opened / BLOCK_BYTES);
        opened
    }

    /// The borrowed memory: the address of the donor's address 0, and the number of bytes.
    pub(crate) fn borrowed(&self) -> Option<(u64, u64)> {
        self.borrowed.as_ref().map(|borrowed| (borrowed.at, borrowed.bytes))
    }

    /// Keeps a chunk that went out of use if it is lent; otherwise returns it.
    pub(crate) fn keep_lent(&self, state: &mut State, chunk: Chunk) -> Option<Chunk> {
        if !self.is_live() || chunk.address() >= self.header().lent_blocks().0 * BLOCK_BYTES {
            return Some(chunk);
        }
        state.lent.push(chunk);
        None
    }

    /// Takes lent chunks back, once nobody reads there.
    pub(crate) fn take_lent_back(&self, state: &mut State) {
        if !state.lent.is_empty() && self.ends_lending() {
            for chunk in std::mem::take(&mut state.lent) {
                self.put_back(state, chunk);
            }
        }
    }

    /// Ends the lending if nobody reads there; returns whether nothing is lent.
    fn ends_lending(&self) -> bool {
        let (blocks, lent) = self.header().lent_blocks();
        let is_in_use = || self.live().is_some_and(LiveFile::is_lent);
        blocks == 0 || (!is_in_use() && self.header().end_lending(lent))
    }

    /// Keeps the lent part of all unreferenced chunks out of the free list, for a writer that takes
    /// over.
    pub(crate) fn adopt_lent(&self, state: &mut State) {
        if !self.is_live() || self.ends_lending() {
            return;
        }
        let end = self.header().lent_blocks().0 * BLOCK_BYTES;
        let kept = state.free.take_below(end);
        let bytes = kept.iter().map(Chunk::bytes).sum();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        state.lent.extend(kept);
    }
}
