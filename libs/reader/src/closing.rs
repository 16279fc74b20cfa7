//! The close of a reader: signalled once, seen by every read, wait and task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// The close signal of a reader, and the count of its running tails.
#[derive(Debug)]
pub(crate) struct Closing {
    flag: AtomicBool,
    signal: watch::Sender<bool>,
    /// Number of running tails.
    running: watch::Sender<usize>,
}

/// The registration of one running tail; the drop marks its end.
#[derive(Debug)]
pub(crate) struct Running(Arc<Closing>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Closing {
    pub(crate) fn new() -> Self {
        let (signal, running) = (watch::Sender::new(false), watch::Sender::new(0));
        Self { flag: AtomicBool::new(false), signal, running }
    }

    /// Signals the close; a second call changes nothing.
    pub(crate) fn close(&self) {
        self.flag.store(true, Ordering::Release);
        self.signal.send_replace(true);
    }

    /// Refuses calls after the close.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    pub(crate) fn check(&self) -> Result<()> {
        if self.flag.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Returns when the reader is closed.
    pub(crate) async fn closed(&self) {
        // The sender lives as long as `self`, so the wait ends only with the signal.
        let _ = self.signal.subscribe().wait_for(|closed| *closed).await;
    }

    /// Registers a running tail.
    pub(crate) fn enter(self: &Arc<Self>) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running(Arc::clone(self))
    }

    /// Returns when every tail has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

pub(crate) fn closed() -> Error {
    Error::closed("the reader was closed; open another one")
}
