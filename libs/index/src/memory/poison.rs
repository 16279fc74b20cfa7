//! What AddressSanitizer is told of an index's memory, which it did not hand out itself: chunks
//! that are not in use, and parts of chunks that were not written yet, must not be touched. Does
//! nothing in any other build.

#[cfg(forebay_sanitize = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const u8, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
}

/// From now on nobody may touch this.
pub(super) fn forbid(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: it only notes the range, which lies in a mapping of ours.
    unsafe {
        __asan_poison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}

/// From now on this may be touched.
pub(super) fn allow(start: *const u8, bytes: u64) {
    #[cfg(forebay_sanitize = "address")]
    // SAFETY: as above.
    unsafe {
        __asan_unpoison_memory_region(start, bytes as usize);
    }
    let _ = (start, bytes);
}
