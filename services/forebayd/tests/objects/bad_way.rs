//! A bad connection to the object store that refuses, breaks off, truncates and changes data.
//! Proves that it only costs attempts, each of which ends with a typed error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::reads::{ReadOptions, SnapshotStore};
use forebay::schema::{StoreOptions, StoreSpec, Value};
use forebay::{ErrorCode, Store};
use forebay_testkit::object_proxy::{ObjectCall, ObjectProxy};
use forebay_testkit::objects::ObjectFault;
use forebay_testkit::random::SeededRng;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::backups_client::BackupsClient;
use forebay_wire::v1::pushes_client::PushesClient;
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::users::{
    ExpectedDocuments, LONG, assert_holds, partitions, reader, reader_of, snapshots, spec, write,
};
use crate::{World, assert_all_is_whole, client};

const SEED: u64 = 9;
const FAULTS: [ObjectFault; 4] =
    [ObjectFault::Refused, ObjectFault::LostAnswer, ObjectFault::Cut, ObjectFault::Changed];
/// Percentage of faulty calls; higher for chunks, since there are few.
const PERCENT: usize = 3;
const PERCENT_OF_CHUNKS: usize = 12;
/// Number of attempts, of which one succeeds.
const ATTEMPTS: usize = 60;
const DOCUMENTS: i64 = 6_000;

/// Counters of the faults.
#[derive(Default)]
struct FaultCounters([AtomicU64; FAULTS.len()]);

impl FaultCounters {
    fn all(&self) -> bool {
        self.0.iter().all(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn decide(&self, call: &ObjectCall, dice: &mut SeededRng) -> Option<ObjectFault> {
        let is_of_chunk = call.target.contains("/chunks/");
        if !dice.chance(if is_of_chunk { PERCENT_OF_CHUNKS } else { PERCENT }) {
            return None;
        }
        let fault = *dice.pick(&FAULTS);
        let is_possible = match fault {
            // Only the check of a start lists by folders. A node that is refused there does not
            // start: it has no permission.
            ObjectFault::Refused => !call.target.contains("delimiter="),
            ObjectFault::Cut => call.method == "GET",
            // Changed listings are excluded, since no hash protects them as it protects all other
            // data.
            ObjectFault::Changed => call.is_fetch(),
            _ => true,
        };
        let place = FAULTS.iter().position(|it| *it == fault)?;
        is_possible.then(|| self.0[place].fetch_add(1, Ordering::Relaxed))?;
        Some(fault)
    }
}

/// Makes a connection bad from now on.
fn spoil(way: &ObjectProxy) -> Arc<FaultCounters> {
    let (faults, dice) = (Arc::new(FaultCounters::default()), Mutex::new(SeededRng::new(SEED)));
    let told = Arc::clone(&faults);
    way.decide(Some(Arc::new(move |call| told.decide(call, &mut dice.lock()))));
    faults
}

/// Returns whether the newest snapshot of each partition has deltas.
async fn is_layered(snapshots: &SnapshotStore, store: &Store) -> bool {
    for at in partitions(store) {
        let newest = snapshots.partition(at).newest(None).await.unwrap();
        if newest.is_none_or(|newest| newest.deltas.is_empty()) {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_connection_to_the_object_store_costs_only_builds_and_bootstraps() {
    let world = World::new("bad-way");
    let node = world.start("127.0.0.1:0");
    let store = client(&node.address).await.create_store(&spec()).await.unwrap();
    let (faults, mut expected) = (spoil(&world.way), ExpectedDocuments::new());
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    let wait = async {
        for round in 1.. {
            token = write(&store, &mut expected, 100..200, 1_000 * round).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            if faults.all() && is_layered(&world.straight(), &store).await {
                return;
            }
        }
    };
    tokio::time::timeout(2 * LONG, wait).await.expect("not all happens, or nothing is built");
    let mut bootstraps = 0;
    for _ in 0..3 {
        let begun = reader(&node.address, &world.by_the_way(), &token).await;
        assert_holds(&begun, &expected, 0..DOCUMENTS);
        bootstraps += begun.status().partitions.iter().map(|at| at.counts.bootstraps).sum::<u64>();
    }
    // A reader bootstraps from an untrimmed log if the snapshot fails.
    assert!(bootstraps > 0, "none has begun with a snapshot");

    // The shards are lost, and bootstrap over the same connection.
    let address = node.kill();
    std::fs::remove_dir_all(world.data().join("shards")).unwrap();
    let node = world.start(&address);
    let ordered = client(&node.address).await.store("users").await.unwrap().ordered().unwrap();
    let field = store.definition().field("age").unwrap().id;
    for key in (0..DOCUMENTS).step_by(7) {
        let read = ReadOptions::after(token.clone(), LONG);
        let found = ordered.get(&read, key).await.unwrap();
        let found = found.and_then(|found| found.value(field).cloned());
        assert_eq!(found, expected.get(&key).copied().map(Value::Int64), "{key}");
    }
    world.way.decide(None);
    assert_all_is_whole(&world.straight(), &store).await;
}

/// Returns the last answer of a stream.
async fn last<M>(answers: Result<Response<Streaming<M>>, Status>) -> Result<M, Status> {
    let (mut answers, mut last) = (answers?.into_inner(), None);
    while let Some(answer) = answers.message().await? {
        last = Some(answer);
    }
    last.ok_or_else(|| Status::internal("nothing was answered"))
}

/// Repeats a request until it succeeds; asserts that each error blames the object store, and never
/// Forebay's data.
async fn until_done<M>(what: &str, mut ask: impl AsyncFnMut() -> Result<M, Status>) -> M {
    for _ in 0..ATTEMPTS {
        let error = match ask().await {
            Ok(done) => return done,
            Err(status) => error_of_status(&status),
        };
        use ErrorCode::{Corrupt, NotFound, PermissionDenied, Unavailable};
        let typed = [Corrupt, NotFound, PermissionDenied, Unavailable];
        assert!(typed.contains(&error.code()), "{what}: {error}");
    }
    panic!("{what} does not come through");
}

struct MaintenanceClients {
    backups: BackupsClient<Channel>,
    pushes: PushesClient<Channel>,
}

impl MaintenanceClients {
    async fn at(address: &str) -> Self {
        let url = format!("http://{address}");
        let backups = BackupsClient::connect(url.clone()).await.unwrap();
        Self { backups, pushes: PushesClient::connect(url).await.unwrap() }
    }

    async fn take(&mut self) -> v1::Backup {
        let request = v1::TakeBackupRequest { store: "users".into(), keep: None };
        let take = async || last(self.backups.clone().take_backup(request.clone()).await).await;
        until_done("a backup", take).await.backup.unwrap()
    }

    async fn restore(&mut self, restore_as: &str, backup_id: Option<u64>) -> v1::RestoredStore {
        let point_in_time = backup_id.map(v1::restore_store_request::PointInTime::BackupId);
        let (store, restore_as) = ("users".into(), restore_as.into());
        let request = v1::RestoreStoreRequest { store, restore_as, point_in_time };
        let restore =
            async || last(self.backups.clone().restore_store(request.clone()).await).await;
        until_done("a restore", restore).await.restored.unwrap()
    }

    async fn push(&mut self, file: &std::path::Path) -> v1::PushResult {
        let request = v1::PushFilesRequest {
            store: "users".into(),
            inputs: vec![format!("file://{}", file.display())],
            key_column: "id".into(),
            ..v1::PushFilesRequest::default()
        };
        let push = async || last(self.pushes.clone().push_files(request.clone()).await).await;
        until_done("a push", push).await.pushed.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_restores_and_pushes_survive_a_bad_connection_and_are_whole() {
    let world = World::new("bad-way-back");
    let node = world.start("127.0.0.1:0");
    let spec = StoreSpec { options: StoreOptions::default(), ..spec() };
    let store = client(&node.address).await.create_store(&spec).await.unwrap();
    let mut clients = MaintenanceClients::at(&node.address).await;
    let (faults, mut expected) = (spoil(&world.way), ExpectedDocuments::new());
    write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    let first = (clients.take().await, expected.clone());
    write(&store, &mut expected, 100..400, 1_000).await;
    let second = (clients.take().await, expected.clone());

    let file = world.folder.path().join("users.csv");
    let pushed: ExpectedDocuments = (0..DOCUMENTS / 2).map(|key| (key, -key)).collect();
    let lines: String = pushed.iter().map(|(key, age)| format!("{key},{age}\n")).collect();
    std::fs::write(&file, format!("id,age\n{lines}")).unwrap();
    let version = clients.push(&file).await;
    assert_eq!((version.version, version.documents), (2, pushed.len() as u64));
    assert_holds(
        &reader_of("users", &node.address, &world.by_the_way()).await,
        &pushed,
        0..DOCUMENTS,
    );

    let wait = async {
        // Restores and pushes continue until each fault has happened.
        for round in 0.. {
            for (name, (backup, expected)) in [("first", &first), ("second", &second)] {
                let name = format!("{name}-{round}");
                let restored = clients.restore(&name, Some(backup.backup_id)).await;
                assert_eq!(restored.documents, expected.len() as u64, "{name}");
                let restored = reader_of(&name, &node.address, &world.by_the_way()).await;
                assert_holds(&restored, expected, 0..DOCUMENTS);
            }
            if faults.all() {
                return;
            }
        }
    };
    tokio::time::timeout(2 * LONG, wait).await.expect("not all happens");
    world.way.decide(None);
    assert_all_is_whole(&world.straight(), &store).await;
    snapshots(&world.straight(), &store, |_| true).await;
}
