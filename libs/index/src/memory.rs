//! The memory that documents lie in: one range of addresses per space, handed out in chunks.
//!
//! The range is reserved once and never moves, so a place in it is a number that stays good for
//! every thread. Reserved addresses take nothing of the machine: they are opened block by block,
//! and pages come when they are touched. A chunk is a power of two of pages from 8 KiB on, aligned
//! to its own size. Whole blocks of 2 MiB ask for huge pages, which are worth 1.4 times the speed
//! of a get once an index is far larger than the caches; small chunks are cut from shared blocks,
//! so that an index of little data stays little.
//!
//! Whoever takes a chunk out of use must know that no reader can still come to it: `reclaim` waits
//! for readers. The reader that leaves last takes no lock for it: it puts the chunks on a stack,
//! from which a writer puts them back. That also holds in a process that was forked while some
//! other thread had the lock.
//!
//! Memory that was made of an image lies in part in the image's file, privately mapped; each block
//! of it is proved before it is first used ([`Memory::prove`]), by readers and the writer alike.

mod free;
mod poison;
mod proof;

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use forebay_core::{Error, Result};
use free::{BLOCK_ORDER, Free, ORDER_MAX};
use parking_lot::{Mutex, MutexGuard};
use proof::Proof;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};
use rustix::process::{Resource, getrlimit};

pub(crate) use self::free::BLOCK_BYTES;
use crate::image::{Image, damaged};

/// Bytes of the smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: u64 = 8 * 1024;
/// Bytes of the largest chunk.
pub(crate) const CHUNK_BYTES_MAX: u64 = CHUNK_BYTES_MIN << ORDER_MAX;
/// Blocks in which small chunks lie ask for huge pages once a space has more than this.
const SMALL_SPACE_BYTES: u64 = 2 * BLOCK_BYTES;
/// Addresses reserved: this, or half of it as often as the system refuses; where the process's
/// addresses are limited, an eighth of the limit for all partitions, for others need them too.
pub(crate) const RESERVED_BYTES: u64 = 1 << 36;
const RESERVED_BYTES_MIN: u64 = 1 << 28;
/// What one call puts back of what readers have left: small chunks, or a sixteenth as many blocks.
const SETTLED_PER_CALL: usize = 64;
const SETTLED_BLOCK: usize = 16;

const _: () = assert!(usize::BITS == 64, "an index needs the addresses of a 64-bit machine");

/// A piece of a space's memory; whoever holds it may write there. It has no destructor: it is
/// retired or released, or lost until its index ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
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

    /// A chunk that an image says is in use; `None` for what no chunk can be.
    pub(crate) fn of_image(address: u64, bytes: u64) -> Option<Self> {
        let chunks = bytes / CHUNK_BYTES_MIN;
        let order = chunks.is_power_of_two().then(|| chunks.trailing_zeros() as u8)?;
        let fits = order <= ORDER_MAX
            && bytes == CHUNK_BYTES_MIN << order
            && address.is_multiple_of(bytes);
        fits.then_some(Self { address, order })
    }
}

/// Chunks that readers have left, on the way back.
pub(crate) struct Left {
    chunks: Vec<Chunk>,
    next: *mut Left,
}

/// The memory of one space.
pub(crate) struct Memory {
    base: NonNull<u8>,
    reserved: u64,
    /// From here on addresses are not opened yet.
    opened: AtomicU64,
    /// What of it lies in an image and is not proved yet; `None` without an image.
    proof: Option<Proof>,
    state: Mutex<State>,
    /// Bytes of the chunks in use or retired.
    used: AtomicU64,
    /// A stack: readers push, a writer takes all.
    left: AtomicPtr<Left>,
}

// SAFETY: the range belongs to this value until it is dropped; what lies in it is reached through
// atomics, or by the rules of publishing that `table` states. The nodes of the stack belong to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What writers keep of it.
struct State {
    free: Free,
    /// Taken from the stack, to be put back a few at a time.
    returning: Vec<Chunk>,
}

impl Memory {
    /// Reserves addresses, at most this many; takes no pages yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system does not even give the smallest range.
    pub(crate) fn reserve(most: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::reserve_at_most(most)?))
    }

    fn reserve_at_most(most: u64) -> Result<Self> {
        let mut reserved = most;
        loop {
            match Self::reserve_exactly(reserved) {
                Err(_) if reserved > RESERVED_BYTES_MIN => reserved /= 2,
                done => return done,
            }
        }
    }

    /// Memory with what an image holds, at the addresses where it was, and room for these chunks.
    /// Which chunks are in use it hears from [`Memory::adopt`], before anybody else has it.
    ///
    /// # Errors
    /// As [`Memory::reserve`]; `Corrupt` for chunks that cannot be; `Unavailable` when the file
    /// can be neither mapped nor read.
    pub(crate) fn of_image(image: &Image, chunks: &[(u64, u64)], most: u64) -> Result<Arc<Self>> {
        let extents = image.extents().iter();
        let extents = extents.map(|at| (at.first * CHUNK_BYTES_MIN, at.blocks * CHUNK_BYTES_MIN));
        let ends = extents.clone().chain(chunks.iter().copied());
        let end = ends.map(|(start, bytes)| start.saturating_add(bytes)).max();
        let end = end.unwrap_or(0).max(BLOCK_BYTES);
        let mut memory = Self::reserve_at_most(most)?;
        if end > memory.reserved {
            let message = "the image holds more than there are addresses; follow fewer partitions \
                per process, or raise the limit of virtual memory (ulimit -v)";
            return Err(Error::limit_exceeded(message, memory.reserved, end));
        }
        let opened = end.next_multiple_of(BLOCK_BYTES);
        if opened > BLOCK_BYTES && !memory.open(BLOCK_BYTES, opened - BLOCK_BYTES) {
            let message = "the system gives no memory for the image; follow fewer partitions, or \
                give the process more memory";
            return Err(Error::limit_exceeded(message, 0, opened));
        }
        memory.opened = AtomicU64::new(opened);
        for ((start, bytes), extent) in extents.zip(image.extents()) {
            if start < BLOCK_BYTES {
                return Err(damaged("a block at an address that is none"));
            }
            poison::allow(memory.pointer(start), bytes);
            // SAFETY: the extent lies in addresses that were just opened and that nobody uses.
            unsafe { image.bring(extent, memory.pointer(start))? };
        }
        memory.proof = Some(Proof::new(image, opened));
        memory.state.get_mut().free = Free::from(opened);
        Ok(Arc::new(memory))
    }

    /// Takes over the chunks that an image's table uses, as start and bytes each: all else that is
    /// opened is free. One of them goes on being written, in this part.
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap or lie outside of what is opened.
    pub(crate) fn adopt(&self, used: Vec<(u64, u64)>, written: Option<(u64, u64)>) -> Result<()> {
        if let (Some(proof), Some((address, bytes))) = (&self.proof, written) {
            proof.disown(address, bytes);
        }
        let bytes = used.iter().map(|(_, bytes)| bytes).sum();
        self.state().free = Free::around(used, self.opened())?;
        self.used.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves this many bytes of addresses, a multiple of a block.
    fn reserve_exactly(reserved: u64) -> Result<Self> {
        let bytes = (reserved + BLOCK_BYTES) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing that
        // exists.
        let mapped = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) };
        let base = mapped.map_err(|error| {
            let message = format!(
                "the system gives no addresses for an index ({error}); raise the limit of virtual \
                 memory (ulimit -v)"
            );
            Error::limit_exceeded(message, 0, reserved)
        })?;
        let base = base.cast::<u8>();
        // Huge pages need blocks at addresses that are multiples of their size.
        let shift = (BLOCK_BYTES - base as u64 % BLOCK_BYTES) % BLOCK_BYTES;
        // SAFETY: one block more than `reserved` was mapped, so the shifted start lies inside.
        let aligned = unsafe { base.add(shift as usize) };
        let end = aligned.wrapping_add(reserved as usize);
        let outside = [(base, shift), (end, BLOCK_BYTES - shift)];
        for (start, bytes) in outside.into_iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: the part of our own mapping before or behind the aligned range, unused.
            // A refusal leaves addresses mapped that nobody uses.
            let _refused = unsafe { munmap(start.cast(), bytes as usize) };
        }
        let base =
            NonNull::new(aligned).ok_or_else(|| Error::internal("a mapping at address 0"))?;
        // Address 0 means nothing in a slot, so the first block is never handed out.
        let state = State { free: Free::from(BLOCK_BYTES), returning: Vec::new() };
        Ok(Self {
            base,
            reserved,
            opened: AtomicU64::new(BLOCK_BYTES),
            proof: None,
            state: Mutex::new(state),
            used: AtomicU64::new(0),
            left: AtomicPtr::new(null_mut()),
        })
    }

    /// Makes sure that these bytes are what they were when they were written: those that lie in an
    /// image are compared with its checksums the first time. Costs nothing without an image, and a
    /// bit once it was done.
    ///
    /// # Errors
    /// `Corrupt` when they are not, or lie where nothing was ever written.
    #[inline]
    pub(crate) fn prove(&self, address: u64, bytes: u64) -> Result<()> {
        match &self.proof {
            None => Ok(()),
            Some(proof) => self.prove_of_image(proof, address, bytes),
        }
    }

    fn prove_of_image(&self, proof: &Proof, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).filter(|end| *end <= self.opened());
        let Some(end) = end.filter(|_| address >= BLOCK_BYTES) else {
            return Err(proof.note_damage("an address outside of it"));
        };
        let blocks = address / CHUNK_BYTES_MIN..end.div_ceil(CHUNK_BYTES_MIN);
        blocks.into_iter().try_for_each(|block| {
            if proof.is_proved(block) {
                return Ok(());
            }
            let start = self.pointer(block * CHUNK_BYTES_MIN);
            // SAFETY: a block of an extent that was mapped, or read, when this memory was made. It
            // changes only by atomics, and only once it was proved.
            unsafe { proof.prove_block(block, start) }
        })
    }

    /// Why nothing here may be used any more, if so: a block of its image was found damaged.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check_sound(&self) -> Result<()> {
        self.proof.as_ref().map_or(Ok(()), Proof::check_sound)
    }

    /// Where the addresses end that can be used.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Bytes of all chunks in use, and of those that readers are waited for or have left.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a chunk of at least this many bytes out of the free ones; its content is unspecified.
    ///
    /// # Errors
    /// `LimitExceeded` when the reserved addresses are used up, or the system refuses memory.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Chunk> {
        let order = order_of(bytes);
        let refused = |limit: u64, message: &str| {
            Err(Error::limit_exceeded(message, limit, self.used_bytes().saturating_add(bytes)))
        };
        if order > ORDER_MAX {
            return refused(CHUNK_BYTES_MAX, "a document is too large for an index");
        }
        let mut state = self.state();
        self.settle_some(&mut state, SETTLED_PER_CALL);
        let mut taken = state.free.take(order);
        if taken.is_none() && self.fresh_end(&state, order) > self.reserved {
            self.settle_some(&mut state, usize::MAX);
            for block in state.free.take_warm() {
                self.cool(&mut state, block);
            }
            taken = state.free.take(order);
        }
        if taken.is_none() {
            if self.fresh_end(&state, order) > self.reserved {
                let message = "the index has no addresses left; follow fewer partitions per \
                    process, or raise the limit of virtual memory (ulimit -v)";
                return refused(self.reserved, message);
            }
            if !self.open_fresh(&state, order) {
                let message = "the system gives no more memory; follow fewer partitions, or give \
                    the process more memory";
                return refused(self.used_bytes(), message);
            }
            taken = Some(state.free.take_fresh(order));
        }
        drop(state);
        let chunk = taken.ok_or_else(|| Error::internal("a chunk that was found is gone"))?;
        if let Some(proof) = &self.proof {
            proof.disown(chunk.address, chunk.bytes());
        }
        self.used.fetch_add(chunk.bytes(), Ordering::Relaxed);
        Ok(chunk)
    }

    fn fresh_end(&self, state: &State, order: u8) -> u64 {
        let next = state.free.next_fresh(order);
        next.address + next.bytes()
    }

    /// Makes the next fresh chunk's addresses usable, and asks for huge pages where they pay: in
    /// whole blocks, and in all blocks of a large index. Answers whether the system agreed.
    fn open_fresh(&self, state: &State, order: u8) -> bool {
        let (start, next) = (state.free.fresh(), state.free.next_fresh(order));
        if !self.open(start, next.address + next.bytes() - start) {
            return false;
        }
        self.opened.store(next.address + next.bytes(), Ordering::Release);
        if order >= BLOCK_ORDER || start > SMALL_SPACE_BYTES {
            self.advise(next.address, next.bytes(), Advice::LinuxHugepage);
        }
        true
    }

    /// Makes addresses usable that nobody uses yet; answers whether the system agreed.
    fn open(&self, start: u64, bytes: u64) -> bool {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: addresses of our range that nobody uses yet become readable and writable.
        let opened = unsafe { mprotect(self.pointer(start).cast(), bytes as usize, flags) };
        if opened.is_ok() {
            poison::forbid(self.pointer(start), bytes);
        }
        opened.is_ok()
    }

    fn advise(&self, start: u64, bytes: u64, advice: Advice) {
        // SAFETY: the range lies in our mapping; the advice changes its pages, never what a chunk
        // in use holds: huge pages keep content, and only free blocks are given back.
        let _refused = unsafe { madvise(self.pointer(start).cast(), bytes as usize, advice) };
    }

    /// Gives chunks back that no reader has ever seen.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = Chunk>) {
        let mut state = self.state();
        for chunk in chunks {
            poison::forbid(self.pointer(chunk.address), chunk.bytes());
            self.put_back(&mut state, chunk);
        }
    }

    /// Takes chunks that all readers have left. Waits for nobody: some writer puts them back.
    pub(crate) fn leave(&self, chunks: Vec<Chunk>) {
        for chunk in &chunks {
            poison::forbid(self.pointer(chunk.address), chunk.bytes());
        }
        let node = Box::into_raw(Box::new(Left { chunks, next: null_mut() }));
        let mut head = self.left.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until it is on the stack.
            unsafe { (*node).next = head };
            // Release: what was done in the chunks, and to the node, comes before its next use.
            let pushed =
                self.left.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Puts some of the chunks back that readers have left, unless another writer is at it.
    pub(crate) fn settle(&self) {
        if let Some(mut state) = self.state.try_lock() {
            self.settle_some(&mut state, SETTLED_PER_CALL);
        }
    }

    fn settle_some(&self, state: &mut State, most: usize) {
        self.take_left(&mut state.returning);
        let mut settled = 0_usize;
        while settled < most {
            let Some(chunk) = state.returning.pop() else { break };
            settled += if chunk.order < BLOCK_ORDER { 1 } else { SETTLED_BLOCK };
            self.put_back(state, chunk);
        }
    }

    /// Takes everything off the stack.
    fn take_left(&self, into: &mut Vec<Chunk>) {
        if self.left.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire: pairs with `leave`.
        let mut next = self.left.swap(null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each node was boxed by `leave`, and whoever takes the stack has all of it.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
            into.extend(node.chunks);
        }
    }

    fn put_back(&self, state: &mut State, chunk: Chunk) {
        self.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        let is_small = chunk.order < BLOCK_ORDER;
        let block = if is_small { state.free.put_small(chunk) } else { Some(chunk) };
        if let Some(block) = block.and_then(|block| state.free.keep_warm(block)) {
            self.cool(state, block);
        }
    }

    /// Gives the pages of free blocks back to the system.
    fn cool(&self, state: &mut State, blocks: Chunk) {
        self.advise(blocks.address, blocks.bytes(), Advice::LinuxDontNeed);
        state.free.put_cold(blocks);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn pointer(&self, address: u64) -> *mut u8 {
        debug_assert!(address <= self.reserved, "{address} lies outside the index's memory");
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
        poison::allow(self.pointer(address), bytes.len() as u64);
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
        poison::allow(self.pointer(chunk.address), chunk.bytes());
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
        self.take_left(&mut Vec::new());
        poison::allow(self.base.as_ptr(), self.opened());
        // SAFETY: the range was mapped by `reserve`, and whoever reads in it borrows this value.
        let _refused = unsafe { munmap(self.base.as_ptr().cast(), self.reserved as usize) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used_bytes()).finish_non_exhaustive()
    }
}

/// How many addresses each of this many spaces may reserve.
pub(crate) fn reserved_for(spaces: usize) -> u64 {
    reserved_of(getrlimit(Resource::As).current, spaces)
}

fn reserved_of(limit: Option<u64>, spaces: usize) -> u64 {
    let eighth = limit.map_or(u64::MAX, |limit| limit / 8 / spaces.max(1) as u64);
    let most = 1 << eighth.max(1).ilog2();
    RESERVED_BYTES.min(most).max(RESERVED_BYTES_MIN)
}

fn order_of(bytes: u64) -> u8 {
    let chunks = bytes.div_ceil(CHUNK_BYTES_MIN).max(1);
    chunks.next_power_of_two().trailing_zeros() as u8
}

#[cfg(test)]
mod tests;
