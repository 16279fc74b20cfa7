//! State of this process alone: the runtime's threads, and everything that runs on them.
//!
//! A fork copies the process's memory but not its threads. Each runtime therefore belongs to one
//! process. An object that was opened before a fork returns `Closed` in the child instead of
//! waiting for threads that do not exist; the child does not even drop the object, because a lock
//! in it may be held by a thread that the fork did not copy. The child may open its own clients and
//! readers, and reopens a reader that shares a copy with other processes (`fork_aware_reader.rs`).

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use forebay::{Error, Result};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::error::CallError;

/// Longest wait between two checks for Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
/// Threads for the network and for applying changes; reads need none of them.
const RUNTIME_THREADS_MAX: usize = 4;

/// Number of forks in this process and its ancestors since they loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);
static RUNTIME: ArcSwapOption<ProcessRuntime> = ArcSwapOption::const_empty();

struct ProcessRuntime {
    pid: u32,
    runtime: Runtime,
}

/// Notes that this process is a forked child; `forebay` registers this function with `os`.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    crate::log::after_fork_in_child();
}

/// An object on this process's runtime, until it is closed.
pub(crate) struct ProcessOwned<T> {
    /// `None` only during the drop.
    slot: Option<ArcSwapOption<ProcessObject<T>>>,
    kind: &'static str,
}

/// An object, and the number of forks before its creation.
pub(crate) struct ProcessObject<T> {
    forks: u32,
    object: T,
}

impl<T> ProcessObject<T> {
    fn new(object: T) -> Arc<Self> {
        Arc::new(Self { forks: FORKS.load(Ordering::Relaxed), object })
    }

    fn is_inherited(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }
}

impl<T> Deref for ProcessObject<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T> ProcessOwned<T> {
    /// Wraps an object; messages name it by `kind`: "reader", "client".
    pub(crate) fn new(kind: &'static str, object: T) -> Self {
        Self { slot: Some(ArcSwapOption::new(Some(ProcessObject::new(object)))), kind }
    }

    /// Returns the object; writes nothing that another thread reads.
    ///
    /// # Errors
    /// `Closed` after [`ProcessOwned::take`] and in a forked child.
    pub(crate) fn get(&self) -> Result<ObjectGuard<T>> {
        let kind = self.kind;
        let owned = self
            .load()
            .ok_or_else(|| Error::closed(format!("the {kind} was closed; open another one")))?;
        if owned.process_object().is_inherited() {
            let message = format!(
                "this {kind} was opened before the process forked, and its threads are in the \
                 parent; open another one in the child"
            );
            return Err(Error::closed(message));
        }
        Ok(owned)
    }

    fn load(&self) -> Option<ObjectGuard<T>> {
        let slot_guard = self.slot.as_ref().map(|slot| slot.load());
        slot_guard.filter(|slot_guard| slot_guard.is_some()).map(ObjectGuard)
    }

    /// Returns whether the object is open and inherited from a parent.
    pub(crate) fn is_inherited(&self) -> bool {
        self.load().is_some_and(|owned| owned.process_object().is_inherited())
    }

    /// Replaces an object that is inherited from a parent by an object of this process. The new
    /// object is dropped if another thread has replaced or closed the old one before.
    pub(crate) fn replace_inherited(&self, object: T) {
        let (Some(slot), Some(before)) = (&self.slot, self.load()) else { return };
        if !before.process_object().is_inherited() {
            return;
        }
        let found = slot.compare_and_swap(&before.0, Some(ProcessObject::new(object)));
        if let Some(parents) = Guard::into_inner(found).filter(|found| found.is_inherited()) {
            std::mem::forget(parents);
        }
    }

    /// Takes the object out, permanently; `None` if it was taken before, or is inherited from a
    /// parent.
    pub(crate) fn take(&self) -> Option<Arc<ProcessObject<T>>> {
        let object = self.slot.as_ref()?.swap(None)?;
        if object.is_inherited() {
            std::mem::forget(object);
            return None;
        }
        Some(object)
    }
}

impl<T> Drop for ProcessOwned<T> {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(self.slot.take());
        }
    }
}

/// An object that cannot be freed while this is held.
pub(crate) struct ObjectGuard<T>(Guard<Option<Arc<ProcessObject<T>>>>);

impl<T> Deref for ObjectGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.process_object()
    }
}

impl<T> ObjectGuard<T> {
    fn process_object(&self) -> &Arc<ProcessObject<T>> {
        self.0.as_ref().expect("an empty slot is refused before it becomes this")
    }

    /// Returns the same object, to be held during a wait.
    pub(crate) fn to_arc(&self) -> Arc<ProcessObject<T>> {
        Arc::clone(self.process_object())
    }
}

/// Starts a future on this process's runtime.
///
/// # Errors
/// `Internal` if the runtime's threads cannot be started.
pub(crate) fn spawn(
    future: impl Future<Output = ()> + Send + 'static,
) -> Result<tokio::task::AbortHandle> {
    Ok(runtime()?.runtime.spawn(future).abort_handle())
}

/// Runs code inside this process's runtime, without a wait.
///
/// # Errors
/// `Internal` if the runtime's threads cannot be started.
pub(crate) fn run_within<T>(run: impl FnOnce() -> T) -> Result<T> {
    let process = runtime()?;
    let _entered = process.runtime.enter();
    Ok(run())
}

/// Waits for a future with the interpreter released; Ctrl-C and other signals end the wait.
///
/// # Errors
/// The exception of a signal handler, and `Internal` if there is no runtime.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send,
) -> Result<T, CallError> {
    wait_on(py, &runtime()?.runtime, future)
}

/// Works like [`wait`], for a future that needs no threads: of an in-memory reader, or its store.
/// The timer runs on the caller's thread.
///
/// # Errors
/// Errors of [`wait`].
pub(crate) fn wait_here<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send,
) -> Result<T, CallError> {
    let timer_runtime = Builder::new_current_thread().enable_time().build();
    let timer_runtime = timer_runtime.map_err(|error| {
        let message = format!("cannot make a timer ({error}); raise the process's limit");
        Error::new(forebay::ErrorCode::LimitExceeded, message)
    })?;
    wait_on(py, &timer_runtime, future)
}

fn wait_on<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    future: impl Future<Output = T> + Send,
) -> Result<T, CallError> {
    let mut future = pin!(future);
    loop {
        let slice = py.detach(|| {
            let slice = async { tokio::time::timeout(SIGNAL_CHECK, future.as_mut()).await };
            runtime.block_on(slice)
        });
        match slice {
            Ok(answer) => return Ok(answer),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Returns the runtime of this process. A runtime that is inherited from a parent is replaced,
/// never touched.
fn runtime() -> Result<Arc<ProcessRuntime>> {
    let pid = std::process::id();
    loop {
        let loaded = RUNTIME.load_full();
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.pid == pid) {
            return Ok(Arc::clone(loaded));
        }
        let new_process_runtime = Some(Arc::new(ProcessRuntime { pid, runtime: new_runtime()? }));
        let found = RUNTIME.compare_and_swap(&loaded, new_process_runtime);
        // Dropping a parent's runtime would wait for threads that the fork did not copy.
        if let Some(parents) = Guard::into_inner(found).filter(|found| found.pid != pid) {
            std::mem::forget(parents);
        }
        std::mem::forget(loaded);
    }
}

fn new_runtime() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(RUNTIME_THREADS_MAX);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name("forebay").enable_all().build().map_err(|error| {
        let message =
            format!("cannot start {threads} threads ({error}); raise the process's limit");
        Error::new(forebay::ErrorCode::LimitExceeded, message)
    })
}
