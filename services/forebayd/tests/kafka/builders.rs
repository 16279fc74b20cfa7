//! Two nodes on one log that both build the snapshots of all partitions in one folder, with a
//! garbage collector. Proves that all published snapshots are complete, over kills.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::reads::SnapshotStore;
use forebay::{Client, ClientOptions, Store};
use forebay_snapshot::SnapshotName;

use crate::daemon::{Daemon, LONG};
use crate::users::{ExpectedDocuments, assert_holds, partitions, reader, spec, write};
use crate::world::World;

const DOCUMENTS: i64 = 20_000;
const KILLS: i64 = 6;
/// A grace of far more than twice the duration of such a small build, so that the chunks of a
/// running build are not collected.
const GRACE: Duration = Duration::from_secs(8);

/// Starts a node that builds snapshots, with its own shards.
pub fn start(world: &World, snapshots: &str, data: &tempfile::TempDir, listen: &str) -> Daemon {
    let more = ["--snapshots", snapshots, "--snapshot-interval", "1s", "--snapshot-retention", "2"];
    let mut arguments = [&world.arguments()[..], &more].concat();
    let place = arguments.iter().position(|it| *it == "--data-dir").unwrap();
    arguments[place + 1] = data.path().to_str().unwrap();
    Daemon::start(&arguments, listen)
}

/// Collects garbage until `stop` is set, as a snapshot service does with a longer grace; counts
/// removed chunks.
async fn collect_on(
    snapshots: SnapshotStore,
    store: Store,
    stop: Arc<AtomicBool>,
    chunks: Arc<AtomicU64>,
) {
    while !stop.load(Ordering::SeqCst) {
        for at in partitions(&store) {
            let collected = snapshots.partition(at).collect(GRACE).await.unwrap();
            chunks.fetch_add(collected.chunks, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads all of the newest snapshots until `stop` is set; returns the number of snapshots read.
async fn read_on(snapshots: SnapshotStore, store: Store, stop: Arc<AtomicBool>) -> usize {
    let mut read = 0;
    while !stop.load(Ordering::SeqCst) {
        for at in partitions(&store) {
            let of = snapshots.partition(at);
            let Some(newest) = of.newest(None).await.unwrap() else { continue };
            for chunk in newest.chunks() {
                of.chunk(*chunk).await.unwrap_or_else(|error| panic!("{}: {error}", newest.name()));
            }
            read += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    read
}

/// Returns the names of all published snapshots that have not expired.
async fn names(snapshots: &SnapshotStore, store: &Store) -> Vec<SnapshotName> {
    let mut names = Vec::new();
    for at in partitions(store) {
        let listed = snapshots.partition(at).list().await.unwrap();
        names.extend(listed.into_iter().filter(|it| it.counts()).map(|listed| listed.name));
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_builders_and_collector_leave_valid_snapshots_whole() {
    let world = World::new("builders");
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let snapshots = SnapshotStore::open(&url).unwrap();
    let data = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = data.each_ref().map(|data| Some(start(&world, &url, data, "127.0.0.1:0")));
    let address = nodes[0].as_ref().unwrap().address.clone();
    let options = ClientOptions::default().deadline(LONG);
    let client = Client::connect(&address, options).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    let stop = Arc::new(AtomicBool::new(false));
    let collected = Arc::new(AtomicU64::new(0));
    let collecting = {
        let (stop, collected) = (Arc::clone(&stop), Arc::clone(&collected));
        tokio::spawn(collect_on(snapshots.clone(), store.clone(), stop, collected))
    };
    let reading = tokio::spawn(read_on(snapshots.clone(), store.clone(), Arc::clone(&stop)));
    for kill in 0..KILLS {
        let before = names(&snapshots, &store).await;
        let wait = async {
            let mut round = 0;
            while names(&snapshots, &store).await.iter().filter(|it| !before.contains(it)).count()
                < 2
            {
                round += 1;
                let first = 3_000 * kill;
                token =
                    write(&store, &mut expected, first..first + 1_500, 100 * kill + round).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("nothing is built");
        let node = (kill % 2) as usize;
        let address = nodes[node].take().unwrap().kill();
        nodes[node] = Some(start(&world, &url, &data[node], &address));
    }
    let gone = async {
        while collected.load(Ordering::SeqCst) == 0 {
            token = write(&store, &mut expected, 0..100, 7).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("nothing is collected");
    stop.store(true, Ordering::SeqCst);
    collecting.await.unwrap();
    assert!(reading.await.unwrap() > 0, "none was read");
    for node in nodes.iter().flatten() {
        assert_holds(&reader(&node.address, &snapshots, &token).await, &expected, 0..DOCUMENTS);
    }
}
