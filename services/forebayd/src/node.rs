//! A node: all services of one process, without sockets and signals.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{ClientId, PartitionRef, Position, SchemaVersion, Sequence, StoreId};
use forebay_core::outcome::ConditionOutcome;
use forebay_features_service::{FeatureParts, FeatureServices, FeatureShards};
use forebay_replicator_service::{
    Heartbeats, Replicas, ReplicatorParts, ReplicatorServices, StoreMetrics,
};
use forebay_runtime::{RoleServices, ServiceContext};
use forebay_shard::ShardDirectory;
use forebay_snapshot_service::{SnapshotOptions, SnapshotParts};
use forebay_writer_service::{Outcomes, Writer, WriterServices};
use tonic::service::Routes;

/// Dependencies of a node; the simulator supplies its own.
#[derive(Clone)]
pub struct NodeParts {
    /// Dependencies that all services share.
    pub context: ServiceContext,
    /// Directory of the shards; `None` holds documents in memory.
    pub shards: Option<ShardDirectory>,
    /// Storage of feature views; `None` disables feature views at this node.
    pub features: Option<FeatureShards>,
}

/// A running node. Dropping it stops its tasks.
pub struct Node {
    context: ServiceContext,
    writer: WriterServices,
    replicator: ReplicatorServices,
    features: Option<FeatureServices>,
}

impl Node {
    /// Starts a node: opens the control log if it is new, finishes the definition changes that a
    /// crashed writer may have left, and begins to follow every store.
    ///
    /// # Errors
    /// As the log's reads and appends.
    pub async fn start(parts: NodeParts) -> Result<Self> {
        let NodeParts { context, shards, features } = parts;
        let replicas = Arc::new(OnceLock::new());
        let outcomes = Arc::new(ReplicaOutcomes(Arc::clone(&replicas)));
        let writer = Arc::new(Writer::new(context.clone(), outcomes));
        let heartbeats = Arc::new(WriterHeartbeats(Arc::clone(&writer)));
        let parts = ReplicatorParts { context: context.clone(), heartbeats, shards };
        let replicator = ReplicatorServices::start(parts, 0);
        replicas.get_or_init(|| Arc::downgrade(replicator.replicas()));
        let writer = WriterServices::start(writer).await?;
        let start =
            |shards| FeatureServices::start(FeatureParts { context: context.clone(), shards });
        let features = features.map(start).transpose()?;
        Ok(Self { context, writer, replicator, features })
    }

    /// Returns the dependencies of a snapshot service of the node's shards, which this address
    /// serves. Returns `None` if no folder for snapshots is configured.
    pub fn snapshot_parts(&self, address: &str, options: SnapshotOptions) -> Option<SnapshotParts> {
        let (context, replicators) = (self.context.clone(), Arc::new(address.to_owned()));
        let snapshots = context.snapshots.clone()?;
        Some(SnapshotParts { context, replicators, snapshots, options })
    }

    /// Returns the metrics of a store's replica; `None` before the replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        self.replicator.replicas().metrics(store)
    }
}

/// The services of all roles of the node.
impl RoleServices for Node {
    fn add_to(&self, routes: Routes) -> Routes {
        self.features.add_to(self.replicator.add_to(self.writer.add_to(routes)))
    }

    fn drain(&self) {
        self.writer.drain();
        self.replicator.drain();
    }

    /// Stops following and closes all shards. Every acknowledged write is in the log.
    async fn stop(&self) {
        tokio::join!(self.features.stop(), self.replicator.stop());
    }
}

/// Heartbeats that the node's own writer appends, so that the writer sees each log grow.
struct WriterHeartbeats(Arc<Writer>);

#[async_trait]
impl Heartbeats for WriterHeartbeats {
    async fn append(&self, at: PartitionRef, version: SchemaVersion) -> Result<()> {
        let entry = Entry::original(self.0.log_id(at).await?, version, EntryBody::Heartbeat);
        self.0.append(at, &entry).await.map(|_| ())
    }
}

/// Outcomes from the node's own replicas. The replicas start after the writer that queries them,
/// because they append through that writer.
struct ReplicaOutcomes(Arc<OnceLock<Weak<Replicas>>>);

#[async_trait]
impl Outcomes for ReplicaOutcomes {
    async fn condition_outcome(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<ConditionOutcome> {
        let replicas = self.0.get()?.upgrade()?;
        replicas.condition_outcome(at, position, change, wait_max).await
    }
}
