//! Pushes over Kafka: files replace a store's documents in a reader and in replicators that share
//! the partitions; a rollback restores the documents.

use std::time::Duration;

use forebay::reads::SnapshotStore;
use forebay::schema::{KeyValue, Value};
use forebay::writes::Token;
use forebay::{Reader, ReaderOptions, Store};
use forebay_testkit::tree;
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;

use crate::service::{LONG, Service, brokers, client, on_kafka};
use crate::snapshots::{KEYS, found, last, spec, write};

const PREFIX: &str = "pushes";
/// Number of pushed documents: the file holds the keys below it.
const PUSHED: i64 = 200;

/// Waits until a reader and the replicators answer with these counts.
async fn await_answers(reader: &Reader, replicator: &Service, store: &Store, expected: &[Value]) {
    let field = store.definition().field("count").unwrap().id;
    let found_counts = || {
        let get = |key| reader.get_document(KeyValue::Int64(key)).unwrap();
        let values = (0..KEYS).filter_map(|key| get(key)?.value(field).cloned());
        values.collect::<Vec<_>>()
    };
    let wait = async {
        while found_counts() != expected || found(replicator, field).await != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let result = tokio::time::timeout(LONG, wait).await;
    result.unwrap_or_else(|_| panic!("{} documents: {:?}", found_counts().len(), reader.status()));
}

fn counts(count_of: impl Fn(i64) -> Option<i64>) -> Vec<Value> {
    (0..KEYS).filter_map(|key| count_of(key).map(Value::Int64)).collect()
}

async fn write_one(store: &Store, key: i64, count: i64) -> Token {
    store.upsert(key).set("count", count).send().await.unwrap().token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_files_replace_documents_and_can_be_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = folder.path().join("snapshots");
    std::fs::create_dir(&snapshots).unwrap();
    let snapshots = format!("file://{}", snapshots.display());
    let snapshot_arguments = ["--snapshots", snapshots.as_str()];
    let first = Service::replicator_with(PREFIX, &snapshot_arguments);
    let second = Service::replicator_with(PREFIX, &snapshot_arguments);
    let writer = Service::writer(PREFIX, "127.0.0.1:0", &first);
    let brokers = brokers();
    let arguments =
        [&["--listen", "127.0.0.1:0"], &snapshot_arguments[..], &on_kafka(PREFIX, &brokers)]
            .concat();
    let pusher = Service::start(tree::built("forebay-snapshot").unwrap(), &arguments);
    let mut spec = spec();
    spec.options.log_retention_us = None;
    let store = client(&writer.address).await.create_store(&spec).await.unwrap();
    write(&store, 1).await;
    let snapshot_store = Some(SnapshotStore::open(&snapshots).unwrap());
    let options = ReaderOptions::new("counts").snapshots(snapshot_store);
    let reader = Reader::open(&second.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    await_answers(&reader, &first, &store, &counts(|key| Some(1_000 + key))).await;

    let lines: String = (0..PUSHED).map(|key| format!("{key},{}\n", -key)).collect();
    let file = folder.path().join("counts.csv");
    std::fs::write(&file, format!("id,count\n{lines}")).unwrap();
    let url = format!("http://{}", pusher.address);
    let mut pushes_client = PushesClient::connect(url).await.unwrap();
    let request = v1::PushFilesRequest {
        store: "counts".into(),
        inputs: vec![format!("file://{}", file.display())],
        key_column: "id".into(),
        ..v1::PushFilesRequest::default()
    };
    let pushed = last(pushes_client.push_files(request).await).await.pushed.unwrap();
    assert_eq!((pushed.version, pushed.documents), (2, PUSHED as u64));
    await_answers(&reader, &first, &store, &counts(|key| (key < PUSHED).then_some(-key))).await;
    let token = write_one(&store, PUSHED, 7).await;
    reader.await_token(&token, LONG).await.unwrap();
    let with_one = |key: i64| match key == PUSHED {
        true => Some(7),
        false => (key < PUSHED).then_some(-key),
    };
    await_answers(&reader, &first, &store, &counts(with_one)).await;

    let request = v1::ActivateVersionRequest { store: "counts".into(), version: 1 };
    pushes_client.activate_version(request).await.unwrap();
    let before = |key: i64| Some(if key == PUSHED { 7 } else { 1_000 + key });
    await_answers(&reader, &first, &store, &counts(before)).await;
}
