//! Live memory that is out of use: readers of other processes may still be there, so it rests until
//! a word is raised that they compare behind each copy.

use std::sync::atomic::{Ordering, fence};

use forebay_core::{Error, Result};

use super::{CHUNK_BYTES_MIN, Chunk, Memory, SpaceWords, State, is_spilled};
use crate::schedule::{self, Fault};

/// What rests is used again once it is more than this part of all.
const RESTING_SHARE: u64 = 16;

impl Memory {
    /// A chunk where none that is free will do: of what rests, once that is much, else a fresh one;
    /// without room for that, of whatever can be had.
    pub(super) fn allocate_anew(&self, state: &mut State, order: u8) -> Result<Chunk> {
        self.take_lent_back(state);
        let is_much = state.resting_bytes > self.used_bytes() / RESTING_SHARE;
        let has_addresses = self.fresh_end(state, order) <= self.reserved;
        if is_much || !has_addresses {
            self.wake(state);
            if let Some(taken) = state.free.take(order) {
                return Ok(taken);
            }
        }
        let opened = if has_addresses {
            self.open_fresh(state, order)
        } else {
            let message = "the index has no addresses left; follow fewer partitions per process, \
                or raise the limit of virtual memory (ulimit -v)";
            let wanted = self.used_bytes().saturating_add(CHUNK_BYTES_MIN << order);
            Err(Error::limit_exceeded(message, self.reserved, wanted))
        };
        let Err(refused) = opened else { return Ok(state.free.take_fresh(order)) };
        self.wake(state);
        self.settle_some(state, usize::MAX);
        for block in state.free.take_warm() {
            self.cool(state, block);
        }
        state.free.take(order).ok_or(refused)
    }

    /// Takes chunks of live memory out of use: readers may be there for a while.
    pub(crate) fn rest(&self, chunks: Vec<Chunk>) {
        let mut state = self.state();
        let in_memory = chunks.iter().filter(|chunk| !is_spilled(chunk.address));
        state.resting_bytes += in_memory.map(Chunk::bytes).sum::<u64>();
        state.resting.extend(chunks);
    }

    /// Makes what rests free: from here on whoever reads there is told so.
    fn wake(&self, state: &mut State) {
        if state.resting.is_empty() {
            return;
        }
        if schedule::is_planted(Fault::RaisedLate) {
            let words = self.words.as_ptr() as usize;
            // SAFETY: a test plants it, whose memory lives that long.
            let reuse = move || unsafe { &(*(words as *const SpaceWords)).reuse };
            schedule::put_off(move || {
                reuse().fetch_add(1, Ordering::Release);
            });
        } else {
            self.note_reuse();
        }
        state.resting_bytes = 0;
        for chunk in std::mem::take(&mut state.resting) {
            self.put_back(state, chunk);
        }
    }

    /// Tells all readers of live memory that what is out of use will be written again.
    pub(crate) fn note_reuse(&self) {
        schedule::store();
        // Release: who sees the new number sees no way to that memory any more. The fence: who sees
        // anything that is written there sees the new number.
        self.words().reuse.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Brings back what is out of use, as far as readers have left it: for want of memory.
    pub(crate) fn take_back(&self) {
        let mut state = self.state();
        self.take_lent_back(&mut state);
        self.wake(&mut state);
        self.settle_some(&mut state, usize::MAX);
    }
}
