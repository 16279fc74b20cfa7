//! Address ranges, which use no memory: reserved, given back, and described to AddressSanitizer.
//!
//! AddressSanitizer did not allocate the memory of the index. The memory therefore reports which of
//! its ranges must not be touched: chunks that are not in use, and parts of chunks that were not
//! written yet.

use std::ptr::{NonNull, null_mut};

use forebay_core::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

use super::geometry::{BLOCK_BYTES, RESERVED_BYTES, RESERVED_BYTES_MIN};

/// Addresses that all shared spaces of a reader take, mapped once.
const SHARED_ADDRESSES_MAX: u64 = 1 << 44;

/// Reserves addresses: a multiple of a block, at a multiple of one.
///
/// # Errors
/// `LimitExceeded` when the system refuses.
pub(super) fn reserve_addresses(reserved: u64) -> Result<NonNull<u8>> {
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
        // SAFETY: the part of our own mapping before or after the aligned range, unused.
        // A refusal leaves addresses mapped that no thread uses.
        let _result = unsafe { munmap(start.cast(), bytes as usize) };
    }
    NonNull::new(aligned).ok_or_else(|| Error::internal("a mapping at address 0"))
}

/// Unmaps a mapping.
///
/// # Safety
/// The range is a mapping of the caller's own, and no thread uses it any more.
pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: u64) -> rustix::io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { munmap(base.as_ptr().cast(), bytes as usize) }
}

/// Returns how many addresses each of this many spaces may reserve.
pub(crate) fn reserved_for(spaces: usize) -> u64 {
    reserved_of(getrlimit(Resource::As).current, spaces)
}

/// Returns how many addresses each of this many shared spaces has: a process that writes maps each
/// space twice, and all of them must fit into a small part of a process's address space.
pub(crate) fn shared_addresses_for(spaces: usize) -> u64 {
    let share = SHARED_ADDRESSES_MAX / spaces.max(1) as u64;
    reserved_for(2 * spaces).min(1 << share.ilog2()).max(RESERVED_BYTES_MIN)
}

pub(super) fn reserved_of(limit: Option<u64>, spaces: usize) -> u64 {
    let eighth = limit.map_or(u64::MAX, |limit| limit / 8 / spaces.max(1) as u64);
    let reserved_max = 1 << eighth.max(1).ilog2();
    RESERVED_BYTES.min(reserved_max).max(RESERVED_BYTES_MIN)
}

#[cfg(forebay_sanitize = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const u8, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
}

/// Forbids accesses to this range from now on, for AddressSanitizer: the range is not in use, or
/// was not written yet. Does nothing in any other build.
pub(super) fn forbid(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: the call only notes the range, which is inside a mapping of ours.
    unsafe {
        __asan_poison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}

/// Allows accesses to this range from now on; see [`forbid`].
pub(super) fn allow(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: as above.
    unsafe {
        __asan_unpoison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}
