//! An object store that has lost or changed its objects. Proves that no damaged data is served,
//! that the damage is found, that the next snapshot is complete, and that readers bootstrap in
//! another way.

use std::time::Duration;

use forebay::reads::{CheckpointOptions, ReadOptions};
use forebay::writes::Token;
use forebay::{ErrorCode, Reader, ReaderOptions};
use forebay_core::id::Offset;
use forebay_core::limits::SNAPSHOT_DELTAS_MAX;
use forebay_snapshot::{ChunkId, Manifest};
use forebay_snapshot_service::Snapshots;
use tempfile::TempDir;

use crate::served_node::ServedNode;
use crate::users::{
    ExpectedDocuments, LONG, PARTITIONS, assert_holds, partitions, reader, snapshots, write,
};
use crate::{World, await_trim, create_store, full_disk, maintain, options};

const KEYS: i64 = 3_000;

/// Returns the object of a chunk.
async fn object_of(world: &World, chunk: &ChunkId) -> String {
    let ending = format!("{}-{:016x}", chunk.hash, chunk.written_by);
    let mut names = world.objects.names().await.into_iter();
    names.find(|name| name.ends_with(&ending)).expect("it is there")
}

/// Returns the objects of the first chunks of these images.
async fn first_chunks(world: &World, manifests: &[Manifest]) -> Vec<String> {
    let mut names = Vec::new();
    for manifest in manifests {
        names.push(object_of(world, &manifest.base.chunks[0]).await);
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_after_a_lost_chunk_is_whole_again() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, _maintenance) = world.start(data.path(), Duration::from_millis(100)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..KEYS, 0).await;
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
    await_trim(&world.log, &store).await;
    for name in first_chunks(&world, &first).await {
        world.objects.lose(&name).await;
    }
    // This few changes would normally become a delta.
    let token = write(&store, &mut expected, 0..100, 5).await;
    let lost_chunks: Vec<_> = first.iter().map(|manifest| manifest.base.chunks[0]).collect();
    let is_whole = |newest: &Manifest| !lost_chunks.contains(&newest.base.chunks[0]);
    for newest in snapshots(&world.store, &store, is_whole).await {
        for chunk in newest.chunks() {
            world.store.partition(newest.at).chunk(*chunk).await.unwrap();
        }
    }
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..KEYS);
}

/// Flips a bit in the middle of an object.
async fn damage(world: &World, name: &str) {
    let mut bytes = world.objects.bytes(name).await.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.objects.replace(name, bytes.into()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_shared_chunk_is_found_and_written_again() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, _maintenance) = world.start(data.path(), Duration::from_millis(50)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..KEYS, 0).await;
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
    let damaged_chunks: Vec<_> = first.iter().map(|manifest| manifest.base.chunks[0]).collect();
    for name in first_chunks(&world, &first).await {
        damage(&world, &name).await;
    }
    let is_over_it = |newest: &Manifest| damaged_chunks.contains(&newest.base.chunks[0]);
    let (mut token, mut longest, mut shared_count) = (None, 0, 0);
    let wait = async {
        for round in 1.. {
            // This few changes always become a delta.
            token = Some(write(&store, &mut expected, 0..4, round).await);
            tokio::time::sleep(Duration::from_millis(60)).await;
            let mut remaining_count = 0;
            for at in partitions(&store) {
                let partition_snapshots = world.store.partition(at);
                let Some(newest) = partition_snapshots.newest(None).await.unwrap() else {
                    continue;
                };
                if !is_over_it(&newest) {
                    continue;
                }
                remaining_count += 1;
                longest = longest.max(newest.deltas.len());
                for snapshot in partition_snapshots.list().await.unwrap() {
                    // Every snapshot that has the chunk is refused.
                    let chunk =
                        partition_snapshots.read(snapshot.name).await.unwrap().base.chunks[0];
                    let found = partition_snapshots.chunk(chunk).await;
                    if damaged_chunks.contains(&chunk) {
                        shared_count += 1;
                        assert_eq!(found.unwrap_err().code(), ErrorCode::Corrupt);
                    }
                }
            }
            if remaining_count == 0 {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the damage stays");
    assert!(shared_count > 2, "none shared it");
    assert!(longest < SNAPSHOT_DELTAS_MAX / 2, "it went by itself: {longest}");
    let new_reader = reader(&node.address, &world.store, &token.unwrap()).await;
    assert_holds(&new_reader, &expected, 0..KEYS);
    for partition in new_reader.status().partitions {
        assert_eq!(
            (partition.counts.bootstraps > 0, partition.counts.bootstraps_failed),
            (true, 0),
            "{partition:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_after_unreadable_manifests_is_whole() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, maintenance) = world.start(data.path(), Duration::from_millis(50)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..KEYS, 0).await;
    snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
    maintenance.stop().await;
    for name in world.objects.names().await.iter().filter(|name| name.ends_with(".manifest")) {
        damage(&world, name).await;
    }
    let token = write(&store, &mut expected, 0..100, 5).await;
    let options = options(Duration::from_millis(50));
    let _maintenance = maintain(&node, options);
    for newest in snapshots(&world.store, &store, |_| true).await {
        assert!(newest.base.documents > 1_400, "{newest:?}");
    }
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..KEYS);
}

/// A node whose store has one snapshot of each partition, with all of its documents, and a log that
/// was trimmed up to the snapshots.
struct TrimmedNode {
    world: World,
    node: ServedNode,
    expected: ExpectedDocuments,
    token: Token,
    first: Vec<Manifest>,
    _maintenance: Snapshots,
    _data: TempDir,
}

impl TrimmedNode {
    async fn start() -> Self {
        let world = World::new();
        let data = tempfile::tempdir().unwrap();
        let snapshots_of = Some(world.store.clone());
        let node = ServedNode::start_with(&world.log, data.path(), snapshots_of).await;
        let store = create_store(&node.client().await).await;
        let mut expected = ExpectedDocuments::new();
        let token = write(&store, &mut expected, 0..KEYS, 0).await;
        let read = ReadOptions::after(token.clone(), LONG);
        for key in 0..50 {
            store.ordered().unwrap().get(&read, key).await.unwrap();
        }
        // There is one snapshot of each partition, and none after it.
        let options = options(Duration::from_secs(3_600));
        let maintenance = maintain(&node, options);
        let first = snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
        await_trim(&world.log, &store).await;
        Self { world, node, expected, token, first, _maintenance: maintenance, _data: data }
    }

    /// Bootstraps a new reader and asserts that it has everything; returns whether a partition's
    /// first attempt failed.
    async fn begin(&self) -> bool {
        let new_reader = reader(&self.node.address, &self.world.store, &self.token).await;
        assert_holds(&new_reader, &self.expected, 0..KEYS);
        let partitions = new_reader.status().partitions;
        assert_eq!(partitions.len(), PARTITIONS as usize);
        assert!(partitions.iter().all(|it| it.counts.bootstraps == 1), "{partitions:?}");
        partitions.iter().any(|it| it.counts.bootstraps_failed > 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_snapshot_is_not_served_and_the_reader_loads_a_shard() {
    let node = TrimmedNode::start().await;
    let objects = &node.world.objects;
    for name in &first_chunks(&node.world, &node.first).await {
        let bytes = objects.bytes(name).await;
        objects.replace(name, bytes.slice(..bytes.len() / 2)).await;
    }
    assert!(node.begin().await);
    for name in &first_chunks(&node.world, &node.first).await {
        damage(&node.world, name).await;
    }
    assert!(node.begin().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_without_a_readable_manifest_loads_a_shard() {
    let node = TrimmedNode::start().await;
    let objects = &node.world.objects;
    let mut names = objects.names().await;
    names.retain(|name| name.ends_with(".manifest"));
    assert_eq!(names.len(), PARTITIONS as usize);
    for name in &names {
        damage(&node.world, name).await;
    }
    assert!(node.begin().await);
    // The manifests have a format that this build does not know, which no wait resolves.
    for name in &names {
        let mut bytes = objects.bytes(name).await.to_vec();
        // The version follows the magic of four bytes.
        bytes[4..6].copy_from_slice(&[0xff, 0xff]);
        objects.replace(name, bytes.into()).await;
    }
    assert!(!node.begin().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_copy_of_an_image_with_a_wrong_chunk_is_not_served() {
    let (world, data) = (World::new(), tempfile::tempdir().unwrap());
    let node = ServedNode::start_with(&world.log, data.path(), Some(world.store.clone())).await;
    let (store, at) = full_disk::create_store(&node.client().await).await;
    full_disk::put(&store, 0..full_disk::DOCUMENTS).await;
    let ordered = store.ordered().unwrap();
    let last = async || ordered.get(&ReadOptions::local(), full_disk::DOCUMENTS - 1).await;
    let is_applied = async || last().await.is_ok_and(|found| found.is_some());
    full_disk::eventually("a shard that has all", is_applied).await;
    // The first snapshot includes everything, so that it is a single image.
    let service_options = options(Duration::from_millis(100));
    let _maintenance = maintain(&node, service_options);
    let partition_snapshots = world.store.partition(at);
    let is_trimmed = async || world.log.bounds(at).await.unwrap().start > Offset(0);
    full_disk::eventually("a log that begins behind it", is_trimmed).await;
    let chunks = partition_snapshots.newest(None).await.unwrap().unwrap().base.chunks;
    assert!(chunks.len() > 2, "{} chunks", chunks.len());
    for chunk in &chunks {
        let name = object_of(&world, chunk).await;
        let bytes = world.objects.bytes(&name).await;
        damage(&world, &name).await;
        let folder = tempfile::tempdir().unwrap();
        let options = ReaderOptions::new("blobs")
            .snapshots(world.store.clone())
            .checkpoint(CheckpointOptions::new(folder.path()));
        let reader = Reader::open(&node.address, options).await.unwrap();
        reader.await_ready(LONG).await.unwrap();
        full_disk::assert_holds(&reader, 0..full_disk::DOCUMENTS);
        let counts = reader.status().partitions[0].counts;
        assert!(counts.bootstraps == 1 && counts.bootstraps_failed > 0, "{counts:?}");
        reader.close(LONG).await.unwrap();
        world.objects.replace(&name, bytes).await;
    }
}
