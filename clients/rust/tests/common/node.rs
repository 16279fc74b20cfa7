//! A node on loopback that can be killed and restarted on its address, over the same log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::limits::SHARD_MEMORY_BYTES_MIN;
use forebay_log::ChangeLog;
use forebay_runtime::{DataSettings, RoleServices, ServiceContext};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot_service::SnapshotServices;
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use forebayd::config::DevSettings;
use forebayd::{Node, NodeParts};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

static HOSTS: AtomicU8 = AtomicU8::new(1);

type OpenLog = dyn Fn() -> BoxFuture<'static, Arc<dyn ChangeLog>> + Send + Sync;

pub struct TestNode {
    surviving: SurvivingState,
    address: SocketAddr,
    /// Runtime of the node alone, so that a kill stops everything, in the middle of anything.
    runtime: Option<Runtime>,
}

/// The state that survives a kill.
#[derive(Clone)]
struct SurvivingState {
    open_log: Arc<OpenLog>,
    /// Directory of the node's shards.
    data: Arc<TempDir>,
    /// Snapshot settings of the node.
    config: DevSettings,
}

impl TestNode {
    /// Starts a node over the log that `open_log` opens, at each start and on the node's runtime.
    /// If a URL is given, the node stores snapshots there, a new one each second.
    pub async fn start<F>(
        snapshots: Option<&str>,
        open_log: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Arc<dyn ChangeLog>> + Send + 'static,
    {
        // Each node has its own loopback host, so that no other process takes the port while the
        // node is down.
        let host = HOSTS.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 1, host], 0));
        let open_log = Arc::new(move || -> BoxFuture<'static, _> { Box::pin(open_log()) });
        let data = Arc::new(tempfile::tempdir().unwrap());
        let snapshots = snapshots.map(str::to_owned);
        let mut config = DevSettings::default();
        config.snapshots.snapshots = snapshots;
        config.schedule.snapshot_interval = Duration::from_secs(1).into();
        let mut node =
            Self { surviving: SurvivingState { open_log, data, config }, address, runtime: None };
        node.restart().await;
        node
    }

    /// Kills the node, if it runs, and restarts it on the same address.
    pub async fn restart(&mut self) {
        self.kill();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ready, address) = oneshot::channel();
        runtime.spawn(self.surviving.clone().serve(self.address, ready));
        self.runtime = Some(runtime);
        self.address = address.await.unwrap();
    }

    /// Kills the node in the middle of its work; its socket is closed when this returns.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime may not be dropped by a thread that runs async code.
            std::thread::spawn(move || drop(runtime)).join().unwrap();
        }
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Pushes the files at a URL, which have the key in `id`, as a new version of a store; returns
    /// the number of the version.
    #[allow(dead_code)] // Some test binaries do not use this function.
    pub async fn push(&self, store: &str, files: &str, partitions: Option<u32>) -> u32 {
        let request = v1::PushFilesRequest {
            store: store.to_owned(),
            inputs: vec![files.to_owned()],
            key_column: "id".to_owned(),
            partitions,
            ..v1::PushFilesRequest::default()
        };
        let mut answers = self.pushes().push_files(request).await.unwrap().into_inner();
        let mut pushed_version = None;
        while let Some(answer) = answers.message().await.unwrap() {
            pushed_version = answer.pushed;
        }
        pushed_version.unwrap().version
    }

    /// Makes the version of this number live, so that reads answer from it.
    #[allow(dead_code)] // Some test binaries do not use this function.
    pub async fn activate_version(&self, store: &str, version: u32) {
        let request = v1::ActivateVersionRequest { store: store.to_owned(), version };
        self.pushes().activate_version(request).await.unwrap();
    }

    fn pushes(&self) -> PushesClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        PushesClient::new(endpoint.connect_lazy())
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kill();
    }
}

impl SurvivingState {
    async fn serve(self, address: SocketAddr, ready: oneshot::Sender<SocketAddr>) {
        let log = (self.open_log)().await;
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let resources = Resources::new(SHARD_MEMORY_BYTES_MIN).unwrap();
        let data_dir = self.data.path().to_owned();
        let data = DataSettings { data_dir };
        let features = DevSettings { data, ..self.config.clone() }.features(&resources).unwrap();
        let context = ServiceContext::start(log, Arc::new(SystemClock), Arc::new(SystemEntropy));
        let context = context.with_snapshots(self.config.snapshots.open().unwrap());
        let parts = NodeParts {
            context,
            shards: Some(ShardDirectory::new(self.data.path(), resources)),
            features: Some(features),
        };
        let node = loop {
            // A fault may hit the reads of a start; a supervisor would retry.
            match Node::start(parts.clone()).await {
                Ok(node) => break node,
                Err(error) if error.code().is_retryable() => {}
                Err(error) => panic!("start the node: {error}"),
            }
        };
        let options = self.config.snapshot_options().unwrap();
        let parts = node.snapshot_parts(&address.to_string(), options);
        let scratch = self.data.path().to_owned();
        let snapshots = parts.map(|parts| SnapshotServices::start(parts, None, scratch));
        ready.send(address).unwrap();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut server = Server::builder();
        let server = server.add_routes(snapshots.add_to(node.add_to(Routes::default())));
        server.serve_with_incoming(incoming).await.unwrap();
    }
}
