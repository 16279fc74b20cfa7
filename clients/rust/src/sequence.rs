//! The sequences of one client in one partition: dense from 1, and assigned so that no two
//! unresolved sequences are a de-duplication window apart (section 3 of
//! `tools/docs/src/semantics.md`).
//!
//! A sequence is unresolved from its assignment until its [`Ticket`] is dropped: then its outcome
//! is known, or the client will not send the write again. A caller that would open too wide a span
//! waits; callers are served in order of arrival.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::id::Sequence;
use forebay_core::limits::DEDUP_WINDOW;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Most sequences that can be unresolved together.
pub(crate) const WINDOW_SEQUENCES_MAX: usize = DEDUP_WINDOW as usize;

/// The sequences of one partition.
#[derive(Debug, Default)]
pub(crate) struct SequenceWindow {
    /// Lock of the caller that waits for space in the window; the lock is fair, so no caller
    /// starves.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    unresolved: BTreeSet<u64>,
}

impl State {
    /// Assigns `count` sequences if they and all unresolved sequences fit one window.
    fn take(&mut self, count: usize) -> Option<std::ops::RangeInclusive<u64>> {
        let (first, last) = (self.last + 1, self.last + count as u64);
        let lowest = self.unresolved.first().copied().unwrap_or(first);
        if last - lowest >= DEDUP_WINDOW {
            return None;
        }
        self.last = last;
        self.unresolved.extend(first..=last);
        Some(first..=last)
    }
}

impl SequenceWindow {
    /// Returns the next `count` sequences, 1 to [`WINDOW_SEQUENCES_MAX`]; waits until they fit.
    ///
    /// Dropping the future assigns nothing.
    pub(crate) async fn reserve(self: &Arc<Self>, count: usize) -> Vec<Ticket> {
        assert!((1..=WINDOW_SEQUENCES_MAX).contains(&count), "{count} sequences fit no window");
        let _turn = self.turn.lock().await;
        loop {
            let freed = self.freed.notified();
            if let Some(sequences) = self.state.lock().take(count) {
                let ticket = |number| Ticket { window: Arc::clone(self), number };
                return sequences.map(ticket).collect();
            }
            freed.await;
        }
    }
}

/// An unresolved sequence; dropping it resolves the sequence.
#[derive(Debug)]
pub(crate) struct Ticket {
    window: Arc<SequenceWindow>,
    number: u64,
}

impl Ticket {
    /// Returns the sequence.
    pub(crate) fn sequence(&self) -> Sequence {
        Sequence(self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.window.state.lock().unresolved.remove(&self.number);
        self.window.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn numbers(tickets: &[Ticket]) -> Vec<u64> {
        tickets.iter().map(|ticket| ticket.sequence().0).collect()
    }

    #[tokio::test]
    async fn sequences_are_dense_from_one() {
        let window = Arc::new(SequenceWindow::default());
        assert_eq!(numbers(&window.reserve(3).await), [1, 2, 3]);
        assert_eq!(numbers(&window.reserve(2).await), [4, 5]);
    }

    #[tokio::test]
    async fn unresolved_sequences_are_never_a_window_apart() {
        let window = Arc::new(SequenceWindow::default());
        let mut reservation = window.reserve(1).await;
        reservation.extend(window.reserve(WINDOW_SEQUENCES_MAX - 1).await);
        assert_eq!(
            reservation.last().unwrap().sequence().0 - reservation[0].sequence().0,
            DEDUP_WINDOW - 1
        );
        // All but the first sequence are resolved; the first alone keeps the window from moving.
        let first = reservation.remove(0);
        drop(reservation);
        assert!(window.reserve(1).now_or_never().is_none());
        drop(first);
        assert_eq!(numbers(&window.reserve(1).await), [DEDUP_WINDOW + 1]);
    }

    #[tokio::test]
    async fn callers_are_served_in_order_and_a_large_request_does_not_starve() {
        let window = Arc::new(SequenceWindow::default());
        let reservation = window.reserve(1).await;
        let large = tokio::spawn({
            let window = Arc::clone(&window);
            async move { numbers(&window.reserve(WINDOW_SEQUENCES_MAX).await) }
        });
        tokio::task::yield_now().await;
        assert!(window.reserve(1).now_or_never().is_none(), "nobody overtakes the one who waits");
        drop(reservation);
        assert_eq!(large.await.unwrap()[0], 2);
    }

    #[tokio::test]
    async fn cancelled_caller_leaves_no_gap() {
        let window = Arc::new(SequenceWindow::default());
        let reservation = window.reserve(WINDOW_SEQUENCES_MAX).await;
        assert!(window.reserve(5).now_or_never().is_none());
        drop(reservation);
        assert_eq!(window.reserve(1).await[0].sequence().0, DEDUP_WINDOW + 1);
    }
}
