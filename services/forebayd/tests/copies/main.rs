//! Copies of shards between nodes: their content, the following of the log afterwards, and
//! failures.

#[path = "../daemon/mod.rs"]
mod daemon;
mod full_disk;
mod kills;
mod memory;
mod process;
#[path = "../served_node/mod.rs"]
mod served_node;
#[path = "../small_disk/mod.rs"]
mod small_disk;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon::LONG;
use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::writes::Token;
use forebay::{Client, Error, ErrorCode, Store};
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::limits::COPY_PARALLELISM_MAX;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::schema::Definition;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_replicator_service::{CopyMoved, CopyOptions, CopyProgress, CopyTarget};
use forebay_shard::{Export, ExportMode, Resources, ShardDirectory};
use forebay_testkit::random::SeededRng;
use forebay_wire::shard_copy::{RowsBlock, block_rows};
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_client::ShardCopiesClient;
use served_node::{ServedNode, is_caught_up};
use tokio::sync::watch;

const VALUE_BYTES: usize = 1_000;

fn spec() -> StoreSpec {
    StoreSpec::documents("blobs", KeyType::Int64)
        .partitions(1)
        .field("blob", FieldType::BYTES)
        .field("other", FieldType::BYTES)
}

/// Writes documents of random bytes under these keys; returns the token of all writes.
async fn fill(store: &Store, keys: std::ops::Range<i64>) -> Token {
    fill_with(store, keys, VALUE_BYTES).await
}

async fn fill_with(store: &Store, keys: std::ops::Range<i64>, value_bytes: usize) -> Token {
    let mut dice = SeededRng::new(keys.start as u64);
    let mut all = Token::new(store.definition().store);
    let keys: Vec<_> = keys.collect();
    for keys in keys.chunks(((4 << 20) / value_bytes).max(1)) {
        let mut batch = store.batch();
        for key in keys {
            batch.add(store.upsert(*key).set("blob", dice.noise(value_bytes))).unwrap();
        }
        let outcome = batch.send().await.unwrap();
        assert!(outcome.results.iter().all(Result::is_ok));
        all.merge(&outcome.token).unwrap();
    }
    all
}

/// Waits until the node's shard has applied a token's writes.
async fn is_applied(store: &Store, token: Token) {
    let read = forebay::reads::ReadOptions::after(token, LONG);
    store.ordered().unwrap().get(&read, 0_i64).await.unwrap();
}

fn directory(data: &Path) -> ShardDirectory {
    ShardDirectory::new(data.join("shards"), Resources::new(16 << 20).unwrap())
}

fn target(data: &Path, options: CopyOptions) -> CopyTarget {
    CopyTarget { directory: directory(data), entropy: Arc::new(SystemEntropy), options }
}

async fn copy(target: &CopyTarget, source: &str) -> forebay::Result<CopyProgress> {
    let progress = watch::Sender::new(CopyProgress::default());
    target.copy(source, "blobs", PartitionId(0), &progress).await
}

/// Returns the digest of copied rows.
fn digest_of(progress: &CopyProgress) -> RowsDigest {
    match progress.moved {
        CopyMoved::Rows { digest, .. } => digest,
        CopyMoved::Files { .. } => panic!("files were moved: {progress:?}"),
    }
}

/// Freezes a shard, which its node is closing or has closed, in one range.
fn freeze(data: &Path, definition: &Definition, place: &Path) -> Export {
    let at = PartitionRef { store: definition.store, partition: PartitionId(0) };
    let open = || directory(data).resume(at, PartitionCount(1), KeyOrder::of(definition));
    let is_closing = |error: &Error| error.message().contains("open already");
    let mut found = open();
    for _ in 0..LONG.as_millis() / 10 {
        if !found.as_ref().is_err_and(is_closing) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        found = open();
    }
    let (writer, _) = found.unwrap().expect("there is a shard");
    let mode = ExportMode::Rows { ranges_max: 1 };
    Export::create(writer.shard(), "blobs", place, 1, mode).unwrap()
}

/// Returns the digests of all rows of such a shard, and of its documents alone.
fn digests(data: &Path, definition: &Definition) -> (RowsDigest, RowsDigest) {
    let frozen = tempfile::tempdir_in(data).unwrap();
    let export = freeze(data, definition, &frozen.path().join("frozen"));
    let mut rows = export.rows(0, None).unwrap();
    let (mut all, mut documents) = (RowsDigest::default(), RowsDigest::default());
    loop {
        let mut block = RowsBlock::default();
        let end = rows.next(&mut block).unwrap();
        for row in block_rows(block.bytes()) {
            let (key, value) = row.unwrap();
            if key.first() == Some(&DOCUMENTS) {
                documents.add(key, value);
            }
        }
        let Some(end) = end else { continue };
        all.merge(end.digest);
        if end.is_range_end {
            return (all, documents);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_shard_follows_the_log_from_its_position() {
    for are_files_moved in [false, true] {
        let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let (source_dir, target_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut source = ServedNode::start(&log, source_dir.path()).await;
        let store = source.client().await.create_store(&spec()).await.unwrap();
        let id = store.definition().store;
        is_applied(&store, fill(&store, 0..5_000).await).await;
        let source_status = source.replica(id, is_caught_up).await;
        let options = CopyOptions { are_files_moved, ..CopyOptions::default() };
        let progress = copy(&target(target_dir.path(), options), &source.address).await.unwrap();
        match progress.moved {
            CopyMoved::Rows { digest, .. } => assert!(!are_files_moved && digest.rows >= 5_000),
            CopyMoved::Files { ended, in_all, bytes_in_all } => {
                assert!(are_files_moved && ended == in_all && progress.bytes == bytes_in_all);
            }
        }
        assert!(
            progress.bytes > 5_000_000 && progress.bytes_received >= progress.bytes,
            "{progress:?}"
        );

        is_applied(&store, fill(&store, 5_000..6_000).await).await;
        source.end().await;
        drop(source);
        let mut other = ServedNode::start(&log, target_dir.path()).await;
        let target_status = other.replica(id, is_caught_up).await;
        let applied = target_status.partitions[0].counts.records_applied;
        let tail = target_status.partitions[0].offset_applied.0
            - source_status.partitions[0].offset_applied.0;
        assert!(applied <= tail, "{applied} entries were applied, where {tail} are behind it");
        let found = other.client().await.store("blobs").await.unwrap().ordered().unwrap();
        let keys: Vec<i64> = (0..6_000).step_by(250).collect();
        let found = found.get_many(&forebay::reads::ReadOptions::local(), &keys[..]).await.unwrap();
        assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))), "{found:?}");
        other.end().await;
        drop(other);
        let documents =
            [source_dir, target_dir].map(|data| digests(data.path(), &store.definition()).1);
        assert_eq!(documents[0], documents[1]);
        assert_eq!(documents[0].rows, 6_000);
    }
}

/// Proves that a document larger than the message limit of any other service is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_of_many_mib_is_copied() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let source_dir = tempfile::tempdir().unwrap();
    let mut source = ServedNode::start(&log, source_dir.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    let mut dice = SeededRng::new(9);
    for name in ["blob", "other"] {
        store.upsert(7_i64).set(name, dice.noise(15 << 20)).send().await.unwrap();
    }
    is_applied(&store, fill(&store, 100..200).await).await;
    let places =
        [false, true].map(|are_files_moved| (are_files_moved, tempfile::tempdir().unwrap()));
    for (are_files_moved, target_dir) in &places {
        let options = CopyOptions { are_files_moved: *are_files_moved, ..CopyOptions::default() };
        let progress = copy(&target(target_dir.path(), options), &source.address).await.unwrap();
        assert!(progress.bytes > 30 << 20, "{progress:?}");
    }
    source.end().await;
    drop(source);
    let expected = digests(source_dir.path(), &store.definition()).1;
    assert_eq!(expected.rows, 101);
    for (_, target_dir) in &places {
        assert_eq!(digests(target_dir.path(), &store.definition()).1, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_targets_copy_concurrently_up_to_a_limit() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let source_dir = tempfile::tempdir().unwrap();
    let mut source = ServedNode::start(&log, source_dir.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    is_applied(&store, fill(&store, 0..8_000).await).await;
    let places: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let copies = places.iter().enumerate().map(|(place, data)| {
        // 8 MB at this limit: a burst of 4 MiB first, the rest at the rate.
        let bytes_per_second = if place == 0 { 2_000_000 } else { 0 };
        // The last target copies files.
        let are_files_moved = place == 2;
        let options = CopyOptions { bytes_per_second, are_files_moved, ..CopyOptions::default() };
        let (target, address) = (target(data.path(), options), source.address.clone());
        async move { copy(&target, &address).await.unwrap() }
    });
    let reports = futures::future::join_all(copies).await;
    assert!(reports[0].bytes_per_second < 6e6, "{reports:?}");
    source.end().await;
    drop(source);
    let found: Vec<_> =
        places.iter().map(|data| digests(data.path(), &store.definition())).collect();
    assert_eq!([found[0].0, found[1].0], [digest_of(&reports[0]), digest_of(&reports[1])]);
    assert!(found.iter().all(|(_, documents)| *documents == found[0].1), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_frozen_shard_of_a_killed_node_is_removed() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let data = tempfile::tempdir().unwrap();
    let torn_copy = data.path().join("shards/copies/00000000000000ab.begun");
    std::fs::create_dir_all(torn_copy.join("shard")).unwrap();
    let _served = ServedNode::start(&log, data.path()).await;
    let wait = async {
        while torn_copy.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_copy_reports_its_cause() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let (source_dir, target_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = ServedNode::start(&log, source_dir.path()).await;
    let patience = Duration::from_secs(1);
    let target = target(target_dir.path(), CopyOptions { patience, ..CopyOptions::default() });
    let error = copy(&target, &source.address).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    let client: Client = source.client().await;
    client.create_store(&spec()).await.unwrap();
    let progress = watch::Sender::new(CopyProgress::default());
    let result = target.copy(&source.address, "blobs", PartitionId(1), &progress).await;
    assert_eq!(result.unwrap_err().code(), ErrorCode::InvalidArgument);
    let error = copy(&target, "no address").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    let error = copy(&target, "127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let options = CopyOptions { parallelism: COPY_PARALLELISM_MAX + 1, ..CopyOptions::default() };
    let error = copy(&CopyTarget { options, ..target }, &source.address).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_copy_mode_is_refused() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let source_dir = tempfile::tempdir().unwrap();
    let source = ServedNode::start(&log, source_dir.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    source.replica(store.definition().store, is_caught_up).await;
    let address = format!("http://{}", source.address);
    let mut client = ShardCopiesClient::connect(address).await.unwrap();
    let request = |mode| v1::BeginCopyRequest { store: "blobs".into(), mode, ..Default::default() };
    let status = client.begin_copy(request(77)).await.unwrap_err();
    assert_eq!(error_of_status(&status).code(), ErrorCode::Unsupported, "{status}");
    // A client that does not know modes requests rows.
    let plan = client.begin_copy(request(0)).await.unwrap().into_inner().plan.unwrap();
    assert!(plan.files.is_empty() && !plan.ranges.is_empty(), "{plan:?}");
}
