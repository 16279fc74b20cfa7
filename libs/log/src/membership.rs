//! Ownership of partitions among processes that share them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use tokio::sync::watch;

/// Partitions that a process owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionAssignment {
    /// All partitions, because the process is the only member.
    All,
    /// These partitions.
    Only(BTreeSet<PartitionRef>),
}

impl PartitionAssignment {
    /// Returns whether the process owns a partition.
    pub fn has(&self, at: PartitionRef) -> bool {
        match self {
            Self::All => true,
            Self::Only(partitions) => partitions.contains(&at),
        }
    }

    /// Returns the owned partitions of one store.
    pub fn of(&self, store: StoreId, count: PartitionCount) -> BTreeSet<PartitionId> {
        let is_ours =
            |partition: &PartitionId| self.has(PartitionRef { store, partition: *partition });
        count.partitions().filter(is_ours).collect()
    }
}

/// Membership of a process in the group that shares the partitions of a log.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// Returns the partitions that the process owns, now and after each change.
    fn assignment(&self) -> watch::Receiver<PartitionAssignment>;

    /// Subscribes to these stores and to no others.
    ///
    /// # Errors
    /// `Unavailable`; the next call tries again.
    fn subscribe(&self, stores: &BTreeSet<StoreId>) -> Result<()>;

    /// Returns the name of the process that owns a partition; `None` if the partition has no owner
    /// now.
    ///
    /// # Errors
    /// `Unavailable` if the owner cannot be determined.
    async fn owner(&self, at: PartitionRef) -> Result<Option<String>>;

    /// Acknowledges that this process has the duties of these partitions only, and has ended its
    /// duties for all others, so that another process may take those over.
    fn acknowledge_assignment(&self, assignment: &PartitionAssignment);
}

/// Membership of a process that is the only member.
pub struct SingleMember(watch::Sender<PartitionAssignment>);

impl Default for SingleMember {
    fn default() -> Self {
        Self(watch::Sender::new(PartitionAssignment::All))
    }
}

#[async_trait]
impl Membership for SingleMember {
    fn assignment(&self) -> watch::Receiver<PartitionAssignment> {
        self.0.subscribe()
    }

    fn subscribe(&self, _stores: &BTreeSet<StoreId>) -> Result<()> {
        Ok(())
    }

    async fn owner(&self, _at: PartitionRef) -> Result<Option<String>> {
        Ok(None)
    }

    fn acknowledge_assignment(&self, _assignment: &PartitionAssignment) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_selects_the_partitions_of_each_store() {
        let (first, second) = (StoreId(1), StoreId(2));
        let at = |store, partition| PartitionRef { store, partition: PartitionId(partition) };
        let assignment =
            PartitionAssignment::Only(BTreeSet::from([at(first, 2), at(first, 0), at(second, 1)]));
        assert_eq!(
            assignment.of(first, PartitionCount(4)),
            BTreeSet::from([0, 2].map(PartitionId))
        );
        assert_eq!(assignment.of(first, PartitionCount(2)), BTreeSet::from([PartitionId(0)]));
        assert!(assignment.of(StoreId(3), PartitionCount(4)).is_empty());
        assert_eq!(PartitionAssignment::All.of(first, PartitionCount(4)).len(), 4);
    }
}
