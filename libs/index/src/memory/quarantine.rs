//! Quarantine of shared memory that is out of use: readers of other processes may still be there,
//! so the memory rests until a word is incremented that readers compare after each copy.

use std::sync::atomic::{Ordering, fence};

use forebay_core::{Error, Result};

use super::geometry::{CHUNK_BYTES_MIN, Chunk, is_spilled};
use super::{Memory, SpaceHeader, State};
use crate::schedule::{self, Fault};

/// Quarantined memory is reused once it exceeds this part of the memory in use.
const QUARANTINE_SHARE: u64 = 16;

impl Memory {
    /// Returns a chunk when no free chunk fits: from quarantine if that has grown large, otherwise
    /// a fresh one; if there is no room for a fresh one, from all memory that can be freed.
    pub(super) fn allocate_slowly(&self, state: &mut State, order: u8) -> Result<Chunk> {
        self.take_donated_back(state);
        let is_much = state.quarantined_bytes > self.used_bytes() / QUARANTINE_SHARE;
        let has_addresses = self.fresh_end(state, order) <= self.reserved;
        if is_much || !has_addresses {
            self.end_quarantine(state);
            if let Some(chunk) = state.free.take(order) {
                return Ok(chunk);
            }
        }
        let result = if has_addresses {
            self.open_fresh(state, order)
        } else {
            let message = "the index has no addresses left; follow fewer partitions per process, \
                or raise the limit of virtual memory (ulimit -v)";
            let needed = self.used_bytes().saturating_add(CHUNK_BYTES_MIN << order);
            Err(Error::limit_exceeded(message, self.reserved, needed))
        };
        let Err(error) = result else { return Ok(state.free.take_fresh(order)) };
        self.end_quarantine(state);
        self.free_released_up_to(state, usize::MAX);
        for block in state.free.take_warm() {
            self.cool(state, block);
        }
        state.free.take(order).ok_or(error)
    }

    /// Puts chunks of shared memory into quarantine: readers may still be there for a while.
    pub(crate) fn quarantine(&self, chunks: Vec<Chunk>) {
        let mut state = self.state();
        let in_memory = chunks.iter().filter(|chunk| !is_spilled(chunk.address));
        state.quarantined_bytes += in_memory.map(Chunk::bytes).sum::<u64>();
        state.quarantined.extend(chunks);
    }

    /// Frees all quarantined memory: from here on a reader of that memory learns that its copy is
    /// invalid.
    fn end_quarantine(&self, state: &mut State) {
        if state.quarantined.is_empty() {
            return;
        }
        if schedule::is_planted(Fault::RaisedLate) {
            let header = self.header.as_ptr() as usize;
            // SAFETY: only a test plants this fault, and the test's memory lives long enough.
            let reuse = move || unsafe { &(*(header as *const SpaceHeader)).reuse };
            schedule::put_off(move || {
                reuse().fetch_add(1, Ordering::Release);
            });
        } else {
            self.note_reuse();
        }
        state.quarantined_bytes = 0;
        for chunk in std::mem::take(&mut state.quarantined) {
            self.put_back(state, chunk);
        }
    }

    /// Signals all readers of shared memory that memory out of use will be written again.
    pub(crate) fn note_reuse(&self) {
        schedule::store();
        // Release: a reader that sees the new number sees no path to that memory any more. The
        // fence: a reader that sees anything that is written there sees the new number.
        self.header().reuse.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Frees all memory out of use that readers have left, because memory is short.
    pub(crate) fn take_back(&self) {
        let mut state = self.state();
        self.take_donated_back(&mut state);
        self.end_quarantine(&mut state);
        self.free_released_up_to(&mut state, usize::MAX);
    }
}
