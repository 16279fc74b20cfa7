//! A node: all services of one process, without sockets and signals.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{ClientId, Epoch, PartitionRef, Position, SchemaVersion, Sequence, StoreId};
use forebay_core::outcome::Verdict;
use forebay_features_service::{FeatureParts, FeatureServices, FeatureShards};
use forebay_replicator_service::{
    Heartbeats, Replicas, ReplicatorParts, ReplicatorServices, StoreMetrics,
};
use forebay_runtime::ServiceContext;
use forebay_shard::ShardDirectory;
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{BackupParts, PushParts, SnapshotOptions, SnapshotParts, Snapshots};
use forebay_writer_service::service::WriterService;
use forebay_writer_service::{Outcomes, Writer};
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
    writer: WriterService,
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
        writer.start_repairs().await?;
        let start =
            |shards| FeatureServices::start(FeatureParts { context: context.clone(), shards });
        let features = features.map(start).transpose()?;
        Ok(Self { context, writer: WriterService::new(writer), replicator, features })
    }

    /// Returns the gRPC services of this node.
    pub fn routes(&self) -> Routes {
        let routes = Routes::new(self.writer.clone().into_server());
        let routes = self.replicator.add_to(routes);
        match &self.features {
            Some(features) => features.add_to(routes),
            None => routes,
        }
    }

    /// Starts to build snapshots of the node's shards, which are served at this address. Returns
    /// `None` if no folder for snapshots is configured. Dropping the result ends the builds.
    pub fn keep_snapshots(&self, address: &str, options: SnapshotOptions) -> Option<Snapshots> {
        self.snapshot_parts(address, options).map(Snapshots::keep)
    }

    /// Returns the dependencies of the backup service. Backups go to `backups`; the shards are
    /// served at this address; a restore stores images in `scratch`. Returns `None` if no folder
    /// for snapshots is configured.
    pub fn backup_parts(
        &self,
        address: &str,
        options: SnapshotOptions,
        backups: SnapshotStore,
        scratch: &Path,
    ) -> Option<BackupParts> {
        let kept = self.snapshot_parts(address, options)?;
        Some(BackupParts { kept, backups, scratch: scratch.to_owned() })
    }

    /// Returns the dependencies of the push service. The shards of the stores are served at this
    /// address; a push stores rows in `scratch`. Returns `None` if no folder for snapshots is
    /// configured.
    pub fn push_parts(
        &self,
        address: &str,
        options: SnapshotOptions,
        scratch: &Path,
    ) -> Option<PushParts> {
        let kept = self.snapshot_parts(address, options)?;
        Some(PushParts { kept, scratch: scratch.to_owned() })
    }

    fn snapshot_parts(&self, address: &str, options: SnapshotOptions) -> Option<SnapshotParts> {
        let (context, replicators) = (self.context.clone(), Arc::new(address.to_owned()));
        let snapshots = context.snapshots.clone()?;
        Some(SnapshotParts { context, replicators, snapshots, options })
    }

    /// Returns the metrics of a store's replica; `None` before the replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        self.replicator.replicas().metrics(store)
    }

    /// Ends all streams, which never end by themselves; calls in flight continue.
    pub fn drain(&self) {
        self.writer.end_streams();
        self.replicator.drain();
    }

    /// Stops following and closes all shards, so that their folders may be removed on return. Every
    /// acknowledged write is in the log.
    pub async fn stop(&self) {
        let features = async {
            if let Some(features) = &self.features {
                features.stop().await;
            }
        };
        tokio::join!(features, self.replicator.stop());
    }
}

/// Heartbeats that the node's own writer appends, so that the writer sees each log grow.
struct WriterHeartbeats(Arc<Writer>);

#[async_trait]
impl Heartbeats for WriterHeartbeats {
    async fn append(&self, at: PartitionRef, version: SchemaVersion) -> Result<()> {
        let entry = Entry {
            log_id: self.0.log_id(at).await?,
            epoch: Epoch(0),
            schema_version: version,
            source: None,
            body: EntryBody::Heartbeat,
        };
        self.0.append(at, &entry).await.map(|_| ())
    }
}

/// Outcomes from the node's own replicas. The replicas start after the writer that queries them,
/// because they append through that writer.
struct ReplicaOutcomes(Arc<OnceLock<Weak<Replicas>>>);

#[async_trait]
impl Outcomes for ReplicaOutcomes {
    async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict> {
        let replicas = self.0.get()?.upgrade()?;
        replicas.verdict(at, position, change, wait_max).await
    }
}
