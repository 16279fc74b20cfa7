//! `forebay-features`: the features service as a separate process, over Kafka. Several processes
//! share the partitions of all views and of their streams: each derives and folds the partitions
//! that the brokers assign to it. Loopback only.

use std::process::ExitCode;

use forebay_core::Result;
use forebay_features_service::{FeatureParts, FeatureServices, FeatureSettings, PROGRAM};
use forebay_runtime::{DataDir, Process};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

async fn serve(settings: FeatureSettings) -> Result<()> {
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    let data_dir = DataDir::lock(&settings.data.data_dir, &*process.context().entropy)?;
    process.join("features", data_dir.instance())?;
    let context = process.context().with_snapshots(settings.snapshots.open()?);
    let services = FeatureServices::start(FeatureParts { context, shards: settings.shards()? })?;
    process.run(Routes::default(), &services).await
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
