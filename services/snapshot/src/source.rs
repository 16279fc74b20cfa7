//! Where the shards are that snapshots are made of.

use async_trait::async_trait;
use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_log::KafkaOwners;

/// Finds the replicator that has a shard.
#[async_trait]
pub trait FindReplicator: Send + Sync + 'static {
    /// `host:port` of the one that has the shard of this partition now.
    ///
    /// # Errors
    /// `Unavailable` where nobody has it, or that cannot be known.
    async fn address(&self, at: PartitionRef) -> Result<String>;
}

/// One replicator has all shards.
#[async_trait]
impl FindReplicator for String {
    async fn address(&self, _at: PartitionRef) -> Result<String> {
        Ok(self.clone())
    }
}

/// The group of the replicators knows.
#[async_trait]
impl FindReplicator for KafkaOwners {
    async fn address(&self, at: PartitionRef) -> Result<String> {
        let owner = self.owner(at).await?.ok_or_else(|| {
            let message = "no replicator has the partition at the moment; try again";
            Error::unavailable(message).with_partition(at.partition)
        })?;
        Ok(owner.split_once('@').map_or(owner.as_str(), |(_, address)| address).to_owned())
    }
}
