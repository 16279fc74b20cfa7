//! Shards over restarts: a node resumes its shards, and copies the records that the shards had
//! skipped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::writes::WriteResult;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_log::disk::RealDisk;
use forebay_log::faulty::FaultRates;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, FaultyLog};
use forebay_reader::ReaderStatus;

use crate::daemon::LONG;
use crate::served_node::{ServedNode, is_caught_up};

const DOCUMENTS: i64 = 500;
const GARBAGE: u64 = 20;
/// A certain fault: the rates of a faulty log are in ten thousandths.
const ALWAYS: u32 = 10_000;

async fn open_log(data: &Path) -> Arc<EmbeddedLog> {
    let options = EmbeddedOptions::new(data);
    Arc::new(EmbeddedLog::open(Arc::new(RealDisk), Arc::new(SystemClock), options).await.unwrap())
}

fn spec(partitions: u32) -> StoreSpec {
    StoreSpec::documents("users", KeyType::Int64)
        .partitions(partitions)
        .field("count", FieldType::INT64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_node_resumes_its_shards() {
    let data = tempfile::tempdir().unwrap();
    let log: Arc<dyn ChangeLog> = open_log(data.path()).await;
    let mut first = ServedNode::start(&log, data.path()).await;
    let store = first.client().await.create_store(&spec(2)).await.unwrap();
    let id = store.definition().store;
    for key in 0..DOCUMENTS {
        store.upsert(key).increment("count", 1_i64).send().await.unwrap();
    }
    let made = store.upsert(-1_i64).set("count", 1_i64).if_absent().send().await.unwrap();
    assert_eq!(made.result, WriteResult::Applied);
    let status = first.replica(id, is_caught_up).await;
    let applied: u64 = status.partitions.iter().map(|at| at.counts.records_applied).sum();
    assert!(applied > DOCUMENTS as u64, "{applied}");
    first.end().await;

    let mut again = ServedNode::start(&log, data.path()).await;
    let status = again.replica(id, is_caught_up).await;
    let applied: u64 = status.partitions.iter().map(|at| at.counts.records_applied).sum();
    assert!(applied < DOCUMENTS as u64 / 2, "it folded {applied} records again");
    let store = again.client().await.store("users").await.unwrap();
    let made = store.upsert(-1_i64).set("count", 1_i64).if_absent().send().await.unwrap();
    assert!(matches!(made.result, WriteResult::ConditionFailed(_)), "{:?}", made.result);
    again.client().await.delete_store("users").await.unwrap();
    let shards = || std::fs::read_dir(data.path().join("shards")).unwrap().count();
    let gone = async {
        while shards() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("shards of a store that was dropped stay");
    again.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn earlier_skipped_record_is_copied_without_a_second_fold() {
    let data = tempfile::tempdir().unwrap();
    let sound = open_log(data.path()).await;
    let rates = FaultRates::default();
    let mute = Arc::new(FaultyLog::new(Arc::clone(&sound), Arc::new(SystemEntropy), rates));
    let log: Arc<dyn ChangeLog> = mute.clone();
    let mut first = ServedNode::start(&log, data.path()).await;
    let store = first.client().await.create_store(&spec(1)).await.unwrap();
    let id = store.definition().store;
    first.replica(id, is_caught_up).await;
    // Appends fail from now on, so the letters wait until their process ends.
    mute.set_rates(FaultRates { append_refused: ALWAYS, ..rates });
    let at = PartitionRef { store: id, partition: PartitionId(0) };
    for number in 0..GARBAGE {
        sound.append(at, Bytes::from(format!("garbage {number}"))).await.unwrap();
    }
    let skipped = |status: &ReaderStatus| status.partitions[0].counts.records_skipped == GARBAGE;
    first.replica(id, skipped).await;
    let letters = first.node.metrics(id).unwrap().dead_letters.unwrap();
    assert_eq!((letters.records_waiting, letters.letters_copied), (GARBAGE, 0));
    first.end().await;

    let log: Arc<dyn ChangeLog> = sound;
    let mut second = ServedNode::start(&log, data.path()).await;
    let copied = |node: &forebayd::Node| {
        node.metrics(id)
            .and_then(|metrics| metrics.dead_letters)
            .map(|letters| letters.letters_copied)
    };
    let wait = async {
        while copied(&second.node) != Some(GARBAGE) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the letters were forgotten");
    let status = second.replica(id, is_caught_up).await;
    assert_eq!(status.partitions[0].counts.records_skipped, 0, "they were folded again");
    second.end().await;
}
