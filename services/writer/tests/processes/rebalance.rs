//! Rebalances under load: the brokers reassign partitions because replicators and snapshot services
//! join, leave and are killed while a shard is copied, snapshots are built, files are pushed and a
//! client writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use forebay::reads::SnapshotStore;
use forebay::schema::{FieldType, KeyType, KeyValue, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::ErrorCode;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::partition::partition_of;
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions};
use forebay_testkit::child::OwnedChild;
use forebay_testkit::random::SeededRng;
use forebay_testkit::tree;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use tonic::Status;

use crate::group::{await_balanced, found};
use crate::service::{LONG, Service, brokers, client, on_kafka};

const PREFIX: &str = "rebalance";
const PARTITIONS: u32 = 3;
const DOCUMENTS: i64 = 21_000;
const VALUE_BYTES: usize = 1_000;
/// After a burst, a copy of one partition takes some seconds at this rate.
const COPY_RATE: &str = "700KB";
/// Keys that are written all the time; the pushed file holds the keys below them.
const WRITTEN: std::ops::Range<i64> = 100..140;
const PUSH_ATTEMPTS: usize = 10;

fn spec() -> StoreSpec {
    StoreSpec::documents("counts", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("count", FieldType::INT64)
        .field("blob", FieldType::BYTES)
}

async fn fill(store: &Store) {
    let mut dice = SeededRng::new(9);
    for keys in (0..DOCUMENTS).collect::<Vec<_>>().chunks(1_000) {
        let mut batch = store.batch();
        for key in keys {
            batch.add(store.put(*key).set("blob", dice.noise(VALUE_BYTES))).unwrap();
        }
        assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
    }
}

/// Writes one document after the other until `stop` is set; returns the acknowledged values.
async fn write_on(
    store: Store,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicI64>,
) -> (BTreeMap<i64, i64>, Token) {
    let (mut acknowledged, mut all) = (BTreeMap::new(), Token::new(store.definition().store));
    for (count, key) in (1..).zip(WRITTEN.cycle()) {
        let write = store.upsert(key).set("count", count).send().await.unwrap();
        all.merge(&write.token).unwrap();
        acknowledged.insert(key, count);
        written.store(count, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (acknowledged, all)
}

/// Returns a partition whose shard a replicator has, and how many of the first documents it holds.
async fn partition_at(replicator: &Service, store: &Store) -> (PartitionId, u64) {
    let count = store.definition().partitions;
    let partition_of_key = |key: i64| partition_of(&key.to_le_bytes(), count);
    let own_keys = found(replicator, true).await;
    let partition = partition_of_key(*own_keys.first().expect("it has a shard"));
    (partition, (0..DOCUMENTS).filter(|key| partition_of_key(*key) == partition).count() as u64)
}

/// Copies a shard and calls `disturb` once a part of the copy has arrived; returns the number of
/// rows.
fn copy_shard(from: &str, partition: PartitionId, to: &Path, disturb: impl FnOnce()) -> u64 {
    let number = partition.0.to_string();
    let child = Command::new(tree::built("forebayd").unwrap())
        .args(["shard", "copy", "--from", from, "--store", "counts", "--partition", &number])
        .args(["--rate", COPY_RATE, "--data-dir"])
        .arg(to)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = OwnedChild(child.unwrap());
    let mut stderr_lines =
        BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let has_begun = |line: String| {
        let rows = line.split_once(" of about ").and_then(|(rows, _)| rows.parse().ok());
        rows.is_some_and(|rows: u64| rows > 0)
    };
    assert!(stderr_lines.any(has_begun), "it has ended");
    disturb();
    stderr_lines.for_each(drop);
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
    output.split(' ').nth(1).and_then(|rows| rows.parse().ok()).unwrap()
}

fn chunks(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let count_path = |path: std::path::PathBuf| match path.is_dir() {
        true => chunks(&path),
        false => usize::from(path.parent().is_some_and(|folder| folder.ends_with("chunks"))),
    };
    entries.map(|entry| count_path(entry.path())).sum()
}

async fn await_event(event: &str, mut has_come: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !has_come().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{event} does not come"));
}

/// Waits for snapshots of all entries that the logs hold at the call, and reads the snapshots.
async fn snapshots_come(snapshots: &SnapshotStore, log: &KafkaLog, store: &Store) {
    for partition in 0..PARTITIONS {
        let at =
            PartitionRef { store: store.definition().store, partition: PartitionId(partition) };
        let (shard_snapshots, end) = (snapshots.partition(at), log.bounds(at).await.unwrap().end);
        let is_there = async || {
            let newest = shard_snapshots.newest(None).await.unwrap();
            newest.is_some_and(|newest| newest.progress.offset_applied >= end)
        };
        await_event("a snapshot", is_there).await;
        for chunk in shard_snapshots.newest(None).await.unwrap().unwrap().chunks() {
            shard_snapshots.chunk(*chunk).await.unwrap();
        }
    }
}

/// Writes the file of a push, with a count for each key that is not written otherwise.
fn write_counts(file: &Path) {
    let lines: String = (0..WRITTEN.start).map(|key| format!("{key},{}\n", -key)).collect();
    std::fs::write(file, format!("id,count\n{lines}")).unwrap();
}

/// Pushes a file and calls `disturb` once the first attempt has built a partition.
async fn push_file(
    snapshot_service: &Service,
    file: &Path,
    disturb: impl FnOnce(),
) -> v1::PushResult {
    let url = format!("http://{}", snapshot_service.address);
    let mut pushes_client = PushesClient::connect(url).await.unwrap();
    let request = v1::PushFilesRequest {
        store: "counts".into(),
        inputs: vec![format!("file://{}", file.display())],
        key_column: "id".into(),
        ..v1::PushFilesRequest::default()
    };
    let mut disturb = Some(disturb);
    for _ in 0..PUSH_ATTEMPTS {
        let mut attempt = async || -> Result<v1::PushResult, Status> {
            let mut answers = pushes_client.push_files(request.clone()).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                if answer.partitions_done > 0
                    && let Some(disturb) = disturb.take()
                {
                    tokio::task::block_in_place(disturb);
                }
                if let Some(pushed) = answer.pushed {
                    return Ok(pushed);
                }
            }
            Err(Status::unavailable("it has ended"))
        };
        match attempt().await {
            Ok(pushed) => return pushed,
            Err(status) => {
                let error = error_of_status(&status);
                assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
            }
        }
    }
    panic!("the push does not come through");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rebalances_during_every_operation_cost_only_retries() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", folder.path().display());
    let snapshot_arguments = ["--snapshots", url.as_str()];
    let brokers = brokers();
    let replicator = || Service::replicator_with(PREFIX, &snapshot_arguments);
    let snapshot_service = || {
        let own_arguments = ["--listen", "127.0.0.1:0", "--snapshot-interval", "1s"];
        let arguments =
            [&own_arguments[..], &snapshot_arguments, &on_kafka(PREFIX, &brokers)].concat();
        Service::start(tree::built("forebay-snapshot").unwrap(), &arguments)
    };
    let (first, other) = (replicator(), replicator());
    let writer = Service::writer(PREFIX, "127.0.0.1:0", &first);
    let store = client(&writer.address).await.create_store(&spec()).await.unwrap();
    fill(&store).await;
    await_balanced(&[&first, &other]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicI64::new(0));
    let writing = tokio::spawn(write_on(store.clone(), Arc::clone(&stop), Arc::clone(&written)));

    // A replicator joins in the middle of a copy.
    let (partition, documents) = partition_at(&first, &store).await;
    let mut third = None;
    let rows = tokio::task::block_in_place(|| {
        copy_shard(&first.address, partition, data.path(), || third = Some(replicator()))
    });
    assert!(rows >= documents, "{rows} rows of {documents} documents");
    let third = third.unwrap();
    await_balanced(&[&first, &other, &third]).await;

    // A replicator and a snapshot service are killed in the middle of builds, and others join.
    let (pusher, victim) = (snapshot_service(), snapshot_service());
    let before = chunks(folder.path());
    await_event("a build", async || chunks(folder.path()) > before).await;
    other.kill();
    victim.kill();
    let other = replicator();
    let log = KafkaLog::open(KafkaOptions::dev(&brokers, PREFIX)).await.unwrap();
    let snapshots = SnapshotStore::open(&url).unwrap();
    snapshots_come(&snapshots, &log, &store).await;
    await_balanced(&[&first, &other, &third]).await;

    // A replicator leaves in the middle of a push.
    let file = folder.path().join("counts.csv");
    write_counts(&file);
    let leave = || assert!(third.terminate().success());
    let version = push_file(&pusher, &file, leave).await;
    assert_eq!((version.version, version.documents), (2, WRITTEN.start as u64));
    await_balanced(&[&first, &other]).await;
    let target = written.load(Ordering::SeqCst) + 2 * (WRITTEN.end - WRITTEN.start);
    await_event("a write of each", async || written.load(Ordering::SeqCst) > target).await;
    stop.store(true, Ordering::SeqCst);
    let (acknowledged, token) = writing.await.unwrap();
    let options = ReaderOptions::new("counts").snapshots(snapshots);
    let reader = Reader::open(&other.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    assert_counts(&reader, &acknowledged);
}

/// Asserts that a reader has the pushed counts, and the acknowledged ones for the keys beyond.
fn assert_counts(reader: &Reader, acknowledged: &BTreeMap<i64, i64>) {
    let field = reader.definition().field("count").unwrap().id;
    for key in 0..DOCUMENTS {
        let document = reader.get_document(KeyValue::Int64(key)).unwrap();
        let found = document.and_then(|document| document.value(field).cloned());
        let expected =
            if key < WRITTEN.start { Some(-key) } else { acknowledged.get(&key).copied() };
        assert_eq!(found, expected.map(Value::Int64), "{key}");
    }
}
