//! The memory of documents: one address range per space, allocated in chunks.
//!
//! The range is reserved once and never moves, so an address in it is a number that stays valid for
//! every thread. Reserved addresses use no memory: they are opened block by block, and pages are
//! allocated when they are touched. The length of a chunk is a power of two, from 8 KiB on, and a
//! chunk is aligned to its own length. Whole blocks of 2 MiB request huge pages, which make a get
//! 1.4 times as fast once an index is far larger than the caches. Small chunks are cut from shared
//! blocks, so that an index of little data stays small.
//!
//! Memory that was created from an image is in part the image's file, privately mapped. Each block
//! of the image is verified before its first use, and repaired if possible ([`Memory::verify`]), by
//! readers and the writer alike.
//!
//! *Shared memory is in a file that several processes map (`shared_memory`). Readers of shared
//! memory do not announce themselves, so no writer can wait for them. Instead, memory that goes
//! out of use *rests* in quarantine, and before any of it is reused the writer increments a word
//! that readers compare after each copy (`quarantine`).
//!
//! A space may refer to the memory of another shared space (`sharing`), and may have a spill file
//! on disk, with addresses of its own (`spill`).

mod addresses;
mod allocation;
mod free;
mod from_image;
mod geometry;
mod maintenance;
mod quarantine;
mod shared_memory;
mod space_file;
mod space_header;
mod spill;
mod spill_file;
mod verified_blocks;

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use addresses::{reserve_addresses, unmap};
use forebay_core::{Error, Result};
use free::Free;
use geometry::RESERVED_BYTES_MIN;
use parking_lot::{Mutex, MutexGuard};
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};
use spill_file::Spill;
use verified_blocks::VerifiedBlocks;

pub(crate) use self::addresses::{reserved_for, shared_addresses_for};
pub(crate) use self::from_image::image_end;
pub(crate) use self::geometry::{
    BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Chunk, RESERVED_BYTES, SPACE_HEADER_NAME_AT,
    is_spilled,
};
pub use self::maintenance::MaintenanceTask;
pub(crate) use self::space_file::{SegmentNote, SpaceFile, file_error, is_of_memory, mapped_bytes};
pub(crate) use self::space_header::{DirectoryUpdate, Redo, SpaceHeader};
pub(crate) use self::spill_file::SpillPlace;
use crate::memory_account::MemoryAccount;
use crate::schedule::{self, Fault};
use crate::sharing::DonorMapping;

/// Chunks that readers have left, on their way to the free list.
struct ReleasedChunks {
    chunks: Vec<Chunk>,
    next: *mut ReleasedChunks,
}

/// The memory of one space.
pub(crate) struct Memory {
    base: NonNull<u8>,
    reserved: u64,
    /// The space's header: in the process's own memory, or in the space file.
    header: NonNull<SpaceHeader>,
    backing: MemoryBacking,
    state: Mutex<State>,
    /// The account that chunks are charged to; unset for memory that no thread writes.
    account: OnceLock<Arc<MemoryAccount>>,
    /// Bytes of the chunks in use or retired.
    pub(crate) used: AtomicU64,
    /// A stack: readers push, a writer takes all.
    released: AtomicPtr<ReleasedChunks>,
    /// Each block below this address was moved into a huge page, or could not be.
    collapsed: AtomicU64,
    /// Each block below this address is pre-faulted, or could not be.
    prepared: AtomicU64,
    spill: Spill,
    /// The mapping of the donor, another space whose records this space shares.
    pub(crate) donor: Option<DonorMapping>,
}

// SAFETY: the range belongs to this value until it is dropped; its content is accessed through
// atomics, or by the rules of publishing that `table` states. The nodes of the stack belong to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The backing of a memory.
enum MemoryBacking {
    /// The process's own memory.
    Private,
    /// The process's own memory; part of it is an image that may not be verified yet.
    Image(VerifiedBlocks),
    /// A file that other processes map as well.
    File(SpaceFile),
}

/// The state that writers share.
pub(crate) struct State {
    pub(crate) free: Free,
    /// Chunks that were taken from the stack, to be returned a few at a time.
    returning: Vec<Chunk>,
    /// Chunks out of use that still need a wait for readers: see [`Memory::gather`].
    gathered: Vec<Chunk>,
    /// Chunks in quarantine: readers of other processes may still be there.
    quarantined: Vec<Chunk>,
    quarantined_bytes: u64,
    /// Chunks out of use that another space refers to.
    pub(crate) donated: Vec<Chunk>,
}

impl State {
    fn new(free: Free) -> Self {
        let (returning, gathered, quarantined) = (Vec::new(), Vec::new(), Vec::new());
        Self { free, returning, gathered, quarantined, quarantined_bytes: 0, donated: Vec::new() }
    }
}

impl Memory {
    /// Reserves addresses, at most this many; allocates no pages yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system refuses even the smallest range.
    pub(crate) fn reserve(reserved_max: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::reserve_at_most(reserved_max)?))
    }

    fn reserve_at_most(reserved_max: u64) -> Result<Self> {
        let mut reserved = reserved_max;
        loop {
            match Self::reserve_exactly(reserved) {
                Err(_) if reserved > RESERVED_BYTES_MIN => reserved /= 2,
                outcome => return outcome,
            }
        }
    }

    /// Reserves this many bytes of addresses, a multiple of a block.
    fn reserve_exactly(reserved: u64) -> Result<Self> {
        let base = reserve_addresses(reserved)?;
        let header = NonNull::from(Box::leak(Box::<SpaceHeader>::default()));
        let memory = Self::from_parts(base, reserved, header, MemoryBacking::Private);
        memory.header().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(memory)
    }

    fn from_parts(
        base: NonNull<u8>,
        reserved: u64,
        header: NonNull<SpaceHeader>,
        backing: MemoryBacking,
    ) -> Self {
        // Address 0 means nothing in a slot, so the first block is never allocated.
        let state = Mutex::new(State::new(Free::with_fresh(BLOCK_BYTES)));
        let (used, released) = (AtomicU64::new(0), AtomicPtr::new(null_mut()));
        let (account, collapsed) = (OnceLock::new(), AtomicU64::new(BLOCK_BYTES));
        Self {
            base,
            reserved,
            header,
            backing,
            state,
            account,
            used,
            released,
            collapsed,
            prepared: AtomicU64::new(0),
            spill: Spill::new(),
            donor: None,
        }
    }

    /// The space's header.
    #[inline]
    pub(crate) fn header(&self) -> &SpaceHeader {
        // SAFETY: the header lives as long as this value, and is only accessed as atomics.
        unsafe { self.header.as_ref() }
    }

    pub(crate) fn file(&self) -> Option<&SpaceFile> {
        match &self.backing {
            MemoryBacking::File(file) => Some(file),
            MemoryBacking::Private | MemoryBacking::Image(_) => None,
        }
    }

    /// Whether other processes may read this memory, so that a copy must be validated.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.backing, MemoryBacking::File(_))
    }

    /// Whether parts of it may be a mapped image: in such blocks only slots may change.
    pub(crate) fn is_of_image(&self) -> bool {
        matches!(self.backing, MemoryBacking::Image(_))
    }

    /// Verifies these bytes: bytes of an image are compared with the image's checksums at first
    /// use, and repaired if they do not match. Costs nothing without an image, and one bit test
    /// after the first use.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are damaged and cannot be repaired, or are at an address that was
    /// never written.
    #[inline]
    pub(crate) fn verify(&self, address: u64, bytes: u64) -> Result<()> {
        match &self.backing {
            MemoryBacking::Private => Ok(()),
            MemoryBacking::Image(verified) => self.verify_of_image(verified, address, bytes),
            MemoryBacking::File(file) if file.is_written() => Ok(()),
            MemoryBacking::File(_) => self.verify_inside(address, bytes),
        }
    }

    /// Checks only that the range is inside. A reader that comes too late may have read any number
    /// as an address; the word that the reader compares after its copy reveals that, provided that
    /// the reader stays inside until then.
    #[inline]
    fn verify_inside(&self, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).filter(|end| *end <= self.opened());
        match end.filter(|_| address >= BLOCK_BYTES) {
            Some(_) => Ok(()),
            None => self.verify_shared_record(address, bytes),
        }
    }

    #[cold]
    fn verify_shared_record(&self, address: u64, bytes: u64) -> Result<()> {
        let inside = self.donor.as_ref().is_some_and(|donor| {
            let end = address.checked_add(bytes);
            address >= donor.at + BLOCK_BYTES && end.is_some_and(|end| end <= donor.end())
        });
        let outside = || Error::corrupt("an address is outside the shared copy");
        inside.then_some(()).ok_or_else(outside)
    }

    /// Refuses addresses that are not opened, for addresses that an earlier writer has noted.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check_opened(&self, address: u64, bytes: u64) -> Result<()> {
        self.verify_inside(address, bytes)
    }

    fn verify_of_image(&self, verified: &VerifiedBlocks, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).filter(|end| *end <= self.opened());
        let Some(end) = end.filter(|_| address >= BLOCK_BYTES) else {
            return Err(verified.note_damage("an address is outside of the image"));
        };
        let blocks = address / CHUNK_BYTES_MIN..end.div_ceil(CHUNK_BYTES_MIN);
        blocks.into_iter().try_for_each(|block| {
            if verified.is_verified(block) {
                return Ok(());
            }
            let start = self.pointer(block * CHUNK_BYTES_MIN);
            // SAFETY: the block belongs to an extent that was mapped, or read, when this memory was
            // created. All others change it only by atomics, and only after it was verified.
            unsafe { verified.verify_block(block, start) }
        })
    }

    /// Returns an error if nothing here may be used any more: a block of its image was found
    /// damaged.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check_integrity(&self) -> Result<()> {
        match &self.backing {
            MemoryBacking::Image(verified) => verified.check_integrity()?,
            MemoryBacking::Private | MemoryBacking::File(_) => {}
        }
        self.spill.check_integrity()
    }

    /// Number of reserved addresses.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// End of the usable addresses.
    pub(crate) fn opened(&self) -> u64 {
        self.header().opened.load(Ordering::Acquire)
    }

    /// Bytes of all chunks in use, and of all retired chunks that are not free yet.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges the current use, and all future allocations, to an account.
    pub(crate) fn charge_to(&self, account: &Arc<MemoryAccount>) {
        if self.account.set(account.clone()).is_ok() {
            account.count(self.used_bytes(), self.spill.used_bytes());
        }
    }

    /// Makes addresses usable that are not in use yet.
    ///
    /// # Errors
    /// `LimitExceeded` when the system refuses.
    fn open(&self, start: u64, bytes: u64) -> Result<()> {
        self.make_usable(start, bytes)?;
        addresses::forbid(self.pointer(start), bytes);
        Ok(())
    }

    /// As [`Memory::open`]; may be called more than once for the same addresses.
    fn make_usable(&self, start: u64, bytes: u64) -> Result<()> {
        if let Some(file) = self.file() {
            return file.open_addresses(start, bytes);
        }
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: addresses of our range become readable and writable; they are not in use yet, or
        // are readable and writable already.
        let result = unsafe { mprotect(self.pointer(start).cast(), bytes as usize, flags) };
        result.map_err(|_| {
            let message = "the system gives no more memory; follow fewer partitions, or give the \
                process more memory";
            let used = self.used_bytes();
            Error::limit_exceeded(message, used, used.saturating_add(bytes))
        })
    }

    fn advise(&self, start: u64, bytes: u64, advice: Advice) {
        // SAFETY: the range is in our mapping; the advice changes its pages, never the content of a
        // chunk in use: huge pages keep content, and only free blocks are returned to the system.
        let _result = unsafe { madvise(self.pointer(start).cast(), bytes as usize, advice) };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        schedule::lock(&self.state)
    }

    #[inline]
    fn pointer(&self, address: u64) -> *mut u8 {
        let end = self.donor.as_ref().map_or(self.reserved, DonorMapping::end);
        debug_assert!(address <= end, "{address} is outside the index's memory");
        // SAFETY: addresses are inside the reserved range, or in the range of the donor after it.
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
    /// The bytes were written before their address was published, and no thread writes there again
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
        addresses::allow(place, bytes.len() as u64);
        if schedule::is_planted(Fault::SlotFirst) && address >= BLOCK_BYTES {
            let (place, bytes) = (place as usize, bytes.to_vec());
            // SAFETY: as below: no other thread writes there until then.
            return schedule::put_off(move || unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
            });
        }
        if cfg!(forebay_shuttle) {
            for (index, part) in bytes.chunks(schedule::BYTES_AT_ONCE).enumerate() {
                schedule::store();
                // SAFETY: as below.
                unsafe {
                    let place = place.add(index * schedule::BYTES_AT_ONCE);
                    std::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
                }
            }
            return;
        }
        // SAFETY: the caller's promise; `bytes` is not in the chunk, since no thread reads there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Sets a chunk's bytes to zero.
    ///
    /// # Safety
    /// As [`Memory::write`].
    pub(crate) unsafe fn clear(&self, chunk: &Chunk) {
        addresses::allow(self.pointer(chunk.address), chunk.bytes());
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
        if let Some(account) = self.account.get() {
            account.give_back(self.used_bytes());
            account.give_back_spill(self.spill.used_bytes());
        }
        self.take_released(&mut Vec::new());
        addresses::allow(self.base.as_ptr(), self.opened());
        let bytes = match &self.backing {
            MemoryBacking::File(_) => {
                let mapped = mapped_bytes(self.reserved);
                self.donor.as_ref().map_or(mapped, DonorMapping::end)
            }
            MemoryBacking::Private | MemoryBacking::Image(_) => {
                // SAFETY: the header was leaked when this memory was reserved, and no reference is
                // left.
                drop(unsafe { Box::from_raw(self.header.as_ptr()) });
                self.reserved
            }
        };
        // SAFETY: the range was mapped for this value, and every reader of it borrows this value.
        let _result = unsafe { unmap(self.base, bytes) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
