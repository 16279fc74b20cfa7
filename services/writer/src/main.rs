//! `forebay-writer`: the writer service as a separate process, over Kafka. Any number of writers
//! may run at the same time. Loopback only.

use std::process::ExitCode;
use std::sync::Arc;

use forebay_core::Result;
use forebay_runtime::Process;
use forebay_writer_service::{PROGRAM, Writer, WriterServices, WriterSettings};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

async fn serve(settings: WriterSettings) -> Result<()> {
    let outcomes = settings.outcomes()?;
    let process = Process::start(PROGRAM, &settings.process).await?;
    let writer = Arc::new(Writer::new(process.context(), outcomes));
    let services = WriterServices::start(writer).await?;
    process.run(Routes::default(), &services).await
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
