//! `forebay-replicator`: the replicator as a process of its own, over Kafka. It has the duties of
//! every partition, so one runs at a time. Loopback only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::SHARD_MEMORY_MIB;
use forebay_log::kafka::KafkaLog;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_replicator_service::{
    ChangeStreamService, LogHeartbeats, Replicas, ReplicatorParts, ReplicatorService, ShardService,
    change_stream,
};
use forebay_serve::{KafkaSettings, Signals, bind, check_loopback, serve};
use forebay_shard::{Resources, ShardDirectory};
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-replicator";

/// Serves ordered reads and the change stream; tells outcomes, beats, and keeps dead letters.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on; loopback only. Port 0 takes a free one.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7072")]
    listen: SocketAddr,
    /// Where its shards lie.
    #[arg(long, env = "FOREBAY_DATA_DIR", default_value = "forebay-data")]
    data_dir: PathBuf,
    /// MiB of memory for blocks of the shards' files and for writes that are not on disk yet.
    #[arg(long, env = "FOREBAY_SHARD_MEMORY_MIB", default_value_t = SHARD_MEMORY_MIB)]
    shard_memory_mib: u32,
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let options = settings.kafka.options()?;
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(options).await?);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let stream = ChangeStreamService::new(Arc::clone(&log), clock.clone());
    let heartbeats = Arc::new(LogHeartbeats::new(Arc::clone(&log), entropy.clone()));
    let resources = Resources::new((settings.shard_memory_mib as usize) << 20)?;
    let shards = Some(ShardDirectory::new(settings.data_dir.join("shards"), resources));
    let parts = ReplicatorParts { log, catalog, clock, entropy, heartbeats, shards };
    let replicas = Arc::new(Replicas::follow(parts.clone()));
    let ordered = ShardService::new(parts.clone(), Arc::clone(&replicas));
    let replicator = ReplicatorService::new(parts, Arc::clone(&replicas));
    let routes = Routes::new(replicator.into_server())
        .add_service(ordered.into_server())
        .add_service(change_stream(stream.clone()));
    let (listener, address) = bind(settings.listen).await?;
    let signals = Signals::listen()?;
    println!("{PROGRAM} ready http://{address}");
    let served = serve(listener, routes, signals.received(), || stream.end_streams()).await;
    replicas.stop();
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
