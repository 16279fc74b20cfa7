//! Work of tasks that blocks on a disk or a processor, without a delay for other tasks.
//!
//! The functions have a crate of their own: `forebay-core` has no runtime, `forebay-runtime` is for
//! programs alone, and libraries from `forebay-snapshot` up to the clients need the functions.

use forebay_core::{Error, Result};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that blocks on the current thread; other tasks continue if the runtime has threads for
/// them. Call this function only on a spawned task, or outside a runtime. The work may borrow.
pub fn block_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs work that blocks on a thread for blocking work. A runtime with a single thread runs the
/// work on that thread, so that a simulation stays deterministic; the work must not wait for a
/// task.
///
/// # Errors
/// The errors of the work; `Internal` if the work panics.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|_| Err(Error::internal("blocking work panicked; see the log")))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn blocking_work_leaves_the_thread_to_other_tasks() {
        let task = tokio::spawn(async {
            let other = tokio::spawn(async { thread::current().id() });
            // The runtime has one thread, so the other task runs only if the work releases it.
            block_in_place(|| Handle::current().block_on(other)).unwrap()
        });
        task.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn panicking_work_is_an_internal_error() {
        let panicked = run_blocking(|| -> Result<()> { panic!("on purpose") }).await;
        assert_eq!(panicked.unwrap_err().code(), forebay_core::ErrorCode::Internal);
    }

    #[tokio::test]
    async fn single_threaded_runtime_runs_the_work_itself() {
        let test_thread = thread::current().id();
        assert_eq!(run_blocking(|| Ok(thread::current().id())).await.unwrap(), test_thread);
        assert_eq!(block_in_place(|| thread::current().id()), test_thread);
    }
}
