//! Donated memory: blocks of a donor, in which no memory is reused while a recipient may read
//! there.

use std::sync::atomic::Ordering;

use crate::memory::{BLOCK_BYTES, Chunk, Memory, SpaceFile, State};

impl Memory {
    /// Donates all current memory; returns how many bytes that is. Records found there from here on
    /// stay unchanged for as long as the file has a name or a lock of the recipient's.
    pub(crate) fn donate(&self) -> u64 {
        let opened = self.opened();
        self.header().donate(opened / BLOCK_BYTES);
        opened
    }

    /// The donor's memory as mapped here: the address of the donor's address 0, and the number of
    /// bytes.
    pub(crate) fn donor_range(&self) -> Option<(u64, u64)> {
        self.donor.as_ref().map(|donor| (donor.at, donor.bytes))
    }

    /// Keeps a chunk that went out of use if it is donated; otherwise returns it.
    pub(crate) fn keep_donated(&self, state: &mut State, chunk: Chunk) -> Option<Chunk> {
        if !self.is_shared() || chunk.address() >= self.header().donated_blocks().0 * BLOCK_BYTES {
            return Some(chunk);
        }
        state.donated.push(chunk);
        None
    }

    /// Takes donated chunks back, once no thread reads there.
    pub(crate) fn take_donated_back(&self, state: &mut State) {
        if !state.donated.is_empty() && self.ends_donation() {
            for chunk in std::mem::take(&mut state.donated) {
                self.put_back(state, chunk);
            }
        }
    }

    /// Ends the donation if no thread reads there; returns whether nothing is donated.
    fn ends_donation(&self) -> bool {
        let (blocks, donated) = self.header().donated_blocks();
        let is_in_use = || self.file().is_some_and(SpaceFile::is_donated);
        blocks == 0 || (!is_in_use() && self.header().end_donation(donated))
    }

    /// Keeps the donated part of all unreferenced chunks out of the free list, for a writer that
    /// takes over.
    pub(crate) fn adopt_donated(&self, state: &mut State) {
        if !self.is_shared() || self.ends_donation() {
            return;
        }
        let end = self.header().donated_blocks().0 * BLOCK_BYTES;
        let donated = state.free.take_below(end);
        let bytes = donated.iter().map(Chunk::bytes).sum();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        state.donated.extend(donated);
    }
}
