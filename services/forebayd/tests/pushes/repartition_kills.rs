//! Repartitions at a node as a process: the pushing command and the node are killed at any moment,
//! while the documents are written and read.

use std::process::{Command, Stdio};

use forebay_wire::v1;

use crate::daemon::{Daemon, FOREBAYD};
use crate::processes::{killed_at, start};
use crate::repartition::Moment::{Forwarding, Known, WritesPaused};
use crate::repartition::{
    Moment, PARTITIONS_AFTER, Writers, assert_is_whole, comes, create, file, is_live, push,
    read_lists, read_lists_in_shards, reader, request,
};

/// Number of attempts to kill at the wanted moment.
const ATTEMPTS: usize = 5;

/// A node under writes.
struct World {
    folder: tempfile::TempDir,
    file: std::path::PathBuf,
    node: Daemon,
    store: forebay::Store,
    /// A reader that stays open all the time.
    old: forebay::Reader,
    writers: Writers,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (node, file) = (start(folder.path(), "127.0.0.1:0"), file(folder.path()));
        let store = create(&node.address).await;
        let old = reader(&node.address, "users").await;
        let writers = Writers::start(&[&node.address]).await;
        writers.go_on().await;
        Self { folder, file, node, store, old, writers }
    }

    fn kill_and_restart(self) -> Self {
        Self { node: start(self.folder.path(), &self.node.kill()), ..self }
    }

    /// Waits for the end of the repartition, and asserts that the writes of each writer from these
    /// numbers on are there.
    async fn check(self, first_numbers: &[i64]) {
        let live = is_live(&self.store).await;
        assert_eq!(
            (live.write_logs().partitions.0, live.versions.live().number.0),
            (PARTITIONS_AFTER, 2)
        );
        self.writers.go_on().await;
        let histories = self.writers.stop().await;
        for reader in [&self.old, &reader(&self.node.address, "users").await] {
            histories.assert_is_in(&read_lists(reader).await, first_numbers);
            assert_is_whole(reader, true);
        }
        histories.assert_is_in(&read_lists_in_shards(&self.store).await, first_numbers);
    }
}

/// Kills the node at each of these moments of one repartition; returns whether all of them were
/// seen.
async fn is_killed_at(moments: &[Moment]) -> bool {
    let mut world = World::new().await;
    let address = world.node.address.clone();
    let (push_address, file) = (address.clone(), world.file.clone());
    let pushing = tokio::spawn(async move { push(&push_address, &file).await });
    let (mut first_numbers, mut are_seen) = (None, true);
    for moment in moments {
        are_seen &= comes(*moment, &world.store, &address).await;
        // Writes after the first moment come after the push.
        first_numbers.get_or_insert_with(|| world.writers.next());
        if !are_seen {
            break;
        }
        world = world.kill_and_restart();
    }
    world.check(&first_numbers.unwrap()).await;
    pushing.await.unwrap();
    are_seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_finishes_despite_kills_of_its_node() {
    for moments in
        [&[Known, Forwarding, WritesPaused][..], &[Forwarding], &[WritesPaused, WritesPaused]]
    {
        let mut attempts = 0;
        while !is_killed_at(moments).await {
            attempts += 1;
            assert!(attempts < ATTEMPTS, "{moments:?} are never seen");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_killed_before_its_announcement_changes_nothing_and_resumes() {
    let mut world = World::new().await;
    let mut first_numbers = None;
    for partitions in [1, 2] {
        let is_there = |progress: &v1::PushFilesResponse| progress.partitions_done >= partitions;
        let (_, address) = killed_at(world.node, request(&world.file), is_there).await;
        // The resumed push keeps the positions of the first attempt.
        first_numbers.get_or_insert_with(|| world.writers.next());
        world.node = start(world.folder.path(), &address);
        assert_eq!(world.store.refresh().await.unwrap().versions.all().len(), 1);
        world.writers.go_on().await;
        let histories = world.writers.stop().await;
        for reader in [&world.old, &reader(&world.node.address, "users").await] {
            histories.assert_is_in(&read_lists(reader).await, &[0; 3]);
            assert_is_whole(reader, false);
        }
        world.writers = Writers::start_after(histories, &[&world.node.address]).await;
    }
    assert_eq!(push(&world.node.address, &world.file).await, Some(2));
    world.check(&first_numbers.unwrap()).await;
}

/// Kills the pushing command at this moment of the repartition; returns whether the moment was
/// seen.
async fn is_asker_killed_at(moment: Moment) -> bool {
    let world = World::new().await;
    let child = Command::new(FOREBAYD)
        .args(["push", "--node", &world.node.address, "--store", "users", "--key", "id"])
        .args(["--partitions", &PARTITIONS_AFTER.to_string()])
        .arg(&world.file)
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    let is_seen = comes(moment, &world.store, &world.node.address).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let first_numbers = world.writers.next();
    world.check(&first_numbers).await;
    is_seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_continues_after_its_caller_is_killed() {
    for moment in [Known, Forwarding, WritesPaused] {
        let mut attempts = 0;
        while !is_asker_killed_at(moment).await {
            attempts += 1;
            assert!(attempts < ATTEMPTS, "{moment:?} is never seen");
        }
    }
}
