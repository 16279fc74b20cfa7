//! Comparisons of copies of a store: a shard, a snapshot, a reader and its checkpoint, at any
//! positions; and copies that were tampered with.

#[path = "../daemon/mod.rs"]
mod daemon;
mod process;
#[path = "../served_node/mod.rs"]
mod served_node;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::reads::CheckpointOptions;
use forebay::schema::{Alteration, FieldType, KeyType, ScalarType, StoreSpec};
use forebay::writes::Token;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::ErrorCode;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::fold::FoldEffects;
use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::schema::Definition;
use forebay_core::state_rows::RestoredState;
use forebay_entries::CatalogFollower;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_reader::{
    DifferenceKind, OfflineCopy, ReaderCopy, ShardCopy, Verification, VerifiedCopy, VerifyLog,
    verify,
};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::{PointInTimePartition, SnapshotStore};
use forebay_snapshot_service::{SnapshotOptions, Snapshots};
use forebay_testkit::objects::TestObjects;
use object_store::path::Path as ObjectPath;
use served_node::{ServedNode, is_caught_up};
use tonic::transport::{Channel, Endpoint};

const PARTITIONS: u32 = 2;
const KEYS: i64 = 3_000;
const LONG: Duration = Duration::from_secs(60);

fn spec() -> StoreSpec {
    let scalar = FieldType::Scalar;
    StoreSpec::documents("users", KeyType::String)
        .partitions(PARTITIONS)
        .field("count", scalar(ScalarType::Int64))
        .field("name", scalar(ScalarType::String))
}

/// A node whose shards have snapshots, with its log and folder.
struct World {
    log: Arc<dyn ChangeLog>,
    snapshots: SnapshotStore,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let objects = Arc::new(TestObjects::default());
        let snapshots = SnapshotStore::of(objects, ObjectPath::from("snapshots"));
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        Self { log, snapshots, folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    async fn start(&self) -> ServedNode {
        ServedNode::start_with(&self.log, &self.data(), Some(self.snapshots.clone())).await
    }

    /// Takes a snapshot of each partition's current state.
    async fn snapshot(&self, node: &ServedNode, store: &Store) {
        node.replica(store.definition().store, is_caught_up).await;
        let options = SnapshotOptions::new(LONG, 3).unwrap();
        let parts = node.node.snapshot_parts(&node.address, options).unwrap();
        let maintenance = Snapshots::maintain(parts);
        for partition in 0..PARTITIONS {
            let at =
                PartitionRef { store: store.definition().store, partition: PartitionId(partition) };
            let wait = async {
                while self.snapshots.partition(at).newest(None).await.ok().flatten().is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(LONG, wait).await.expect("no snapshot is made");
        }
        maintenance.stop().await;
    }

    async fn compared_store(&self) -> ComparedStore {
        let catalog = CatalogFollower::start(Arc::clone(&self.log), Arc::new(SystemEntropy));
        let end = self.log.bounds(PartitionRef::CONTROL).await.unwrap().end;
        catalog.wait_applied(end, LONG).await.unwrap();
        let store = catalog.catalog().store_by_name("users").unwrap().definition.store;
        let versions = catalog.catalog();
        let versions = versions.store(store).unwrap().versions();
        let definitions = versions.map(|schema| (*schema.definition).clone()).collect();
        let log = VerifyLog::new(Arc::clone(&self.log), Arc::new(catalog), store).unwrap();
        ComparedStore { log, definitions }
    }
}

/// The store's log and definitions, for a comparison of its copies.
struct ComparedStore {
    log: VerifyLog,
    definitions: Vec<Definition>,
}

impl ComparedStore {
    fn newest(&self) -> &Definition {
        self.definitions.last().unwrap()
    }

    async fn shard(&self, node: &ServedNode, partition: u32) -> Box<dyn VerifiedCopy> {
        let (newest, partition) = (self.newest(), PartitionId(partition));
        let way = way(&node.address);
        Box::new(ShardCopy::freeze(way, newest, newest.store, partition).await.unwrap())
    }

    async fn snapshot(&self, world: &World, partition: u32) -> Box<dyn VerifiedCopy> {
        let at = PartitionRef { store: self.newest().store, partition: PartitionId(partition) };
        let snapshots = world.snapshots.partition(at);
        let manifest = snapshots.newest(None).await.unwrap().unwrap();
        let (definitions, scratch) = (&self.definitions, world.folder.path());
        let past =
            PointInTimePartition::begin(&snapshots, &manifest, definitions, scratch, 64 << 20);
        Box::new(OfflineCopy::of_snapshot(past.await.unwrap()))
    }

    fn checkpoint(&self, dir: &Path, partition: u32) -> Box<dyn VerifiedCopy> {
        let copy = OfflineCopy::of_checkpoint(dir, &self.definitions, PartitionId(partition));
        Box::new(copy.unwrap())
    }

    async fn compare(
        &self,
        mut first: Box<dyn VerifiedCopy>,
        mut second: Box<dyn VerifiedCopy>,
    ) -> forebay_core::Result<Verification> {
        let verification = verify(&mut *first, &mut *second, &self.log).await;
        tokio::join!(first.end(), second.end());
        verification
    }

    async fn assert_same(
        &self,
        first: Box<dyn VerifiedCopy>,
        second: Box<dyn VerifiedCopy>,
    ) -> Verification {
        let verification = self.compare(first, second).await.unwrap();
        assert!(verification.is_same(), "{verification:?}");
        assert_eq!(verification.documents.0, verification.documents.1);
        verification
    }
}

fn way(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

fn reader_copy(reader: &Reader, partition: u32) -> Box<dyn VerifiedCopy> {
    Box::new(ReaderCopy::new((**reader).clone(), PartitionId(partition), LONG))
}

/// Writes all kinds of changes to some documents: some exist before, some are deleted, some expire.
async fn write(store: &Store, keys: std::ops::Range<i64>) -> Token {
    let mut batch = store.batch();
    let mut token = Token::new(store.definition().store);
    for key in keys {
        let name = format!("user-{}", key % KEYS);
        let write = match key % 10 {
            0 => store.delete(&*name),
            1 => store.upsert(&*name).set("name", "brief").ttl(Duration::from_millis(1)),
            2 => store
                .upsert(&*name)
                .set("name", "brief")
                .field_ttl("name", Duration::from_millis(1))
                .increment("count", 1),
            _ => store.upsert(&*name).increment("count", key).set("name", format!("{key}")),
        };
        batch.add(write).unwrap();
        if batch.len() == 500 {
            let outcome = std::mem::replace(&mut batch, store.batch()).send().await.unwrap();
            token.merge(&outcome.token).unwrap();
        }
    }
    token.merge(&batch.send().await.unwrap().token).unwrap();
    token
}

async fn open(node: &ServedNode, dir: Option<&Path>, token: &Token) -> Reader {
    let checkpoint = dir.map(CheckpointOptions::new);
    let options = ReaderOptions::new("users").checkpoint(checkpoint);
    let reader = Reader::open(&node.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader.await_token(token, LONG).await.unwrap();
    reader
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_store_are_equal_in_every_place() {
    let world = World::new();
    let node = world.start().await;
    let client = node.client().await;
    let store = client.create_store(&spec()).await.unwrap();
    write(&store, 0..KEYS).await;
    world.snapshot(&node, &store).await;
    let checkpoints = tempfile::tempdir().unwrap();
    let token = write(&store, 1_000..2_003).await;
    let checkpoint_reader = open(&node, Some(checkpoints.path()), &token).await;
    checkpoint_reader.close(LONG).await.unwrap();
    let token = write(&store, KEYS + 900..KEYS + 1_777).await;
    let reader = open(&node, None, &token).await;
    let comparison = world.compared_store().await;
    for partition in 0..PARTITIONS {
        let shard = async || comparison.shard(&node, partition).await;
        let snapshot = async || comparison.snapshot(&world, partition).await;
        let checkpoint = || comparison.checkpoint(checkpoints.path(), partition);
        let verification = comparison.assert_same(shard().await, snapshot().await).await;
        assert!(verification.documents.0 > 1_000, "{verification:?}");
        comparison.assert_same(snapshot().await, shard().await).await;
        comparison.assert_same(shard().await, checkpoint()).await;
        comparison.assert_same(checkpoint(), snapshot().await).await;
        comparison.assert_same(shard().await, shard().await).await;
        comparison.assert_same(reader_copy(&reader, partition), shard().await).await;
        comparison.assert_same(snapshot().await, reader_copy(&reader, partition)).await;
    }

    // The copies are also equal during writes, and after a drop of all documents.
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        async move {
            for first in (0..).step_by(100) {
                write(&store, first..first + 100).await;
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        }
    });
    for drops in 0..2 {
        for partition in [0, 1, 0, 1] {
            let (reader, shard) =
                (reader_copy(&reader, partition), comparison.shard(&node, partition).await);
            comparison.assert_same(reader, shard).await;
            let (shard, snapshot) = (
                comparison.shard(&node, partition).await,
                comparison.snapshot(&world, partition).await,
            );
            comparison.assert_same(shard, snapshot).await;
        }
        if drops == 0 {
            client.alter_store("users", None, &[Alteration::DropAll]).await.unwrap();
            write(&store, 0..100).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    writing.await.unwrap();
}

fn shards(world: &World) -> ShardDirectory {
    ShardDirectory::new(world.data().join("shards"), Resources::new(64 << 20).unwrap())
}

/// Tampers with a shard while its replicator is stopped: changes one row, removes one, and adds
/// one.
fn tamper(world: &World, definition: &Definition) -> BTreeMap<(u32, String), DifferenceKind> {
    let (directory, order) = (shards(world), KeyOrder::of(definition));
    let mut expected = BTreeMap::new();
    for partition in definition.partitions.partitions() {
        let at = PartitionRef { store: definition.store, partition };
        let shard = directory.resume(at, definition.partitions, order).unwrap();
        let (mut writer, RestoredState { state, follow_state, .. }) = shard.unwrap();
        let keys = (3..KEYS).map(|key| format!("user-{key}"));
        let mut rows = keys.filter_map(|key| {
            let row = writer.shard().row(key.as_bytes()).unwrap()?.to_vec();
            // The row has no expiry.
            (row[2] == 0).then_some((key, row))
        });
        let (changed_key, mut row) = rows.next().unwrap();
        let (removed_key, other) = rows.next().unwrap();
        *row.last_mut().unwrap() ^= 1;
        let key = |name: &str| Key::plain(name.as_bytes()).unwrap();
        let writes = vec![
            (key(&changed_key), Some(row)),
            (key(&removed_key), None),
            (key("nobody"), Some(other)),
        ];
        drop(rows);
        let effects = FoldEffects { writes, ..FoldEffects::default() };
        writer.apply(&effects, &state, follow_state).unwrap();
        writer.shard().flush().unwrap();
        expected.insert((partition.0, changed_key), DifferenceKind::Contents);
        expected.insert((partition.0, removed_key), DifferenceKind::OnlyInSecond);
        expected.insert((partition.0, "nobody".to_owned()), DifferenceKind::OnlyInFirst);
    }
    expected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tampered_documents_are_named() {
    let world = World::new();
    let mut node = world.start().await;
    let store = node.client().await.create_store(&spec()).await.unwrap();
    let token = write(&store, 0..KEYS).await;
    world.snapshot(&node, &store).await;
    let reader = open(&node, None, &token).await;
    node.end().await;
    drop(node);
    let definition = store.definition();
    // The shards close after the node.
    let wait = async {
        let directory = shards(&world);
        let at = PartitionRef { store: definition.store, partition: PartitionId(0) };
        while let Err(error) =
            directory.resume(at, definition.partitions, KeyOrder::of(&definition))
        {
            assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the shards stay open");
    let expected = tamper(&world, &definition);
    let node = world.start().await;
    node.replica(definition.store, is_caught_up).await;
    let comparison = world.compared_store().await;
    let mut found = BTreeMap::new();
    let fresh = open(&node, None, &token).await;
    for partition in 0..PARTITIONS {
        let shard = async || comparison.shard(&node, partition).await;
        let verification =
            comparison.compare(shard().await, comparison.snapshot(&world, partition).await).await;
        let verification = verification.unwrap();
        assert!(!verification.is_same());
        let mirrored =
            comparison.compare(comparison.snapshot(&world, partition).await, shard().await).await;
        let mirrored = mirrored.unwrap();
        for result in [&verification, &mirrored] {
            // A row was removed and another added; some documents expire between the two
            // comparisons.
            assert_eq!(result.documents.0, result.documents.1);
        }
        assert_eq!(mirrored.differences.len(), verification.differences.len());
        // A reader also verifies itself.
        let own_verification = fresh.verify(PartitionId(partition), LONG).await.unwrap();
        assert_eq!(own_verification.differences, mirrored.differences);
        for ((key, kind), (other, mirrored)) in
            verification.differences.iter().zip(&mirrored.differences)
        {
            let is_mirrored = match kind {
                DifferenceKind::OnlyInFirst => DifferenceKind::OnlyInSecond,
                DifferenceKind::OnlyInSecond => DifferenceKind::OnlyInFirst,
                DifferenceKind::Contents => DifferenceKind::Contents,
            };
            assert_eq!((key, &is_mirrored), (other, mirrored));
            let key = String::from_utf8(key.as_bytes().to_vec()).unwrap();
            found.insert((partition, key), *kind);
        }
    }
    assert_eq!(found, expected);
    drop(reader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomparable_copies_report_the_cause() {
    let world = World::new();
    let node = world.start().await;
    let store = node.client().await.create_store(&spec()).await.unwrap();
    let token = write(&store, 0..KEYS).await;
    world.snapshot(&node, &store).await;
    let (reader, other) = (open(&node, None, &token).await, open(&node, None, &token).await);
    let comparison = world.compared_store().await;
    let code = async |first, second| comparison.compare(first, second).await.unwrap_err().code();
    assert_eq!(
        code(reader_copy(&reader, 0), reader_copy(&other, 0)).await,
        ErrorCode::InvalidArgument
    );
    let (zero, first) = (comparison.shard(&node, 0).await, comparison.shard(&node, 1).await);
    assert_eq!(code(zero, first).await, ErrorCode::InvalidArgument);
    // The log between the snapshot and the shard is trimmed.
    write(&store, 0..KEYS).await;
    node.replica(store.definition().store, is_caught_up).await;
    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    let end = world.log.bounds(at).await.unwrap().end;
    world.log.trim(at, Offset(end.0 - 1)).await.unwrap();
    let (shard, snapshot) =
        (comparison.shard(&node, 0).await, comparison.snapshot(&world, 0).await);
    assert_eq!(code(shard, snapshot).await, ErrorCode::TokenLost);
    // The reader is closed.
    other.begin_close();
    assert_eq!(
        code(reader_copy(&other, 0), comparison.shard(&node, 0).await).await,
        ErrorCode::Closed
    );
    let result =
        OfflineCopy::of_checkpoint(world.folder.path(), &comparison.definitions, PartitionId(0));
    assert_eq!(result.err().unwrap().code(), ErrorCode::NotFound);
}
