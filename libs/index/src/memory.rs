//! The memory that documents lie in: one range of addresses per index, handed out in chunks.
//!
//! The range is reserved once and never moves, so a place in it is a number that stays good for
//! every thread, and pages cost nothing before they are touched. A chunk is a power of two of pages
//! from 8 KiB on, aligned to its own size. Whole blocks of 2 MiB ask for huge pages, which are
//! worth 1.4 times the speed of a get once an index is far larger than the caches; small chunks are
//! cut from shared blocks, so that an index of little data stays little.
//!
//! Whoever takes a chunk out of use must know that no reader can still come to it: see
//! [`Memory::retire`].

use std::collections::BTreeSet;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::{Error, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use seize::{Collector, reclaim};

/// Bytes of the smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: u64 = 8 * 1024;
/// Order of a block, the unit of huge pages.
const BLOCK_ORDER: u8 = 8;
const BLOCK_BYTES: u64 = CHUNK_BYTES_MIN << BLOCK_ORDER;
/// Order of the largest chunk, 256 MiB: room for the largest key and row.
const ORDER_MAX: u8 = 15;
/// Blocks in which small chunks lie ask for huge pages once an index has more than this.
const SMALL_INDEX_BYTES: u64 = 8 * BLOCK_BYTES;
/// How many free blocks keep their pages, for the next chunks.
const WARM_BLOCKS_MAX: u64 = 16;
/// Addresses reserved: this, or half of it as often as the system refuses.
const RESERVED_BYTES: u64 = 1 << 38;
const RESERVED_BYTES_MIN: u64 = 1 << 28;

/// A piece of an index's memory; whoever holds it may write there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    address: u64,
    order: u8,
}

impl Chunk {
    /// Where it begins.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        CHUNK_BYTES_MIN << self.order
    }
}

/// The memory of one index.
pub(crate) struct Memory {
    base: NonNull<u8>,
    reserved: u64,
    free: Mutex<Free>,
    /// Bytes of the chunks in use, for metrics.
    used: AtomicU64,
}

// SAFETY: the range belongs to this value until it is dropped; what lies in it is reached through
// atomics, or by the rules of publishing that `table` states.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What is free: chunks by order, and everything from `next` on.
struct Free {
    by_order: [BTreeSet<u64>; ORDER_MAX as usize + 1],
    next: u64,
    /// Free blocks, at most, that still have pages.
    warm: u64,
}

impl Memory {
    /// Reserves the addresses; takes no pages yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system does not even give the smallest range.
    pub(crate) fn reserve() -> Result<Arc<Self>> {
        let mut reserved = RESERVED_BYTES;
        let base = loop {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let bytes = (reserved + BLOCK_BYTES) as usize;
            // SAFETY: a new private mapping at an address of the system's choice touches nothing
            // that exists.
            let mapped = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    flags,
                )
            };
            match mapped {
                Ok(start) => break start.cast::<u8>(),
                Err(_) if reserved > RESERVED_BYTES_MIN => reserved /= 2,
                Err(error) => {
                    let message = format!(
                        "the system gives no addresses for an index ({error}); raise the limit of \
                         virtual memory (ulimit -v)"
                    );
                    return Err(Error::limit_exceeded(message, 0, reserved));
                }
            }
        };
        // Huge pages need blocks at addresses that are multiples of their size.
        let misaligned = base as u64 % BLOCK_BYTES;
        let shift = (BLOCK_BYTES - misaligned) % BLOCK_BYTES;
        // SAFETY: one block more than `reserved` was mapped, so the shifted start lies inside.
        let aligned = unsafe { base.add(shift as usize) };
        let end = aligned.wrapping_add(reserved as usize);
        let outside = [(base, shift), (end, BLOCK_BYTES - shift)];
        for (start, bytes) in outside.into_iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: the part of our own mapping before or behind the aligned range, unused.
            // A refusal leaves addresses mapped that nobody uses.
            let _ = unsafe { munmap(start.cast(), bytes as usize) };
        }
        let base =
            NonNull::new(aligned).ok_or_else(|| Error::internal("a mapping at address 0"))?;
        // Address 0 means nothing in a slot, so the first block is never handed out.
        let free = Free { by_order: Default::default(), next: BLOCK_BYTES, warm: 0 };
        let (free, used) = (Mutex::new(free), AtomicU64::new(0));
        Ok(Arc::new(Self { base, reserved, free, used }))
    }

    /// Bytes of all chunks in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a chunk of at least this many bytes out of the free ones; its content is unspecified.
    ///
    /// # Errors
    /// `LimitExceeded` when the reserved addresses are used up.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Chunk> {
        let order = order_of(bytes);
        let taken = if order <= ORDER_MAX { self.free().take(order, self.reserved) } else { None };
        let Some((address, fresh)) = taken else {
            let message = "the index has no addresses left; follow fewer partitions per process";
            return Err(Error::limit_exceeded(message, self.reserved, self.used_bytes() + bytes));
        };
        if let Some(fresh) = fresh {
            self.advise_fresh(fresh, order);
        }
        let chunk = Chunk { address, order };
        self.used.fetch_add(chunk.bytes(), Ordering::Relaxed);
        Ok(chunk)
    }

    /// Asks for huge pages where they pay: in whole blocks, and in all blocks of a large index.
    fn advise_fresh(&self, (start, bytes): (u64, u64), order: u8) {
        if order >= BLOCK_ORDER || start > SMALL_INDEX_BYTES {
            self.advise(start, bytes, Advice::LinuxHugepage);
        }
    }

    fn advise(&self, start: u64, bytes: u64, advice: Advice) {
        // SAFETY: the range lies in our mapping; the advice changes its pages, never what a chunk
        // in use holds: huge pages keep content, and only free blocks are given back.
        let _refused = unsafe { madvise(self.pointer(start).cast(), bytes as usize, advice) };
    }

    /// Takes chunks out of use once every reader that could still see them has gone.
    pub(crate) fn retire(self: &Arc<Self>, chunks: Vec<Chunk>, collector: &Collector) {
        if chunks.is_empty() {
            return;
        }
        let retired = Box::into_raw(Box::new(Retired { memory: self.clone(), chunks }));
        // SAFETY: the box was just made, nobody else has its address, and it is retired once.
        unsafe { collector.retire(retired, reclaim::boxed) };
    }

    /// Gives chunks back that no reader has ever seen.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = Chunk>) {
        let mut free = self.free();
        for chunk in chunks {
            self.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
            let (address, order) = free.put(chunk);
            if order < BLOCK_ORDER {
                continue;
            }
            free.warm += 1 << (order - BLOCK_ORDER);
            if free.warm > WARM_BLOCKS_MAX {
                free.warm -= 1 << (order - BLOCK_ORDER);
                self.advise(address, CHUNK_BYTES_MIN << order, Advice::LinuxDontNeed);
            }
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pointer(&self, address: u64) -> *mut u8 {
        debug_assert!(address < self.reserved, "{address} lies outside the index's memory");
        // SAFETY: addresses lie inside the reserved range.
        unsafe { self.base.as_ptr().add(address as usize) }
    }

    /// The word at an address.
    ///
    /// # Safety
    /// The address is a multiple of 8 and lies in a chunk that is in use, or was while the caller's
    /// guard has been held; all accesses there are atomic.
    pub(crate) unsafe fn word(&self, address: u64) -> &AtomicU64 {
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer(address).cast::<AtomicU64>() }
    }

    /// The half word at an address; as [`Memory::word`], for multiples of 4.
    ///
    /// # Safety
    /// As [`Memory::word`].
    pub(crate) unsafe fn half_word(&self, address: u64) -> &AtomicU32 {
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer(address).cast::<AtomicU32>() }
    }

    /// Bytes at an address.
    ///
    /// # Safety
    /// They were written before their address was published, and nobody writes there again until
    /// the caller's guard has gone.
    pub(crate) unsafe fn bytes(&self, address: u64, count: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer(address), count) }
    }

    /// Writes bytes to an address.
    ///
    /// # Safety
    /// The range lies in a chunk that the caller holds, and no reader has its address yet.
    pub(crate) unsafe fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: the caller's promise; `bytes` is not in the chunk, since nobody reads there.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(address), bytes.len());
        }
    }

    /// Sets bytes to zero.
    ///
    /// # Safety
    /// As [`Memory::write`].
    pub(crate) unsafe fn clear(&self, chunk: &Chunk) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(self.pointer(chunk.address), 0, chunk.bytes() as usize) };
    }

    /// Asks the processor to bring the line at an address; never faults.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.base.as_ptr().wrapping_add(address as usize);
            // SAFETY: a prefetch of any address is a hint and touches nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast_const().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve`, and whoever reads in it borrows this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.reserved as usize) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used_bytes()).finish_non_exhaustive()
    }
}

/// Chunks that some reader may still see.
struct Retired {
    memory: Arc<Memory>,
    chunks: Vec<Chunk>,
}

impl Drop for Retired {
    fn drop(&mut self) {
        self.memory.release(std::mem::take(&mut self.chunks));
    }
}

impl Free {
    /// The lowest free chunk of an order, and, if it is new, the part of the range that begins to
    /// be used.
    fn take(&mut self, order: u8, reserved: u64) -> Option<(u64, Option<(u64, u64)>)> {
        let free = (order..=ORDER_MAX).find_map(|larger| {
            let address = self.by_order[larger as usize].pop_first()?;
            Some((address, larger))
        });
        if let Some((address, larger)) = free {
            if larger >= BLOCK_ORDER {
                self.warm = self.warm.saturating_sub(1 << (larger - BLOCK_ORDER));
            }
            self.split(address, larger, order);
            return Some((address, None));
        }
        let larger = order.max(BLOCK_ORDER);
        let bytes = CHUNK_BYTES_MIN << larger;
        let address = self.next.next_multiple_of(bytes);
        if address + bytes > reserved {
            return None;
        }
        // What alignment skips is free in blocks.
        while self.next < address {
            self.by_order[BLOCK_ORDER as usize].insert(self.next);
            self.next += BLOCK_BYTES;
        }
        self.next = address + bytes;
        self.split(address, larger, order);
        Some((address, Some((address, bytes))))
    }

    /// Frees all of a chunk but its first part of the order wanted.
    fn split(&mut self, address: u64, mut larger: u8, order: u8) {
        while larger > order {
            larger -= 1;
            self.by_order[larger as usize].insert(address + (CHUNK_BYTES_MIN << larger));
        }
    }

    /// Puts a chunk back and joins it with its free other halves.
    fn put(&mut self, chunk: Chunk) -> (u64, u8) {
        let Chunk { mut address, mut order } = chunk;
        while order < ORDER_MAX {
            let other = address ^ (CHUNK_BYTES_MIN << order);
            if order >= BLOCK_ORDER || !self.by_order[order as usize].remove(&other) {
                break;
            }
            address = address.min(other);
            order += 1;
        }
        self.by_order[order as usize].insert(address);
        (address, order)
    }
}

fn order_of(bytes: u64) -> u8 {
    let chunks = bytes.div_ceil(CHUNK_BYTES_MIN).max(1);
    chunks.next_power_of_two().trailing_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_aligned_apart_and_join_again() {
        let memory = Memory::reserve().unwrap();
        let sizes = [1, 8_192, 8_193, 100_000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 70];
        for _ in 0..3 {
            let mut chunks: Vec<_> =
                sizes.iter().map(|bytes| memory.allocate(*bytes).unwrap()).collect();
            for (chunk, bytes) in chunks.iter().zip(sizes) {
                assert!(chunk.bytes() >= bytes && chunk.address() > 0);
                assert_eq!(chunk.address() % chunk.bytes(), 0);
                // SAFETY: the chunk is this test's.
                unsafe { memory.clear(chunk) };
            }
            chunks.sort_by_key(Chunk::address);
            let apart = |pair: &[Chunk]| pair[0].address() + pair[0].bytes() <= pair[1].address();
            assert!(chunks.windows(2).all(apart), "{chunks:?}");
            assert_eq!(memory.used_bytes(), chunks.iter().map(Chunk::bytes).sum());
            memory.release(chunks);
            assert_eq!(memory.used_bytes(), 0);
            let free = memory.free();
            assert!(free.by_order[..BLOCK_ORDER as usize].iter().all(BTreeSet::is_empty));
        }
        // Nothing was taken that an earlier round had given back.
        assert!(memory.free().next <= 16 * BLOCK_BYTES, "{}", memory.free().next);
    }

    #[test]
    fn what_no_range_can_hold_is_refused() {
        let memory = Memory::reserve().unwrap();
        let error = memory.allocate(CHUNK_BYTES_MIN << (ORDER_MAX + 1)).unwrap_err();
        assert_eq!(error.code(), forebay_core::ErrorCode::LimitExceeded);
        let mut chunks = Vec::new();
        let refused = loop {
            match memory.allocate(CHUNK_BYTES_MIN << ORDER_MAX) {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), forebay_core::ErrorCode::LimitExceeded);
        memory.release(chunks);
        assert!(memory.allocate(CHUNK_BYTES_MIN << ORDER_MAX).is_ok());
    }

    #[test]
    fn free_blocks_beyond_a_few_give_their_pages_back() {
        let memory = Memory::reserve().unwrap();
        let blocks = 4 * WARM_BLOCKS_MAX;
        let chunks: Vec<_> = (0..blocks).map(|_| memory.allocate(BLOCK_BYTES).unwrap()).collect();
        for chunk in &chunks {
            // SAFETY: the chunk is this test's.
            unsafe { memory.write(chunk.address(), b"page") };
        }
        memory.release(chunks);
        let held = |n: u64| {
            let chunk = memory.allocate(BLOCK_BYTES).unwrap();
            // SAFETY: the chunk is this test's, and every byte of its pages is defined.
            let kept = unsafe { memory.bytes(chunk.address(), 4) } == b"page";
            (n, kept)
        };
        let kept = (0..blocks).map(held).filter(|(_, kept)| *kept).count() as u64;
        assert_eq!(kept, WARM_BLOCKS_MAX);
    }
}
