//! `forebay-writer`: the writer service as a separate process, over Kafka. Any number of writers
//! may run at the same time. Loopback only.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_log::kafka::KafkaLog;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_serve::{KafkaSettings, Signals, bind, check_loopback, serve};
use forebay_wire::v1::writer_server::WriterServer;
use forebay_writer_service::service::WriterService;
use forebay_writer_service::{NoOutcomes, Outcomes, RemoteOutcomes, Writer, WriterParts};
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-writer";

/// Checks, routes and appends changes; administers stores.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on; loopback only. Port 0 picks a free port.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7071")]
    listen: SocketAddr,
    /// `HOST:PORT` of the replicator that reports the outcomes of conditional changes. If it is not
    /// set, conditional changes end as unknown outcomes.
    #[arg(long, env = "FOREBAY_REPLICATOR")]
    replicator: Option<String>,
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let options = settings.kafka.options()?;
    let outcomes: Arc<dyn Outcomes> = match &settings.replicator {
        Some(address) => Arc::new(RemoteOutcomes::new(address)?),
        None => Arc::new(NoOutcomes),
    };
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(options).await?);
    let entropy = Arc::new(SystemEntropy);
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let writer = Arc::new(Writer::new(WriterParts { log, catalog, entropy, outcomes }));
    writer.start_repairs().await?;
    let service = WriterService::new(writer);
    let server = WriterServer::new(service.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (listener, address) = bind(settings.listen).await?;
    let signals = Signals::listen()?;
    println!("{PROGRAM} ready http://{address}");
    serve(listener, Routes::new(server), signals.received(), || service.end_streams()).await
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
