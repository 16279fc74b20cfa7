//! The close of a replica: signalled once, seen by every read, wait and task.
//!
//! A read checks the signal on each call and takes no lock, so the signal has an atomic flag next
//! to its channel: `CancellationToken` of `tokio_util` locks a mutex in its check
//! (tools/decisions/0059).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// The close signal of a replica, and the count of its running tails.
#[derive(Debug)]
pub struct CloseSignal {
    flag: AtomicBool,
    signal: watch::Sender<bool>,
    /// Number of running tails.
    running: watch::Sender<usize>,
}

/// The registration of one running tail; the drop marks its end.
#[derive(Debug)]
pub struct TaskGuard(Arc<CloseSignal>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Default for CloseSignal {
    fn default() -> Self {
        Self::new()
    }
}

impl CloseSignal {
    /// Returns the signal of a replica that is open and has no tail yet.
    pub fn new() -> Self {
        let (signal, running) = (watch::Sender::new(false), watch::Sender::new(0));
        Self { flag: AtomicBool::new(false), signal, running }
    }

    /// Signals the close; a second call changes nothing.
    pub fn close(&self) {
        self.flag.store(true, Ordering::Release);
        self.signal.send_replace(true);
    }

    /// Refuses calls after the close.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.flag.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Returns when the replica is closed.
    pub async fn closed(&self) {
        // The sender lives as long as `self`, so the wait ends only with the signal.
        let _ = self.signal.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// Registers a running tail.
    pub fn enter(self: &Arc<Self>) -> TaskGuard {
        self.running.send_modify(|running| *running += 1);
        TaskGuard(Arc::clone(self))
    }

    /// Returns when every tail has ended.
    pub async fn ended(&self) {
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

/// Returns the error of calls after the close.
pub fn closed() -> Error {
    Error::closed("the reader was closed; open another one")
}
