//! Two nodes that derive and fold the same views of one log concurrently, as happens during a
//! reassignment. Proves that the appends of both take effect once.

use std::path::Path;
use std::sync::Arc;

use forebay::schema::Value;
use forebay::{Client, ClientOptions};
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_features_service::FeatureShards;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_runtime::{RoleServices, ServiceContext};
use forebay_shard::{Resources, ShardDirectory};
use forebayd::{Node, NodeParts};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::{ViewClients, number, orders};

const EVENTS: i64 = 4_000;
const USERS: i64 = 7;
const VIEW: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: by_city\n\
                    source: orders\nentity: [city]\nallowed_lateness: 1h\n\
                    features: {orders: {count: '*'}, spent: {sum: price}}\n";

/// A node in this process.
pub struct LocalNode {
    node: Node,
    server: JoinHandle<()>,
    pub address: String,
}

impl LocalNode {
    pub async fn start(log: &Arc<dyn ChangeLog>, data: &Path) -> Self {
        Self::start_as(log, data, true).await
    }

    /// Starts a node with or without feature views.
    pub async fn start_as(log: &Arc<dyn ChangeLog>, data: &Path, has_views: bool) -> Self {
        let resources = Resources::new(64 << 20).unwrap();
        let features = FeatureShards::new(data.join("features"), resources.clone());
        let context =
            ServiceContext::start(Arc::clone(log), Arc::new(SystemClock), Arc::new(SystemEntropy));
        let parts = NodeParts {
            context,
            shards: Some(ShardDirectory::new(data.join("shards"), resources)),
            features: has_views.then_some(features),
        };
        let node = Node::start(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server::builder().add_routes(node.add_to(Routes::default()));
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async { drop(serving.await) });
        Self { node, server, address }
    }

    pub async fn stop(self) {
        self.server.abort();
        let _ = self.server.await;
        self.node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_derived_by_two_owners_are_stored_once() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let data: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = LocalNode::start(&log, data[0].path()).await;
    let other = LocalNode::start(&log, data[1].path()).await;
    let client = Client::connect(&one.address, ClientOptions::default()).await.unwrap();
    let store = orders(&client).await;
    ViewClients::at(&one.address).apply(VIEW).await;
    let mut all = vec![(0, 0); USERS as usize];
    for first in (0..EVENTS).step_by(50) {
        let mut batch = store.batch();
        for event in first..first + 50 {
            let (user, city) = (event % USERS, event * 31 % USERS);
            let user = format!("user-{user}");
            let event_of = store.insert(&user).set("city", format!("city-{city}"));
            batch.add(event_of.set("price", event)).unwrap();
            let of_city = &mut all[city as usize];
            *of_city = (of_city.0 + 1, of_city.1 + event);
        }
        batch.send().await.unwrap();
    }
    // A third node starts with only the log.
    let third = LocalNode::start(&log, data[2].path()).await;
    for node in [&one, &other, &third] {
        let clients = ViewClients::at(&node.address);
        for (city, (count, sum)) in all.iter().enumerate() {
            let group = [Value::String(format!("city-{city}"))];
            let is_all = |answer: &_| number(answer, "orders").is_some_and(|of| of >= *count);
            let answer = clients.values_once("by_city", &group, is_all).await;
            let found = (number(&answer, "orders"), number(&answer, "spent"));
            assert_eq!(found, (Some(*count), Some(*sum)), "city {city}");
        }
    }
    one.stop().await;
    other.stop().await;
    third.stop().await;
}
