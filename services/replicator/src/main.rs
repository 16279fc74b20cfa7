//! `forebay-replicator`: the replicator as a separate process, over Kafka. Several replicators
//! share the partitions of all stores: each has the duties of the partitions that the brokers
//! assign to it. Loopback only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::SHARD_MEMORY_MIB;
use forebay_log::{CatalogFollower, ChangeLog, KafkaGroup, KafkaLog};
use forebay_replicator_service::{
    ChangeStreamService, CopySource, LogHeartbeats, ReplicaShards, Replicas, ReplicatorParts,
    ReplicatorService, ShardService, change_stream, health,
};
use forebay_serve::{DataDir, KafkaSettings, Signals, bind, check_loopback, serve};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::SnapshotStore;
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-replicator";

/// Serves ordered reads, outcomes and the change stream; appends heartbeats and dead letters.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on; loopback only. Port 0 picks a free port.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7072")]
    listen: SocketAddr,
    /// Folder of the shards.
    #[arg(long, env = "FOREBAY_DATA_DIR", default_value = "forebay-data")]
    data_dir: PathBuf,
    /// Memory for cached blocks and write buffers of the shards, in MiB.
    #[arg(long, env = "FOREBAY_SHARD_MEMORY_MIB", default_value_t = SHARD_MEMORY_MIB)]
    shard_memory_mib: u32,
    /// Maximum number of bytes per second for all copies of shards together; 0: no limit.
    #[arg(long, env = "FOREBAY_COPY_BYTES_PER_SECOND", default_value_t = 0)]
    copy_bytes_per_second: u64,
    /// Folder of snapshots from which shards bootstrap: file:///…, s3://…, az://… or gs://….
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    snapshots: Option<String>,
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let (listener, address) = bind(settings.listen).await?;
    let options = settings.kafka.options()?;
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(options.clone()).await?);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let held = DataDir::lock(&settings.data_dir, &*entropy)?;
    let name = format!("{PROGRAM}@{address}");
    let membership = KafkaGroup::join(&options, "replicators", &name, held.instance())?;
    let membership = Arc::new(membership);
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let stream = ChangeStreamService::new(Arc::clone(&log), clock.clone());
    let heartbeats = Arc::new(LogHeartbeats::new(Arc::clone(&log), entropy.clone()));
    let resources = Resources::new((settings.shard_memory_mib as usize) << 20)?;
    let directory = ShardDirectory::new(settings.data_dir.join("shards"), resources);
    let (frozen, shards) = (directory.exports(), Some(directory));
    let snapshots = settings.snapshots.as_deref().map(SnapshotStore::open).transpose()?;
    let parts =
        ReplicatorParts { log, catalog, clock, entropy, heartbeats, membership, shards, snapshots };
    let replicas = Arc::new(Replicas::follow(parts.clone()));
    let copied = Arc::new(ReplicaShards::new(parts.clone(), Arc::clone(&replicas)));
    let entropy = Arc::clone(&parts.entropy);
    let copies = CopySource::start(copied, frozen, entropy, settings.copy_bytes_per_second);
    let ordered = ShardService::new(parts.clone(), Arc::clone(&replicas));
    let replicator = ReplicatorService::new(parts.clone(), Arc::clone(&replicas));
    let routes = Routes::new(replicator.into_server())
        .add_service(ordered.into_server())
        .add_service(health(parts, &replicas))
        .add_service(copies.into_server())
        .add_service(change_stream(stream.clone()));
    let signals = Signals::listen()?;
    println!("{PROGRAM} ready http://{address}");
    let served = serve(listener, routes, signals.received(), || stream.end_streams()).await;
    replicas.stop().await;
    served
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match forebay_serve::run(run(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error}");
            ExitCode::FAILURE
        }
    }
}
