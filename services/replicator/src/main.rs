//! `forebay-replicator`: the replicator as a separate process, over Kafka. Several replicators
//! share the partitions of all stores: each has the duties of the partitions that the brokers
//! assign to it. Loopback only.

use std::process::ExitCode;
use std::sync::Arc;

use forebay_core::Result;
use forebay_replicator_service::{
    LogHeartbeats, PROGRAM, ReplicatorParts, ReplicatorServices, ReplicatorSettings,
};
use forebay_runtime::{DataDir, Process};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

async fn serve(settings: ReplicatorSettings) -> Result<()> {
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    let data_dir = DataDir::lock(&settings.data.data_dir, &*process.context().entropy)?;
    process.join("replicators", data_dir.instance())?;
    let context = process.context().with_snapshots(settings.snapshots.open()?);
    let heartbeats = Arc::new(LogHeartbeats::new(&context));
    let parts = ReplicatorParts { context, heartbeats, shards: Some(settings.shards()?) };
    let services = ReplicatorServices::start(parts, settings.copies.bytes_per_second());
    process.run(Routes::default(), &services).await
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
