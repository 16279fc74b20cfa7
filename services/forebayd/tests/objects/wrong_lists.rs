//! An object store whose listings are wrong: they omit objects, break off, repeat objects, or name
//! removed or foreign ones. Proves that no published data is lost, and that readers still
//! bootstrap.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::Store;
use forebay::reads::SnapshotStore;
use forebay_core::id::PartitionRef;
use forebay_snapshot::{ListedSnapshot, SnapshotName};
use forebay_testkit::random::SeededRng;
use parking_lot::Mutex;

use crate::users::{
    ExpectedDocuments, LONG, assert_holds, partitions, reader, snapshots, spec, write,
};
use crate::{World, assert_all_is_whole, client};

const SEED: u64 = 12;
const DOCUMENTS: i64 = 3_000;
/// Percentage of listed objects that are missing, percentage that are repeated, and percentage next
/// to which a removed one is listed.
const PERCENT: usize = 12;
/// Percentage of listings that are truncated to their start.
const PERCENT_CUT: usize = 20;
/// A grace of far more than twice the duration of such a small build.
const GRACE: Duration = Duration::from_secs(8);
const BEGIN: &str = "<Contents>";
const END: &str = "</Contents>";

/// Returns the name of a snapshot that does not exist, derived from another one's.
fn gone(object: &str) -> Option<String> {
    let (before, kind) = object.split_once(".manifest").map(|(before, _)| (before, ".manifest"))?;
    let behind = &object[before.len() + kind.len()..];
    let digits = before.len().checked_sub(4)?;
    Some(format!("{}dead{kind}{behind}", &before[..digits]))
}

/// Returns a randomly corrupted listing.
fn wrong(said: &str, dice: &mut SeededRng) -> String {
    let mut parts = said.split(BEGIN);
    let mut edited = parts.next().unwrap_or_default().to_owned();
    let is_cut = dice.chance(PERCENT_CUT);
    for part in parts {
        let (object, behind) = part.split_once(END).unwrap_or((part, ""));
        let whole = format!("{BEGIN}{object}{END}");
        if is_cut {
            edited += behind;
            continue;
        }
        if !dice.chance(PERCENT) {
            edited += &whole;
        }
        if dice.chance(PERCENT) {
            edited += &whole;
        }
        if let Some(gone) = gone(object).filter(|_| dice.chance(PERCENT)) {
            let verified = gone.replace(".manifest", ".verified");
            edited += &format!("{BEGIN}{gone}{END}{BEGIN}{verified}{END}");
        }
        if dice.chance(PERCENT) {
            edited += &format!("{BEGIN}{}{END}", object.replace("/manifests/", "/manifests/old/"));
        }
        edited += behind;
    }
    edited
}

/// Collects garbage as a snapshot service does with a longer grace, until `stop` is set.
async fn collect_on(
    of: SnapshotStore,
    store: Store,
    stop: Arc<AtomicBool>,
    chunks: Arc<AtomicU64>,
) {
    let mut seen: BTreeMap<PartitionRef, HashSet<SnapshotName>> = BTreeMap::new();
    while !stop.load(Ordering::SeqCst) {
        for at in partitions(&store) {
            let (of, seen) = (of.partition(at), seen.entry(at).or_default());
            ListedSnapshot::remember(&of.list().await.unwrap(), seen);
            let collected = of.collect_beside(GRACE, seen, []).await.unwrap();
            chunks.fetch_add(collected.chunks, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_object_lists_cost_no_valid_snapshot_and_readers_still_bootstrap() {
    let world = World::new("wrong-lists");
    let every = ["--snapshots", &world.snapshots, "--snapshot-interval", "1s"];
    let node =
        world.start_with(&[&every[..], &["--snapshot-retention", "2"]].concat(), "127.0.0.1:0");
    let store = client(&node.address).await.create_store(&spec()).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    snapshots(&world.straight(), &store, |newest| newest.base.documents > 1_000).await;

    let dice = Mutex::new(SeededRng::new(SEED));
    world.way.edit_lists(Some(Arc::new(move |said| wrong(&said, &mut dice.lock()))));
    let (stop, collected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let collecting =
        collect_on(world.by_the_way(), store.clone(), Arc::clone(&stop), Arc::clone(&collected));
    let collecting = tokio::spawn(collecting);
    let (mut bootstraps, mut round) = (0, 0);
    let gone = async {
        while collected.load(Ordering::SeqCst) < 10 || bootstraps < 10 {
            round += 1;
            token = write(&store, &mut expected, 100..150, 1_000 * round).await;
            let begun = reader(&node.address, &world.by_the_way(), &token).await;
            assert_holds(&begun, &expected, 0..DOCUMENTS);
            let all = begun.status().partitions;
            bootstraps += all.iter().map(|at| at.counts.bootstraps).sum::<u64>();
            assert_all_is_whole(&world.straight(), &store).await;
        }
    };
    tokio::time::timeout(2 * LONG, gone).await.expect("nothing is collected, or begun with");
    stop.store(true, Ordering::SeqCst);
    collecting.await.unwrap();
    world.way.edit_lists(None);
    assert_all_is_whole(&world.straight(), &store).await;
    assert_holds(&reader(&node.address, &world.straight(), &token).await, &expected, 0..DOCUMENTS);
}
