//! The shards of this process, for those who copy them.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use forebay_shard::Shard;

use super::source::FindShard;
use crate::replicas::{Replicas, ReplicatorParts};

/// Longest wait for a store's shards to be opened.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// The shards that replicas follow their logs into.
pub struct ReplicaShards {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
}

impl ReplicaShards {
    /// Those of these replicas, and of what they are made of.
    pub fn new(parts: ReplicatorParts, replicas: Arc<Replicas>) -> Self {
        Self { parts, replicas }
    }
}

#[tonic::async_trait]
impl FindShard for ReplicaShards {
    async fn find(
        &self,
        store: &str,
        kept_as: Option<StoreId>,
        partition: PartitionId,
    ) -> Result<Arc<Shard>> {
        let definition = self.parts.catalog.catalog().by_name(store)?.definition.clone();
        let at = PartitionRef { store: definition.store, partition };
        let located = |error: Error| error.with_store(store).with_partition(partition);
        if partition.0 >= definition.partitions.0 {
            let message = format!("the store has {} partitions, from 0", definition.partitions);
            return Err(located(Error::invalid_argument(message)));
        }
        let membership = &self.parts.membership;
        if !membership.assigned().borrow().has(at) {
            let owner = membership.owner(at).await.map_err(located)?;
            let message = match owner {
                Some(name) => format!("the shard is with {name}; copy it from there"),
                None => "no replicator has the shard at the moment; try again".to_owned(),
            };
            return Err(located(Error::unavailable(message)));
        }
        let opened = match kept_as {
            None => self.replicas.ordered(at.store, OPEN_WAIT).await,
            Some(id) if definition.versions.kept_as(id).is_some() => {
                self.replicas.version(id, OPEN_WAIT).await
            }
            Some(_) => {
                let message = "the store has no such version of its documents any more";
                return Err(located(Error::not_found(message)));
            }
        };
        let shard = opened.and_then(|(_, shards)| shards.shard(partition));
        shard.ok_or_else(|| {
            located(Error::unavailable("the shard is not open here at the moment; try again"))
        })
    }
}
