//! A node on loopback that can be killed and restarted over the same log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::environment::ClientParts;
use forebay::reads::{Document, DocumentKey, ReadOptions};
use forebay::schema::{KeyType, PartitionId, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Client, ClientOptions, Reader, ReaderOptions, Store};
use forebay_core::change::{Change, ClientBatch, EntryBody};
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{ClientId, Offset, PartitionRef, Sequence};
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{ChangeLog, MemoryLog, ReadLimit};
use forebay_wire::entry::decode_entry;

use crate::common::TestNode;
pub use crate::common::{INT64, PATIENCE, SOON, STRING};
use crate::gate::GatedLog;

pub struct World {
    pub log: Arc<FaultyLog<GatedLog>>,
    node: TestNode,
}

impl World {
    pub async fn start() -> Self {
        let memory: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let entropy = Arc::new(SeededEntropy::new(11));
        let log = FaultyLog::new(GatedLog::new(memory), entropy, FaultRates::default());
        let log = Arc::new(log);
        let served_log = Arc::clone(&log);
        let node = TestNode::start(None, move || {
            let log: Arc<dyn ChangeLog> = served_log.clone();
            std::future::ready(log)
        });
        Self { log, node: node.await }
    }

    /// Kills the node, if it runs, and restarts it on the same address.
    pub async fn restart(&mut self) {
        self.node.restart().await;
    }

    /// Kills the node in the middle of its work; its socket is closed when this returns.
    pub fn kill(&mut self) {
        self.node.kill();
    }

    pub fn endpoint(&self) -> String {
        self.node.endpoint()
    }

    pub async fn client(&self) -> Client {
        self.client_with(ClientOptions::default().deadline(PATIENCE)).await
    }

    /// Returns a client with a short time limit for attempts.
    pub async fn hasty_client(&self, deadline: Duration) -> Client {
        self.client_with(ClientOptions::default().deadline(deadline).attempt(SOON / 3)).await
    }

    pub async fn client_with(&self, options: ClientOptions) -> Client {
        // The connection itself has no short time limit.
        let connected =
            tonic::transport::Endpoint::from_shared(format!("http://{}", self.endpoint()));
        let channel = connected.unwrap().connect().await.unwrap();
        Client::from_channel(channel, options, ClientParts::default()).unwrap()
    }

    pub async fn reader(&self, store: &str) -> Reader {
        let reader = Reader::open(&self.endpoint(), ReaderOptions::new(store)).await.unwrap();
        reader.await_ready(PATIENCE).await.unwrap();
        reader
    }

    /// Returns the sender of each change in a partition's log, and its sequence; see
    /// [`World::changes`].
    pub async fn appended(
        &self,
        store: &Store,
        partition: PartitionId,
    ) -> Vec<(ClientId, Sequence)> {
        let changes = self.changes(store, partition).await.into_iter();
        changes.map(|(client, change)| (client, change.sequence)).collect()
    }

    /// Returns the changes of a partition's log in order, each as often as it was appended.
    pub async fn changes(&self, store: &Store, partition: PartitionId) -> Vec<(ClientId, Change)> {
        let mut appended = Vec::new();
        for batch in self.batches_of(store, partition).await {
            let client = batch.client;
            appended.extend(batch.changes.into_iter().map(|change| (client, change)));
        }
        appended
    }

    /// Returns the number of changes of each request, in all partitions.
    pub async fn batches(&self, store: &Store) -> Vec<usize> {
        let mut all = Vec::new();
        for partition in store.definition().partitions.partitions() {
            let batches = self.batches_of(store, partition).await.into_iter();
            all.extend(batches.map(|batch| batch.changes.len()));
        }
        all
    }

    async fn batches_of(&self, store: &Store, partition: PartitionId) -> Vec<ClientBatch> {
        let at = PartitionRef { store: store.definition().store, partition };
        let end = self.log.inner().bounds(at).await.unwrap().end;
        let limit = ReadLimit { bytes_max: usize::MAX, wait_max: Duration::ZERO };
        let mut all = Vec::new();
        let mut next = Offset(0);
        while next < end {
            for record in self.log.inner().read(at, next, limit).await.unwrap().records {
                next = record.offset.next();
                let body = decode_entry(&record.entry).unwrap().body;
                let EntryBody::Changes(batches) = body else { continue };
                all.extend(batches);
            }
        }
        all
    }

    /// Returns every partition's changes; see [`World::appended`].
    pub async fn appended_everywhere(&self, store: &Store) -> Vec<Vec<(ClientId, Sequence)>> {
        let mut all = Vec::new();
        for partition in store.definition().partitions.partitions() {
            all.push(self.appended(store, partition).await);
        }
        all
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.log.inner().open();
    }
}

/// Creates a store of counters in this many partitions: `n` is a number, `name` a text.
pub async fn counters(client: &Client, partitions: u32) -> Store {
    let spec = StoreSpec::documents("counters", KeyType::String)
        .partitions(partitions)
        .field("n", INT64)
        .field("name", STRING);
    client.create_store(&spec).await.unwrap()
}

/// Returns a document as of a token.
pub async fn document<'k>(
    reader: &Reader,
    token: &Token,
    key: impl Into<DocumentKey<'k>>,
) -> Option<Document> {
    let read = ReadOptions::after(token.clone(), PATIENCE);
    reader.get_document_with(&read, key).await.unwrap()
}

/// Returns the field `n` of every document once everything in the log is applied.
pub async fn counts(reader: &Reader) -> BTreeMap<Vec<u8>, i64> {
    let partitions: Vec<_> = reader.definition().partitions.partitions().collect();
    reader.wait(&ReadOptions::latest(PATIENCE), &partitions).await.unwrap();
    let n = reader.definition().field("n").unwrap().id;
    let mut counts = BTreeMap::new();
    let mut scan = reader.scan();
    loop {
        let visited = reader.scan_next(&mut scan, None, 1_000, |found| {
            if let Some(Value::Int64(count)) = found.row.document()?.value(n) {
                found.key.primary().with_bytes(|key| counts.insert(key.to_vec(), *count));
            }
            Ok(())
        });
        if visited.unwrap() == 0 {
            return counts;
        }
    }
}
