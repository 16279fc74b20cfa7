//! A node in this process that is served over gRPC, over a log and shards that outlive it.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Client, ClientOptions, StoreId};
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::SystemEntropy;
use forebay_log::ChangeLog;
use forebay_reader::{Phase, ReaderStatus};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::SnapshotStore;
use forebayd::{Node, NodeParts};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Longest wait for an expected event; a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(60);

/// A served node.
pub struct Served {
    pub node: Node,
    server: JoinHandle<()>,
    pub address: String,
}

impl Served {
    pub async fn start(log: &Arc<dyn ChangeLog>, data: &Path) -> Self {
        Self::start_with(log, data, None).await
    }

    /// Starts a node whose shards bootstrap from snapshots.
    pub async fn start_with(
        log: &Arc<dyn ChangeLog>,
        data: &Path,
        snapshots: Option<SnapshotStore>,
    ) -> Self {
        Self::start_at(log, data, snapshots, Arc::new(SystemClock)).await
    }

    /// Starts a node with its own clock.
    pub async fn start_at(
        log: &Arc<dyn ChangeLog>,
        data: &Path,
        snapshots: Option<SnapshotStore>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shards = ShardDirectory::new(data.join("shards"), Resources::new(64 << 20).unwrap());
        let parts = NodeParts {
            log: Arc::clone(log),
            clock,
            entropy: Arc::new(SystemEntropy),
            shards: Some(shards),
            snapshots,
            features: None,
        };
        let node = Node::start(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server::builder().add_routes(node.routes());
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async { drop(serving.await) });
        Self { node, server, address }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address, ClientOptions::default()).await.unwrap()
    }

    /// Returns the status of the node's replica of a store, once it is as wanted.
    pub async fn replica(
        &self,
        store: StoreId,
        wanted: impl Fn(&ReaderStatus) -> bool,
    ) -> ReaderStatus {
        let wait = async {
            loop {
                let found = self.node.metrics(store).map(|metrics| metrics.replica);
                if let Some(found) = found.filter(&wanted) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(LONG, wait).await;
        found.unwrap_or_else(|_| panic!("{:#?}", self.node.metrics(store)))
    }

    /// Stops the node as a crash does: calls in flight break off.
    pub async fn end(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
        self.node.stop().await;
    }
}

pub fn is_caught_up(status: &ReaderStatus) -> bool {
    let mut partitions = status.partitions.iter();
    partitions.all(|at| at.phase == Phase::Serving && at.lag_records == 0)
}
