//! Allocation of chunks, and their way back to the free list.
//!
//! The caller that takes a chunk out of use must know that no reader can still reach it: `reclaim`
//! waits for readers. The last reader to leave takes no lock: it pushes the chunks onto a stack,
//! from which a writer returns them to the free list. This also works in a process that was forked
//! while another thread held the lock.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use forebay_core::Result;
use rustix::mm::Advice;

use super::free::Free;
use super::geometry::{
    BLOCK_BYTES, BLOCK_ORDER, CHUNK_BYTES_MIN, Chunk, ORDER_MAX, SMALL_SPACE_BYTES, is_spilled,
    order_of, too_large,
};
use super::{Memory, MemoryBacking, ReleasedChunks, State, addresses};
use crate::schedule;

/// Retired memory that may wait until readers are waited for: this part of a space, and at most the
/// bytes below.
pub(super) const GATHERED_SHARE: u64 = 256;
const GATHERED_BYTES_MAX: u64 = 1024 * 1024;
/// Number of chunks left by readers that one call frees: small chunks, or a sixteenth as many
/// blocks.
pub(super) const FREED_PER_CALL: usize = 64;
const FREED_BLOCK: usize = 16;

impl Memory {
    /// Takes over the chunks that an image's table uses, as start and bytes each: all other opened
    /// memory is free. `written` is the part of a chunk that continues to be written.
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap or exceed the opened addresses.
    pub(crate) fn adopt(&self, used: Vec<(u64, u64)>, written: Option<(u64, u64)>) -> Result<()> {
        if let (MemoryBacking::Image(verified), Some((address, bytes))) = (&self.backing, written) {
            verified.disown(address, bytes);
        }
        let (spilled, used): (Vec<_>, Vec<_>) =
            used.into_iter().partition(|(start, _)| is_spilled(*start));
        let bytes = used.iter().map(|(_, bytes)| bytes).sum();
        self.used.store(bytes, Ordering::Relaxed);
        let mut state = self.state();
        state.free = Free::from_used(used, self.opened())?;
        self.adopt_donated(&mut state);
        drop(state);
        self.adopt_spilled(spilled)
    }

    /// Allocates a chunk of at least this many bytes; its content is unspecified.
    ///
    /// # Errors
    /// `LimitExceeded` when the reserved addresses are used up, or the system refuses memory.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Chunk> {
        let order = order_of(bytes);
        if order > ORDER_MAX {
            return Err(too_large(bytes));
        }
        let bytes = CHUNK_BYTES_MIN << order;
        let account = self.account.get();
        let take = || account.map_or(Ok(()), |account| account.take(bytes));
        if take().is_err() {
            self.take_back();
            take()?;
        }
        let chunk = self.take_chunk(order);
        if let (Err(_), Some(account)) = (&chunk, account) {
            account.give_back(bytes);
        }
        chunk
    }

    fn take_chunk(&self, order: u8) -> Result<Chunk> {
        let mut state = self.state();
        self.free_released_up_to(&mut state, FREED_PER_CALL);
        let chunk = match state.free.take(order) {
            Some(chunk) => chunk,
            None => self.allocate_slowly(&mut state, order)?,
        };
        drop(state);
        if let MemoryBacking::Image(verified) = &self.backing {
            verified.disown(chunk.address, chunk.bytes());
        }
        self.used.fetch_add(chunk.bytes(), Ordering::Relaxed);
        Ok(chunk)
    }

    pub(super) fn fresh_end(&self, state: &State, order: u8) -> u64 {
        let next = state.free.next_fresh(order);
        next.address + next.bytes()
    }

    /// Makes the next fresh chunk's addresses usable, and requests huge pages if they pay: in whole
    /// blocks, and in all blocks of a large index.
    pub(super) fn open_fresh(&self, state: &State, order: u8) -> Result<()> {
        let (start, next) = (state.free.fresh(), state.free.next_fresh(order));
        let end = next.address + next.bytes();
        self.open(start, end - start)?;
        schedule::store();
        self.header().opened.store(end, Ordering::Release);
        let is_large = start >= BLOCK_BYTES + SMALL_SPACE_BYTES;
        if order >= BLOCK_ORDER || is_large {
            // The system collapses the small pages of the earlier blocks in the background.
            let start = if is_large { BLOCK_BYTES } else { next.address };
            self.advise(start, end - start, Advice::LinuxHugepage);
        }
        Ok(())
    }

    /// Frees chunks that no reader has ever seen.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = Chunk>) {
        let mut state = self.state();
        for chunk in chunks {
            self.forbid(&chunk);
            self.put_back(&mut state, chunk);
        }
    }

    /// Collects chunks that went out of use until they are worth a wait for readers, then returns
    /// all of them. Starting such a wait interrupts every core that runs a thread of this process,
    /// and a growing table retires groups thousands of times a second.
    pub(crate) fn gather(&self, chunks: Vec<Chunk>) -> Option<Vec<Chunk>> {
        let bytes_min = (self.used_bytes() / GATHERED_SHARE).min(GATHERED_BYTES_MAX);
        let mut state = self.state();
        state.gathered.extend(chunks);
        let gathered: u64 = state.gathered.iter().map(Chunk::bytes).sum();
        (gathered >= bytes_min).then(|| std::mem::take(&mut state.gathered))
    }

    /// Accepts chunks that all readers have left. Never waits: a later writer frees the chunks.
    pub(crate) fn accept_released(&self, chunks: Vec<Chunk>) {
        chunks.iter().for_each(|chunk| self.forbid(chunk));
        let node = Box::into_raw(Box::new(ReleasedChunks { chunks, next: null_mut() }));
        schedule::load();
        let mut head = self.released.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until it is on the stack.
            unsafe { (*node).next = head };
            schedule::store();
            // Release: all accesses to the chunks, and the write of the node, happen before the
            // next use.
            let push_result = self.released.compare_exchange_weak(
                head,
                node,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match push_result {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Frees some of the chunks that readers have left, unless another writer is doing so.
    pub(crate) fn free_released(&self) {
        if let Some(mut state) = self.state.try_lock() {
            self.free_released_up_to(&mut state, FREED_PER_CALL);
        }
    }

    pub(super) fn free_released_up_to(&self, state: &mut State, freed_max: usize) {
        self.take_released(&mut state.returning);
        let mut freed = 0_usize;
        while freed < freed_max {
            let Some(chunk) = state.returning.pop() else { break };
            freed += if chunk.order < BLOCK_ORDER { 1 } else { FREED_BLOCK };
            self.put_back(state, chunk);
        }
    }

    /// Takes all nodes off the stack.
    pub(super) fn take_released(&self, chunks: &mut Vec<Chunk>) {
        if self.released.load(Ordering::Relaxed).is_null() {
            return;
        }
        schedule::store();
        // Acquire: pairs with `accept_released`.
        let mut next = self.released.swap(null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each node was boxed by `accept_released`, and the thread that swaps the stack
            // owns all of it.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
            chunks.extend(node.chunks);
        }
    }

    fn forbid(&self, chunk: &Chunk) {
        if !is_spilled(chunk.address) {
            addresses::forbid(self.pointer(chunk.address), chunk.bytes());
        }
    }

    pub(crate) fn put_back(&self, state: &mut State, chunk: Chunk) {
        if is_spilled(chunk.address) {
            return self.put_back_spilled(chunk);
        }
        let Some(chunk) = self.keep_donated(state, chunk) else { return };
        self.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        if let Some(account) = self.account.get() {
            account.give_back(chunk.bytes());
        }
        let is_small = chunk.order < BLOCK_ORDER;
        let block = if is_small { state.free.put_small(chunk) } else { Some(chunk) };
        if let Some(block) = block.and_then(|block| state.free.keep_warm(block)) {
            self.cool(state, block);
        }
    }

    /// Returns the pages of free blocks to the system.
    pub(super) fn cool(&self, state: &mut State, blocks: Chunk) {
        if !self.is_shared() {
            self.advise(blocks.address, blocks.bytes(), Advice::LinuxDontNeed);
        }
        state.free.put_cold(blocks);
    }
}
