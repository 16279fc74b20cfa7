//! The end of a reader: said once, seen by every read, wait and task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// Whether a reader was closed.
#[derive(Debug)]
pub(crate) struct Closing {
    flag: AtomicBool,
    signal: watch::Sender<bool>,
    /// How many tails have not ended yet.
    running: watch::Sender<usize>,
}

/// One tail that has not ended; it ends when this goes.
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

    /// Closes; a second time changes nothing.
    pub(crate) fn close(&self) {
        self.flag.store(true, Ordering::Release);
        self.signal.send_replace(true);
    }

    /// Refuses what begins after the close.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn check(&self) -> Result<()> {
        if self.flag.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Returns when the reader is closed.
    pub(crate) async fn closed(&self) {
        // The sender lives as long as `self`, so the wait ends only with the signal.
        let _ = self.signal.subscribe().wait_for(|closed| *closed).await;
    }

    /// Counts a tail in.
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
