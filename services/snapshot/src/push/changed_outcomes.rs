//! Conditional changes whose outcomes differ between a pushed version and the previous one.

use std::collections::BTreeMap;

use forebay_core::id::{Offset, PartitionId};
use forebay_core::outcome::{ConditionOutcome, Outcome, OutcomeTable};
use forebay_core::state_rows::RestoredState;
use forebay_core::versions::StoreVersion;
use forebay_core::{Error, Result};
use tracing::warn;

use crate::await_replica::{VersionPartition, await_replica_state};
use crate::context::SnapshotParts;
use crate::repartition::forwarded_client;

/// A conditional change whose outcome in a pushed version differs from the outcome in the previous
/// version, which clients have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedOutcome {
    /// Partition of the change.
    pub partition: PartitionId,
    /// Outcome in the pushed version.
    pub outcome: Outcome,
}

/// Comparison of the outcomes in a pushed version with those in the previous one, as far as both
/// versions still have the outcomes. Missing outcomes do not prevent a push.
pub(super) struct OutcomeComparison<'v> {
    pub(super) parts: &'v SnapshotParts,
    /// Name of the store.
    pub(super) store: &'v str,
    pub(super) previous: &'v StoreVersion,
    pub(super) pushed: &'v StoreVersion,
}

impl OutcomeComparison<'_> {
    /// Returns the changed outcomes of two versions that follow the same logs, from these offsets
    /// on.
    pub(super) async fn in_same_logs(&self, start: &[Offset]) -> Vec<ChangedOutcome> {
        let mut changed = Vec::new();
        for (partition, start) in self.pushed.logs.partitions.partitions().zip(start) {
            let outcomes = async {
                let pushed = self.outcomes(self.pushed, partition).await?;
                Ok::<_, Error>((pushed, self.outcomes(self.previous, partition).await?))
            };
            match outcomes.await {
                Ok((pushed, previous)) => {
                    let later_outcomes = pushed.all().filter(|it| it.position.offset >= *start);
                    let differing_outcomes = later_outcomes.filter(|it| {
                        let other = previous.get(it.client, it.sequence);
                        other.is_some_and(|other| is_applied(it) != is_applied(&other))
                    });
                    let change =
                        |outcome: &Outcome| ChangedOutcome { partition, outcome: *outcome };
                    changed.extend(differing_outcomes.map(change));
                }
                Err(error) => self.warn(partition, &error),
            }
        }
        changed
    }

    /// Returns the changed outcomes of forwarded changes, which are reported as clients sent them
    /// to the old partitions.
    pub(super) async fn across_repartition(&self) -> Vec<ChangedOutcome> {
        let mut forwarded = BTreeMap::new();
        for partition in self.pushed.logs.partitions.partitions() {
            match self.outcomes(self.pushed, partition).await {
                Ok(pushed) => {
                    forwarded.extend(pushed.all().map(|it| ((it.client, it.sequence), *it)));
                }
                Err(error) => self.warn(partition, &error),
            }
        }
        let mut changed = Vec::new();
        for partition in self.previous.logs.partitions.partitions() {
            match self.outcomes(self.previous, partition).await {
                Ok(previous) => changed.extend(previous.all().filter_map(|other| {
                    let client = forwarded_client(other.client, self.previous.logs, partition);
                    let pushed = forwarded.get(&(client, other.sequence))?;
                    let outcome = Outcome { client: other.client, ..*pushed };
                    let is_changed = is_applied(pushed) != is_applied(other);
                    is_changed.then_some(ChangedOutcome { partition, outcome })
                })),
                Err(error) => self.warn(partition, &error),
            }
        }
        changed
    }

    fn warn(&self, partition: PartitionId, error: &Error) {
        warn!(store = self.store, %partition, %error, "changed outcomes not reported");
    }

    /// Returns the outcomes that a version retains, after it has applied all entries that a
    /// partition's log holds at the call.
    async fn outcomes(
        &self,
        version: &StoreVersion,
        partition: PartitionId,
    ) -> Result<OutcomeTable> {
        let StoreVersion { logs, storage_id, .. } = *version;
        let end = self.parts.context.log.bounds(logs.at(partition)).await?.end;
        let version_partition = VersionPartition { name: self.store, logs, storage_id, partition };
        let is_wanted = |found: &RestoredState| found.state.offset_applied >= end;
        Ok(await_replica_state(self.parts, version_partition, is_wanted).await?.outcomes)
    }
}

fn is_applied(outcome: &Outcome) -> bool {
    outcome.condition == ConditionOutcome::Applied
}
