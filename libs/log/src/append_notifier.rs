//! The end of one partition's log, as a signal for readers that wait for appends.

use std::time::Duration;

use forebay_core::id::Offset;
use tokio::sync::watch;

/// The readable end of a log; readers at the end wait for the signal instead of polling.
#[derive(Debug)]
pub(crate) struct AppendNotifier(watch::Sender<Option<Offset>>);

impl AppendNotifier {
    pub(crate) fn new(end: Offset) -> Self {
        Self(watch::Sender::new(Some(end)))
    }

    /// Wakes the readers that wait for the log to pass an offset below `end`.
    pub(crate) fn advance(&self, end: Offset) {
        self.0.send_replace(Some(end));
    }

    /// Wakes all readers: the log was deleted.
    pub(crate) fn note_deleted(&self) {
        self.0.send_replace(None);
    }

    /// Returns when the log has passed `from`, when it is gone, or after `wait_max`.
    pub(crate) async fn wait_past(&self, from: Offset, wait_max: Duration) {
        let mut receiver = self.0.subscribe();
        let wait = receiver.wait_for(|end| end.is_none_or(|end| end > from));
        // In every case the caller reads again and sees the current state.
        let _ = tokio::time::timeout(wait_max, wait).await;
    }
}
