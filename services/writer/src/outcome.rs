//! Where the writer hears what became of a conditional change: from a replica, never from itself.

use std::time::Duration;

use async_trait::async_trait;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence};
use forebay_core::outcome::Verdict;

/// A replica's knowledge of outcomes.
#[async_trait]
pub trait Outcomes: Send + Sync + 'static {
    /// The verdict on this client's change, which the log holds at `position`; waits for the
    /// replica to apply it. `None`: no replica in time, or the outcome is no longer kept.
    async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict>;
}

/// For a writer without a replica in reach: every conditional change ends as an unknown outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOutcomes;

#[async_trait]
impl Outcomes for NoOutcomes {
    async fn verdict(
        &self,
        _at: PartitionRef,
        _position: Position,
        _change: (ClientId, Sequence),
        _wait_max: Duration,
    ) -> Option<Verdict> {
        None
    }
}
