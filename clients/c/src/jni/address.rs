//! Pointers and texts from the addresses that Java passes.

use jni_sys::jlong;

use crate::abi::FbText;

pub(super) fn at<T>(address: jlong) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

pub(super) fn text(address: jlong, length: jlong) -> FbText {
    FbText { data: at(address), length: length as u64 }
}
