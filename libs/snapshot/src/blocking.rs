//! Blocking work that does not delay other tasks.

use forebay_core::{Error, Result};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs the work on the current thread; other tasks continue if the runtime has threads for them.
/// Call this only on a spawned task, or outside a runtime.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs the work on a blocking thread, if the runtime has such threads.
///
/// # Errors
/// The errors of the work; `Internal` if the work panics.
pub async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("a task on a chunk broke off; see the log")))
}
