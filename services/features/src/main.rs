//! `forebay-features`: the features service as a separate process, over Kafka. Several processes
//! share the partitions of all views and of their streams: each derives and folds the partitions
//! that the brokers assign to it. Loopback only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::{SHARD_MEMORY_MIB, SQL_MEMORY_MIB};
use forebay_features_service::events::service::EventsService;
use forebay_features_service::export::service::ExportsService;
use forebay_features_service::service::FeaturesService;
use forebay_features_service::training::service::TrainingService;
use forebay_features_service::{FeatureParts, FeatureShards, Features, sql};
use forebay_log::{CatalogFollower, ChangeLog, KafkaGroup, KafkaLog};
use forebay_serve::{DataDir, KafkaSettings, Signals, bind, check_loopback, serve};
use forebay_shard::Resources;
use forebay_snapshot::SnapshotStore;
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-features";

/// Maintains feature views; stores, selects and exports the events of streams.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on; loopback only. Port 0 picks a free port.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7074")]
    listen: SocketAddr,
    /// Folder of the data of views and streams.
    #[arg(long, env = "FOREBAY_DATA_DIR", default_value = "forebay-data")]
    data_dir: PathBuf,
    /// Memory for cached blocks and write buffers of the shards, in MiB.
    #[arg(long, env = "FOREBAY_SHARD_MEMORY_MIB", default_value_t = SHARD_MEMORY_MIB)]
    shard_memory_mib: u32,
    /// Memory of all SQL statements together, in MiB.
    #[arg(long, env = "FOREBAY_SQL_MEMORY_MIB", default_value_t = SQL_MEMORY_MIB)]
    sql_memory_mib: u32,
    /// Bypass the page cache of the operating system when reading and writing shards.
    #[arg(long, env = "FOREBAY_DIRECT_IO")]
    direct_io: bool,
    /// Folder of snapshots from which looked-up stores bootstrap: file:///…, s3://…, az://… or
    /// gs://….
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    snapshots: Option<String>,
    /// Folder for exported streams, separate from all other data; without it, exports are disabled.
    #[arg(long, env = "FOREBAY_EXPORTS", value_name = "URL")]
    exports: Option<String>,
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let (listener, address) = bind(settings.listen).await?;
    let options = settings.kafka.options()?;
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(options.clone()).await?);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let held = DataDir::lock(&settings.data_dir, &*entropy)?;
    let name = format!("{PROGRAM}@{address}");
    let membership = Arc::new(KafkaGroup::join(&options, "features", &name, held.instance())?);
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let resources = Resources::new((settings.shard_memory_mib as usize) << 20)?;
    let resources = resources.with_direct_io(settings.direct_io);
    let shards = FeatureShards::new(settings.data_dir.join("features"), resources);
    let exports = settings.exports.as_deref().map(SnapshotStore::open).transpose()?;
    let shards = shards.with_sql_memory_mib(settings.sql_memory_mib).with_exports(exports);
    let snapshots = settings.snapshots.as_deref().map(SnapshotStore::open).transpose()?;
    let parts = FeatureParts { log, catalog, clock, entropy, membership, shards, snapshots };
    let features = Arc::new(Features::start(parts)?);
    let routes = Routes::new(FeaturesService::new(Arc::clone(&features)).into_server())
        .add_service(EventsService::new(Arc::clone(&features)).into_server())
        .add_service(ExportsService::new(Arc::clone(&features)).into_server())
        .add_service(TrainingService::new(Arc::clone(&features)).into_server())
        .add_service(sql::service(&features)?.into_server());
    let signals = Signals::listen()?;
    println!("{PROGRAM} ready http://{address}");
    let served = serve(listener, routes, signals.received(), || {}).await;
    features.stop().await;
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
