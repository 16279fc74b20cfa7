//! Snapshots and backups of the shards of replicators over Kafka, built by a separate process: logs
//! are trimmed up to the snapshots, replicators that lost their disks bootstrap from the snapshots,
//! and stores are restored.

use std::time::Duration;

use bytes::Bytes;
use forebay::reads::SnapshotStore;
use forebay::schema::{FieldType, KeyType, KeyValue, StoreOptions, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::id::{FieldId, Offset, PartitionId, PartitionRef};
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions};
use forebay_testkit::tree;
use forebay_wire::document::document_of;
use forebay_wire::v1;
use forebay_wire::v1::backups_client::BackupsClient;
use forebay_wire::v1::document_result::Answer;
use forebay_wire::v1::restore_store_request::PointInTime;
use forebay_wire::v1::shards_client::ShardsClient;
use tonic::{Response, Status, Streaming};

use crate::service::{LONG, Service, brokers, client, on_kafka};

const PREFIX: &str = "snapshots";
const PARTITIONS: u32 = 3;
pub const KEYS: i64 = 600;

pub fn spec() -> StoreSpec {
    let number = FieldType::INT64;
    let spec = StoreSpec::documents("counts", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("count", number);
    let options = StoreOptions { log_retention_us: Some(0), ..StoreOptions::default() };
    StoreSpec { options, ..spec }
}

pub async fn write(store: &Store, round: i64) -> Token {
    let mut batch = store.batch();
    for key in 0..KEYS {
        batch.add(store.upsert(key).set("count", round * 1_000 + key)).unwrap();
    }
    batch.send().await.unwrap().token
}

/// Returns the values of this field that a replicator finds under all keys.
pub async fn found(replicator: &Service, field: FieldId) -> Vec<Value> {
    let url = format!("http://{}", replicator.address);
    let Ok(mut shards) = ShardsClient::connect(url).await else { return Vec::new() };
    let request = v1::GetDocumentsRequest {
        store: "counts".into(),
        keys: (0..KEYS).map(|key| Bytes::copy_from_slice(&key.to_le_bytes())).collect(),
        ..v1::GetDocumentsRequest::default()
    };
    let Ok(answer) = shards.get_documents(request).await else { return Vec::new() };
    let value = |found: v1::DocumentResult| match found.answer {
        Some(Answer::Document(document)) => document_of(document).unwrap().1.value(field).cloned(),
        _ => None,
    };
    answer.into_inner().found.into_iter().filter_map(value).collect()
}

/// Waits until Kafka has trimmed the start of each partition.
async fn await_trimmed(log: &KafkaLog, store: &Store) {
    for partition in 0..PARTITIONS {
        let at =
            PartitionRef { store: store.definition().store, partition: PartitionId(partition) };
        let wait = async {
            while log.bounds(at).await.unwrap().start == Offset(0) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{at} is not trimmed"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicators_without_their_disks_load_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let snapshot_arguments = ["--snapshots", url.as_str()];
    let first = Service::replicator_with(PREFIX, &snapshot_arguments);
    let other = Service::replicator_with(PREFIX, &snapshot_arguments);
    let writer = Service::writer(PREFIX, "127.0.0.1:0", &first);
    let own_arguments = ["--listen", "127.0.0.1:0", "--snapshot-interval", "1s"];
    let brokers = brokers();
    let arguments = [&own_arguments[..], &snapshot_arguments, &on_kafka(PREFIX, &brokers)].concat();
    let snapshot_service = Service::start(tree::built("forebay-snapshot").unwrap(), &arguments);
    let store = client(&writer.address).await.create_store(&spec()).await.unwrap();
    for round in 0..3 {
        write(&store, round).await;
    }
    let log = KafkaLog::open(KafkaOptions::dev(&brokers, PREFIX)).await.unwrap();
    await_trimmed(&log, &store).await;
    // The replicators lose their data, and the snapshot service is killed at an arbitrary point.
    drop((first, other));
    snapshot_service.kill();
    let token = write(&store, 7).await;
    let replacement = Service::replicator_with(PREFIX, &snapshot_arguments);
    let third = Service::replicator_with(PREFIX, &snapshot_arguments);
    let field = store.definition().field("count").unwrap().id;
    let expected: Vec<_> = (0..KEYS).map(|key| Value::Int64(7_000 + key)).collect();
    let wait = async {
        while found(&replacement, field).await != expected {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("they do not come back");
    let snapshots = Some(SnapshotStore::open(&url).unwrap());
    let options = ReaderOptions::new("counts").snapshots(snapshots);
    let reader = Reader::open(&third.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    let status = reader.status();
    assert!(
        status.partitions.iter().all(|partition| partition.counts.bootstraps == 1),
        "{status:?}"
    );
}

/// Returns the last answer of a stream.
pub async fn last<M>(answers: Result<Response<Streaming<M>>, Status>) -> M {
    let (mut answers, mut last) = (answers.unwrap().into_inner(), None);
    while let Some(answer) = answers.message().await.unwrap() {
        last = Some(answer);
    }
    last.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_restored_to_a_write_between_two_backups() {
    const PREFIX: &str = "backups";
    let folder = tempfile::tempdir().unwrap();
    let [snapshots, backups] = ["snapshots", "backups"].map(|name| {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        format!("file://{}/{name}", folder.path().display())
    });
    let replicator = Service::replicator_with(PREFIX, &["--snapshots", &snapshots]);
    let writer = Service::writer(PREFIX, "127.0.0.1:0", &replicator);
    let brokers = brokers();
    let own_arguments =
        ["--listen", "127.0.0.1:0", "--snapshots", &snapshots, "--backups", &backups];
    let arguments = [&own_arguments[..], &on_kafka(PREFIX, &brokers)].concat();
    let snapshot_service = Service::start(tree::built("forebay-snapshot").unwrap(), &arguments);
    let url = format!("http://{}", snapshot_service.address);
    let mut backups_client = BackupsClient::connect(url).await.unwrap();
    let mut spec = spec();
    spec.options.log_retention_us = None;
    let store = client(&writer.address).await.create_store(&spec).await.unwrap();
    let take = v1::TakeBackupRequest { store: "counts".into(), keep: None };
    let mut tokens = Vec::new();
    for round in 0..3 {
        tokens.push(write(&store, round).await);
        if round != 1 {
            assert!(last(backups_client.take_backup(take.clone()).await).await.backup.is_some());
        }
    }
    let point_in_time = Some(PointInTime::Token(tokens[1].encode()));
    let (store, restore_as) = ("counts".into(), "again".into());
    let request = v1::RestoreStoreRequest { store, restore_as, point_in_time };
    let answer = last(backups_client.restore_store(request).await).await;
    assert_eq!(answer.restored.unwrap().documents, KEYS as u64);
    let snapshots = Some(SnapshotStore::open(&snapshots).unwrap());
    let options = ReaderOptions::new("again").snapshots(snapshots);
    let reader = Reader::open(&replicator.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let field = reader.definition().field("count").unwrap().id;
    for key in 0..KEYS {
        let document = reader.get_document(KeyValue::Int64(key)).unwrap().unwrap();
        assert_eq!(document.value(field), Some(&Value::Int64(1_000 + key)));
    }
}
