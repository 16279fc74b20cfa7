//! The end of one partition's log as those see it who wait for it to move.

use std::time::Duration;

use forebay_core::id::Offset;
use tokio::sync::watch;

/// Publishes where a log ends; readers at the end wait here instead of asking again and again.
#[derive(Debug)]
pub(crate) struct EndSignal(watch::Sender<Option<Offset>>);

impl EndSignal {
    pub(crate) fn new(end: Offset) -> Self {
        Self(watch::Sender::new(Some(end)))
    }

    /// Wakes those who wait for the log to pass an offset below `end`.
    pub(crate) fn publish(&self, end: Offset) {
        self.0.send_replace(Some(end));
    }

    /// Wakes everybody: the log is gone.
    pub(crate) fn publish_deleted(&self) {
        self.0.send_replace(None);
    }

    /// Returns when the log has passed `from`, when it is gone, or after `wait_max`.
    pub(crate) async fn wait_past(&self, from: Offset, wait_max: Duration) {
        let mut receiver = self.0.subscribe();
        let passed = receiver.wait_for(|end| end.is_none_or(|end| end > from));
        // Either way the caller reads again and sees what is there now.
        let _ = tokio::time::timeout(wait_max, passed).await;
    }
}
