//! Writes: one change or many in one call, and retries of writes whose outcome is unknown.

use std::time::Duration;

use forebay::schema::{DocumentVersion, Value};
use forebay::writes::{Batch, BatchOutcome, Write, WriteResult};
use forebay::{Error, Result, Store};

use crate::abi::{FbBytes, FbChange, FbError, FbOp, FbOutcome};
use crate::error::{fb_error_of, ffi_call};
use crate::input::{put, slice, slice_mut, ttl_of};
use crate::output::owned;
use crate::process::{wait, wait_here};
use crate::registry;

/// Sends changes of one store and waits until the outcome of each is known.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_write(
    store: u64,
    changes: *const FbChange,
    change_count: u64,
    deadline_ms: u64,
    outcomes: *mut FbOutcome,
    token: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let store = open.store()?.store()?;
        // SAFETY: the caller follows the header's rules.
        let batch = unsafe { batch_of(store, changes, change_count, deadline_ms)? };
        let outcome =
            if store.is_in_memory() { wait_here(batch.send())? } else { wait(batch.send())? };
        // SAFETY: as above.
        unsafe { tell(outcome?, change_count, outcomes, token)? };
        Ok(())
    })
}

/// Builds the batch of the caller's changes.
///
/// # Safety
/// The rules of [`slice`] apply to every pointer inside.
pub(crate) unsafe fn batch_of(
    store: &Store,
    changes: *const FbChange,
    change_count: u64,
    deadline_ms: u64,
) -> Result<Batch> {
    let mut batch = store.batch();
    // SAFETY: the caller vouches for it.
    for change in unsafe { slice(changes, change_count)? } {
        // SAFETY: as above.
        batch.add(unsafe { change.write(store)? })?;
    }
    if deadline_ms > 0 {
        batch = batch.deadline(Duration::from_millis(deadline_ms));
    }
    Ok(batch)
}

/// Retries a write whose outcome is unknown; its id is used up.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_pending_retry(
    pending: u64,
    deadline_ms: u64,
    outcome_count: u64,
    outcomes: *mut FbOutcome,
    token: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let pending_write = registry::open(pending)?.pending()?.lock().take();
        let already_retried =
            || Error::closed("the write is already being retried; retry the write's new id");
        let mut write = pending_write.ok_or_else(already_retried)?;
        registry::close(pending)?;
        if deadline_ms > 0 {
            write = write.deadline(Duration::from_millis(deadline_ms));
        }
        // SAFETY: the caller follows the header's rules.
        unsafe { tell(wait(write.retry())??, outcome_count, outcomes, token)? };
        Ok(())
    })
}

/// # Safety
/// `outcomes` is null, or has space for `count`; `token` is null or may be written.
unsafe fn tell(
    sent: BatchOutcome,
    count: u64,
    outcomes: *mut FbOutcome,
    token: *mut FbBytes,
) -> Result<()> {
    // SAFETY: the caller vouches for the pointers; the contents of `outcomes` are overwritten,
    // never read.
    unsafe {
        if !outcomes.is_null() {
            let places = slice_mut(outcomes.cast::<std::mem::MaybeUninit<FbOutcome>>(), count)?;
            for (place, result) in places.iter_mut().zip(&sent.results) {
                place.write(outcome(result));
            }
        }
        put(token, owned(sent.token.encode().to_vec().into()));
    }
    Ok(())
}

fn outcome(result: &Result<WriteResult>) -> FbOutcome {
    let (code, version) = result_code(result);
    let error = result.as_ref().err().map_or(FbError::NONE, |error| fb_error_of(error, None));
    let has_version = version.is_some().into();
    FbOutcome { result: code, has_version, version: version.map_or(0, |version| version.0), error }
}

/// Returns a result's code in the header, `FB_REFUSED` and the others, and its version.
pub(crate) fn result_code(result: &Result<WriteResult>) -> (u32, Option<DocumentVersion>) {
    match result {
        Ok(WriteResult::Appended) => (1, None),
        Ok(WriteResult::Applied) => (2, None),
        Ok(WriteResult::ConditionFailed(version)) => (3, *version),
        Err(_) => (0, None),
    }
}

impl FbChange {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    pub(crate) unsafe fn write(&self, store: &Store) -> Result<Write> {
        // SAFETY: the caller vouches for it.
        let (key, ops, if_newer) =
            unsafe { (self.key.key()?, slice(self.ops, self.op_count)?, self.if_newer.text()?) };
        let mut write = match self.verb {
            1 => store.upsert(key),
            2 => store.put(key),
            3 => store.delete(key),
            4 => store.insert(key),
            _ => return Err(Error::invalid_argument("no such verb; see FB_VERB in forebay.h")),
        };
        for op in ops {
            // SAFETY: as above.
            write = unsafe { op.add_to(write)? };
        }
        if let Some(ttl) = ttl_of(self.ttl_us) {
            write = write.ttl(ttl);
        }
        Ok(match self.condition {
            0 => write,
            1 => write.if_absent(),
            2 => write.if_version(DocumentVersion(self.if_version)),
            3 => write.if_newer(if_newer),
            _ => {
                return Err(Error::invalid_argument("no such condition; see FB_IF in forebay.h"));
            }
        })
    }
}

impl FbOp {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    unsafe fn add_to(&self, write: Write) -> Result<Write> {
        // SAFETY: the caller vouches for it.
        let (field, value) = unsafe { (self.field.text()?, self.value.value()) };
        let value = value.map_err(|error| error.with_field(field))?;
        let needed =
            || Error::invalid_argument("the operation lacks a value; give one").with_field(field);
        let number = |value: Option<Value>| value.ok_or_else(needed);
        let items =
            |value: Option<Value>| match value {
                Some(Value::List(_, items)) => Ok(items),
                _ => Err(Error::invalid_argument("the operation lacks a list; give one")
                    .with_field(field)),
            };
        let write = match self.op {
            1 => match value {
                Some(value) => write.set(field, value),
                None => write.set_null(field),
            },
            2 => write.remove_field(field),
            3 => write.increment(field, number(value)?),
            4 => write.min(field, number(value)?),
            5 => write.max(field, number(value)?),
            6 => write.list_append(field, items(value)?, self.bound),
            7 => write.set_add(field, items(value)?, self.bound),
            8 => write.set_remove(field, items(value)?),
            _ => {
                let message = "no such operation; see FB_OP in forebay.h";
                return Err(Error::invalid_argument(message).with_field(field));
            }
        };
        Ok(match ttl_of(self.ttl_us) {
            Some(ttl) => write.field_ttl(field, ttl),
            None => write,
        })
    }
}
