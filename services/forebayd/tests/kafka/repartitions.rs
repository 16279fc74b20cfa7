//! Repartitions on Kafka during writes and reads: at a single node, and at two nodes that both
//! forward entries, of which the pushing one is killed.

use forebay_core::versions::VersionNumber;

use crate::builders::start;
use crate::repartition::Moment::{Forwarding, Known, WritesPaused};
use crate::repartition::{
    Moment, PARTITIONS_AFTER, Writers, assert_is_whole, client, comes, create, file, is_live, push,
    read_lists, read_lists_in_shards, reader,
};
use crate::world::World;

/// Number of attempts to kill a node at the wanted moment.
const ATTEMPTS: usize = 5;

/// Repartitions a store; if there is a second node, kills the pushing one at some moment. Returns
/// whether the moment was seen.
async fn moves(prefix: &str, killed_at: Option<Moment>) -> bool {
    let (world, folder) = (World::new(prefix), tempfile::tempdir().unwrap());
    let snapshots = format!("file://{}", folder.path().display());
    let data = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut node = start(&world, &snapshots, &data[0], "127.0.0.1:0");
    let store = create(&node.address).await;
    let other = killed_at.map(|_| start(&world, &snapshots, &data[1], "127.0.0.1:0"));
    let stays = other.as_ref().map_or(&node.address, |other| &other.address).clone();
    let old = reader(&stays, "users").await;
    let writers = Writers::start(&[&node.address, &stays]).await;
    writers.go_on().await;

    let (at, file) = (node.address.clone(), file(data[0].path()));
    let pushing = tokio::spawn(async move { push(&at, &file).await });
    let is_seen = comes(killed_at.unwrap_or(Known), &store, &node.address).await;
    let from = writers.next();
    let live = if killed_at.is_some() {
        let address = node.kill();
        let live = is_live(&client(&stays).await.store("users").await.unwrap()).await;
        node = start(&world, &snapshots, &data[0], &address);
        live
    } else {
        assert_eq!(pushing.await.unwrap(), Some(2));
        is_live(&store).await
    };
    let version = live.versions.live();
    assert_eq!((version.number, version.logs.partitions.0), (VersionNumber(2), PARTITIONS_AFTER));
    writers.go_on().await;
    let histories = writers.stop().await;
    for reader in [&old, &reader(&node.address, "users").await] {
        histories.assert_is_in(&read_lists(reader).await, &from);
        assert_is_whole(reader, true);
    }
    store.refresh().await.unwrap();
    histories.assert_is_in(&read_lists_in_shards(&store).await, &from);
    is_seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_repartitioned_on_kafka_during_writes_and_reads() {
    moves("moves", None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_finishes_the_repartition_of_a_killed_node() {
    for moment in [Known, Forwarding, WritesPaused] {
        let mut attempts = 0;
        while !moves(&format!("moves-{moment:?}-{attempts}"), Some(moment)).await {
            attempts += 1;
            assert!(attempts < ATTEMPTS, "{moment:?} is never seen");
        }
    }
}
