//! `forebay-replicator`: the replicator as a separate process, over Kafka. Several replicators
//! share the partitions of all stores: each has the duties of the partitions that the brokers
//! assign to it. Loopback only.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_replicator_service::{LogHeartbeats, ReplicatorParts, ReplicatorServices};
use forebay_runtime::{
    CopySettings, DataDir, DataSettings, Process, ProcessSettings, ShardSettings, SnapshotSettings,
};
use forebay_shard::{Resources, ShardDirectory};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PROGRAM: &str = "forebay-replicator";

/// Serves ordered reads, outcomes and the change stream; appends heartbeats and dead letters.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7072")))]
struct Settings {
    #[command(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    data: DataSettings,
    #[command(flatten)]
    shards: ShardSettings,
    #[command(flatten)]
    copies: CopySettings,
    #[command(flatten)]
    snapshots: SnapshotSettings,
}

async fn serve(settings: Settings) -> Result<()> {
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    let data_dir = &settings.data.data_dir;
    let held = DataDir::lock(data_dir, &*process.context().entropy)?;
    process.join("replicators", held.instance())?;
    let context = process.context().with_snapshots(settings.snapshots.open()?);
    let appender = LogHeartbeats::new(Arc::clone(&context.log), Arc::clone(&context.entropy));
    let resources = Resources::new(settings.shards.memory_bytes())?;
    let resources = resources.with_direct_io(settings.shards.direct_io);
    let shards = Some(ShardDirectory::new(data_dir.join("shards"), resources));
    let parts = ReplicatorParts { context, heartbeats: Arc::new(appender), shards };
    let services = ReplicatorServices::start(parts, settings.copies.bytes_per_second());
    let routes = services.add_to(Routes::default());
    let served = process.serve(routes, || services.drain()).await;
    services.stop().await;
    served
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
