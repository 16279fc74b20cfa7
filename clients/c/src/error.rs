//! Errors of entry points: a status for the caller, and the details in the caller's error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::writes::{PendingWrite, WriteError};
use forebay::{Error, ErrorCode};

use crate::abi::{FbBytes, FbError, FbText};
use crate::output::{Packer, free, owned};
use crate::registry::{self, Object};

/// Flags of the numbers of an [`FbError`] that apply; `FB_HAS_*` in the header.
const HAS_PARTITION: u32 = 1;
const HAS_KEY_DIGEST: u32 = 2;
const HAS_LIMIT: u32 = 4;
const HAS_ACTUAL: u32 = 8;

/// The error of an entry point, with the write that it leaves unresolved.
pub(crate) struct CallError {
    error: Error,
    pending: Option<Box<PendingWrite>>,
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self { error, pending: None }
    }
}

impl From<WriteError> for CallError {
    fn from(write_error: WriteError) -> Self {
        let error = write_error.error().clone();
        // Codes other than `UnknownOutcome` mean that nothing is in the log: the caller still has
        // the changes, and gets no id.
        let unknown = error.code() == ErrorCode::UnknownOutcome;
        Self { error, pending: write_error.into_pending().filter(|_| unknown).map(Box::new) }
    }
}

impl CallError {
    /// Returns the failure in the form of the header.
    pub(crate) fn into_fb_error(self) -> FbError {
        fb_error_of(&self.error, self.pending.map(|pending| *pending))
    }
}

/// Runs an entry point: returns its status, and writes a failure's details if `error` is not null.
/// A panic becomes `Internal`.
pub(crate) fn ffi_call(error: *mut FbError, run: impl FnOnce() -> Result<(), CallError>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let Err(failure) = outcome.unwrap_or_else(|panic| Err(Error::of_panic(&*panic).into())) else {
        return 0;
    };
    let status = failure.error.code().number();
    if !error.is_null() {
        let details = failure.into_fb_error();
        // SAFETY: the header requires null or a pointer to a writable fb_error; the old contents
        // are overwritten, never read.
        unsafe { error.write(details) };
    }
    status
}

/// Returns an error in the form of the header.
pub(crate) fn fb_error_of(error: &Error, pending: Option<PendingWrite>) -> FbError {
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

impl Packer {
    /// Appends an error: code u32, 0 for none | applies u32 | partition u32 | key digest u64 |
    /// limit u64 | actual u64 | pending u64 | message, store and field TEXT.
    pub(crate) fn error(&mut self, failure: Option<CallError>) {
        let details = failure.map_or(FbError::NONE, CallError::into_fb_error);
        self.u32(details.code as u32);
        self.u32(details.applies);
        self.u32(details.partition);
        for number in [details.key_digest, details.limit, details.actual, details.pending] {
            self.u64(number);
        }
        for text in [details.message, details.store, details.field] {
            // SAFETY: `fb_error_of` has created the three texts by `owned`; each is freed here,
            // once.
            unsafe {
                self.text(FbText { data: text.data, length: text.length }.bytes().unwrap_or(&[]));
                free(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::fb_error_free;

    #[test]
    fn panic_is_internal_and_its_details_may_be_freed_twice() {
        let mut error = FbError::NONE;
        let status = ffi_call(&mut error, || panic!("on purpose"));
        assert_eq!(status, ErrorCode::Internal.number());
        assert_eq!(error.code, status);
        assert!(error.message.length > 0);
        // SAFETY: `ffi_call` has filled the error.
        unsafe { fb_error_free(&mut error) };
        assert!(error.message.data.is_null());
        // SAFETY: the error is empty now.
        unsafe { fb_error_free(&mut error) };
    }

    #[test]
    fn error_flags_its_fields_and_a_null_error_is_not_written() {
        let limit = || Error::limit_exceeded("less", 3, 4).with_store("s");
        let mut error = FbError::NONE;
        assert_eq!(ffi_call(&mut error, || Err(limit().into())), ErrorCode::LimitExceeded.number());
        assert_eq!(error.applies, HAS_LIMIT | HAS_ACTUAL);
        assert_eq!((error.limit, error.actual, error.store.length), (3, 4, 1));
        // SAFETY: `ffi_call` has filled the error.
        unsafe { fb_error_free(&mut error) };
        assert_ne!(ffi_call(std::ptr::null_mut(), || Err(limit().into())), 0);
        assert_eq!(ffi_call(&mut error, || Ok(())), 0);
    }
}
