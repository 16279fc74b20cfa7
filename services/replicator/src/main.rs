//! `forebay-replicator`: the replicator as a process of its own, over Kafka. It has the duties of
//! every partition, so one runs at a time. Loopback only.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_log::kafka::KafkaLog;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_replicator_service::{
    ChangeStreamService, LogHeartbeats, Replicas, ReplicatorParts, ReplicatorService, change_stream,
};
use forebay_serve::{KafkaSettings, Signals, bind, check_loopback, serve};
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-replicator";

/// Serves the change stream; tells outcomes, beats, and keeps dead letters.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on; loopback only. Port 0 takes a free one.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7072")]
    listen: SocketAddr,
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let options = settings.kafka.options()?;
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(options).await?);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let stream = ChangeStreamService::new(Arc::clone(&log), clock.clone());
    let heartbeats = Arc::new(LogHeartbeats::new(Arc::clone(&log), entropy.clone()));
    let parts = ReplicatorParts { log, catalog, clock, entropy, heartbeats };
    let replicas = Arc::new(Replicas::follow(parts.clone()));
    let replicator = ReplicatorService::new(parts, Arc::clone(&replicas));
    let routes = Routes::new(replicator.into_server()).add_service(change_stream(stream.clone()));
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
