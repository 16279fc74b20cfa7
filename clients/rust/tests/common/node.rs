//! A node on loopback that can be killed and started again on its address, over the same log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::SHARD_MEMORY_BYTES_MIN;
use forebay_log::ChangeLog;
use forebay_shard::{Resources, ShardDirectory};
use forebayd::{Node, NodeParts};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

static HOSTS: AtomicU8 = AtomicU8::new(1);

type OpenLog = dyn Fn() -> BoxFuture<'static, Arc<dyn ChangeLog>> + Send + Sync;

pub struct TestNode {
    open_log: Arc<OpenLog>,
    address: SocketAddr,
    /// Where its shards lie.
    data: Arc<TempDir>,
    /// A runtime of its own, so that a kill takes everything with it, in the middle of anything.
    runtime: Option<Runtime>,
}

impl TestNode {
    /// Starts a node over the log that `open_log` opens, at each start and on the node's runtime.
    pub async fn start<F>(open_log: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Arc<dyn ChangeLog>> + Send + 'static,
    {
        // A host of its own: nobody else takes the port while the node is down.
        let host = HOSTS.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 1, host], 0));
        let open_log = Arc::new(move || -> BoxFuture<'static, _> { Box::pin(open_log()) });
        let data = Arc::new(tempfile::tempdir().unwrap());
        let mut node = Self { open_log, address, data, runtime: None };
        node.restart().await;
        node
    }

    /// Kills the node, if it runs, and starts it again on the same address.
    pub async fn restart(&mut self) {
        self.kill();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ready, address) = oneshot::channel();
        runtime.spawn(serve(self.open_log.clone(), self.address, self.data.clone(), ready));
        self.runtime = Some(runtime);
        self.address = address.await.unwrap();
    }

    /// Ends the node in the middle of whatever it does; its socket is closed when this returns.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime may not be dropped by a thread that runs async code.
            std::thread::spawn(move || drop(runtime)).join().unwrap();
        }
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(
    open_log: Arc<OpenLog>,
    address: SocketAddr,
    data: Arc<TempDir>,
    ready: oneshot::Sender<SocketAddr>,
) {
    let log = open_log().await;
    let listener = TcpListener::bind(address).await.unwrap();
    let shards = ShardDirectory::new(data.path(), Resources::new(SHARD_MEMORY_BYTES_MIN).unwrap());
    let parts = NodeParts {
        log,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        shards: Some(shards),
    };
    let node = loop {
        // A fault may hit what a start reads; a supervisor would try again.
        match Node::start(parts.clone()).await {
            Ok(node) => break node,
            Err(error) if error.code().is_retryable() => {}
            Err(error) => panic!("start the node: {error}"),
        }
    };
    ready.send(listener.local_addr().unwrap()).unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_routes(node.routes()).serve_with_incoming(incoming).await.unwrap();
}
