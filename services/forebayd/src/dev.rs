//! `forebayd dev`: a node on the embedded log or on Kafka, on one loopback port.

use std::io::Write;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_runtime::{RoleServices, ServiceContext};
use forebay_snapshot_service::{SnapshotFolders, SnapshotServices};
use forebayd::config::DevSettings;
use forebayd::{Node, NodeParts, PROGRAM};
use tonic::service::Routes;
use tracing::info;

use crate::change_log::{OpenLog, describe};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error that says what to do if the log cannot be opened or the port is taken.
pub(crate) fn run(settings: DevSettings) -> Result<()> {
    forebay_runtime::run(serve(settings))
}

async fn serve(settings: DevSettings) -> Result<()> {
    let folders = settings.snapshot_folders()?;
    if let Some(folders) = &folders {
        folders.check().await?;
    }
    let log = OpenLog::open(&settings).await?;
    let served = serve_node(&settings, &log, folders).await;
    log.close().await;
    served?;
    info!("stopped");
    Ok(())
}

/// Serves a node on this log until a signal arrives or the log fails. A started node is stopped in
/// any case.
async fn serve_node(
    settings: &DevSettings,
    log: &OpenLog,
    folders: Option<SnapshotFolders>,
) -> Result<()> {
    let (snapshots, backups) = folders.map(|folders| (folders.snapshots, folders.backups)).unzip();
    let (resources, options) = (settings.shard_resources()?, settings.snapshot_options()?);
    let context = ServiceContext::start(log.log(), Arc::new(SystemClock), Arc::new(SystemEntropy));
    let parts = NodeParts {
        context: context.with_snapshots(snapshots),
        shards: Some(settings.shards(&resources)),
        features: Some(settings.features(&resources)?),
    };
    // Early connections wait until the node serves.
    let (listener, address) = forebay_runtime::bind(settings.listen.listen).await?;
    let (node, address) = (Node::start(parts).await?, address.to_string());
    let parts = node.snapshot_parts(&address, options);
    let scratch = settings.data.data_dir.clone();
    let snapshots = parts.map(|parts| SnapshotServices::start(parts, backups.flatten(), scratch));
    let serving = async {
        let signals = forebay_runtime::Signals::listen()?;
        let routes = snapshots.add_to(node.add_to(Routes::default()));
        greet(settings, &address);
        let ended = async {
            tokio::select! {
                received = signals.received() => received,
                error = log.failed() => Err(error),
            }
        };
        forebay_runtime::serve(listener, routes, ended, || node.drain()).await
    };
    let served = serving.await;
    snapshots.stop().await;
    node.stop().await;
    served
}

/// Prints the ready line, and a greeting for users.
fn greet(settings: &DevSettings, address: &str) {
    forebay_runtime::print_ready(PROGRAM, address);
    let mut out = std::io::stdout().lock();
    // A closed stdout does not stop the node.
    let _ = writeln!(
        out,
        "\n  log         {}\n  \
         try         make demo, or the first steps in README.md\n  stop        Ctrl-C, or SIGTERM",
        describe(settings)
    );
    let _ = out.flush();
}
