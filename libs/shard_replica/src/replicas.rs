//! The replicas of one store's partitions, for the follower of its logs and for readers, and the
//! dependencies of replicas and shards, from the context and the settings of a service.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase, ReplicaState};
use forebay_core::schema_set::SchemaSet;
use forebay_core::state_rows::{FollowState, RestoredState};
use forebay_core::{Error, Result};
use forebay_replica::{LogBarriers, OpenedReplica, ReplicaParts, Storage};
use forebay_runtime::{ServiceContext, ShardSettings};
use forebay_shard::{Resources, Shard};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::materializer::{Materializer, WrittenShard};
use crate::open_shards::{OpenShards, ShardFolder};
use crate::replica::ShardReplica;

/// Interval between two flushes of the shards. After a crash, unflushed entries are replayed from
/// the log.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Longest wait for the reads in flight that hold a shard of a service that stops.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The shards of one store in this process. Cheap to clone.
pub struct ShardReplicas<M: Materializer>(Arc<OpenShards<M>>);

impl<M: Materializer> Clone for ShardReplicas<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Materializer> ShardReplicas<M> {
    /// Creates the replicas of a store in a folder, with these definitions; no shard is open yet.
    /// `reopen` is notified once a disk has refused a write.
    pub fn new(
        materializer: M,
        schemas: SchemaSet,
        folder: ShardFolder,
        reopen: Arc<Notify>,
    ) -> Self {
        Self(Arc::new(OpenShards::new(materializer, schemas, folder, reopen)))
    }

    /// Returns the row format.
    pub fn materializer(&self) -> &M {
        &self.0.materializer
    }

    /// Returns the shard of a partition.
    ///
    /// # Errors
    /// `Unavailable` if the shard is not open here.
    pub fn shard(&self, partition: PartitionId) -> Result<Arc<Shard>> {
        let closed_error = || Error::unavailable("the partition is not open here yet; ask again");
        self.0.get(partition).ok_or_else(|| closed_error().with_partition(partition))
    }

    /// Returns the open shards.
    pub fn open_shards(&self) -> Vec<Arc<Shard>> {
        self.0.all()
    }

    /// Returns the shared state of each open partition.
    pub fn shared(&self) -> Vec<(PartitionId, Arc<M::Shared>)> {
        self.0.shared()
    }

    /// Returns whether a disk has refused a write. The shards must then be reopened: the data on
    /// disk is consistent, and the rest is in the log.
    pub fn have_failed(&self) -> bool {
        self.0.have_failed()
    }

    /// Forgets the records that a partition skipped up to this offset, whose dead letters are
    /// durable.
    pub fn forget_skipped(&self, partition: PartitionId, last_offset: Offset) {
        let Some(shard) = self.0.get(partition) else { return };
        if let Err(error) = shard.forget_skipped(last_offset) {
            // The replica reports the records again, and the copier finds them copied.
            debug!(at = %shard.partition(), %error, "dead letters not recorded");
        }
    }

    /// Flushes the shards periodically until the task is dropped.
    pub async fn flush_periodically(self) {
        loop {
            tokio::time::sleep(FLUSH_EVERY).await;
            self.0.materializer.drop_idle_views();
            let replicas = self.clone();
            if tokio::task::spawn_blocking(move || replicas.flush()).await.is_err() {
                return;
            }
        }
    }

    /// Flushes all shards; each shard waits only for its own disk writes.
    fn flush(&self) {
        for shard in self.open_shards() {
            if let Err(error) = shard.flush() {
                warn!(at = %shard.partition(), %error, "shard flush failed");
                self.0.note_failure(&error);
            }
        }
    }
}

impl<M: Materializer> Storage for ShardReplicas<M> {
    fn schemas(&self) -> &SchemaSet {
        &self.0.schemas
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedReplica> {
        let Some((writer, restored)) = self.0.resume(at)? else {
            let written_shard = WrittenShard::new(self.0.folder.create(at)?, true);
            let follow_state = FollowState { copy: 1, ..FollowState::default() };
            let replica = ShardReplica::open(Arc::clone(&self.0), written_shard, follow_state);
            return Ok(OpenedReplica::empty(Box::new(replica)));
        };
        let RestoredState { state, follow_state, outcomes, skipped, .. } = restored;
        let cursor = LogCursor {
            log_id: state.log_id,
            append_time: follow_state.append_time,
            clock_error_us: None,
            opened: follow_state.opened,
            drop_all_count: state.drop_all_count,
            copy: follow_state.copy,
        };
        let written_shard = WrittenShard::new(writer, false);
        let writer = Box::new(ShardReplica::open(Arc::clone(&self.0), written_shard, follow_state));
        let resumed = Some(ReplicaState { state, cursor, phase: Phase::Serving });
        Ok(OpenedReplica { writer, resumed, outcomes, skipped })
    }

    fn usage(&self, partition: PartitionId) -> PartitionUsage {
        let Some(shard) = self.0.get(partition) else { return PartitionUsage::default() };
        let (documents, row_bytes) = shard.estimate();
        PartitionUsage { documents, row_bytes, ..PartitionUsage::default() }
    }
}

/// Returns the dependencies of a replica of a service: the replica appends its barriers to the log
/// itself, and asks no replicator for shards.
pub fn replica_parts(context: &ServiceContext) -> ReplicaParts {
    let ServiceContext { log, catalog, clock, entropy, .. } = context.clone();
    let barriers = Arc::new(LogBarriers(Arc::clone(&log)));
    ReplicaParts { log, catalog, clock, entropy, barriers, replicator: None }
}

/// Returns the resources that all shards of a process share.
///
/// # Errors
/// As [`Resources::new`].
pub fn shard_resources(settings: &ShardSettings) -> Result<Resources> {
    Ok(Resources::new(settings.memory_bytes())?.with_direct_io(settings.direct_io))
}

/// Waits until all shards with these resources are closed, so that their folders may be removed. A
/// read that ends too late is logged.
pub async fn await_all_closed(resources: &Resources) {
    if tokio::time::timeout(CLOSE_WAIT_MAX, resources.all_closed()).await.is_err() {
        warn!("a shard is still open at the stop: a read in flight holds the shard");
    }
}
