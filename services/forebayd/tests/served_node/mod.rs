//! A node in this process that is served over gRPC, over a log and shards that outlive it.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::schema::StoreId;
use forebay::{Client, ClientOptions};
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::SystemEntropy;
use forebay_log::ChangeLog;
use forebay_reader::{Phase, ReaderStatus};
use forebay_runtime::{RoleServices, ServiceContext};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::SnapshotStore;
use forebayd::{Node, NodeParts};
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Longest wait for an expected event; a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(60);

/// A served node, on a runtime with several threads. The node ends when it is dropped, so that its
/// shards are closed before the test removes their folder; the folder is therefore declared before
/// the node.
pub struct ServedNode {
    pub node: Node,
    shards: Resources,
    /// The task that serves the node; `None` once the node has ended.
    server: Option<JoinHandle<()>>,
    pub address: String,
}

impl ServedNode {
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
        let resources = Resources::new(64 << 20).unwrap();
        let shards = ShardDirectory::new(data.join("shards"), resources.clone());
        let context = ServiceContext::start(Arc::clone(log), clock, Arc::new(SystemEntropy));
        let context = context.with_snapshots(snapshots);
        let parts = NodeParts { context, shards: Some(shards), features: None };
        let node = Node::start(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server::builder().add_routes(node.add_to(Routes::default()));
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async { drop(serving.await) });
        Self { node, shards: resources, server: Some(server), address }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address, ClientOptions::default()).await.unwrap()
    }

    /// Returns the status of the node's replica of a store, once it is as wanted.
    pub async fn replica(
        &self,
        store: StoreId,
        is_expected: impl Fn(&ReaderStatus) -> bool,
    ) -> ReaderStatus {
        let wait = async {
            loop {
                let found = self.node.metrics(store).map(|metrics| metrics.replica);
                if let Some(found) = found.filter(&is_expected) {
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
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
            self.node.stop().await;
            let result = self.shards.all_closed().now_or_never();
            assert!(result.is_some(), "the stopped node has an open shard");
        }
    }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        if self.server.is_none() {
            return;
        }
        let ending = async { tokio::time::timeout(LONG, self.end()).await };
        let result = tokio::task::block_in_place(|| Handle::current().block_on(ending));
        // A second panic would hide the error of the test.
        assert!(result.is_ok() || std::thread::panicking(), "the node does not end");
    }
}

pub fn is_caught_up(status: &ReaderStatus) -> bool {
    let mut partitions = status.partitions.iter();
    partitions.all(|it| it.phase == Phase::Serving && it.lag_records == 0)
}
