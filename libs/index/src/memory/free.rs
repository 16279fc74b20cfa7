//! The free chunks of a space's memory, by size; a buddy allocator joins free halves.
//!
//! Chunks smaller than a block are cut from blocks that keep their pages. A free block is *warm* or
//! *cold*: a few warm blocks keep their pages for the next chunks; the pages of a cold block were
//! returned to the system.

use std::collections::BTreeSet;

use forebay_core::Result;

use super::geometry::{BLOCK_BYTES, BLOCK_ORDER, CHUNK_BYTES_MIN, Chunk, ORDER_MAX};
use crate::image::damaged;

/// Number of free blocks that keep their pages.
pub(super) const WARM_BLOCKS_MAX: usize = 4;

/// The free chunks of an address range; addresses from `fresh` on were never used.
#[derive(Debug)]
pub(crate) struct Free {
    /// Free chunks by order; blocks and larger chunks are cold.
    by_order: [BTreeSet<u64>; ORDER_MAX as usize + 1],
    warm: Vec<u64>,
    fresh: u64,
}

impl Free {
    /// Creates the free list of a range that is fresh from this address on, a multiple of a block.
    pub(super) fn with_fresh(fresh: u64) -> Self {
        Self { by_order: Default::default(), warm: Vec::new(), fresh }
    }

    /// Computes the chunks that are free in the blocks up to `end`, between these used chunks
    /// (start and bytes each).
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap, or are beyond `end` or in the first block.
    pub(super) fn from_used(mut used: Vec<(u64, u64)>, end: u64) -> Result<Self> {
        used.sort_unstable();
        let mut free = Self::with_fresh(BLOCK_BYTES);
        for (start, bytes) in used {
            if start < free.fresh || start.saturating_add(bytes) > end {
                return Err(damaged("chunks overlap, or are outside the image"));
            }
            free.skip(start);
            free.fresh = start + bytes;
        }
        free.skip(end);
        Ok(free)
    }

    /// Frees all fresh addresses up to `end`, in the largest possible chunks.
    fn skip(&mut self, end: u64) {
        while self.fresh < end {
            let chunks = (end - self.fresh) / CHUNK_BYTES_MIN;
            let aligned = (self.fresh / CHUNK_BYTES_MIN).trailing_zeros();
            let order = aligned.min(chunks.ilog2()).min(ORDER_MAX.into()) as u8;
            self.by_order[order as usize].insert(self.fresh);
            self.fresh += CHUNK_BYTES_MIN << order;
        }
    }

    /// The first fresh address.
    pub(super) fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Takes a chunk that was used before, if there is one; prefers warm to cold.
    pub(super) fn take(&mut self, order: u8) -> Option<Chunk> {
        let small = (order..BLOCK_ORDER).find_map(|larger_order| self.pop(larger_order));
        let warm = |free: &mut Self| {
            let address = if order <= BLOCK_ORDER { free.warm.pop() } else { None };
            address.map(|address| Chunk { address, order: BLOCK_ORDER })
        };
        let chunk = small.or_else(|| warm(self)).or_else(|| {
            (order.max(BLOCK_ORDER)..=ORDER_MAX).find_map(|larger_order| self.pop(larger_order))
        });
        chunk.map(|chunk| self.cut(chunk, order))
    }

    /// The next fresh chunk of an order.
    pub(super) fn next_fresh(&self, order: u8) -> Chunk {
        let order = order.max(BLOCK_ORDER);
        Chunk { address: self.fresh.next_multiple_of(CHUNK_BYTES_MIN << order), order }
    }

    /// Takes the chunk that `next_fresh` returned; addresses skipped for alignment become free.
    pub(super) fn take_fresh(&mut self, order: u8) -> Chunk {
        let next = self.next_fresh(order);
        for skipped_block in (self.fresh..next.address).step_by(BLOCK_BYTES as usize) {
            self.insert(Chunk { address: skipped_block, order: BLOCK_ORDER });
        }
        self.fresh = next.address + next.bytes();
        self.cut(next, order)
    }

    /// Frees a chunk smaller than a block; returns the block if it is now free as a whole.
    pub(super) fn put_small(&mut self, chunk: Chunk) -> Option<Chunk> {
        let joined = self.join(chunk, BLOCK_ORDER);
        if joined.order == BLOCK_ORDER {
            return Some(joined);
        }
        self.by_order[joined.order as usize].insert(joined.address);
        None
    }

    /// Takes all chunks that begin below an address.
    pub(crate) fn take_below(&mut self, end: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for (order, free) in (0..).zip(&mut self.by_order) {
            let addresses_above = free.split_off(&end);
            let addresses_below = std::mem::replace(free, addresses_above);
            chunks.extend(addresses_below.into_iter().map(|address| Chunk { address, order }));
        }
        let warm = self.warm.extract_if(.., |address| *address < end);
        chunks.extend(warm.map(|address| Chunk { address, order: BLOCK_ORDER }));
        chunks
    }

    /// Keeps a free block with its pages, if there are few enough; otherwise returns it.
    pub(super) fn keep_warm(&mut self, block: Chunk) -> Option<Chunk> {
        if block.order > BLOCK_ORDER || self.warm.len() >= WARM_BLOCKS_MAX {
            return Some(block);
        }
        self.warm.push(block.address);
        None
    }

    /// Frees blocks whose pages were returned to the system.
    pub(super) fn put_cold(&mut self, blocks: Chunk) {
        self.insert(blocks);
    }

    /// Takes all warm blocks, to be made cold and joined.
    pub(super) fn take_warm(&mut self) -> impl Iterator<Item = Chunk> + use<> {
        let warm = std::mem::take(&mut self.warm).into_iter();
        warm.map(|address| Chunk { address, order: BLOCK_ORDER })
    }

    fn pop(&mut self, order: u8) -> Option<Chunk> {
        let address = self.by_order[order as usize].pop_first()?;
        Some(Chunk { address, order })
    }

    fn insert(&mut self, chunk: Chunk) {
        let joined = self.join(chunk, ORDER_MAX);
        self.by_order[joined.order as usize].insert(joined.address);
    }

    /// Cuts the first part of the requested order off a chunk; the rest becomes free.
    fn cut(&mut self, chunk: Chunk, order: u8) -> Chunk {
        let Chunk { address, order: mut larger_order } = chunk;
        while larger_order > order {
            larger_order -= 1;
            self.by_order[larger_order as usize]
                .insert(address + (CHUNK_BYTES_MIN << larger_order));
        }
        Chunk { address, order }
    }

    /// Joins a chunk with its free buddies, up to an order.
    fn join(&mut self, chunk: Chunk, order_max: u8) -> Chunk {
        let Chunk { mut address, mut order } = chunk;
        while order < order_max {
            let other = address ^ (CHUNK_BYTES_MIN << order);
            if !self.by_order[order as usize].remove(&other) {
                break;
            }
            address = address.min(other);
            order += 1;
        }
        Chunk { address, order }
    }

    #[cfg(test)]
    pub(super) fn holds_small(&self) -> bool {
        self.by_order[..BLOCK_ORDER as usize].iter().any(|free| !free.is_empty())
    }
}
