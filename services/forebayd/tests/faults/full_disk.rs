//! A disk that is really full: a small tmpfs as the data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::schema::{FieldType, KeyType, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Client, ClientOptions, Error, ErrorCode, Reader, ReaderOptions, Store};
use forebay_core::clock::SystemClock;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_log::{ChangeLog, MemoryLog};

use crate::daemon::{Daemon, LONG};
use crate::served_node::{ServedNode, is_caught_up};
use crate::small_disk::{SmallDisk, run_again_where_mounting_is_permitted};

const DISK_BYTES: usize = 12 << 20;
const FILLER_BYTES: usize = 3 << 20;
const BLOB_BYTES: usize = 100_000;
/// Number of blobs for which the shards have space.
const BLOBS_FITTING: usize = 30;

fn start(data_dir: &Path, listen: &str) -> Daemon {
    Daemon::start(&["--data-dir", data_dir.to_str().unwrap()], listen)
}

fn spec() -> StoreSpec {
    StoreSpec::documents("blobs", KeyType::Int64)
        .partitions(1)
        .field("count", FieldType::INT64)
        .field("blob", FieldType::BYTES)
}

/// The acknowledged writes.
#[derive(Default)]
struct AcknowledgedWrites {
    blobs: i64,
    increments: i64,
    token: Option<Token>,
}

impl AcknowledgedWrites {
    /// Writes until the disk is full; returns the error.
    async fn write_until_full(&mut self, store: &Store) -> Error {
        loop {
            let blob = vec![self.blobs as u8; BLOB_BYTES];
            let write = store.upsert(self.blobs).set("blob", Value::Bytes(blob));
            match write.increment("count", 1).send().await {
                Ok(written) => {
                    self.blobs += 1;
                    self.token = Some(written.token);
                }
                Err(error) => return error.into(),
            }
        }
    }

    /// Sends one large increment of a separate document, which the full disk refuses or accepts.
    async fn increment(&mut self, store: &Store) -> Result<(), Error> {
        let blob = Value::Bytes(vec![7; 4 * BLOB_BYTES]);
        let written = store.upsert(-1_i64).set("blob", blob).increment("count", 1).send().await;
        let written = written.map_err(Error::from)?;
        self.increments += 1;
        self.token = Some(written.token);
        Ok(())
    }

    async fn assert_held_by(&self, reader: &Reader) {
        reader.await_token(self.token.as_ref().unwrap(), LONG).await.unwrap();
        let definition = reader.definition();
        let field = |name| definition.field(name).unwrap().id;
        for key in 0..self.blobs {
            let document =
                reader.get_document(key).unwrap().unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!(document.value(field("count")), Some(&Value::Int64(1)), "key {key}");
            let blob = Value::Bytes(vec![key as u8; BLOB_BYTES]);
            assert!(document.value(field("blob")) == Some(&blob), "key {key}");
        }
        assert_eq!(reader.get_document(self.blobs).unwrap(), None, "a refused write happened");
        let counted = reader.get_document(-1_i64).unwrap();
        let count = counted.and_then(|document| document.value(field("count")).cloned());
        let expected = (self.increments > 0).then_some(Value::Int64(self.increments));
        assert_eq!(count, expected, "increments");
    }
}

fn assert_full(error: &Error) {
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    let (free, needed) = (error.context().limit.unwrap(), error.context().actual.unwrap());
    assert!(needed > free && needed > BLOB_BYTES as u64, "{needed} needed, {free} free");
    assert!(error.message().contains("disk is full"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_refuses_writes_loses_nothing_and_recovers() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "full_disk::\
            full_disk_refuses_writes_loses_nothing_and_recovers";
        return run_again_where_mounting_is_permitted(test);
    };
    disk.fill(FILLER_BYTES);
    let data = disk.path().join("data");
    let mut daemon = start(&data, "127.0.0.1:0");
    let address = daemon.address.clone();
    let client = Client::connect(&address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let reader = client.reader(ReaderOptions::new("blobs")).await.unwrap();
    let mut acknowledged = AcknowledgedWrites::default();
    for round in 0..2 {
        assert_full(&acknowledged.write_until_full(&store).await);
        assert!(acknowledged.blobs >= 20, "only {} blobs fitted", acknowledged.blobs);
        for _ in 0..3 {
            assert_full(&acknowledged.increment(&store).await.unwrap_err());
        }
        // Reads continue, including those of a new reader.
        acknowledged.assert_held_by(&reader).await;
        let fresh = Reader::open(&address, ReaderOptions::new("blobs")).await.unwrap();
        acknowledged.assert_held_by(&fresh).await;
        if round == 1 {
            // A full disk does not prevent a start.
            daemon.kill();
            daemon = start(&data, &address);
            assert_full(&acknowledged.increment(&store).await.unwrap_err());
        }
        disk.free();
        acknowledged.increment(&store).await.unwrap();
        acknowledged.assert_held_by(&reader).await;
        if round == 0 {
            disk_fills_again(&disk, &mut acknowledged, &store).await;
        }
    }
    daemon.kill();
    let daemon = start(&data, &address);
    let fresh = Reader::open(&daemon.address, ReaderOptions::new("blobs")).await.unwrap();
    acknowledged.assert_held_by(&fresh).await;
}

/// Leaves space for the second round: the filler takes the free space except for some writes.
async fn disk_fills_again(disk: &SmallDisk, acknowledged: &mut AcknowledgedWrites, store: &Store) {
    let before = acknowledged.blobs;
    disk.fill(FILLER_BYTES / 2);
    acknowledged.increment(store).await.unwrap();
    assert_eq!(acknowledged.blobs, before);
}

/// Returns incompressible bytes.
fn noise(key: i64) -> Vec<u8> {
    let entropy = SeededEntropy::new(key as u64);
    let words = (0..BLOB_BYTES / 8).map(|_| entropy.next_u64().unwrap().to_le_bytes());
    words.flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_on_a_full_disk_block_no_write_and_catch_up_later() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "full_disk::shards_on_a_full_disk_block_no_write_and_catch_up_later";
        return run_again_where_mounting_is_permitted(test);
    };
    disk.fill(DISK_BYTES - BLOBS_FITTING * BLOB_BYTES);
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let mut served = ServedNode::start(&log, &disk.path().join("data")).await;
    let store = served.client().await.create_store(&spec()).await.unwrap();
    let id = store.definition().store;
    served.replica(id, is_caught_up).await;
    let blobs = 2 * BLOBS_FITTING as i64;
    for key in 0..blobs {
        store.upsert(key).set("blob", Value::Bytes(noise(key))).send().await.unwrap();
    }
    // The next flush finds the disk full: the shards are closed, and cannot be reopened.
    let is_gone = async {
        while served.node.metrics(id).is_some_and(|metrics| is_caught_up(&metrics.replica)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, is_gone).await.expect("it has room for what does not fit");
    store.upsert(-1_i64).increment("count", 1).send().await.unwrap();
    disk.free();
    served.replica(id, is_caught_up).await;
    let ordered = store.ordered().unwrap();
    let blob = store.definition().field("blob").unwrap().id;
    for key in 0..blobs {
        let found = ordered.get(&ReadOptions::latest(LONG), key).await.unwrap().unwrap();
        assert!(found.value(blob) == Some(&Value::Bytes(noise(key))), "key {key}");
    }
    served.end().await;
}
