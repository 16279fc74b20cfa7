//! The context of an index: the state that its readers and writers share.

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};

use crate::counters::Counters;
use crate::key::{KeyShape, SeededHash};
use crate::partition::Partition;
use crate::resources::Resources;
use crate::shared_copy::SharedCopyDirectory;

/// The state that readers and writers share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The store; the same id for every version of its documents.
    pub(crate) store: StoreId,
    pub(crate) shape: KeyShape,
    pub(crate) schemas: SchemaSet,
    /// The partitions, by id; `None` for a partition that is not followed.
    pub(crate) partitions: Box<[Option<Box<Partition>>]>,
    pub(crate) resources: Resources,
    pub(crate) counters: Counters,
    /// The hash by which copies that start here find keys.
    pub(crate) hash: SeededHash,
    /// The directory of the shared copies to read; `None` in an index of the process's own memory.
    pub(crate) shared_copies: Option<SharedCopyDirectory>,
}

impl Inner {
    /// Returns a partition that this index follows.
    pub(crate) fn followed(&self, id: PartitionId) -> Result<&Partition> {
        self.partition(id).ok_or_else(|| self.not_followed(id))
    }

    #[inline]
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn not_followed(&self, id: PartitionId) -> Error {
        let all = self.partitions.len();
        let followed: Vec<_> = self.followed_ids().map(|id| id.to_string()).collect();
        let message = format!(
            "this reader follows partitions {} of {all}; open a reader whose filter has this \
             partition",
            followed.join(", ")
        );
        Error::invalid_argument(message).with_partition(id)
    }

    pub(crate) fn followed_ids(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.iter().flatten().map(|partition| partition.at.partition)
    }
}
