//! Work that waits for the disk, off the threads that serve.

use forebay_core::{Error, Result};

/// Does it where it may wait.
///
/// # Errors
/// Its own; `Internal` when it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("work on a shard broke off; see the log")))
}
