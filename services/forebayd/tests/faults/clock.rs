//! A clock that jumps in the process that appends: append times never decrease, and expired
//! documents stay expired.

use std::sync::Arc;
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, StoreSpec, Timestamp, Value};
use forebay::writes::WriteResult;
use forebay::{Client, ClientOptions};
use forebay_core::clock::ManualClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_entries::CatalogFollower;
use forebay_log::disk::RealDisk;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, ReadLimit};
use forebay_reader::{LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_runtime::{RoleServices, ServiceContext};
use forebayd::{Node, NodeParts};
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::daemon::LONG;

const START_US: i64 = 1_700_000_000_000_000;
const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;

async fn reader(log: Arc<dyn ChangeLog>, clock: Arc<ManualClock>) -> Reader {
    let entropy = Arc::new(SystemEntropy);
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let barriers = Arc::new(LogBarriers(Arc::clone(&log)));
    let parts =
        ReaderParts { log, catalog, clock, entropy, barriers, disk: None, replicator: None };
    Reader::open(ReaderOptions::new("users"), parts).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jumping_clock_moves_partition_time_only_forward() {
    let data = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START_US)));
    let options = EmbeddedOptions::new(data.path());
    let log = EmbeddedLog::open(Arc::new(RealDisk), clock.clone(), options).await.unwrap();
    let log: Arc<dyn ChangeLog> = Arc::new(log);
    let context = ServiceContext::start(Arc::clone(&log), clock.clone(), Arc::new(SystemEntropy));
    let parts = NodeParts { context, shards: None, features: None };
    let node = Node::start(parts).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_routes(node.add_to(Routes::default()));
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let client = Client::connect(&address, ClientOptions::default()).await.unwrap();
    let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
    let store = client.create_store(&spec.field("count", FieldType::INT64)).await.unwrap();
    // The reader's own clock stays at the start, so only the partition's time can expire documents
    // here.
    let still = Arc::new(ManualClock::at(Timestamp::from_micros(START_US)));
    let reader = reader(Arc::clone(&log), still).await;
    let write = async |key: &str, ttl: Option<Duration>| {
        let mut write = store.upsert(key).set("count", 1_i64);
        if let Some(ttl) = ttl {
            write = write.ttl(ttl);
        }
        let token = write.send().await.unwrap().token;
        reader.await_token(&token, LONG).await.unwrap();
    };
    let held = |key: &str| reader.get_document(key).unwrap();
    let shows = |key: &str| held(key).is_some();

    write("mortal", Some(Duration::from_secs(10))).await;
    clock.advance_micros(-HOUR_US);
    write("back", None).await;
    assert!(shows("mortal"), "an hour back expires nothing");
    clock.advance_micros(HOUR_US + 9 * SECOND_US);
    write("before", None).await;
    assert!(shows("mortal"));
    clock.advance_micros(24 * HOUR_US);
    write("forward", None).await;
    assert!(!shows("mortal"), "a day ahead expires it");
    clock.advance_micros(-48 * HOUR_US);
    write("behind", None).await;
    assert!(!shows("mortal"), "what has expired stays so");
    let first = store.upsert("mortal").set("count", 2_i64).if_absent().send().await.unwrap();
    assert_eq!(first.result, WriteResult::Applied, "a condition sees it as absent");
    reader.await_token(&first.token, LONG).await.unwrap();
    let document = held("mortal").unwrap();
    let count = store.definition().field("count").unwrap().id;
    assert_eq!(document.value(count), Some(&Value::Int64(2)));

    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
    let records = log.read(at, Offset(0), limit).await.unwrap().records;
    assert!(records.len() >= 8);
    assert!(records.is_sorted_by_key(|record| record.append_time), "append times fell");
    server.abort();
    node.stop().await;
}
