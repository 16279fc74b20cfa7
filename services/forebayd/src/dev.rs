//! `forebayd dev`: a node on the embedded log or on Kafka, behind one loopback port.

use std::io::Write;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebayd::config::DevConfig;
use forebayd::{Node, NodeParts};
use tracing::info;

use crate::change_log::{OpenLog, describe};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When the log cannot be opened or the port is taken; says what to do.
pub(crate) fn run(config: DevConfig) -> Result<()> {
    forebay_serve::run(serve(config))
}

async fn serve(config: DevConfig) -> Result<()> {
    let log = OpenLog::open(&config).await?;
    let parts = NodeParts {
        log: log.log(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        shards: Some(config.shards()?),
    };
    let node = Node::start(parts).await?;
    let (listener, address) = forebay_serve::bind(config.listen).await?;
    let signals = forebay_serve::Signals::listen()?;
    greet(&config, &address.to_string());
    let ended = async {
        tokio::select! {
            received = signals.received() => received,
            error = log.failed() => Err(error),
        }
    };
    forebay_serve::serve(listener, node.routes(), ended, || node.drain()).await?;
    node.stop();
    log.close().await;
    info!("stopped");
    Ok(())
}

/// The first line on stdout is for programs, the rest for people.
fn greet(config: &DevConfig, address: &str) {
    let mut out = std::io::stdout().lock();
    // A closed stdout is no reason to stop.
    let _ = writeln!(
        out,
        "forebayd ready http://{address}\n\n  log         {}\n  \
         try         make demo, or the first steps in README.md\n  stop        Ctrl-C, or SIGTERM",
        describe(config)
    );
    let _ = out.flush();
}
