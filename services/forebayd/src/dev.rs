//! `forebayd dev`: a node on the embedded log or on Kafka, on one loopback port.

use std::io::Write;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_runtime::ServiceContext;
use forebay_snapshot_service::{BackupService, PushService};
use forebayd::config::DevSettings;
use forebayd::{Node, NodeParts};
use tracing::info;

use crate::PROGRAM;
use crate::change_log::{OpenLog, describe};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error that says what to do if the log cannot be opened or the port is taken.
pub(crate) fn run(settings: DevSettings) -> Result<()> {
    forebay_runtime::run(serve(settings))
}

async fn serve(settings: DevSettings) -> Result<()> {
    let log = OpenLog::open(&settings).await?;
    let resources = settings.shard_resources()?;
    let context = ServiceContext::start(log.log(), Arc::new(SystemClock), Arc::new(SystemEntropy));
    let parts = NodeParts {
        context: context.with_snapshots(settings.snapshot_store()?),
        shards: Some(settings.shards(&resources)),
        features: Some(settings.features(&resources)?),
    };
    let node = Node::start(parts).await?;
    let (listener, address) = forebay_runtime::bind(settings.listen.listen).await?;
    let signals = forebay_runtime::Signals::listen()?;
    let (options, own) = (settings.snapshot_options()?, address.to_string());
    let snapshots = node.keep_snapshots(&own, options.clone());
    let scratch = &settings.data.data_dir;
    let backups = settings
        .backup_store()?
        .and_then(|backups| node.backup_parts(&own, options.clone(), backups, scratch));
    let pushes = node.push_parts(&own, options, scratch);
    let mut routes = node.routes();
    if let Some(parts) = backups {
        routes = routes.add_service(BackupService::new(parts).into_server());
    }
    if let Some(parts) = pushes {
        routes = routes.add_service(PushService::new(parts).into_server());
    }
    greet(&settings, &own);
    let ended = async {
        tokio::select! {
            received = signals.received() => received,
            error = log.failed() => Err(error),
        }
    };
    forebay_runtime::serve(listener, routes, ended, || node.drain()).await?;
    drop(snapshots);
    node.stop().await;
    log.close().await;
    info!("stopped");
    Ok(())
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
