//! `forebay-features`: the features service as a separate process, over Kafka. Several processes
//! share the partitions of all views and of their streams: each derives and folds the partitions
//! that the brokers assign to it. Loopback only.

use std::process::ExitCode;

use clap::Parser;
use forebay_core::Result;
use forebay_features_service::{FeatureParts, FeatureServices, FeatureShards};
use forebay_runtime::{
    DataDir, DataSettings, ExportSettings, Process, ProcessSettings, ShardSettings,
    SnapshotSettings, SqlSettings,
};
use forebay_shard::Resources;
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PROGRAM: &str = "forebay-features";

/// Maintains feature views; stores, selects and exports the events of streams.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7074")))]
struct Settings {
    #[command(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    data: DataSettings,
    #[command(flatten)]
    shards: ShardSettings,
    #[command(flatten)]
    sql: SqlSettings,
    #[command(flatten)]
    snapshots: SnapshotSettings,
    #[command(flatten)]
    exports: ExportSettings,
}

async fn serve(settings: Settings) -> Result<()> {
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    let data_dir = &settings.data.data_dir;
    let held = DataDir::lock(data_dir, &*process.context().entropy)?;
    process.join("features", held.instance())?;
    let context = process.context().with_snapshots(settings.snapshots.open()?);
    let resources = Resources::new(settings.shards.memory_bytes())?;
    let resources = resources.with_direct_io(settings.shards.direct_io);
    let shards = FeatureShards::new(data_dir.join("features"), resources)
        .with_sql_memory(settings.sql.memory_bytes())
        .with_exports(settings.exports.open()?);
    let services = FeatureServices::start(FeatureParts { context, shards })?;
    let served = process.serve(services.add_to(Routes::default()), || {}).await;
    services.stop().await;
    served
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
