//! `forebay-writer`: the writer service as a separate process, over Kafka. Any number of writers
//! may run at the same time. Loopback only.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_runtime::{Process, ProcessSettings};
use forebay_writer_service::service::WriterService;
use forebay_writer_service::{NoOutcomes, Outcomes, RemoteOutcomes, Writer};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PROGRAM: &str = "forebay-writer";

/// Checks, routes and appends changes; administers stores.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7071")))]
struct Settings {
    #[command(flatten)]
    process: ProcessSettings,
    /// `HOST:PORT` of the replicator that reports the outcomes of conditional changes. If it is not
    /// set, conditional changes end as unknown outcomes.
    #[arg(long, env = "FOREBAY_REPLICATOR")]
    replicator: Option<String>,
}

async fn serve(settings: Settings) -> Result<()> {
    let outcomes: Arc<dyn Outcomes> = match &settings.replicator {
        Some(address) => Arc::new(RemoteOutcomes::new(address)?),
        None => Arc::new(NoOutcomes),
    };
    let process = Process::start(PROGRAM, &settings.process).await?;
    let writer = Arc::new(Writer::new(process.context(), outcomes));
    writer.start_repairs().await?;
    let service = WriterService::new(writer);
    let routes = Routes::new(service.clone().into_server());
    process.serve(routes, || service.end_streams()).await
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
