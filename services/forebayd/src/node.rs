//! A node: all services of one process, without sockets and signals.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::{ClientId, Epoch, PartitionRef, Position, SchemaVersion, Sequence, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::outcome::Verdict;
use forebay_features_service::events::service::EventsService;
use forebay_features_service::export::service::ExportsService;
use forebay_features_service::service::FeaturesService;
use forebay_features_service::training::service::TrainingService;
use forebay_features_service::{FeatureParts, FeatureShards, Features, sql};
use forebay_log::{Alone, CatalogFollower, ChangeLog};
use forebay_query::FlightSql;
use forebay_replicator_service::{
    ChangeStreamService, CopySource, Heartbeats, ReplicaShards, Replicas, ReplicatorParts,
    ReplicatorService, ShardService, StoreMetrics, change_stream, health,
};
use forebay_shard::ShardDirectory;
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{BackupParts, PushParts, SnapshotOptions, SnapshotParts, Snapshots};
use forebay_wire::v1::writer_server::WriterServer;
use forebay_writer_service::service::WriterService;
use forebay_writer_service::{Outcomes, Writer, WriterParts};
use tonic::service::Routes;

/// Dependencies of a node; the simulator supplies its own.
#[derive(Clone)]
pub struct NodeParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness: ids, and the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Directory of the shards; `None` holds documents in memory.
    pub shards: Option<ShardDirectory>,
    /// Snapshots from which shards bootstrap.
    pub snapshots: Option<SnapshotStore>,
    /// Storage of feature views; `None` disables feature views at this node.
    pub features: Option<FeatureShards>,
}

/// A running node. Dropping it stops its tasks.
pub struct Node {
    writer: WriterService,
    change_stream: ChangeStreamService,
    replicator: ReplicatorService,
    ordered: ShardService,
    /// Dependencies of the replicas.
    parts: ReplicatorParts,
    /// Source of shard copies; `None` without shards.
    copies: Option<CopySource>,
    features: Option<ServedFeatures>,
    replicas: Arc<Replicas>,
}

impl Node {
    /// Starts a node: opens the control log if it is new, finishes the definition changes that a
    /// crashed writer may have left, and begins to follow every store.
    ///
    /// # Errors
    /// As the log's reads and appends.
    pub async fn start(parts: NodeParts) -> Result<Self> {
        let NodeParts { log, clock, entropy, shards, snapshots, features } = parts;
        let catalog = CatalogFollower::start(Arc::clone(&log), Arc::clone(&entropy));
        let catalog = Arc::new(catalog);
        let replicas = Arc::new(OnceLock::new());
        let writer = Arc::new(Writer::new(WriterParts {
            log: Arc::clone(&log),
            catalog: Arc::clone(&catalog),
            entropy: Arc::clone(&entropy),
            outcomes: Arc::new(ReplicaOutcomes(Arc::clone(&replicas))),
        }));
        let change_stream = ChangeStreamService::new(Arc::clone(&log), Arc::clone(&clock));
        let heartbeats = Arc::new(WriterHeartbeats(Arc::clone(&writer)));
        let membership = Arc::new(Alone::default());
        let parts = ReplicatorParts {
            log,
            catalog,
            clock,
            entropy,
            heartbeats,
            membership,
            shards,
            snapshots,
        };
        let followed = Arc::new(Replicas::follow(parts.clone()));
        replicas.get_or_init(|| Arc::downgrade(&followed));
        let ordered = ShardService::new(parts.clone(), Arc::clone(&followed));
        let copies = parts.shards.as_ref().map(|directory| {
            let shards = Arc::new(ReplicaShards::new(parts.clone(), Arc::clone(&followed)));
            CopySource::start(shards, directory.exports(), Arc::clone(&parts.entropy), 0)
        });
        let replicator = ReplicatorService::new(parts.clone(), Arc::clone(&followed));
        writer.start_repairs().await?;
        let features = features.map(|shards| ServedFeatures::start(&parts, shards)).transpose()?;
        let writer = WriterService::new(writer);
        let replicas = followed;
        Ok(Self { writer, change_stream, replicator, ordered, parts, copies, features, replicas })
    }

    /// Returns the gRPC services of this node.
    pub fn routes(&self) -> Routes {
        let writer = WriterServer::new(self.writer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let routes = Routes::new(writer)
            .add_service(change_stream(self.change_stream.clone()))
            .add_service(self.replicator.clone().into_server())
            .add_service(self.ordered.clone().into_server())
            .add_service(health(self.parts.clone(), &self.replicas));
        let routes = match &self.copies {
            Some(copies) => routes.add_service(copies.clone().into_server()),
            None => routes,
        };
        match &self.features {
            Some(ServedFeatures { features, sql }) => routes
                .add_service(FeaturesService::new(Arc::clone(features)).into_server())
                .add_service(EventsService::new(Arc::clone(features)).into_server())
                .add_service(ExportsService::new(Arc::clone(features)).into_server())
                .add_service(TrainingService::new(Arc::clone(features)).into_server())
                .add_service(sql.clone().into_server()),
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
        let (kept, clock) = (self.snapshot_parts(address, options)?, Arc::clone(&self.parts.clock));
        Some(BackupParts { kept, backups, clock, scratch: scratch.to_owned() })
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
        let (kept, clock) = (self.snapshot_parts(address, options)?, Arc::clone(&self.parts.clock));
        Some(PushParts { kept, clock, scratch: scratch.to_owned() })
    }

    fn snapshot_parts(&self, address: &str, options: SnapshotOptions) -> Option<SnapshotParts> {
        let ReplicatorParts { log, catalog, entropy, membership, snapshots, .. } =
            self.parts.clone();
        let (snapshots, replicators) = (snapshots?, Arc::new(address.to_owned()));
        Some(SnapshotParts { log, catalog, entropy, membership, replicators, snapshots, options })
    }

    /// Returns the metrics of a store's replica; `None` before the replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        self.replicas.metrics(store)
    }

    /// Ends all streams, which never end by themselves; calls in flight continue.
    pub fn drain(&self) {
        self.writer.end_streams();
        self.change_stream.end_streams();
    }

    /// Stops following and closes all shards, so that their folders may be removed on return. Every
    /// acknowledged write is in the log.
    pub async fn stop(&self) {
        let features = async {
            if let Some(served) = &self.features {
                served.features.stop().await;
            }
        };
        tokio::join!(features, self.replicas.stop());
    }
}

/// The feature views and streams of a node, and the SQL service over them.
struct ServedFeatures {
    features: Arc<Features>,
    sql: FlightSql,
}

impl ServedFeatures {
    /// Starts the feature views and streams of a node with these dependencies.
    fn start(parts: &ReplicatorParts, shards: FeatureShards) -> Result<Self> {
        let ReplicatorParts { log, catalog, clock, entropy, membership, snapshots, .. } =
            parts.clone();
        let parts = FeatureParts { log, catalog, clock, entropy, membership, shards, snapshots };
        let features = Arc::new(Features::start(parts)?);
        let sql = sql::service(&features)?;
        Ok(Self { features, sql })
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
