//! An object store that has lost or changed what it held: nothing of it is served, the next
//! snapshot is whole again, and readers do without.

use std::time::Duration;

use bytes::Bytes;
use forebay_snapshot::{ChunkId, Manifest};

use crate::served::Served;
use crate::users::{Held, LONG, PARTITIONS, assert_holds, reader, snapshots, write};
use crate::{World, made, options, trimmed};

const KEYS: i64 = 3_000;

/// The objects of the first chunks of these images.
async fn first_chunks(world: &World, of: &[Manifest]) -> Vec<String> {
    let names = world.objects.names().await;
    let is_it = |name: &str, chunk: &ChunkId| {
        name.ends_with(&format!("{}-{:016x}", chunk.hash, chunk.written_by))
    };
    let of_chunk =
        |chunk: &ChunkId| names.iter().find(|name| is_it(name, chunk)).expect("it is there");
    of.iter().map(|manifest| of_chunk(&manifest.base.chunks[0]).clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_chunk_is_lost_the_next_snapshot_is_whole_again() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (served, _kept) = world.start(data.path(), Duration::from_millis(100)).await;
    let store = made(&served.client().await).await;
    let mut held = Held::new();
    write(&store, &mut held, 0..KEYS, 0).await;
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
    trimmed(&world.log, &store).await;
    for name in first_chunks(&world, &first).await {
        world.objects.lose(&name).await;
    }
    // So few that they would be laid over the image.
    let token = write(&store, &mut held, 0..100, 5).await;
    let lost: Vec<_> = first.iter().map(|manifest| manifest.base.chunks[0]).collect();
    let is_whole = |newest: &Manifest| !lost.contains(&newest.base.chunks[0]);
    for newest in snapshots(&world.store, &store, is_whole).await {
        for chunk in newest.chunks() {
            world.store.partition(newest.at).chunk(*chunk).await.unwrap();
        }
    }
    assert_holds(&reader(&served.address, &world.store, &token).await, &held, 0..KEYS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_snapshot_stays_damaged_serves_none_of_it_and_begins_with_a_shard() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let snapshots_of = Some(world.store.clone());
    let served = Served::start_with(&world.log, data.path(), snapshots_of).await;
    let store = made(&served.client().await).await;
    let mut held = Held::new();
    let token = write(&store, &mut held, 0..KEYS, 0).await;
    let read = forebay::Read::after_token(token.clone(), LONG);
    for key in 0..50 {
        store.ordered().unwrap().get(&read, key).await.unwrap();
    }
    // One of each partition, and none behind it.
    let options = options(Duration::from_secs(3_600));
    let _kept = served.node.keep_snapshots(&served.address, options).unwrap();
    let first = snapshots(&world.store, &store, |newest| newest.base.documents > 1_400).await;
    trimmed(&world.log, &store).await;
    let names = first_chunks(&world, &first).await;
    for is_cut in [true, false] {
        for name in &names {
            let mut bytes = world.objects.bytes(name).await.to_vec();
            let middle = bytes.len() / 2;
            match is_cut {
                true => bytes.truncate(middle),
                false => bytes[middle] ^= 1,
            }
            world.objects.replace(name, Bytes::from(bytes)).await;
        }
        let begun = reader(&served.address, &world.store, &token).await;
        assert_holds(&begun, &held, 0..KEYS);
        let partitions = begun.status().partitions;
        assert_eq!(partitions.len(), PARTITIONS as usize);
        assert!(partitions.iter().all(|at| at.counts.bootstraps_failed > 0), "{partitions:?}");
    }
}
