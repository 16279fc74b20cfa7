//! `forebay-snapshot`: builds snapshots of the partitions that the brokers assign to it, from the
//! shards of the replicators on the same brokers. Loopback only.

use std::process::ExitCode;
use std::sync::Arc;

use forebay_core::Result;
use forebay_runtime::Process;
use forebay_snapshot_service::{PROGRAM, SnapshotParts, SnapshotServiceSettings, SnapshotServices};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

async fn serve(settings: SnapshotServiceSettings) -> Result<()> {
    let (options, folders) = (settings.options()?, settings.folders().await?);
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    // This process stores nothing that would justify keeping its partitions over a restart.
    let instance = format!("{:016x}", process.context().entropy.next_u64()?);
    let group = process.join("snapshots", &instance)?;
    let (context, replicators) = (process.context(), Arc::new(group.owners_of("replicators")));
    let parts = SnapshotParts { context, replicators, snapshots: folders.snapshots, options };
    let services = SnapshotServices::start(parts, folders.backups, settings.scratch_dir());
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    process.run(Routes::new(health), &services).await
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
