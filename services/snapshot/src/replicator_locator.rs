//! Locator of the replicators whose shards snapshots are built from.

use async_trait::async_trait;
use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_log::KafkaOwners;

/// Locator of the replicator that has a shard.
#[async_trait]
pub trait ReplicatorLocator: Send + Sync + 'static {
    /// Returns `host:port` of the replicator that has the shard of this partition now.
    ///
    /// # Errors
    /// `Unavailable` if no replicator has it, or the owner is unknown.
    async fn address(&self, at: PartitionRef) -> Result<String>;
}

/// The address of the only replicator, which has all shards.
#[async_trait]
impl ReplicatorLocator for String {
    async fn address(&self, _at: PartitionRef) -> Result<String> {
        Ok(self.clone())
    }
}

/// The owners in the replicators' consumer group.
#[async_trait]
impl ReplicatorLocator for KafkaOwners {
    async fn address(&self, at: PartitionRef) -> Result<String> {
        let owner = self.owner(at).await?.ok_or_else(|| {
            let message = "no replicator owns the partition at the moment; try again";
            Error::unavailable(message).with_partition(at.partition)
        })?;
        Ok(owner.split_once('@').map_or(owner.as_str(), |(_, address)| address).to_owned())
    }
}
