//! Entry points that give back what a call has returned: ids, bytes, packed values and errors.

use crate::abi::{FbBytes, FbError, FbPacked};
use crate::error::ffi_call;
use crate::output::free;
use crate::registry;

/// Closes the object of this id. Calls in flight end normally; later calls return `Closed`.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_close(id: u64, error: *mut FbError) -> i32 {
    ffi_call(error, || Ok(registry::close(id)?))
}

/// Frees bytes of the library, and empties the struct.
///
/// # Safety
/// `bytes` is null, or was filled by an entry point, or is zero throughout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_bytes_free(bytes: *mut FbBytes) {
    if !bytes.is_null() {
        // SAFETY: the caller vouches for the pointer.
        unsafe { free(bytes.replace(FbBytes::EMPTY)) };
    }
}

/// Frees the four parts of packed values, and empties the struct.
///
/// # Safety
/// The rules of [`fb_bytes_free`] apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_packed_free(packed: *mut FbPacked) {
    if packed.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the pointer.
    unsafe {
        let parts = &mut *packed;
        for part in [&mut parts.values, &mut parts.ends, &mut parts.statuses, &mut parts.presences]
        {
            fb_bytes_free(part);
        }
    }
}

/// Frees an error's texts and empties the struct. The pending write of the error stays open.
///
/// # Safety
/// `error` is null, or an error that an entry point has filled, or zero throughout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_error_free(error: *mut FbError) {
    if error.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the pointer; its texts are the library's own or empty.
    unsafe {
        let freed = error.replace(FbError::NONE);
        for text in [freed.message, freed.store, freed.field] {
            free(text);
        }
    }
}
