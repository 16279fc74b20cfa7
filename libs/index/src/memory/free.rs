//! What is free in a space's memory: chunks by size, joined with their free other halves.
//!
//! Chunks smaller than a block are cut from blocks that keep their pages. Free blocks are *warm*, a
//! few of them, whose pages stay for the next chunks, or *cold*: the system has their pages back.

use std::collections::BTreeSet;

use forebay_core::Result;

use super::{CHUNK_BYTES_MIN, Chunk};
use crate::image::damaged;

/// Order of a block, the unit of huge pages.
pub(super) const BLOCK_ORDER: u8 = 8;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = CHUNK_BYTES_MIN << BLOCK_ORDER;
/// Order of the largest chunk, 256 MiB: room for the largest key and row.
pub(super) const ORDER_MAX: u8 = 15;
/// How many free blocks keep their pages.
pub(super) const WARM_BLOCKS_MAX: usize = 4;

/// The free chunks of a range of addresses; from `fresh` on it was never used.
#[derive(Debug)]
pub(super) struct Free {
    /// By order; cold from a block on.
    by_order: [BTreeSet<u64>; ORDER_MAX as usize + 1],
    warm: Vec<u64>,
    fresh: u64,
}

impl Free {
    /// All addresses from here on are fresh; a multiple of a block.
    pub(super) fn from(fresh: u64) -> Self {
        Self { by_order: Default::default(), warm: Vec::new(), fresh }
    }

    /// What chunks, as start and bytes each, leave free of the blocks up to `end`.
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap, or lie beyond `end` or in the first block.
    pub(super) fn around(mut used: Vec<(u64, u64)>, end: u64) -> Result<Self> {
        used.sort_unstable();
        let mut free = Self::from(BLOCK_BYTES);
        for (start, bytes) in used {
            if start < free.fresh || start.saturating_add(bytes) > end {
                return Err(damaged("chunks that overlap, or lie outside of it"));
            }
            free.skip(start);
            free.fresh = start + bytes;
        }
        free.skip(end);
        Ok(free)
    }

    /// Makes all from the fresh addresses up to here free, in chunks as large as can be.
    fn skip(&mut self, end: u64) {
        while self.fresh < end {
            let chunks = (end - self.fresh) / CHUNK_BYTES_MIN;
            let aligned = (self.fresh / CHUNK_BYTES_MIN).trailing_zeros();
            let order = aligned.min(chunks.ilog2()).min(ORDER_MAX.into()) as u8;
            self.by_order[order as usize].insert(self.fresh);
            self.fresh += CHUNK_BYTES_MIN << order;
        }
    }

    /// Where the fresh addresses begin.
    pub(super) fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Takes a chunk that was used before, if there is one: warm rather than cold.
    pub(super) fn take(&mut self, order: u8) -> Option<Chunk> {
        let small = (order..BLOCK_ORDER).find_map(|larger| self.pop(larger));
        let warm = |free: &mut Self| {
            let address = if order <= BLOCK_ORDER { free.warm.pop() } else { None };
            address.map(|address| Chunk { address, order: BLOCK_ORDER })
        };
        let found = small
            .or_else(|| warm(self))
            .or_else(|| (order.max(BLOCK_ORDER)..=ORDER_MAX).find_map(|larger| self.pop(larger)));
        found.map(|found| self.cut(found, order))
    }

    /// Where the next fresh chunk of an order would lie.
    pub(super) fn next_fresh(&self, order: u8) -> Chunk {
        let order = order.max(BLOCK_ORDER);
        Chunk { address: self.fresh.next_multiple_of(CHUNK_BYTES_MIN << order), order }
    }

    /// Takes the chunk that `next_fresh` named; what alignment skips is free.
    pub(super) fn take_fresh(&mut self, order: u8) -> Chunk {
        let next = self.next_fresh(order);
        for skipped in (self.fresh..next.address).step_by(BLOCK_BYTES as usize) {
            self.insert(Chunk { address: skipped, order: BLOCK_ORDER });
        }
        self.fresh = next.address + next.bytes();
        self.cut(next, order)
    }

    /// Puts a chunk smaller than a block back; answers the block if it is free as a whole now.
    pub(super) fn put_small(&mut self, chunk: Chunk) -> Option<Chunk> {
        let joined = self.join(chunk, BLOCK_ORDER);
        if joined.order == BLOCK_ORDER {
            return Some(joined);
        }
        self.by_order[joined.order as usize].insert(joined.address);
        None
    }

    /// Takes all that begins below an address.
    pub(super) fn take_below(&mut self, end: u64) -> Vec<Chunk> {
        let mut taken = Vec::new();
        for (order, free) in (0..).zip(&mut self.by_order) {
            let above = free.split_off(&end);
            let below = std::mem::replace(free, above);
            taken.extend(below.into_iter().map(|address| Chunk { address, order }));
        }
        let warm = self.warm.extract_if(.., |address| *address < end);
        taken.extend(warm.map(|address| Chunk { address, order: BLOCK_ORDER }));
        taken
    }

    /// Keeps a free block with its pages, if there is room for it; else hands it back.
    pub(super) fn keep_warm(&mut self, block: Chunk) -> Option<Chunk> {
        if block.order > BLOCK_ORDER || self.warm.len() >= WARM_BLOCKS_MAX {
            return Some(block);
        }
        self.warm.push(block.address);
        None
    }

    /// Puts blocks back whose pages the system has.
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

    /// The first part of a chunk, of the order wanted; the rest is free.
    fn cut(&mut self, chunk: Chunk, order: u8) -> Chunk {
        let Chunk { address, order: mut larger } = chunk;
        while larger > order {
            larger -= 1;
            self.by_order[larger as usize].insert(address + (CHUNK_BYTES_MIN << larger));
        }
        Chunk { address, order }
    }

    /// Joins a chunk with its free other halves, up to an order.
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
