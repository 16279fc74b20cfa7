//! Several replicators that share the partitions of a store: each of them answers for all
//! partitions, and the others continue when one dies, leaves or joins.

use std::time::Duration;

use bytes::Bytes;
use forebay::Store;
use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::writes::WriteResult;
use forebay_wire::v1;
use forebay_wire::v1::document_result::Answer;
use forebay_wire::v1::shards_client::ShardsClient;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::service::{LONG, Service, client};

const PARTITIONS: u32 = 6;
const KEYS: i64 = 60;

fn spec() -> StoreSpec {
    StoreSpec::documents("counts", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("count", FieldType::INT64)
}

/// Returns the keys that a replicator finds; with `is_own_only`, only the keys in its own shards.
pub async fn found(replicator: &Service, is_own_only: bool) -> Vec<i64> {
    let url = format!("http://{}", replicator.address);
    let Ok(mut shards) = ShardsClient::connect(url).await else { return Vec::new() };
    let mut request = Request::new(v1::GetDocumentsRequest {
        store: "counts".into(),
        keys: (0..KEYS).map(|key| Bytes::copy_from_slice(&key.to_le_bytes())).collect(),
        fields: Vec::new(),
        read: None,
    });
    if is_own_only {
        request.metadata_mut().insert("forebay-forwarded", MetadataValue::from_static("1"));
    }
    let Ok(answer) = shards.get_documents(request).await else { return Vec::new() };
    let found = (0..KEYS).zip(answer.into_inner().found);
    let is_there = |found: &v1::DocumentResult| matches!(found.answer, Some(Answer::Document(_)));
    found.filter(|(_, found)| is_there(found)).map(|(key, _)| key).collect()
}

/// Waits until every replicator answers for all keys, and each has keys that no other one has.
pub async fn await_balanced(replicators: &[&Service]) {
    let all: Vec<_> = (0..KEYS).collect();
    let wait = async {
        loop {
            let (mut own_keys, mut complete) = (Vec::new(), true);
            for replicator in replicators {
                complete &= found(replicator, false).await == all;
                own_keys.push(found(replicator, true).await);
            }
            let mut all_own_keys: Vec<_> = own_keys.iter().flatten().copied().collect();
            all_own_keys.sort_unstable();
            if complete && all_own_keys == all && own_keys.iter().all(|keys| !keys.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the partitions are not divided")
}

/// Adds one to each key; the first time, on condition that the document is absent.
async fn write(store: &Store, is_first: bool) {
    for key in 0..KEYS {
        let write = store.upsert(key).increment("count", 1);
        let write = if is_first { write.if_absent() } else { write };
        let written = write.send().await.unwrap();
        let expected = if is_first { WriteResult::Applied } else { WriteResult::Appended };
        assert_eq!(written.result, expected, "key {key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_divided_and_every_replicator_answers_for_all() {
    let first = Service::replicator("group", "127.0.0.1:0");
    let other = Service::replicator("group", "127.0.0.1:0");
    let writer = Service::writer("group", "127.0.0.1:0", &first);
    let store = client(&writer.address).await.create_store(&spec()).await.unwrap();
    write(&store, true).await;
    await_balanced(&[&first, &other]).await;

    // A third replicator takes its share, and its outcomes are available through the first.
    let third = Service::replicator("group", "127.0.0.1:0");
    await_balanced(&[&first, &other, &third]).await;
    write(&store, false).await;

    // A replicator dies and the others take its partitions; it restarts and gets them back.
    let address = other.kill();
    await_balanced(&[&first, &third]).await;
    let written = store.upsert(0_i64).set("count", 0).if_absent().send().await.unwrap();
    assert!(matches!(written.result, WriteResult::ConditionFailed(_)), "{:?}", written.result);
    let other = Service::replicator("group", &address);
    await_balanced(&[&first, &other, &third]).await;
    write(&store, false).await;

    // A replicator leaves.
    assert!(tokio::task::spawn_blocking(|| third.terminate()).await.unwrap().success());
    await_balanced(&[&first, &other]).await;
    write(&store, false).await;
    await_balanced(&[&first, &other]).await;
}

#[test]
fn second_process_does_not_share_a_data_folder() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_owned();
    let _first = Service::replicator_in(data, "folder", "127.0.0.1:0");
    let stderr = crate::run_refused(
        crate::service::replicator(),
        &[
            &["--listen", "127.0.0.1:0", "--data-dir", path.to_str().unwrap()][..],
            &crate::service::on_kafka("folder", &crate::service::brokers()),
        ]
        .concat(),
    );
    assert!(stderr.contains("Conflict"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_replicator_resumes_its_shards() {
    let mut replicator = Service::replicator("back", "127.0.0.1:0");
    let writer = Service::writer("back", "127.0.0.1:0", &replicator);
    let store = client(&writer.address).await.create_store(&spec()).await.unwrap();
    write(&store, true).await;
    for _ in 0..3 {
        replicator = replicator.killed_and_back("back");
        write(&store, false).await;
        await_balanced(&[&replicator]).await;
    }
}
