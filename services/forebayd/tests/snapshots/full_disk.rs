//! A reader whose disk has no room for the image that it is to begin with.

use std::time::Duration;

use forebay::{
    CheckpointOptions, ErrorCode, FieldType, KeyType, KeyValue, Reader, ReaderOptions, ScalarType,
    StoreSpec, Value,
};
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{Offset, PartitionId, PartitionRef};

use crate::small_disk::{SmallDisk, run_again_where_mounting_is_permitted};
use crate::{LONG, World};

const DISK_BYTES: usize = 24 << 20;
/// Leaves room for a part of the image.
const FILLER_BYTES: usize = 20 << 20;
const DOCUMENTS: i64 = 1_000;
const VALUE_BYTES: usize = 8 << 10;

/// Bytes that do not compress.
fn value(key: i64) -> Vec<u8> {
    let entropy = SeededEntropy::new(key as u64);
    (0..VALUE_BYTES / 8).flat_map(|_| entropy.next_u64().unwrap().to_le_bytes()).collect()
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what} does not come"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_disk_is_full_says_so_and_begins_once_there_is_room() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "full_disk::\
            a_reader_whose_disk_is_full_says_so_and_begins_once_there_is_room";
        return run_again_where_mounting_is_permitted(test);
    };
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (served, _kept) = world.start(data.path(), Duration::from_millis(100)).await;
    let bytes = FieldType::Scalar(ScalarType::Bytes);
    let mut spec = StoreSpec::documents("blobs", KeyType::Int64, 1).field("blob", bytes);
    spec.options.log_window_us = Some(0);
    let store = served.client().await.create_store(&spec).await.unwrap();
    for keys in (0..DOCUMENTS).collect::<Vec<_>>().chunks(100) {
        let mut batch = store.batch();
        for key in keys {
            batch.add(store.put(*key).set("blob", value(*key))).unwrap();
        }
        assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
    }
    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    let snapshots = world.store.partition(at);
    let is_whole = async || {
        let newest = snapshots.newest(None).await.unwrap();
        // An image of three quarters of them at least, and of the rest what has changed since.
        let held = newest.map(|newest| newest.base.documents + newest.delta_documents());
        held.is_some_and(|held| held >= DOCUMENTS as u64)
    };
    eventually("a snapshot of all", is_whole).await;
    let is_trimmed = async || world.log.bounds(at).await.unwrap().start > Offset(0);
    eventually("a log that begins behind it", is_trimmed).await;
    disk.fill(FILLER_BYTES);
    let options = ReaderOptions {
        snapshots: Some(world.store.clone()),
        checkpoint: Some(CheckpointOptions::new(disk.path())),
        ..ReaderOptions::new("blobs")
    };
    let reader = Reader::open(&served.address, options).await.unwrap();
    eventually("a second attempt", async || {
        reader.status().partitions[0].counts.bootstraps_failed > 1
    })
    .await;
    let status = reader.status().partitions.remove(0);
    let trouble = status.trouble.unwrap();
    assert_eq!(trouble.code(), ErrorCode::LimitExceeded, "{trouble}");
    assert!(trouble.message().contains("no room for a snapshot"), "{trouble}");
    assert!(reader.get(KeyValue::Int64(1)).is_err(), "it has nothing to answer with");
    disk.free();
    reader.await_ready(LONG).await.unwrap();
    assert!(reader.status().partitions[0].counts.bootstraps > 0);
    let field = store.definition().field("blob").unwrap().id;
    for key in 0..DOCUMENTS {
        let document = reader.get(KeyValue::Int64(key)).unwrap().unwrap();
        assert_eq!(document.value(field), Some(&Value::Bytes(value(key))), "{key}");
    }
}
