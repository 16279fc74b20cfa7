//! The runtime of all clients and readers of this process: two threads, started by the first call
//! that needs them. Local reads need no thread.

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
    let new_runtime = builder.build().map_err(|error| {
        let message = format!("cannot start threads ({error}); raise the process's limit");
        Error::new(ErrorCode::LimitExceeded, message)
    })?;
    Ok(RUNTIME.get_or_init(|| new_runtime))
}

/// Silences panics: the library never prints, and the message of a panic goes into the error of the
/// call. The hook affects only this library, which has its own copy of the standard library.
#[cfg(not(test))]
fn silence() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Does nothing: the tests share a standard library with their harness, which must print panics.
#[cfg(test)]
fn silence() {}

/// Waits on the caller's thread for a future that has its own deadline.
///
/// # Errors
/// `LimitExceeded` if the runtime's threads cannot be started.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

/// Works like [`wait`], for a future that needs no threads: of an in-memory reader, or its store.
/// The timer runs on the caller's thread.
///
/// # Errors
/// `LimitExceeded` if the host cannot create a timer.
pub(crate) fn wait_here<T>(future: impl Future<Output = T>) -> Result<T> {
    let timer_runtime = Builder::new_current_thread().enable_time().build();
    let timer_runtime = timer_runtime.map_err(|error| {
        let message = format!("cannot make a timer ({error}); raise the process's limit");
        Error::new(ErrorCode::LimitExceeded, message)
    })?;
    Ok(timer_runtime.block_on(future))
}

/// Starts a future whose end no caller awaits.
///
/// # Errors
/// Errors of [`wait`].
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let _inside = runtime()?.enter();
    tokio::spawn(future);
    Ok(())
}
