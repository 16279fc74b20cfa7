//! Work that takes long, or waits for the disk, without holding up other tasks.

use forebay_core::{Error, Result};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Works here; other tasks go on where the runtime has threads for them. Called on a spawned task
/// only, or where there is no runtime.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Works elsewhere, where there are threads for that.
///
/// # Errors
/// Those of the work; `Internal` where it panics.
pub async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("a chunk's work broke off; see the log")))
}
