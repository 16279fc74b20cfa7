//! The gRPC server of a process: the services of its roles, listening, serving, draining.

use std::net::SocketAddr;
use std::time::Duration;

use forebay_core::{Error, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tracing::{info, warn};

/// Longest wait for open requests while draining; requests that are still open are cut off.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// The running gRPC services of a role, and the work behind them: the shape by which a process
/// serves, drains and stops its role.
pub trait RoleServices {
    /// Adds the services to those of a server.
    fn add_to(&self, routes: Routes) -> Routes;

    /// Ends all streams, which never end by themselves; calls in flight continue.
    fn drain(&self) {}

    /// Ends the work. A role with shards also closes their files, so that their folders may be
    /// removed on return.
    fn stop(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A role that a process may not have.
impl<S: RoleServices + Sync> RoleServices for Option<S> {
    fn add_to(&self, routes: Routes) -> Routes {
        match self {
            Some(services) => services.add_to(routes),
            None => routes,
        }
    }

    fn drain(&self) {
        if let Some(services) = self {
            services.drain();
        }
    }

    async fn stop(&self) {
        if let Some(services) = self {
            services.stop().await;
        }
    }
}

/// Refuses a listen address that other hosts can reach.
///
/// # Errors
/// `InvalidArgument`, with the setting to change.
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

/// Listens on an address, and returns it with the actual port, which matters if port 0 was
/// requested.
///
/// # Errors
/// `Unavailable` if the address is taken.
pub async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Error::unavailable(format!(
            "could not listen on {listen}: {error}; choose another --listen"
        ))
    })?;
    let address = listener.local_addr().map_err(|error| {
        Error::internal(format!("could not read the port of {listen}: {error}"))
    })?;
    Ok((listener, address))
}

/// Serves until `ended` completes, then drains in three steps:
///
/// 1. The server accepts no more connections.
/// 2. `drain` ends the streams that never end on their own.
/// 3. The server waits a bounded time for the calls in flight.
///
/// # Errors
/// The errors of `ended`; the calls in flight are cut off then.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    end: impl Future<Output = Result<()>>,
    drain: impl FnOnce(),
) -> Result<()> {
    let (stop, stop_signal) = oneshot::channel::<()>();
    let server = Server::builder().add_routes(routes).serve_with_incoming_shutdown(
        TcpIncoming::from(listener).with_nodelay(Some(true)),
        // A dropped sender means the same as a sent signal.
        async { drop(stop_signal.await) },
    );
    let server = tokio::spawn(server);
    end.await?;
    info!("draining");
    drop(stop);
    drain();
    match tokio::time::timeout(DRAIN_WAIT, server).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => warn!(%error, "the server failed while it drained"),
        Ok(Err(error)) => warn!(%error, "the server panicked while it drained"),
        Err(_) => info!("cut off requests that did not end in time"),
    }
    Ok(())
}

/// Handlers of SIGTERM and SIGINT. A process must install them before it reports that it is ready;
/// otherwise a signal right after the report would end the process without draining.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// `Internal` if the handlers cannot be installed.
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Error::internal(format!("could not install a signal handler: {error}"))
            })
        };
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Returns at the first signal, which is the regular end of a service and therefore never an
    /// error.
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
    fn address_beyond_loopback_is_refused_with_the_setting_to_use() {
        let result = check_loopback("forebay-x", SocketAddr::from(([0, 0, 0, 0], 7071)));
        let message = result.unwrap_err().to_string();
        assert!(message.contains("forebay-x") && message.contains("127.0.0.1:7071"), "{message}");
        assert!(check_loopback("forebay-x", SocketAddr::from(([127, 0, 0, 1], 0))).is_ok());
    }

    #[tokio::test]
    async fn port_in_use_is_refused_with_the_setting_to_use() {
        let (_listener, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let message = bind(address).await.unwrap_err().to_string();
        assert!(message.contains("--listen"), "{message}");
    }
}
