//! Which process has the duties of which partitions, where several share them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use tokio::sync::watch;

/// The partitions that a process has the duties of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// All: it is alone.
    All,
    /// These.
    Only(BTreeSet<PartitionRef>),
}

impl Assigned {
    /// Whether a partition is among them.
    pub fn has(&self, at: PartitionRef) -> bool {
        match self {
            Self::All => true,
            Self::Only(ours) => ours.contains(&at),
        }
    }

    /// Those of one store.
    pub fn of(&self, store: StoreId, count: PartitionCount) -> BTreeSet<PartitionId> {
        let is_ours =
            |partition: &PartitionId| self.has(PartitionRef { store, partition: *partition });
        count.partitions().filter(is_ours).collect()
    }
}

/// A process's place among those that share the partitions of a log.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// What is this process's, now and from now on.
    fn assigned(&self) -> watch::Receiver<Assigned>;

    /// Takes part in these stores and in no others.
    ///
    /// # Errors
    /// `Unavailable`; it is tried again with the next call.
    fn take_part(&self, stores: &BTreeSet<StoreId>) -> Result<()>;

    /// The name of the process that has a partition; `None` where nobody has it now.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be known.
    async fn owner(&self, at: PartitionRef) -> Result<Option<String>>;

    /// Says that the duties of all other partitions than these have ended here: another process may
    /// take them up.
    fn note_held(&self, held: &Assigned);
}

/// The membership of a process that is alone.
pub struct Alone(watch::Sender<Assigned>);

impl Default for Alone {
    fn default() -> Self {
        Self(watch::Sender::new(Assigned::All))
    }
}

#[async_trait]
impl Membership for Alone {
    fn assigned(&self) -> watch::Receiver<Assigned> {
        self.0.subscribe()
    }

    fn take_part(&self, _stores: &BTreeSet<StoreId>) -> Result<()> {
        Ok(())
    }

    async fn owner(&self, _at: PartitionRef) -> Result<Option<String>> {
        Ok(None)
    }

    fn note_held(&self, _held: &Assigned) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_has_its_own_part() {
        let (one, other) = (StoreId(1), StoreId(2));
        let at = |store, partition| PartitionRef { store, partition: PartitionId(partition) };
        let some = Assigned::Only(BTreeSet::from([at(one, 2), at(one, 0), at(other, 1)]));
        assert_eq!(some.of(one, PartitionCount(4)), BTreeSet::from([0, 2].map(PartitionId)));
        assert_eq!(some.of(one, PartitionCount(2)), BTreeSet::from([PartitionId(0)]));
        assert!(some.of(StoreId(3), PartitionCount(4)).is_empty());
        assert_eq!(Assigned::All.of(one, PartitionCount(4)).len(), 4);
    }
}
