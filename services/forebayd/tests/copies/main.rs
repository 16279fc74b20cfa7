//! Copies of shards between nodes: what comes, what follows, what breaks.

#[path = "../daemon/mod.rs"]
mod daemon;
mod kills;
#[path = "../served/mod.rs"]
mod served;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Client, ErrorCode, FieldType, KeyType, ScalarType, Store, StoreSpec, Token};
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::schema::Definition;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_replicator_service::{CopyOptions, CopyProgress, CopyTarget};
use forebay_shard::{Export, Resources, ShardDirectory};
use forebay_testkit::random::Dice;
use forebay_wire::shard_copy::RowsBlock;
use served::{Served, is_caught_up};
use tokio::sync::watch;

const VALUE_BYTES: usize = 1_000;

fn spec() -> StoreSpec {
    StoreSpec::documents("blobs", KeyType::Int64, 1)
        .field("blob", FieldType::Scalar(ScalarType::Bytes))
}

/// Writes documents of random bytes under these keys; the token of all.
async fn fill(store: &Store, keys: std::ops::Range<i64>) -> Token {
    let mut dice = Dice::new(keys.start as u64);
    let mut all = Token::new(store.definition().store);
    let keys: Vec<_> = keys.collect();
    for keys in keys.chunks(1_000) {
        let mut batch = store.batch();
        for key in keys {
            let blob: Vec<u8> =
                (0..VALUE_BYTES / 8).flat_map(|_| dice.bits().to_le_bytes()).collect();
            batch.add(store.upsert(*key).set("blob", blob)).unwrap();
        }
        let written = batch.send().await.unwrap();
        assert!(written.results.iter().all(Result::is_ok));
        all.merge(&written.token).unwrap();
    }
    all
}

fn directory(data: &Path) -> ShardDirectory {
    ShardDirectory::new(data.join("shards"), Resources::new(16 << 20).unwrap())
}

fn target(data: &Path, options: CopyOptions) -> CopyTarget {
    CopyTarget { directory: directory(data), entropy: Arc::new(SystemEntropy), options }
}

async fn copy(target: &CopyTarget, from: &str) -> forebay::Result<CopyProgress> {
    let progress = watch::Sender::new(CopyProgress::default());
    target.copy(from, "blobs", PartitionId(0), &progress).await
}

/// Digest of all rows of a closed shard.
fn digest(data: &Path, definition: &Definition) -> RowsDigest {
    let at = PartitionRef { store: definition.store, partition: PartitionId(0) };
    let directory = directory(data);
    let found = directory.resume(at, PartitionCount(1), KeyOrder::of(definition)).unwrap();
    let (writer, _) = found.expect("there is a shard");
    let frozen = tempfile::tempdir_in(data).unwrap();
    let place = frozen.path().join("frozen");
    let export = Export::create(writer.shard(), "blobs", &place, 1, 1).unwrap();
    let (mut rows, mut all) = (export.rows(0, None).unwrap(), RowsDigest::default());
    loop {
        let mut block = RowsBlock::default();
        let Some(end) = rows.next(&mut block).unwrap() else { continue };
        all.merge(end.digest);
        if end.is_range_end {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_followed_from_its_position_on() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut source = Served::start(&log, from.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    let id = store.definition().store;
    fill(&store, 0..5_000).await;
    let told = source.replica(id, is_caught_up).await;
    let copied = copy(&target(to.path(), CopyOptions::default()), &source.address).await.unwrap();
    assert!(copied.digest.rows >= 5_000 && copied.bytes > 5_000_000, "{copied:?}");
    assert!(copied.bytes_received >= copied.bytes, "{copied:?}");

    fill(&store, 5_000..6_000).await;
    source.replica(id, is_caught_up).await;
    source.end().await;
    drop(source);
    let other = Served::start(&log, to.path()).await;
    let followed = other.replica(id, is_caught_up).await;
    let applied = followed.partitions[0].counts.applied;
    let tail = followed.partitions[0].offset_applied.0 - told.partitions[0].offset_applied.0;
    assert!(applied <= tail, "{applied} entries were applied, where {tail} are behind the copy");
    let found = other.client().await.store("blobs").await.unwrap().ordered().unwrap();
    let keys: Vec<i64> = (0..6_000).step_by(250).collect();
    let found = found.multi_get(&forebay::Read::local(), &keys[..]).await.unwrap();
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_targets_copy_at_once_and_a_bound_holds() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let from = tempfile::tempdir().unwrap();
    let mut source = Served::start(&log, from.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    fill(&store, 0..8_000).await;
    source.replica(store.definition().store, is_caught_up).await;
    let places: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let copies = places.iter().enumerate().map(|(place, data)| {
        // 8 MB go in a burst of 4 MiB, and then by the second.
        let bytes_per_second = if place == 0 { 2_000_000 } else { 0 };
        let options = CopyOptions { bytes_per_second, ..CopyOptions::default() };
        let (target, address) = (target(data.path(), options), source.address.clone());
        async move { copy(&target, &address).await.unwrap() }
    });
    let copied = futures::future::join_all(copies).await;
    assert!(copied[0].bytes_per_second < 6e6, "{copied:?}");
    source.end().await;
    drop(source);
    let definition = store.definition();
    let digests: Vec<_> = places.iter().map(|data| digest(data.path(), &definition)).collect();
    assert_eq!(digests, copied.iter().map(|copied| copied.digest).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_kill_left_half_frozen_goes() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let data = tempfile::tempdir().unwrap();
    let torn = data.path().join("shards/copies/00000000000000ab.begun");
    std::fs::create_dir_all(torn.join("shard")).unwrap();
    let _served = Served::start(&log, data.path()).await;
    let gone = async {
        while torn.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_copied_is_said() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = Served::start(&log, from.path()).await;
    let patience = Duration::from_secs(1);
    let target = target(to.path(), CopyOptions { patience, ..CopyOptions::default() });
    let error = copy(&target, &source.address).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    let client: Client = source.client().await;
    client.create_store(&spec()).await.unwrap();
    let progress = watch::Sender::new(CopyProgress::default());
    let beyond = target.copy(&source.address, "blobs", PartitionId(1), &progress).await;
    assert_eq!(beyond.unwrap_err().code(), ErrorCode::InvalidArgument);
    let nowhere = copy(&target, "no address").await.unwrap_err();
    assert_eq!(nowhere.code(), ErrorCode::InvalidArgument, "{nowhere}");
    let nobody = copy(&target, "127.0.0.1:1").await.unwrap_err();
    assert_eq!(nobody.code(), ErrorCode::Unavailable, "{nobody}");
}
