//! Backups of a node's stores: restored to each backup and to times in between, on another node,
//! over a failing object store, and over kills.

#[path = "../daemon/mod.rs"]
mod daemon;
mod processes;
#[path = "../served_node/mod.rs"]
mod served_node;
mod skew;
#[path = "../small_disk/mod.rs"]
mod small_disk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::schema::{
    Alteration, FieldSpec, FieldType, KeyType, KeyValue, StoreOptions, StoreSpec, Value,
};
use forebay::writes::{Token, WriteResult};
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::ErrorCode;
use forebay_core::clock::{Clock, SystemClock, Timestamp};
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::schema::Definition;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{BackupParts, PointInTime, SnapshotOptions, Snapshots};
use forebay_testkit::objects::{Decide, ObjectFault, TestObjects};
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use served_node::ServedNode;
use small_disk::{SmallDisk, run_again_where_mounting_is_permitted};

const PARTITIONS: u32 = 2;
const KEYS: i64 = 3_000;
const LONG: Duration = Duration::from_secs(60);
const INT64: FieldType = FieldType::INT64;

/// Expected documents of a store: each key's number, and its other number, once that field exists.
type ExpectedDocuments = BTreeMap<i64, (i64, Option<i64>)>;

fn spec(log_retention_us: Option<i64>) -> StoreSpec {
    let mut spec =
        StoreSpec::documents("users", KeyType::Int64).partitions(PARTITIONS).field("age", INT64);
    spec.options = StoreOptions { log_retention_us, versioned: true, ..StoreOptions::default() };
    spec
}

/// Writes a fifth of the documents, overwrites some, and deletes a few.
async fn write(store: &Store, expected: &mut ExpectedDocuments, round: i64) -> Token {
    let mut batch = store.batch();
    for key in (0..KEYS).filter(|key| key % 5 == round % 5) {
        if key % 50 == round {
            batch.add(store.delete(key)).unwrap();
            expected.remove(&key);
            continue;
        }
        let other = (store.definition().field("other").is_some()).then_some(round);
        let mut write = store.upsert(key).set("age", round * KEYS + key);
        if let Some(other) = other {
            write = write.set("other", other);
        }
        batch.add(write).unwrap();
        expected.insert(key, (round * KEYS + key, other));
    }
    let outcome = batch.send().await.unwrap();
    assert!(outcome.results.iter().all(Result::is_ok));
    outcome.token
}

/// Reads all documents of a store with a reader of its own.
async fn read(address: &str, name: &str) -> (ExpectedDocuments, Arc<Definition>) {
    let reader = Reader::open(address, ReaderOptions::new(name)).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let definition = reader.definition();
    let (age, other) = (definition.field("age"), definition.field("other"));
    let mut expected = ExpectedDocuments::new();
    for key in 0..KEYS {
        let Some(document) = reader.get_document(KeyValue::Int64(key)).unwrap() else { continue };
        let number =
            |field: Option<&forebay_core::schema::Field>| match document.value(field?.id)? {
                Value::Int64(number) => Some(*number),
                found => panic!("{found:?}"),
            };
        expected.insert(key, (number(age).unwrap(), number(other)));
    }
    (expected, definition)
}

struct World {
    log: Arc<dyn ChangeLog>,
    objects: Arc<TestObjects>,
    snapshots: SnapshotStore,
    backups: SnapshotStore,
}

impl World {
    fn new() -> Self {
        let objects = Arc::new(TestObjects::default());
        let folder = |name: &str| SnapshotStore::of(objects.clone(), ObjectPath::from(name));
        let (snapshots, backups) = (folder("snapshots"), folder("backups"));
        Self { log: Arc::new(MemoryLog::new(Arc::new(SystemClock))), objects, snapshots, backups }
    }

    /// Returns a world with the same backups and nothing else.
    fn after_a_fire(&self) -> Self {
        Self { backups: self.backups.clone(), ..Self::new() }
    }

    /// Sets the fault of all calls of the object store.
    fn fail(&self, fault: Option<ObjectFault>) {
        let decide = |fault| Arc::new(move |_: &str, _| Some(fault)) as Decide;
        self.objects.decide(fault.map(decide));
    }

    async fn start(&self, data: &Path) -> (ServedNode, BackupParts) {
        let node = ServedNode::start_with(&self.log, data, Some(self.snapshots.clone())).await;
        let options = SnapshotOptions::new(LONG, 3).unwrap();
        let service = node.node.snapshot_parts(&node.address, options).unwrap();
        let (backups, scratch) = (self.backups.clone(), data.to_owned());
        (node, BackupParts { service, backups, scratch })
    }
}

/// Waits until every partition's log has trimmed all of its current entries.
async fn await_trim(log: &Arc<dyn ChangeLog>, store: &Store) {
    for partition in 0..PARTITIONS {
        let store = store.definition().store;
        let at = PartitionRef { store, partition: PartitionId(partition) };
        let end = log.bounds(at).await.unwrap().end;
        let wait = async {
            // Heartbeats advance the log.
            while log.bounds(at).await.unwrap().start < end {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the log is not trimmed");
    }
}

fn quiet(_done: u32, _of: u32) {}

/// Proves that a restore to a moment without a backup, such as those of this write, is refused with
/// what to do.
async fn assert_without_backup(parts: &BackupParts, token: &Token, time: Timestamp) {
    for (point, words) in [
        (PointInTime::Before(time), "take a backup now"),
        (PointInTime::Before(Timestamp::from_micros(7)), "no backup is old enough"),
        (PointInTime::Backup(7), "list its backups"),
        (PointInTime::Token(token.clone()), "take a backup now"),
    ] {
        let error = parts.restore("users", "other", &point, quiet).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
        assert!(error.to_string().contains(words), "{point:?}: {error}");
    }
}

/// Proves that a restored store, which has these documents, is a store like any other.
async fn assert_is_ordinary(node: &ServedNode, name: &str, mut expected: ExpectedDocuments) {
    let store = node.client().await.store(name).await.unwrap();
    write(&store, &mut expected, 9).await;
    assert_eq!(read(&node.address, name).await.0, expected);
    let key = *expected.keys().find(|key| *key % 5 != 4).unwrap();
    let first = store.upsert(key).increment("age", 1).if_absent().send().await.unwrap();
    assert!(matches!(first.result, WriteResult::ConditionFailed(Some(_))), "{first:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_restored_to_its_backups_and_to_any_moment_between_them() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let client = node.client().await;
    let mut store = client.create_store(&spec(None)).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    // The documents after each round, with the token of the last write and a time before the next
    // round.
    let mut past: Vec<(ExpectedDocuments, Token, Timestamp)> = Vec::new();
    let mut backups = Vec::new();
    for round in 0..6 {
        if round == 3 {
            let other = Alteration::AddField(FieldSpec::new("other", INT64));
            client.alter_store("users", None, &[other]).await.unwrap();
            store = client.store("users").await.unwrap();
        }
        let token = write(&store, &mut expected, round).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        past.push((expected.clone(), token, SystemClock.now()));
        tokio::time::sleep(Duration::from_millis(2)).await;
        if [0, 2, 4].contains(&round) {
            backups.push((round as usize, parts.take("users", quiet).await.unwrap()));
        }
    }
    let list = parts.backups.backups("users").await.unwrap();
    assert!(list.iter().eq(backups.iter().map(|(_, backup)| backup)));
    assert!(list.windows(2).all(|pair| pair[1].follows(&pair[0])));

    let mut points = vec![("newest".to_owned(), PointInTime::Newest, 4)];
    for (round, backup) in &backups {
        points.push((format!("backup-{round}"), PointInTime::Backup(backup.name.id), *round));
    }
    // The first backup may include a heartbeat that came after the first of these times.
    for (round, (_, token, time)) in past.iter().enumerate().take(4).skip(1) {
        points.push((format!("before-{round}"), PointInTime::Before(*time), round));
        points.push((format!("token-{round}"), PointInTime::Token(token.clone()), round));
    }
    for (name, point, round) in &points {
        let result = parts.restore("users", name, point, quiet).await.unwrap();
        let (found, definition) = read(&node.address, name).await;
        assert_eq!(found, past[*round].0, "{name}");
        assert_eq!((definition.store, result.partitions), (result.store, PARTITIONS));
        assert_eq!(definition.field("other").is_some(), *round >= 3, "{name}");
        assert_eq!(definition.options, store.definition().options);
    }

    assert_is_ordinary(&node, "newest", past[4].0.clone()).await;
    let error = parts.restore("users", "newest", &PointInTime::Newest, quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    let (_, token, time) = &past[5];
    assert_without_backup(&parts, token, *time).await;
    assert!(client.store("other").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_restores_from_backups_alone() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (mut node, parts) = world.start(data.path()).await;
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    for round in 0..5 {
        write(&store, &mut expected, round).await;
    }
    parts.take("users", quiet).await.unwrap();
    node.end().await;
    drop((node, parts, data));

    let (world, data) = (world.after_a_fire(), tempfile::tempdir().unwrap());
    let (mut node, parts) = world.start(data.path()).await;
    parts.restore("users", "users", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "users").await.0, expected);
    // Shards that lost their disk bootstrap from the store's snapshots, since the start of its logs
    // is trimmed.
    node.end().await;
    let other = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(other.path()).await;
    assert_eq!(read(&node.address, "users").await.0, expected);
    // The restored store has backups of its own.
    let store = node.client().await.store("users").await.unwrap();
    write(&store, &mut expected, 7).await;
    parts.take("users", quiet).await.unwrap();
    parts.restore("users", "again", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "again").await.0, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_without_disk_space_reports_it_and_resumes() {
    let Some(disk) = SmallDisk::mount(1 << 20) else {
        let test = "restore_without_disk_space_reports_it_and_resumes";
        return run_again_where_mounting_is_permitted(test);
    };
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, mut parts) = world.start(data.path()).await;
    parts.scratch = disk.path().to_owned();
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    for round in 0..5 {
        write(&store, &mut expected, round).await;
    }
    parts.take("users", quiet).await.unwrap();
    disk.fill(1 << 20);
    let error = parts.restore("users", "copy", &PointInTime::Newest, quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert!(error.message().contains("look at the disk"), "{error}");
    disk.free();
    parts.restore("users", "copy", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "copy").await.0, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_trimmed_between_backups_is_a_gap() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let options = SnapshotOptions::new(Duration::from_millis(50), 3).unwrap();
    let snapshot_parts = node.node.snapshot_parts(&node.address, options).unwrap();
    let _maintenance = Snapshots::maintain(snapshot_parts);
    let store = node.client().await.create_store(&spec(Some(0))).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0).await;
    parts.take("users", quiet).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let time = SystemClock.now();
    write(&store, &mut expected, 1).await;
    await_trim(&world.log, &store).await;
    parts.take("users", quiet).await.unwrap();
    let list = parts.backups.backups("users").await.unwrap();
    assert!(!list[1].follows(&list[0]));
    let point = PointInTime::Before(time);
    let error = parts.restore("users", "old", &point, quiet).await.unwrap_err();
    assert!(error.to_string().contains("log_retention"), "{error}");
    parts.restore("users", "new", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "new").await.0, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_backups_are_removed_with_their_unshared_chunks() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let (mut expected, mut past, mut object_counts) =
        (ExpectedDocuments::new(), Vec::new(), Vec::new());
    for round in 0..8 {
        write(&store, &mut expected, round).await;
        let backup = parts.take("users", quiet).await.unwrap();
        past.push((expected.clone(), PointInTime::Backup(backup.name.id)));
        parts.expire(&backup, 2).await.unwrap();
        world.objects.pass(parts.service.options.grace + Duration::from_secs(1));
        let backups = parts.backups.backups("users").await.unwrap();
        assert_eq!(backups.len(), 2.min(past.len()));
        object_counts.push(world.objects.names().await.len());
    }
    // The folder holds images, deltas and logs of two backups, and those that expired less than a
    // grace period ago.
    assert!(
        object_counts[7] < object_counts[3] + object_counts[0],
        "one backup is {} objects: {object_counts:?}",
        object_counts[0]
    );
    for (round, (expected, point)) in past.iter().enumerate() {
        let name = format!("round-{round}");
        let result = parts.restore("users", &name, point, quiet).await;
        match round < 6 {
            true => assert_eq!(result.unwrap_err().code(), ErrorCode::NotFound),
            false => assert_eq!(read(&node.address, &name).await.0, *expected),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_missed_by_a_list_retains_its_chunks() {
    for missed_number in 1..4 {
        let world = World::new();
        let data = tempfile::tempdir().unwrap();
        let (node, parts) = world.start(data.path()).await;
        let store = node.client().await.create_store(&spec(None)).await.unwrap();
        let (mut expected, mut past, mut backups) =
            (ExpectedDocuments::new(), Vec::new(), Vec::new());
        for round in 0..4 {
            write(&store, &mut expected, round).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
            past.push((expected.clone(), SystemClock.now()));
            tokio::time::sleep(Duration::from_millis(2)).await;
            // These writes come after the time, so that a backed-up log reaches the time.
            write(&store, &mut expected, round + 1).await;
            backups.push(parts.take("users", quiet).await.unwrap());
        }
        let hidden_name = format!("{}.backup", backups[missed_number].name);
        world.objects.edit_lists(Some(Arc::new(move |mut objects: Vec<ObjectMeta>| {
            objects.retain(|object| object.location.filename() != Some(&*hidden_name));
            objects
        })));
        for _ in 0..2 {
            world.objects.pass(parts.service.options.grace + Duration::from_secs(1));
            parts.expire(&backups[3], 3).await.unwrap();
        }
        world.objects.edit_lists(None);
        let remaining_backups = parts.backups.backups("users").await.unwrap();
        assert!(
            remaining_backups.iter().eq(&backups[1..]),
            "{missed_number}: the oldest went, and no other"
        );
        // A backed-up log leads to each remaining backup except the first.
        for (round, (expected, time)) in past.iter().enumerate().skip(2) {
            let name = format!("before-{round}");
            parts.restore("users", &name, &PointInTime::Before(*time), quiet).await.unwrap();
            assert_eq!(read(&node.address, &name).await.0, *expected, "{missed_number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_restore_resumes_and_is_invisible_until_complete() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let client = node.client().await;
    let store = client.create_store(&spec(None)).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    for round in 0..5 {
        write(&store, &mut expected, round).await;
    }
    world.fail(Some(ObjectFault::Refused));
    assert!(parts.take("users", quiet).await.is_err());
    world.fail(None);
    assert!(parts.backups.backups("users").await.unwrap().is_empty(), "none counts");
    parts.take("users", quiet).await.unwrap();
    for fault in [ObjectFault::Refused, ObjectFault::Cut, ObjectFault::Changed] {
        // The restore fails in the second partition.
        let result = parts
            .restore("users", "copy", &PointInTime::Newest, |partitions_done, _| {
                world.fail((partitions_done == 1).then_some(fault));
            })
            .await;
        world.fail(None);
        assert!(result.is_err(), "{fault:?}");
        let error = client.store("copy").await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    }
    let first_result = parts.restore("users", "copy", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "copy").await.0, expected);
    // The name is free again, and the same restore creates another store.
    client.delete_store("copy").await.unwrap();
    let second_result = parts.restore("users", "copy", &PointInTime::Newest, quiet).await.unwrap();
    assert_ne!(second_result.store, first_result.store);
    assert_eq!(read(&node.address, "copy").await.0, expected);
}
