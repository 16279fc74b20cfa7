//! Failures of entry points: a status for the caller, and the details in the caller's error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::{Error, ErrorCode, PendingWrite, WriteError};

use crate::abi::{FbBytes, FbError};
use crate::output::owned;
use crate::registry::{self, Object};

/// Flags of the numbers of an [`FbError`] that apply; `FB_HAS_*` in the header.
const HAS_PARTITION: u32 = 1;
const HAS_KEY_DIGEST: u32 = 2;
const HAS_LIMIT: u32 = 4;
const HAS_ACTUAL: u32 = 8;

/// The failure of an entry point.
pub(crate) struct Fault {
    error: Error,
    pending: Option<Box<PendingWrite>>,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, pending: None }
    }
}

impl From<WriteError> for Fault {
    fn from(failed: WriteError) -> Self {
        let error = failed.error().clone();
        // Codes other than `UnknownOutcome` mean that nothing is in the log: the caller still has
        // the changes, and gets no id.
        let unknown = error.code() == ErrorCode::UnknownOutcome;
        Self { error, pending: failed.into_pending().filter(|_| unknown).map(Box::new) }
    }
}

impl Fault {
    /// Returns the failure in the form of the header.
    pub(crate) fn told(self) -> FbError {
        told(&self.error, self.pending.map(|pending| *pending))
    }
}

/// Runs an entry point: returns its status, and writes a failure's details if `error` is not null.
/// A panic becomes `Internal`.
pub(crate) fn entry(error: *mut FbError, run: impl FnOnce() -> Result<(), Fault>) -> i32 {
    let ended = catch_unwind(AssertUnwindSafe(run));
    let Err(fault) = ended.unwrap_or_else(|panic| Err(panicked(&*panic).into())) else { return 0 };
    let status = fault.error.code().number();
    if !error.is_null() {
        let told = fault.told();
        // SAFETY: the header requires null or a pointer to a writable fb_error; the old contents
        // are overwritten, never read.
        unsafe { error.write(told) };
    }
    status
}

/// Returns an error in the form of the header.
pub(crate) fn told(error: &Error, pending: Option<PendingWrite>) -> FbError {
    let context = error.context();
    let text =
        |text: Option<&str>| text.map_or(FbBytes::EMPTY, |text| owned(text.as_bytes().into()));
    let bit = |applies: bool, bit: u32| if applies { bit } else { 0 };
    let pending = pending.map(|pending| registry::insert(Object::pending(pending)));
    FbError {
        code: error.code().number(),
        applies: bit(context.partition.is_some(), HAS_PARTITION)
            | bit(context.key_digest.is_some(), HAS_KEY_DIGEST)
            | bit(context.limit.is_some(), HAS_LIMIT)
            | bit(context.actual.is_some(), HAS_ACTUAL),
        partition: context.partition.map_or(0, |partition| partition.0),
        reserved: 0,
        key_digest: context.key_digest.unwrap_or(0),
        limit: context.limit.unwrap_or(0),
        actual: context.actual.unwrap_or(0),
        // If no id is free, the write is given up: its outcome stays unknown.
        pending: pending.and_then(Result::ok).unwrap_or(0),
        message: text(Some(error.message())),
        store: text(context.store.as_deref()),
        field: text(context.field.as_deref()),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    Error::new(ErrorCode::Internal, format!("a broken invariant ({text}); report it"))
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
        let held = error.replace(FbError::NONE);
        for text in [held.message, held.store, held.field] {
            crate::output::free(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_internal_and_its_details_are_freed_twice_without_harm() {
        let mut error = FbError::NONE;
        let status = entry(&mut error, || panic!("on purpose"));
        assert_eq!(status, ErrorCode::Internal.number());
        assert_eq!(error.code, status);
        assert!(error.message.length > 0);
        // SAFETY: `entry` has filled the error.
        unsafe { fb_error_free(&mut error) };
        assert!(error.message.data.is_null());
        // SAFETY: the error is empty now.
        unsafe { fb_error_free(&mut error) };
    }

    #[test]
    fn what_applies_is_told_and_a_null_error_is_not_written() {
        let limit = || Error::limit_exceeded("less", 3, 4).with_store("s");
        let mut error = FbError::NONE;
        assert_eq!(entry(&mut error, || Err(limit().into())), ErrorCode::LimitExceeded.number());
        assert_eq!(error.applies, HAS_LIMIT | HAS_ACTUAL);
        assert_eq!((error.limit, error.actual, error.store.length), (3, 4, 1));
        // SAFETY: `entry` has filled the error.
        unsafe { fb_error_free(&mut error) };
        assert_ne!(entry(std::ptr::null_mut(), || Err(limit().into())), 0);
        assert_eq!(entry(&mut error, || Ok(())), 0);
    }
}
