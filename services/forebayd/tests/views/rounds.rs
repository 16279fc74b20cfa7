//! A deriver that ends in the middle of a batch. Proves that its next attempt sends the derived
//! events only to those partitions of the view that did not receive them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay::schema::Value;
use forebay::{Client, ClientOptions, Store};
use forebay_core::Result;
use forebay_core::change::EntryBody;
use forebay_core::clock::{Clock, ManualClock, SystemClock};
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};
use forebay_wire::entry::decode_entry;

use crate::daemon::LONG;
use crate::overlap::LocalNode;
use crate::{ViewClients, number, orders};

const CITIES: i64 = 16;
const VIEW: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: by_city\n\
                    source: orders\nentity: [city]\nallowed_lateness: 1h\n\
                    features: {orders: {count: '*'}, spent: {sum: price}}\n";

/// A log that accepts one entry of derived events, and holds the others.
struct HoldingLog {
    log: Arc<dyn ChangeLog>,
    came: AtomicUsize,
}

#[async_trait]
impl ChangeLog for HoldingLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.log.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.log.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let decoded = decode_entry(&entry).unwrap();
        let is_derived = decoded.source.is_some() && matches!(decoded.body, EntryBody::Changes(_));
        if is_derived && self.came.fetch_add(1, Ordering::SeqCst) > 0 {
            return std::future::pending().await;
        }
        self.log.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.log.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.log.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.log.trim(at, before).await
    }
}

/// Inserts one order for each city, all of one user, as one entry of one partition.
async fn insert(store: &Store, price: i64) {
    let mut batch = store.batch();
    for city in 0..CITIES {
        let event = store.insert("ann").set("city", format!("city-{city}"));
        batch.add(event.set("price", price)).unwrap();
    }
    let sent = batch.send().await.unwrap();
    assert!(sent.results.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completed_part_of_a_round_is_not_derived_again() {
    // All inserts have one time, so that they are derived again as one batch.
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(clock));
    let holding = Arc::new(HoldingLog { log: Arc::clone(&log), came: AtomicUsize::new(0) });
    let data = tempfile::tempdir().unwrap();
    let behind: Arc<dyn ChangeLog> = holding.clone();
    let node = LocalNode::start(&behind, data.path()).await;
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    let store = orders(&client).await;
    ViewClients::at(&node.address).apply(VIEW).await;
    insert(&store, 1).await;
    let wait = async {
        while holding.came.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("no other partition has an event");
    insert(&store, 10).await;
    node.stop().await;

    let node = LocalNode::start(&log, data.path()).await;
    let clients = ViewClients::at(&node.address);
    for city in 0..CITIES {
        let group = [Value::String(format!("city-{city}"))];
        let both = |answer: &_| number(answer, "orders").is_some_and(|of| of >= 2);
        let answer = clients.values_once("by_city", &group, both).await;
        let found = (number(&answer, "orders"), number(&answer, "spent"));
        assert_eq!(found, (Some(2), Some(11)), "city {city}");
    }
    node.stop().await;
}
