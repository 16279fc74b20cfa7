//! Calls into the caller's code: a panic in a callback is logged and stops no task of the replica.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a callback of the caller.
pub(crate) fn call_back(name: &str, callback: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        tracing::error!(callback = name, panic = panic_text(panic.as_ref()), "callback panicked");
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing")
}
