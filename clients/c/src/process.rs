//! The runtime that clients and readers of this process live on: two threads, started by the first
//! call that needs them. Local reads need none of them.

use std::future::Future;
use std::sync::OnceLock;

use forebay::{Error, ErrorCode, Result};
use tokio::runtime::{Builder, Runtime};

/// Threads for the network and for applying changes.
const RUNTIME_THREADS: usize = 2;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    silence();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(RUNTIME_THREADS).thread_name("forebay").enable_all();
    let made = builder.build().map_err(|error| {
        let message = format!("cannot start threads ({error}); raise the process's limit");
        Error::new(ErrorCode::LimitExceeded, message)
    })?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// A library never prints: what a panic says travels in the error that it becomes. The hook is this
/// library's own, for it brings its own standard library.
#[cfg(not(test))]
fn silence() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// The tests share a standard library with their harness, which wants to see panics.
#[cfg(test)]
fn silence() {}

/// Waits on the caller's thread for a future that ends by a deadline of its own.
///
/// # Errors
/// `LimitExceeded` when the runtime's threads cannot be started.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

/// As [`wait`], but for what needs no threads: a reader in memory, and its store. Its timer runs on
/// the caller's thread.
///
/// # Errors
/// `LimitExceeded` when the host has no room for a timer.
pub(crate) fn wait_here<T>(future: impl Future<Output = T>) -> Result<T> {
    let made = Builder::new_current_thread().enable_time().build();
    let made = made.map_err(|error| {
        let message = format!("cannot make a timer ({error}); raise the process's limit");
        Error::new(ErrorCode::LimitExceeded, message)
    })?;
    Ok(made.block_on(future))
}

/// Starts a future that nobody waits for.
///
/// # Errors
/// As [`wait`].
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let _inside = runtime()?.enter();
    tokio::spawn(future);
    Ok(())
}
