//! `forebayd dev`: a node on the embedded log or on Kafka, on one loopback port.

use std::io::Write;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_snapshot_service::{BackupService, PushService};
use forebayd::config::DevConfig;
use forebayd::{Node, NodeParts};
use tracing::info;

use crate::change_log::{OpenLog, describe};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error that says what to do if the log cannot be opened or the port is taken.
pub(crate) fn run(config: DevConfig) -> Result<()> {
    forebay_serve::run(serve(config))
}

async fn serve(config: DevConfig) -> Result<()> {
    let log = OpenLog::open(&config).await?;
    let resources = config.shard_resources()?;
    let parts = NodeParts {
        log: log.log(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        shards: Some(config.shards(&resources)),
        snapshots: config.snapshot_store()?,
        features: Some(config.features(&resources)?),
    };
    let node = Node::start(parts).await?;
    let (listener, address) = forebay_serve::bind(config.listen).await?;
    let signals = forebay_serve::Signals::listen()?;
    let (options, own) = (config.snapshot_options()?, address.to_string());
    let snapshots = node.keep_snapshots(&own, options.clone());
    let backups = config
        .backup_store()?
        .and_then(|backups| node.backup_parts(&own, options.clone(), backups, &config.data_dir));
    let pushes = node.push_parts(&own, options, &config.data_dir);
    let mut routes = node.routes();
    if let Some(parts) = backups {
        routes = routes.add_service(BackupService::new(parts).into_server());
    }
    if let Some(parts) = pushes {
        routes = routes.add_service(PushService::new(parts).into_server());
    }
    greet(&config, &own);
    let ended = async {
        tokio::select! {
            received = signals.received() => received,
            error = log.failed() => Err(error),
        }
    };
    forebay_serve::serve(listener, routes, ended, || node.drain()).await?;
    drop(snapshots);
    node.stop().await;
    log.close().await;
    info!("stopped");
    Ok(())
}

/// Prints the greeting: its first line on stdout is for programs, the rest for users.
fn greet(config: &DevConfig, address: &str) {
    let mut out = std::io::stdout().lock();
    // A closed stdout does not stop the node.
    let _ = writeln!(
        out,
        "forebayd ready http://{address}\n\n  log         {}\n  \
         try         make demo, or the first steps in README.md\n  stop        Ctrl-C, or SIGTERM",
        describe(config)
    );
    let _ = out.flush();
}
