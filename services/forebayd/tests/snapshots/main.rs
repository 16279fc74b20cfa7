//! Snapshots of a node's shards: built during writes and as deltas; readers and shards bootstrap
//! from them when the log was trimmed; over kills, and over a failing object store.

#[path = "../daemon/mod.rs"]
mod daemon;
mod damage;
mod full_disk;
mod kills;
#[path = "../served_node/mod.rs"]
mod served_node;
mod skew;
#[path = "../small_disk/mod.rs"]
mod small_disk;
mod trims;
#[path = "../users/mod.rs"]
mod users;

use std::sync::Arc;
use std::time::Duration;

use forebay::schema::Value;
use forebay::writes::Token;
use forebay::{Client, Reader, ReaderOptions, Store};
use forebay_core::clock::SystemClock;
use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_log::{ChangeLog, MemoryLog};
use forebay_snapshot::{Manifest, SnapshotStore};
use forebay_snapshot_service::{SnapshotOptions, Snapshots};
use forebay_testkit::objects::{ObjectFault, TestObjects};
use forebay_testkit::random::SeededRng;
use object_store::path::Path;
use served_node::{ServedNode, is_caught_up};

use crate::users::{
    ExpectedDocuments, LONG, PARTITIONS, assert_holds, reader, snapshots, spec, write,
};

fn options(every: Duration) -> SnapshotOptions {
    SnapshotOptions { collect_interval: every, ..SnapshotOptions::new(every, 3).unwrap() }
}

async fn await_trim(log: &Arc<dyn ChangeLog>, store: &Store) {
    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    let wait = async {
        while log.bounds(at).await.unwrap().start == Offset(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the log is not trimmed");
}

struct World {
    log: Arc<dyn ChangeLog>,
    objects: Arc<TestObjects>,
    store: SnapshotStore,
}

impl World {
    fn new() -> Self {
        let objects = Arc::new(TestObjects::default());
        let store = SnapshotStore::of(objects.clone(), Path::from("snapshots"));
        Self { log: Arc::new(MemoryLog::new(Arc::new(SystemClock))), objects, store }
    }

    /// Starts a node with shards in this folder, and its snapshot service.
    async fn start(&self, data: &std::path::Path, every: Duration) -> (ServedNode, Snapshots) {
        let node = ServedNode::start_with(&self.log, data, Some(self.store.clone())).await;
        let maintenance = maintain(&node, options(every));
        (node, maintenance)
    }
}

/// Starts the snapshot service of a node.
fn maintain(node: &ServedNode, options: SnapshotOptions) -> Snapshots {
    Snapshots::maintain(node.node.snapshot_parts(&node.address, options).unwrap())
}

async fn create_store(client: &Client) -> Store {
    client.create_store(&spec()).await.unwrap()
}

/// Writes a few changes at a time, until the newest snapshot of each partition has a delta and is
/// beyond this offset. Returns the token of the last write.
async fn write_deltas(
    world: &World,
    store: &Store,
    expected: &mut ExpectedDocuments,
    places: &[Offset],
) -> Token {
    for round in 1..100 {
        let token = write(store, expected, 100..300, 100_000 * round).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let mut newest = Vec::new();
        for at in users::partitions(store) {
            newest.extend(world.store.partition(at).newest(None).await.ok().flatten());
        }
        let is_layered = |newest: &Manifest| {
            let before = places[newest.at.partition.0 as usize];
            !newest.deltas.is_empty() && newest.progress.offset_applied > before
        };
        if newest.iter().filter(|newest| is_layered(newest)).count() == PARTITIONS as usize {
            assert!(newest.iter().all(|newest| newest.delta_documents() < 3_000));
            return token;
        }
    }
    panic!("no snapshot is an image and what has changed since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_shards_load_snapshots_if_the_log_is_trimmed() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (mut node, maintenance) = world.start(data.path(), Duration::from_millis(100)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..6_000, 0).await;
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 2_000).await;
    let places: Vec<_> = first.iter().map(|manifest| manifest.progress.offset_applied).collect();
    let token = write_deltas(&world, &store, &mut expected, &places).await;
    await_trim(&world.log, &store).await;
    let new_reader = reader(&node.address, &world.store, &token).await;
    assert_holds(&new_reader, &expected, 0..6_100);
    let counts = new_reader.status().partitions.iter().map(|at| at.counts.bootstraps).sum::<u64>();
    // The reader bootstraps again, because the log was trimmed beyond its first snapshot.
    assert!(counts >= u64::from(PARTITIONS), "{counts}");

    // A reader without access to the snapshots bootstraps from the shards.
    let bare_reader = Reader::open(&node.address, ReaderOptions::new("users")).await.unwrap();
    bare_reader.await_ready(LONG).await.unwrap();
    bare_reader.await_token(&token, LONG).await.unwrap();
    assert_holds(&bare_reader, &expected, 0..6_100);
    drop(bare_reader);

    // The shards are lost with their disk.
    maintenance.stop().await;
    node.end().await;
    drop((node, new_reader));
    let other = tempfile::tempdir().unwrap();
    let (node, _maintenance) = world.start(other.path(), Duration::from_secs(3_600)).await;
    let replica = node.replica(store.definition().store, is_caught_up).await;
    assert!(replica.partitions.iter().all(|at| at.counts.bootstraps == 1), "{replica:?}");
    let store = node.client().await.store("users").await.unwrap();
    let ordered = store.ordered().unwrap();
    let field = store.definition().field("age").unwrap().id;
    for key in 0..6_100 {
        let found = ordered.get(&forebay::reads::ReadOptions::local(), key).await.unwrap();
        let found = found.and_then(|found| found.value(field).cloned());
        assert_eq!(found, expected.get(&key).copied().map(Value::Int64), "{key}");
    }
    // The node continues from there.
    let token = write(&store, &mut expected, 5_900..6_200, 7).await;
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..6_200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_are_folded_into_an_image_and_expired_snapshots_are_removed() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, maintenance) = world.start(data.path(), Duration::from_millis(50)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..2_000, 0).await;
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 900).await;
    // More than a third of the documents change, a few at a time.
    for round in 1..12 {
        write(&store, &mut expected, 90 * round..90 * round + 90, 1_000 * round).await;
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
    let place = first[0].base.progress.offset_applied;
    snapshots(&world.store, &store, |newest| {
        newest.at.partition.0 > 0 || newest.base.progress.offset_applied > place
    })
    .await;
    // Wait until all snapshots of the first image have expired.
    let expired_count = maintenance.counts().snapshots_expired;
    let wait = async {
        while maintenance.counts().snapshots_expired < expired_count + 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("none expires");
    assert_eq!(maintenance.counts().chunks_removed, 0, "behind the grace alone");
    world.objects.pass(Duration::from_secs(25 * 3_600));
    let wait = async {
        while maintenance.counts().chunks_removed == 0
            || maintenance.counts().snapshots_removed == 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let result = tokio::time::timeout(LONG, wait).await;
    result.unwrap_or_else(|_| panic!("nothing goes: {:?}", maintenance.counts()));
    let token = write(&store, &mut expected, 0..100, 77).await;
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..2_100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_maintenance_requests_nothing_more() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, maintenance) = world.start(data.path(), Duration::from_millis(10)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..3_000, 0).await;
    snapshots(&world.store, &store, |_| true).await;
    // The stop interrupts builds.
    write(&store, &mut expected, 0..3_000, 1).await;
    maintenance.stop().await;
    let built_count = maintenance.counts().snapshots_built;
    write(&store, &mut expected, 0..100, 2).await;
    let calls = world.objects.calls();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.objects.calls(), calls);
    assert_eq!(maintenance.counts().snapshots_built, built_count);
    // A second stop has nothing to end.
    maintenance.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_object_store_costs_only_builds() {
    let world = World::new();
    let dice = parking_lot::Mutex::new(SeededRng::new(9));
    world.objects.decide(Some(Arc::new(move |_: &str, _| {
        let mut dice = dice.lock();
        dice.chance(5).then(|| {
            let faults = [ObjectFault::Refused, ObjectFault::LostAnswer, ObjectFault::Cut];
            *dice.pick(&[&faults[..], &[ObjectFault::Changed]].concat())
        })
    })));
    let data = tempfile::tempdir().unwrap();
    let (node, maintenance) = world.start(data.path(), Duration::from_millis(20)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..3_000, 0).await;
    for round in 1..20 {
        token = write(&store, &mut expected, 100 * round..100 * round + 50, round).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let wait = async {
        while maintenance.counts().snapshots_built < 6 || maintenance.counts().builds_failed < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{:?}", maintenance.counts()));
    // The reader meets the same faults.
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..3_100);
}
