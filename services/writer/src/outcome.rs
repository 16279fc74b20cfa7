//! Source of the outcomes of conditional changes: a replica decides them, never the writer.

use std::time::Duration;

use async_trait::async_trait;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence};
use forebay_core::outcome::Verdict;

/// A replica's knowledge of the outcomes of conditional changes.
#[async_trait]
pub trait Outcomes: Send + Sync + 'static {
    /// Returns the verdict on this client's change, which the log holds at `position`; waits until
    /// the replica has applied it. `None` if no replica answers in time, or the outcome is no
    /// longer retained.
    async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict>;
}

/// Outcomes of a writer that reaches no replica: every conditional change ends as an unknown
/// outcome.
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
