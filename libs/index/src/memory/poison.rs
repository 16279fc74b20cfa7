//! Reports to AddressSanitizer on the index's memory, which AddressSanitizer did not allocate:
//! chunks that are not in use, and parts of chunks that were not written yet, must not be touched.
//! The functions do nothing in any other build.

#[cfg(forebay_sanitize = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const u8, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
}

/// Forbids accesses to this range from now on.
pub(super) fn forbid(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: the call only notes the range, which is inside a mapping of ours.
    unsafe {
        __asan_poison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}

/// Allows accesses to this range from now on.
pub(super) fn allow(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: as above.
    unsafe {
        __asan_unpoison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}
