//! Runs work that blocks on the disk off the threads that serve requests.

use forebay_core::{Error, Result};

/// Runs `work` on a thread that may block.
///
/// # Errors
/// As `work`; `Internal` if it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("a task on a shard broke off; see the log")))
}
