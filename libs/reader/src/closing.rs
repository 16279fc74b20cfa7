//! The end of a reader: said once, seen by every read, wait and task.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// Whether a reader was closed.
#[derive(Debug)]
pub(crate) struct Closing {
    flag: AtomicBool,
    signal: watch::Sender<bool>,
}

impl Closing {
    pub(crate) fn new() -> Self {
        Self { flag: AtomicBool::new(false), signal: watch::Sender::new(false) }
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
}

pub(crate) fn closed() -> Error {
    Error::closed("the reader was closed; open another one")
}
