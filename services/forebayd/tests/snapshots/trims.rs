//! Several snapshot services on one log, over a failing object store. Proves that whenever the log
//! is trimmed, a published and complete snapshot has the trimmed entries. Another test has a
//! service whose listings name removed snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};
use forebay_snapshot::{Manifest, SnapshotName, decode_chunk};
use forebay_testkit::objects::{ObjectFault, TestObjects};
use forebay_testkit::random::SeededRng;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;

use crate::users::{ExpectedDocuments, LONG, assert_holds, partitions, reader, snapshots, write};
use crate::{World, await_trim, create_store, maintain, options};

const SEED: u64 = 11;
const SNAPSHOT_SERVICES: usize = 3;
const TRIMS: u64 = 40;
const DOCUMENTS: i64 = 1_500;

/// A log that checks each trim before it happens.
struct WatchedLog {
    log: MemoryLog,
    objects: Arc<TestObjects>,
    trims: AtomicU64,
    /// Trims without a covering snapshot.
    uncovered_trims: Mutex<Vec<String>>,
}

impl WatchedLog {
    /// Returns whether a published and complete snapshot covers the entries before this offset;
    /// reads the objects without faults.
    async fn is_covered(&self, at: PartitionRef, before: Offset) -> bool {
        let folder = format!("snapshots/{:016x}/{:04}", at.store.0, at.partition.0);
        let names = self.objects.names().await;
        for mark in names.iter().filter(|name| name.starts_with(&format!("{folder}/"))) {
            let Some(stem) = mark.strip_suffix(".verified") else { continue };
            let name = stem.rsplit('/').next().unwrap().parse::<SnapshotName>().unwrap();
            if name.offset_applied <= before || names.contains(&format!("{stem}.expired")) {
                continue;
            }
            let manifest = self.objects.bytes(&format!("{stem}.manifest")).await;
            let (manifest, mut is_whole) = (Manifest::decode(&manifest).unwrap(), true);
            for chunk in manifest.chunks() {
                let path = format!("{folder}/chunks/{}-{:016x}", chunk.hash, chunk.written_by);
                let object = self.objects.bytes(&path).await;
                is_whole &= decode_chunk(chunk, &object).is_ok();
            }
            if is_whole {
                return true;
            }
        }
        false
    }
}

#[async_trait]
impl ChangeLog for WatchedLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.log.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.log.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.log.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.log.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.log.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        if !self.is_covered(at, before).await {
            self.uncovered_trims.lock().push(format!("{at} before {before}"));
        }
        self.trims.fetch_add(1, Ordering::Relaxed);
        self.log.trim(at, before).await
    }
}

/// Chooses the fault of a call. Verification marks fail more often than the snapshots, so that many
/// published snapshots are unverified.
fn fault_of(path: &str, dice: &mut SeededRng) -> Option<ObjectFault> {
    let percent = if path.ends_with(".verified") { 40 } else { 3 };
    let faults = [
        ObjectFault::Refused,
        ObjectFault::LostAnswer,
        ObjectFault::Cut,
        ObjectFault::Changed,
        ObjectFault::Late,
    ];
    dice.chance(percent).then(|| *dice.pick(&faults))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_trims_never_pass_the_verified_snapshots() {
    let world = World::new();
    let watched_log = Arc::new(WatchedLog {
        log: MemoryLog::new(Arc::new(SystemClock)),
        objects: Arc::clone(&world.objects),
        trims: AtomicU64::new(0),
        uncovered_trims: Mutex::default(),
    });
    let world = World { log: watched_log.clone(), ..world };
    let dice = Mutex::new(SeededRng::new(SEED));
    let decide = move |path: &str, _| fault_of(path, &mut dice.lock());
    world.objects.decide(Some(Arc::new(decide)));
    let data = tempfile::tempdir().unwrap();
    let every = Duration::from_millis(20);
    let (node, _maintenance) = world.start(data.path(), every).await;
    let services = (1..SNAPSHOT_SERVICES).map(|number| {
        let every = every + Duration::from_millis(7 * number as u64);
        maintain(&node, options(every))
    });
    let _services: Vec<_> = services.collect();
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    let wait = async {
        for round in 1.. {
            let first = 37 * round % DOCUMENTS;
            token = write(&store, &mut expected, first..first + 50, 100 * round).await;
            let trims = watched_log.trims.load(Ordering::Relaxed);
            if trims >= TRIMS || !watched_log.uncovered_trims.lock().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the log is not trimmed so often");
    assert_eq!(*watched_log.uncovered_trims.lock(), Vec::<String>::new(), "seed {SEED}");
    // A new reader has only the log and the newest snapshot.
    world.objects.decide(None);
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..DOCUMENTS + 50);
}

/// Adds removed snapshots that are newer than all others to a listing.
fn with_those_gone(mut objects: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
    let parse_snapshot = |object: &ObjectMeta| {
        let stem = object.location.as_ref().strip_suffix(".verified")?.to_owned();
        let (folder, name) = stem.rsplit_once('/')?;
        Some((name.parse::<SnapshotName>().ok()?, folder.to_owned(), object.clone()))
    };
    let Some((newest, folder, object)) =
        objects.iter().filter_map(parse_snapshot).max_by_key(|it| it.0)
    else {
        return objects;
    };
    for id in 0..SNAPSHOT_SERVICES as u64 {
        let offset_applied = Offset(newest.offset_applied.0 + 1_000_000);
        let removed_name = SnapshotName { offset_applied, id, ..newest };
        for kind in ["manifest", "verified"] {
            let location = Path::from(format!("{folder}/{removed_name}.{kind}"));
            objects.push(ObjectMeta { location, ..object.clone() });
        }
    }
    objects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_with_deleted_names_delays_no_trim_and_the_last_snapshot_remains() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    world.objects.edit_lists(Some(Arc::new(with_those_gone)));
    let (node, maintenance) = world.start(data.path(), Duration::from_millis(20)).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    snapshots(&world.store, &store, |newest| newest.base.documents > 700).await;
    let wait = async {
        for round in 1.. {
            token = write(&store, &mut expected, 0..20, round).await;
            for at in partitions(&store) {
                let newest = world.store.partition(at).newest(None).await;
                assert!(newest.unwrap().is_some(), "the last one is let go");
            }
            if maintenance.counts().snapshots_expired > 8 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("older ones stay");
    await_trim(&world.log, &store).await;
    assert_holds(&reader(&node.address, &world.store, &token).await, &expected, 0..DOCUMENTS);
}
