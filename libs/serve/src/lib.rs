//! What every service process does around its gRPC services: settings, listening, draining, its
//! memory, threads that let others go first, and the processes that share the partitions with it.

mod background;
mod data_dir;
mod kafka;
mod peers;

use std::net::SocketAddr;
use std::time::Duration;

use forebay_core::{Error, Result};
use tikv_jemallocator::Jemalloc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tracing::{info, warn};

pub use background::Background;
pub use data_dir::DataDir;
pub use kafka::KafkaSettings;
pub use peers::{Owner, Peers, forwarded, is_forwarded};

/// Every service has this allocator: they make and drop many values of a few bytes on many threads,
/// and the C library's took a fifth of a node's time under a load of events, and more memory.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Longest wait for open requests while draining; what is open then is cut.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// Runs a service on a runtime of its own until it ends.
///
/// # Errors
/// The service's; `Internal` when there is no runtime.
pub fn run(service: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("start the runtime: {error}")))?;
    runtime.block_on(service)
}

/// Refuses to listen where others than this host can connect.
///
/// # Errors
/// `InvalidArgument`, saying what to set.
pub fn check_loopback(program: &str, listen: SocketAddr) -> Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "`{program}` has no TLS and no authentication, so it listens on loopback only, not on {}; \
         set listen to 127.0.0.1:{}",
        listen.ip(),
        listen.port()
    );
    Err(Error::invalid_argument(message))
}

/// Listens; answers the address, which has a port also where any was asked for.
///
/// # Errors
/// `Unavailable` when the address is taken.
pub async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Error::unavailable(format!("listen on {listen}: {error}; choose another --listen"))
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Error::internal(format!("ask for the listening address: {error}")))?;
    Ok((listener, address))
}

/// Serves until `ended`, then takes no more connections, calls `drain`, which ends the streams that
/// never end by themselves, and waits a bounded time for the calls in flight.
///
/// # Errors
/// Those of `ended`; what is in flight is cut then.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    ended: impl Future<Output = Result<()>>,
    drain: impl FnOnce(),
) -> Result<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_routes(routes).serve_with_incoming_shutdown(
        TcpIncoming::from(listener).with_nodelay(Some(true)),
        // A sender that is gone says the same.
        async { drop(stopped.await) },
    );
    let server = tokio::spawn(server);
    ended.await?;
    info!("draining");
    drop(stop);
    drain();
    match tokio::time::timeout(DRAIN_WAIT, server).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => warn!(%error, "the server ended badly"),
        Ok(Err(error)) => warn!(%error, "the server's task ended badly"),
        Err(_) => info!("open requests were cut"),
    }
    Ok(())
}

/// SIGTERM and SIGINT, heard from now on: a process listens before it says that it is ready, else
/// a signal right after would end it undrained.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// `Internal` when signals cannot be heard.
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| Error::internal(format!("listen for signals: {error}")))
        };
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Returns at the first of them: how a service ends that nothing else ends, so never an error.
    pub async fn received(mut self) -> Result<()> {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_is_refused_with_what_to_set() {
        let refused = check_loopback("forebay-x", SocketAddr::from(([0, 0, 0, 0], 7071)));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("forebay-x") && message.contains("127.0.0.1:7071"), "{message}");
        assert!(check_loopback("forebay-x", SocketAddr::from(([127, 0, 0, 1], 0))).is_ok());
    }

    #[tokio::test]
    async fn a_taken_port_is_refused_with_what_to_set() {
        let (_listener, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let message = bind(address).await.unwrap_err().to_string();
        assert!(message.contains("--listen"), "{message}");
    }
}
