//! The local shards, for the copies that others make of them.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::{Error, Result};
use forebay_shard::Shard;

use super::source::FindShard;
use crate::parts::ReplicatorParts;
use crate::replicas::Replicas;

/// Longest wait until a store's shards are open.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// The shards of this process's replicas.
pub struct ReplicaShards {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
}

impl ReplicaShards {
    /// Creates the lookup over these replicas and their dependencies.
    pub fn new(parts: ReplicatorParts, replicas: Arc<Replicas>) -> Self {
        Self { parts, replicas }
    }
}

#[tonic::async_trait]
impl FindShard for ReplicaShards {
    async fn find(
        &self,
        store: &str,
        storage_id: Option<StoreId>,
        partition: PartitionId,
    ) -> Result<Arc<Shard>> {
        let definition =
            self.parts.context.catalog.catalog().document_store_by_name(store)?.definition.clone();
        let located = |error: Error| error.with_store(store).with_partition(partition);
        let storage_id =
            storage_id.unwrap_or_else(|| self.replicas.serving_version(definition.store));
        let logs = definition.versions.by_storage_id(storage_id).map(|version| version.logs);
        let logs = logs.ok_or_else(|| {
            let message = "the store no longer has this version; copy the live version";
            located(Error::not_found(message))
        })?;
        let at = logs.at(partition);
        if partition.0 >= logs.partitions.0 {
            let message =
                format!("the store has {} partitions, from 0; name one of these", logs.partitions);
            return Err(located(Error::invalid_argument(message)));
        }
        let membership = &self.parts.context.membership;
        if !membership.assignment().borrow().has(at) {
            let owner = membership.owner(at).await.map_err(located)?;
            let message = match owner {
                Some(name) => {
                    format!("the replicator {name} owns the shard; copy the shard from there")
                }
                None => "no replicator owns the shard at the moment; try again".to_owned(),
            };
            return Err(located(Error::unavailable(message)));
        }
        let opened = self.replicas.version(storage_id, OPEN_WAIT).await;
        let shard = opened.and_then(|(_, shards)| shards.shard(partition).ok());
        shard
            .ok_or_else(|| located(Error::unavailable("the shard is not open here yet; try again")))
    }
}
