//! `forebayd dev`: a node on the embedded log or on Kafka, behind one loopback port.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::{Error, Result};
use forebayd::config::DevConfig;
use forebayd::{Node, NodeParts};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tracing::{info, warn};

use crate::change_log::{OpenLog, describe};

/// Longest wait for open requests after SIGTERM; what is open then is cut.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When the log cannot be opened or the port is taken; says what to do.
pub(crate) fn run(config: DevConfig) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("start the runtime: {error}")))?;
    runtime.block_on(serve(config))
}

async fn serve(config: DevConfig) -> Result<()> {
    let log = OpenLog::open(&config).await?;
    let parts = NodeParts {
        log: log.log(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
    };
    let node = Node::start(parts).await?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        let message = format!("listen on {}: {error}; choose another --listen", config.listen);
        Error::unavailable(message)
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Error::internal(format!("ask for the listening address: {error}")))?;
    let stopping = Arc::new(tokio::sync::Notify::new());
    let stopped = Arc::clone(&stopping);
    let server = Server::builder().add_routes(node.routes()).serve_with_incoming_shutdown(
        TcpIncoming::from(listener).with_nodelay(Some(true)),
        async move { stopped.notified().await },
    );
    let server = tokio::spawn(server);
    greet(&config, &address.to_string());
    tokio::select! {
        signal = wait_for_signal() => signal?,
        error = log.failed() => return Err(error),
    }
    info!("draining");
    stopping.notify_one();
    node.drain();
    match tokio::time::timeout(DRAIN_WAIT, server).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => warn!(%error, "the server ended badly"),
        Ok(Err(error)) => warn!(%error, "the server's task ended badly"),
        Err(_) => info!("open requests were cut"),
    }
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

async fn wait_for_signal() -> Result<()> {
    let listen = |kind| {
        signal(kind).map_err(|error| Error::internal(format!("listen for signals: {error}")))
    };
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
