//! The memory of documents: one address range per space, allocated in chunks.
//!
//! The range is reserved once and never moves, so an address in it is a number that stays valid for
//! every thread. Reserved addresses use no memory: they are opened block by block, and pages are
//! allocated when they are touched. The length of a chunk is a power of two, from 8 KiB on, and a
//! chunk is aligned to its own length. Whole blocks of 2 MiB request huge pages, which make a get
//! 1.4 times as fast once an index is far larger than the caches. Small chunks are cut from shared
//! blocks, so that an index of little data stays small.
//!
//! The caller that takes a chunk out of use must know that no reader can still reach it: `reclaim`
//! waits for readers. The last reader to leave takes no lock: it pushes the chunks onto a stack,
//! from which a writer returns them to the free list. This also works in a process that was forked
//! while another thread held the lock.
//!
//! Memory that was created from an image is in part the image's file, privately mapped. Each block
//! of the image is verified before its first use, and repaired if possible ([`Memory::prove`]), by
//! readers and the writer alike.
//!
//! *Live* memory is in a file that several processes map (`live`). Readers of live memory announce
//! themselves to nobody, so no writer can wait for them. Instead, memory that goes out of use
//! *rests* in quarantine, and before any of it is reused the writer increments a word that readers
//! compare after each copy (`rest`).
//!
//! A space may have borrowed memory of another live space (`lending`), and may have a spill file on
//! disk, with addresses of its own (`spill`).

mod addresses;
mod ahead;
mod files;
mod free;
mod huge;
mod lending;
mod live;
mod of_image;
mod poison;
mod proof;
mod rest;
mod spill;
mod words;

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use addresses::{reserve_addresses, unmap};
use forebay_core::{Error, Result};
use free::{BLOCK_ORDER, Free, ORDER_MAX};
use lending::Borrowed;
use live::LiveFile;
use parking_lot::{Mutex, MutexGuard};
use proof::Proof;
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};
use spill::Spill;

pub(crate) use self::addresses::{live_addresses_for, reserved_for};
pub(crate) use self::free::BLOCK_BYTES;
pub(crate) use self::lending::BORROWED;
pub(crate) use self::live::{SegmentNote, is_of_memory, refused};
pub(crate) use self::of_image::image_end;
pub(crate) use self::spill::{SpillPlace, is_spilled};
pub(crate) use self::words::{Redo, SpaceWords, Swing};
use crate::budget::Budget;
use crate::schedule::{self, Fault};

/// Bytes of the smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: u64 = 8 * 1024;
/// Bytes of the largest chunk.
pub(crate) const CHUNK_BYTES_MAX: u64 = CHUNK_BYTES_MIN << ORDER_MAX;
/// Blocks of small chunks request huge pages once a space has more than this.
const SMALL_SPACE_BYTES: u64 = BLOCK_BYTES;
/// Number of addresses to reserve. If the system refuses, the space halves the number and retries.
/// If the process's addresses are limited, all partitions together take an eighth of the limit,
/// because other users need addresses too.
pub(crate) const RESERVED_BYTES: u64 = 1 << 36;
const RESERVED_BYTES_MIN: u64 = 1 << 28;
/// Offset in the first block of a live space of the text that names the header leading to the
/// space.
pub(crate) const SPACE_ABOUT_AT: u64 = 1_024;
/// Retired memory that may wait until readers are waited for: this part of a space, and at most the
/// bytes below.
const GATHERED_SHARE: u64 = 256;
const GATHERED_BYTES_MAX: u64 = 1024 * 1024;
/// Number of chunks left by readers that one call frees: small chunks, or a sixteenth as many
/// blocks.
const SETTLED_PER_CALL: usize = 64;
const SETTLED_BLOCK: usize = 16;

const _: () = assert!(usize::BITS == 64, "an index needs the addresses of a 64-bit machine");

/// A piece of a space's memory; its owner may write there. A chunk has no destructor: it is retired
/// or released, or leaked until its index ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Chunk {
    address: u64,
    order: u8,
}

impl Chunk {
    /// The chunk's first address.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The chunk's length.
    pub(crate) fn bytes(&self) -> u64 {
        CHUNK_BYTES_MIN << self.order
    }

    /// Returns a chunk that an image reports as in use; `None` if no chunk can have this address
    /// and length.
    pub(crate) fn of_image(address: u64, bytes: u64) -> Option<Self> {
        let chunks = bytes / CHUNK_BYTES_MIN;
        let order = chunks.is_power_of_two().then(|| chunks.trailing_zeros() as u8)?;
        let fits = order <= ORDER_MAX
            && bytes == CHUNK_BYTES_MIN << order
            && address.is_multiple_of(bytes);
        fits.then_some(Self { address, order })
    }
}

/// Chunks that readers have left, on their way to the free list.
pub(crate) struct Left {
    chunks: Vec<Chunk>,
    next: *mut Left,
}

/// The memory of one space.
pub(crate) struct Memory {
    base: NonNull<u8>,
    reserved: u64,
    /// The space's words: in the process's own memory, or in the live file.
    words: NonNull<SpaceWords>,
    backing: Backing,
    state: Mutex<State>,
    /// The budget that chunks are charged to; unset for memory that nobody writes.
    budget: OnceLock<Arc<Budget>>,
    /// Bytes of the chunks in use or retired.
    used: AtomicU64,
    /// A stack: readers push, a writer takes all.
    left: AtomicPtr<Left>,
    /// Each block below this address was moved into a huge page, or could not be.
    collapsed: AtomicU64,
    /// Each block below this address is pre-faulted, or could not be.
    prepared: AtomicU64,
    spill: Spill,
    /// The memory that is borrowed from another space.
    borrowed: Option<Borrowed>,
}

// SAFETY: the range belongs to this value until it is dropped; its content is accessed through
// atomics, or by the rules of publishing that `table` states. The nodes of the stack belong to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The backing of a memory.
enum Backing {
    /// The process's own memory.
    Private,
    /// The process's own memory; part of it is an image that may not be verified yet.
    Image(Proof),
    /// A file that other processes map as well.
    Live(LiveFile),
}

/// The state that writers share.
struct State {
    free: Free,
    /// Chunks that were taken from the stack, to be returned a few at a time.
    returning: Vec<Chunk>,
    /// Chunks out of use that still need a wait for readers: see [`Memory::gather`].
    gathered: Vec<Chunk>,
    /// Chunks in quarantine: readers of other processes may still be there.
    resting: Vec<Chunk>,
    resting_bytes: u64,
    /// Chunks out of use that another space has borrowed.
    lent: Vec<Chunk>,
}

impl State {
    fn new(free: Free) -> Self {
        let (returning, gathered, resting) = (Vec::new(), Vec::new(), Vec::new());
        Self { free, returning, gathered, resting, resting_bytes: 0, lent: Vec::new() }
    }
}

impl Memory {
    /// Reserves addresses, at most this many; allocates no pages yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system refuses even the smallest range.
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

    /// Takes over the chunks that an image's table uses, as start and bytes each: all other opened
    /// memory is free. `written` is the part of a chunk that continues to be written.
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap or exceed the opened addresses.
    pub(crate) fn adopt(&self, used: Vec<(u64, u64)>, written: Option<(u64, u64)>) -> Result<()> {
        if let (Backing::Image(proof), Some((address, bytes))) = (&self.backing, written) {
            proof.disown(address, bytes);
        }
        let (spilled, used): (Vec<_>, Vec<_>) =
            used.into_iter().partition(|(start, _)| is_spilled(*start));
        let bytes = used.iter().map(|(_, bytes)| bytes).sum();
        self.used.store(bytes, Ordering::Relaxed);
        let mut state = self.state();
        state.free = Free::around(used, self.opened())?;
        self.adopt_lent(&mut state);
        drop(state);
        self.adopt_spilled(spilled)
    }

    /// Reserves this many bytes of addresses, a multiple of a block.
    fn reserve_exactly(reserved: u64) -> Result<Self> {
        let base = reserve_addresses(reserved)?;
        let words = NonNull::from(Box::leak(Box::<SpaceWords>::default()));
        let memory = Self::over(base, reserved, words, Backing::Private);
        memory.words().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(memory)
    }

    fn over(base: NonNull<u8>, reserved: u64, words: NonNull<SpaceWords>, on: Backing) -> Self {
        // Address 0 means nothing in a slot, so the first block is never allocated.
        let state = Mutex::new(State::new(Free::from(BLOCK_BYTES)));
        let (used, left) = (AtomicU64::new(0), AtomicPtr::new(null_mut()));
        let (budget, collapsed) = (OnceLock::new(), AtomicU64::new(BLOCK_BYTES));
        Self {
            base,
            reserved,
            words,
            backing: on,
            state,
            budget,
            used,
            left,
            collapsed,
            prepared: AtomicU64::new(0),
            spill: Spill::new(),
            borrowed: None,
        }
    }

    /// The space's words.
    #[inline]
    pub(crate) fn words(&self) -> &SpaceWords {
        // SAFETY: the words live as long as this value, and are only accessed as atomics.
        unsafe { self.words.as_ref() }
    }

    fn live(&self) -> Option<&LiveFile> {
        match &self.backing {
            Backing::Live(live) => Some(live),
            Backing::Private | Backing::Image(_) => None,
        }
    }

    /// Returns the live file that has the note of an address; `None` for a spilled address.
    fn live_at(&self, address: u64) -> Option<&LiveFile> {
        self.live().filter(|_| !is_spilled(address))
    }

    /// Whether other processes may read this memory, so that a copy must be validated.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.backing, Backing::Live(_))
    }

    /// Whether parts of it may be a mapped image: in such blocks only slots may change.
    pub(crate) fn is_of_image(&self) -> bool {
        matches!(self.backing, Backing::Image(_))
    }

    /// Notes, in live memory, how far a segment is filled, for a successor that takes over.
    pub(crate) fn note_segment(&self, chunk: &Chunk, used: u64, live: u64, serial: u64) {
        if let Some(file) = self.live_at(chunk.address) {
            file.note_segment(chunk, used, live, serial);
        }
    }

    /// As [`Memory::note_segment`], for a segment that has a note.
    #[inline]
    pub(crate) fn note_fill(&self, address: u64, used: u64, live: u64) {
        if let Some(file) = self.live_at(address) {
            file.note_fill(address, used, live);
        }
    }

    /// Notes, in live memory, a time before which no document of a group expires.
    pub(crate) fn note_group(&self, address: u64, expires: i64) {
        if let Some(file) = self.live() {
            file.note_group(address, expires);
        }
    }

    /// Returns the noted expiry time of a group.
    pub(crate) fn group_expires(&self, address: u64) -> Option<i64> {
        self.live().and_then(|file| file.group_expires(address))
    }

    /// Removes the note of a chunk.
    pub(crate) fn forget_note(&self, address: u64) {
        if let Some(file) = self.live_at(address) {
            file.forget(address);
        }
    }

    /// Returns the noted segments.
    pub(crate) fn noted_segments(&self) -> Vec<SegmentNote> {
        self.live().map_or(Vec::new(), |file| file.segments(self.opened()))
    }

    /// Verifies these bytes: bytes of an image are compared with the image's checksums at first
    /// use, and repaired if they do not match. Costs nothing without an image, and one bit test
    /// after the first use.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are damaged and cannot be repaired, or are at an address that was
    /// never written.
    #[inline]
    pub(crate) fn prove(&self, address: u64, bytes: u64) -> Result<()> {
        match &self.backing {
            Backing::Private => Ok(()),
            Backing::Image(proof) => self.prove_of_image(proof, address, bytes),
            Backing::Live(file) if file.is_written() => Ok(()),
            Backing::Live(_) => self.prove_inside(address, bytes),
        }
    }

    /// Checks only that the range is inside. A reader that comes too late may have read any number
    /// as an address; the word that the reader compares after its copy reveals that, provided that
    /// the reader stays inside until then.
    #[inline]
    fn prove_inside(&self, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).filter(|end| *end <= self.opened());
        match end.filter(|_| address >= BLOCK_BYTES) {
            Some(_) => Ok(()),
            None => self.prove_borrowed(address, bytes),
        }
    }

    #[cold]
    fn prove_borrowed(&self, address: u64, bytes: u64) -> Result<()> {
        let inside = self.borrowed.as_ref().is_some_and(|borrowed| {
            let end = address.checked_add(bytes);
            address >= borrowed.at + BLOCK_BYTES && end.is_some_and(|end| end <= borrowed.end())
        });
        let outside = || Error::corrupt("an address is outside the shared copy");
        inside.then_some(()).ok_or_else(outside)
    }

    /// Refuses addresses that are not opened, for addresses that an earlier writer has noted.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check_opened(&self, address: u64, bytes: u64) -> Result<()> {
        self.prove_inside(address, bytes)
    }

    fn prove_of_image(&self, proof: &Proof, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).filter(|end| *end <= self.opened());
        let Some(end) = end.filter(|_| address >= BLOCK_BYTES) else {
            return Err(proof.note_damage("an address is outside the image"));
        };
        let blocks = address / CHUNK_BYTES_MIN..end.div_ceil(CHUNK_BYTES_MIN);
        blocks.into_iter().try_for_each(|block| {
            if proof.is_proved(block) {
                return Ok(());
            }
            let start = self.pointer(block * CHUNK_BYTES_MIN);
            // SAFETY: the block belongs to an extent that was mapped, or read, when this memory was
            // created. All others change it only by atomics, and only after it was verified.
            unsafe { proof.prove_block(block, start) }
        })
    }

    /// Returns an error if nothing here may be used any more: a block of its image was found
    /// damaged.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check_sound(&self) -> Result<()> {
        match &self.backing {
            Backing::Image(proof) => proof.check_sound()?,
            Backing::Private | Backing::Live(_) => {}
        }
        self.spill.check_sound()
    }

    /// Number of reserved addresses.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// End of the usable addresses.
    pub(crate) fn opened(&self) -> u64 {
        self.words().opened.load(Ordering::Acquire)
    }

    /// Bytes of all chunks in use, and of all retired chunks that are not free yet.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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
        let budget = self.budget.get();
        let take = || budget.map_or(Ok(()), |budget| budget.take(bytes));
        if take().is_err() {
            self.take_back();
            take()?;
        }
        let taken = self.take_chunk(order);
        if let (Err(_), Some(budget)) = (&taken, budget) {
            budget.give_back(bytes);
        }
        taken
    }

    /// Charges the current use, and all future allocations, to a budget.
    pub(crate) fn charge_to(&self, budget: &Arc<Budget>) {
        if self.budget.set(budget.clone()).is_ok() {
            budget.count(self.used_bytes(), self.spill.used_bytes());
        }
    }

    fn take_chunk(&self, order: u8) -> Result<Chunk> {
        let mut state = self.state();
        self.settle_some(&mut state, SETTLED_PER_CALL);
        let taken = match state.free.take(order) {
            Some(taken) => taken,
            None => self.allocate_anew(&mut state, order)?,
        };
        drop(state);
        if let Backing::Image(proof) = &self.backing {
            proof.disown(taken.address, taken.bytes());
        }
        self.used.fetch_add(taken.bytes(), Ordering::Relaxed);
        Ok(taken)
    }

    fn fresh_end(&self, state: &State, order: u8) -> u64 {
        let next = state.free.next_fresh(order);
        next.address + next.bytes()
    }

    /// Makes the next fresh chunk's addresses usable, and requests huge pages if they pay: in whole
    /// blocks, and in all blocks of a large index.
    fn open_fresh(&self, state: &State, order: u8) -> Result<()> {
        let (start, next) = (state.free.fresh(), state.free.next_fresh(order));
        let end = next.address + next.bytes();
        self.open(start, end - start)?;
        schedule::store();
        self.words().opened.store(end, Ordering::Release);
        let is_large = start >= BLOCK_BYTES + SMALL_SPACE_BYTES;
        if order >= BLOCK_ORDER || is_large {
            // The system collapses the small pages of the earlier blocks in the background.
            let from = if is_large { BLOCK_BYTES } else { next.address };
            self.advise(from, end - from, Advice::LinuxHugepage);
        }
        Ok(())
    }

    /// Makes addresses usable that are not in use yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system refuses.
    fn open(&self, start: u64, bytes: u64) -> Result<()> {
        self.make_usable(start, bytes)?;
        poison::forbid(self.pointer(start), bytes);
        Ok(())
    }

    /// As [`Memory::open`]; may be called more than once for the same addresses.
    fn make_usable(&self, start: u64, bytes: u64) -> Result<()> {
        if let Some(file) = self.live() {
            return file.open_addresses(start, bytes);
        }
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: addresses of our range become readable and writable; they are not in use yet, or
        // are readable and writable already.
        let opened = unsafe { mprotect(self.pointer(start).cast(), bytes as usize, flags) };
        opened.map_err(|_| {
            let message = "the system gives no more memory; follow fewer partitions, or give the \
                process more memory";
            let used = self.used_bytes();
            Error::limit_exceeded(message, used, used.saturating_add(bytes))
        })
    }

    fn advise(&self, start: u64, bytes: u64, advice: Advice) {
        // SAFETY: the range is in our mapping; the advice changes its pages, never the content of a
        // chunk in use: huge pages keep content, and only free blocks are returned to the system.
        let _refused = unsafe { madvise(self.pointer(start).cast(), bytes as usize, advice) };
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
        let enough = (self.used_bytes() / GATHERED_SHARE).min(GATHERED_BYTES_MAX);
        let mut state = self.state();
        state.gathered.extend(chunks);
        let gathered: u64 = state.gathered.iter().map(Chunk::bytes).sum();
        (gathered >= enough).then(|| std::mem::take(&mut state.gathered))
    }

    /// Accepts chunks that all readers have left. Never waits: a later writer frees the chunks.
    pub(crate) fn leave(&self, chunks: Vec<Chunk>) {
        chunks.iter().for_each(|chunk| self.forbid(chunk));
        let node = Box::into_raw(Box::new(Left { chunks, next: null_mut() }));
        schedule::load();
        let mut head = self.left.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until it is on the stack.
            unsafe { (*node).next = head };
            schedule::store();
            // Release: all accesses to the chunks, and the write of the node, happen before the
            // next use.
            let pushed =
                self.left.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Frees some of the chunks that readers have left, unless another writer is doing so.
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

    /// Takes all nodes off the stack.
    fn take_left(&self, into: &mut Vec<Chunk>) {
        if self.left.load(Ordering::Relaxed).is_null() {
            return;
        }
        schedule::store();
        // Acquire: pairs with `leave`.
        let mut next = self.left.swap(null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each node was boxed by `leave`, and the thread that swaps the stack owns all
            // of it.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
            into.extend(node.chunks);
        }
    }

    fn forbid(&self, chunk: &Chunk) {
        if !is_spilled(chunk.address) {
            poison::forbid(self.pointer(chunk.address), chunk.bytes());
        }
    }

    fn put_back(&self, state: &mut State, chunk: Chunk) {
        if is_spilled(chunk.address) {
            return self.put_back_spilled(chunk);
        }
        let Some(chunk) = self.keep_lent(state, chunk) else { return };
        self.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        if let Some(budget) = self.budget.get() {
            budget.give_back(chunk.bytes());
        }
        let is_small = chunk.order < BLOCK_ORDER;
        let block = if is_small { state.free.put_small(chunk) } else { Some(chunk) };
        if let Some(block) = block.and_then(|block| state.free.keep_warm(block)) {
            self.cool(state, block);
        }
    }

    /// Returns the pages of free blocks to the system.
    fn cool(&self, state: &mut State, blocks: Chunk) {
        if !self.is_live() {
            self.advise(blocks.address, blocks.bytes(), Advice::LinuxDontNeed);
        }
        state.free.put_cold(blocks);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        schedule::lock(&self.state)
    }

    #[inline]
    fn pointer(&self, address: u64) -> *mut u8 {
        let end = self.borrowed.as_ref().map_or(self.reserved, Borrowed::end);
        debug_assert!(address <= end, "{address} is outside the index's memory");
        // SAFETY: addresses are inside the reserved range, or in the borrowed range after it.
        unsafe { self.base.as_ptr().add(address as usize) }
    }

    /// The word at an address.
    ///
    /// # Safety
    /// The address is a multiple of 8 and inside a chunk that is in use, or was in use at some time
    /// since the caller's guard was entered; all accesses there are atomic.
    #[inline]
    pub(crate) unsafe fn word(&self, address: u64) -> &AtomicU64 {
        schedule::load();
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer(address).cast::<AtomicU64>() }
    }

    /// The byte at an address; as [`Memory::word`], without alignment.
    ///
    /// # Safety
    /// As [`Memory::word`].
    pub(crate) unsafe fn byte(&self, address: u64) -> &AtomicU8 {
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer(address).cast::<AtomicU8>() }
    }

    /// The half word at an address; as [`Memory::word`], for multiples of 4.
    ///
    /// # Safety
    /// As [`Memory::word`].
    #[inline]
    pub(crate) unsafe fn half_word(&self, address: u64) -> &AtomicU32 {
        schedule::load();
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer(address).cast::<AtomicU32>() }
    }

    /// Returns bytes at an address.
    ///
    /// # Safety
    /// The bytes were written before their address was published, and nobody writes there again
    /// until the caller's guard is gone.
    #[inline]
    pub(crate) unsafe fn bytes(&self, address: u64, count: usize) -> &[u8] {
        schedule::load();
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer(address), count) }
    }

    /// Writes bytes to an address.
    ///
    /// # Safety
    /// The range is inside a chunk that the caller owns, and no reader has its address yet.
    pub(crate) unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let place = self.pointer(address);
        poison::allow(place, bytes.len() as u64);
        if schedule::is_planted(Fault::SlotFirst) && address >= BLOCK_BYTES {
            let (place, bytes) = (place as usize, bytes.to_vec());
            // SAFETY: as below: nobody else writes there until then.
            return schedule::put_off(move || unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
            });
        }
        if cfg!(forebay_shuttle) {
            for (at, part) in bytes.chunks(schedule::BYTES_AT_ONCE).enumerate() {
                schedule::store();
                // SAFETY: as below.
                unsafe {
                    let place = place.add(at * schedule::BYTES_AT_ONCE);
                    std::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
                }
            }
            return;
        }
        // SAFETY: the caller's promise; `bytes` is not in the chunk, since nobody reads there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Sets a chunk's bytes to zero.
    ///
    /// # Safety
    /// As [`Memory::write`].
    pub(crate) unsafe fn clear(&self, chunk: &Chunk) {
        poison::allow(self.pointer(chunk.address), chunk.bytes());
        schedule::store();
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(self.pointer(chunk.address), 0, chunk.bytes() as usize) };
    }

    /// Prefetches the cache line at an address; never faults.
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
        if let Some(budget) = self.budget.get() {
            budget.give_back(self.used_bytes());
            budget.give_back_spill(self.spill.used_bytes());
        }
        self.take_left(&mut Vec::new());
        poison::allow(self.base.as_ptr(), self.opened());
        let bytes = match &self.backing {
            Backing::Live(_) => {
                let own = live::mapped_bytes(self.reserved);
                self.borrowed.as_ref().map_or(own, Borrowed::end)
            }
            Backing::Private | Backing::Image(_) => {
                // SAFETY: the words were leaked when this memory was reserved, and no reference is
                // left.
                drop(unsafe { Box::from_raw(self.words.as_ptr()) });
                self.reserved
            }
        };
        // SAFETY: the range was mapped for this value, and every reader of it borrows this value.
        let _refused = unsafe { unmap(self.base, bytes) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used_bytes()).finish_non_exhaustive()
    }
}

fn too_large(bytes: u64) -> Error {
    let message = "the document is too large for an index; split the document";
    Error::limit_exceeded(message, CHUNK_BYTES_MAX, bytes)
}

fn order_of(bytes: u64) -> u8 {
    let chunks = bytes.div_ceil(CHUNK_BYTES_MIN).max(1);
    chunks.next_power_of_two().trailing_zeros() as u8
}

#[cfg(test)]
mod tests;
