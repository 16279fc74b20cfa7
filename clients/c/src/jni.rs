//! The entry points of Java: the C ABI with raw addresses instead of pointers.
//!
//! Java calls the entry points in two ways: by JNI, as the native methods of `io.forebay.JniCalls`,
//! and as plain functions by the foreign functions of `io.forebay.ForeignCalls`, with null for
//! environment and class, which only the last two functions here use. Java's second artifact looks
//! up the C functions themselves, and passes memory segments to them.
//!
//! Java builds the structs of `forebay.h` in off-heap buffers and passes their addresses; no code
//! here reads the structs. Ids and sizes are the bits of Java's `long`. `clients/bindings`
//! generates `entry_points`, those of the header's functions. The other four are below: the address
//! of a direct buffer, a copy of native bytes into a `byte[]`, the address of a function, and the
//! version of the ABI.

use jni_sys::{JNIEnv, jbyteArray, jclass, jint, jlong, jobject};

use crate::abi::FbText;

/// Declares `Java_io_forebay_JniCalls_NAME` for each call; each takes `jlong`s and returns a
/// status.
macro_rules! calls {
    ($($java:ident($($argument:ident),*) => $call:expr;)*) => {
        $(
            /// Calls the C ABI's function of this name, over addresses.
            ///
            /// # Safety
            /// Every address and length satisfies the rules of `forebay.h` for the pointer that it
            /// replaces.
            #[unsafe(no_mangle)]
            pub unsafe extern "system" fn $java(
                _: *mut JNIEnv, _: jclass, $($argument: jlong),*
            ) -> jint {
                // SAFETY: the caller follows the header's rules.
                unsafe { $call }
            }
        )*
    };
}

mod entry_points;

/// Returns the pointer of an address that Java passes.
fn at<T>(address: jlong) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Returns the text at an address that Java passes.
fn text(address: jlong, length: jlong) -> FbText {
    FbText { data: at(address), length: length as u64 }
}

/// Returns the version of this library's ABI; Java refuses another version.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_forebay_JniCalls_version(_: *mut JNIEnv, _: jclass) -> jint {
    entry_points::ABI_VERSION
}

/// Returns the address of a function of the C ABI that writes to the caller's memory, for foreign
/// functions that keep this memory alive during the call; 0 for an unknown number.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_forebay_JniCalls_function(
    _: *mut JNIEnv,
    _: jclass,
    number: jlong,
) -> jlong {
    let function: *const () = match number {
        0 => crate::reader::fb_reader_get_bytes as *const (),
        1 => crate::batch_read::fb_reader_get_many_into as *const (),
        2 => crate::batch_read::fb_reader_gather_f32 as *const (),
        3 => crate::batch_read::fb_reader_gather_f64 as *const (),
        4 => crate::batch_read::fb_reader_gather_i64 as *const (),
        _ => std::ptr::null(),
    };
    function.expose_provenance() as jlong
}

/// Returns the start of a direct buffer; 0 for a buffer on the heap.
///
/// # Safety
/// `env` is the environment of the current thread, and `buffer` a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_forebay_JniCalls_addressOf(
    env: *mut JNIEnv,
    _: jclass,
    buffer: jobject,
) -> jlong {
    // SAFETY: the Java virtual machine passes its own table; the functions of JNI 1.4 are in all
    // tables.
    let start = unsafe { ((**env).v1_4.GetDirectBufferAddress)(env, buffer) };
    start.expose_provenance() as jlong
}

/// Returns a copy of native bytes; null, with an `OutOfMemoryError` raised, if the heap is full.
///
/// # Safety
/// `env` is the environment of the current thread, and there are `length` readable bytes at the
/// address.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_forebay_JniCalls_bytesAt(
    env: *mut JNIEnv,
    _: jclass,
    address: jlong,
    length: jint,
) -> jbyteArray {
    // SAFETY: the Java virtual machine passes its own table; the array is checked before use, and
    // is exactly as long as the copied bytes.
    unsafe {
        let copy = ((**env).v1_4.NewByteArray)(env, length);
        if !copy.is_null() && length > 0 {
            ((**env).v1_4.SetByteArrayRegion)(env, copy, 0, length, at(address));
        }
        copy
    }
}
