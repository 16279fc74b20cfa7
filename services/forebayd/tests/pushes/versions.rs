//! Pushes that replace a store's documents: during writes and reads, with rollbacks, over restarts,
//! and with logs that are trimmed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::reads::{CheckpointOptions, ReadOptions};
use forebay::schema::{Alteration, FieldSpec, FieldType, KeyValue, StoreOptions, Value};
use forebay::writes::{Token, WriteResult};
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::clock::{Clock, ManualClock, SystemClock};
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::versions::VersionNumber;
use forebay_core::{Error, ErrorCode};
use forebay_entries::CatalogFollower;
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_snapshot_service::{
    PushParts, PushProgress, PushResult, ReplicatorLocator, SnapshotOptions,
};

use crate::files::{Files, ROWS, expected};
use crate::served_node::{ServedNode, is_caught_up};
use crate::{
    LONG, PARTITIONS, Push, World, assert_is_whole, maintain, push, quiet, read_fields, reader,
};

/// Returns a push that replaces the store's documents.
pub fn replace(files: &std::path::Path) -> Push {
    Push { push_as: None, ..push("", &[files]) }
}

/// Number of documents before the push.
pub const BEFORE: u64 = 2_000;

pub async fn fill(store: &Store) -> Token {
    let mut batch = store.batch();
    for number in 0..BEFORE {
        batch.add(store.upsert(&*format!("user-{number}")).set("name", "before")).unwrap();
        batch.add(store.upsert(&*format!("old-{number}")).set("name", "before")).unwrap();
    }
    let outcome = batch.send().await.unwrap();
    assert!(outcome.results.iter().all(Result::is_ok));
    outcome.token
}

pub fn name(text: &str) -> BTreeMap<String, Value> {
    BTreeMap::from([("name".to_owned(), Value::String(text.to_owned()))])
}

/// Waits until a reader answers from the version in which this key has this document.
pub async fn answers(reader: &Reader, key: &str, document: Option<BTreeMap<String, Value>>) {
    let wait = async {
        while read_fields(reader, key) != document {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(LONG, wait).await;
    result.unwrap_or_else(|_| panic!("{:?} {:#?}", read_fields(reader, key), reader.status()));
}

/// Returns a document as the shards have it.
pub async fn in_shard(store: &Store, key: &str) -> forebay_core::Result<Option<Option<Value>>> {
    let field = store.definition().field("name").unwrap().id;
    let found = store.ordered().unwrap().get(&ReadOptions::local(), key).await?;
    Ok(found.map(|document| document.value(field).cloned()))
}

pub async fn shards_answer(store: &Store, key: &str, value: Option<Option<Value>>) {
    let wait = async {
        loop {
            match in_shard(store, key).await {
                Ok(found) if found == value => return,
                // The shards have just been opened.
                Err(error) if error.code() != ErrorCode::Unavailable => panic!("{error}"),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the shards answer from another version");
}

pub fn live_of(parts: &PushParts) -> (u32, Vec<u32>) {
    let catalog = parts.service.context.catalog.catalog();
    let versions = &catalog.store_by_name("users").unwrap().definition.versions;
    let all = versions.all().iter().map(|version| version.number.0).collect();
    (versions.live().number.0, all)
}

/// Writes one document after another until `stop` is set, and counts them; returns the last token.
pub async fn write_on(store: Store, stop: Arc<AtomicBool>, write_count: Arc<AtomicU64>) -> Token {
    loop {
        let number = write_count.load(Ordering::SeqCst);
        let write = store.upsert(&*format!("more-{number}")).set("name", "more");
        let token = write.send().await.unwrap().token;
        write_count.fetch_add(1, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            return token;
        }
    }
}

/// Returns, for each document of [`write_on`], whether a reader has it; the last one is there.
pub fn found_writes(reader: &Reader, write_count: u64) -> Vec<bool> {
    let found = |number| read_fields(reader, &format!("more-{number}")).is_some();
    let found: Vec<bool> = (0..write_count).map(found).collect();
    assert!(found.last().is_some_and(|last| *last), "the last write");
    found
}

/// Asserts that a reader and the shards have exactly these documents of [`write_on`].
pub async fn assert_writes(reader: &Reader, store: &Store, found: &[bool]) {
    for (number, found) in found.iter().enumerate() {
        let key = format!("more-{number}");
        assert_eq!(read_fields(reader, &key).is_some(), *found, "{key}");
        assert_eq!(in_shard(store, &key).await.unwrap().is_some(), *found, "{key}");
    }
}

/// Proves that a store can be altered while the files of a push are read: the position of the
/// pushed version comes after the alteration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_altered_during_a_push_has_the_pushed_documents() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let client = node.client().await;
    let alter_once = std::sync::Once::new();
    let on_progress = |_: PushProgress| {
        let spec = FieldSpec::new("more", FieldType::INT64);
        let add = [Alteration::AddField(spec)];
        let alter = async {
            client.alter_store("users", None, &add).await.unwrap();
            // The definition precedes these writes in the log of each partition.
            let store = client.store("users").await.unwrap();
            for key in 0..64 {
                store.upsert(&*format!("old-{key}")).set("more", 1_i64).send().await.unwrap();
            }
        };
        alter_once.call_once(|| {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(alter));
        });
    };
    let result = parts.push(&replace(&files.parts(3)), on_progress).await.unwrap();
    assert_eq!((result.version, result.documents), (VersionNumber(2), ROWS));
    let fresh = reader(&node.address, "users").await;
    assert_is_whole(&fresh, |_| true);
    assert_eq!(read_fields(&fresh, "old-7"), None);
    let store = client.store("users").await.unwrap();
    let token = store.upsert("user-1").set("more", 2_i64).send().await.unwrap().token;
    fresh.await_token(&token, LONG).await.unwrap();
    let number = read_fields(&fresh, "user-1").and_then(|mut fields| fields.remove("more"));
    assert_eq!(number, Some(Value::Int64(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_replaces_the_documents_during_writes_and_reads() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let client = node.client().await;
    let store = client.store("users").await.unwrap();
    let old_token = fill(&store).await;
    let old = reader(&node.address, "users").await;
    old.await_token(&old_token, LONG).await.unwrap();
    assert_eq!(read_fields(&old, "old-7"), Some(name("before")));

    let (stop, write_count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writing =
        tokio::spawn(write_on(store.clone(), Arc::clone(&stop), Arc::clone(&write_count)));
    let watching = std::thread::spawn({
        let (old, stop) = (old.clone(), Arc::clone(&stop));
        move || watch(&old, &stop)
    });
    let result = parts.push(&replace(&files.parts(3)), quiet).await.unwrap();
    assert_eq!((result.version, result.documents), (VersionNumber(2), ROWS));
    assert_eq!(live_of(&parts), (2, vec![1, 2]));
    answers(&old, "old-7", None).await;
    stop.store(true, Ordering::SeqCst);
    let token = writing.await.unwrap();
    assert_eq!(watching.join().unwrap(), 1, "it has changed once");

    let fresh = reader(&node.address, "users").await;
    shards_answer(&store, "old-7", None).await;
    let write_count = write_count.load(Ordering::SeqCst);
    for reader in [&old, &fresh] {
        reader.await_token(&token, LONG).await.unwrap();
        assert_is_whole(reader, |_| true);
        assert_eq!(read_fields(reader, "old-7"), None);
    }
    // The writes since the push are there, and no document from before.
    assert_writes(&fresh, &store, &found_writes(&old, write_count)).await;
    // Earlier writes are resolved as before, since the log is the same.
    old.await_token(&old_token, LONG).await.unwrap();

    assert_eq!(result.changed_outcomes, []);
    // All readers see the same store.
    for reader in [&old, &fresh] {
        assert_eq!(reader.definition().store, store.definition().store);
    }
    assert_rollback(&parts, &store, &old, write_count).await;
}

/// Proves that a rollback finds all earlier documents, and all writes since.
async fn assert_rollback(parts: &PushParts, store: &Store, old: &Reader, write_count: u64) {
    alter(parts, 1).await;
    // A latest read answers from the live version, whichever version the reader answered from
    // before.
    let latest = old.get_document_with(&ReadOptions::latest(LONG), "old-7").await.unwrap();
    assert!(latest.is_some());
    assert_eq!(read_fields(old, "old-7"), Some(name("before")));
    shards_answer(store, "old-7", Some(Some(Value::String("before".to_owned())))).await;
    for number in 0..write_count {
        assert_eq!(
            read_fields(old, &format!("more-{number}")),
            Some(name("more")),
            "more-{number}"
        );
    }
    let write = store.upsert("both").set("name", "both").send().await.unwrap();
    old.await_token(&write.token, LONG).await.unwrap();
    assert_eq!(read_fields(old, "both"), Some(name("both")));
    alter(parts, 2).await;
    assert!(old.get_document_with(&ReadOptions::latest(LONG), "old-7").await.unwrap().is_none());
    answers(old, "both", Some(name("both"))).await;
}

/// Reads documents of all partitions together, and asserts that they are always of one version;
/// returns the number of version changes.
pub fn watch(reader: &Reader, stop: &AtomicBool) -> usize {
    let keys: Vec<String> = (0..64).map(|number| format!("user-{number}")).collect();
    let handle = reader.field("age").unwrap();
    let (mut is_new, mut changes) = (false, 0);
    loop {
        // The state when `stop` is set is read, too.
        let is_last = stop.load(Ordering::SeqCst);
        let ages = reader.read_local(None, |view| {
            let ages = keys.iter().map(|key| view.get_i32(&handle, key.as_str(), -1));
            ages.collect::<forebay_core::Result<Vec<_>>>()
        });
        let ages = ages.unwrap();
        let new = ages.iter().filter(|age| **age >= 0).count();
        assert!([0, keys.len()].contains(&new), "{new} of {} are new", keys.len());
        changes += usize::from(is_new != (new > 0));
        is_new = new > 0;
        if is_last {
            return changes;
        }
    }
}

async fn alter(parts: &PushParts, live: u32) {
    parts.activate_version("users", VersionNumber(live)).await.unwrap();
    assert_eq!(live_of(parts).0, live);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_before_a_push_are_gone_however_far_replicators_lag() {
    for partitions in [None, Some(PARTITIONS + 1)] {
        let (World { log: sound, clock, objects, folder }, files) = (World::new(), Files::new());
        let (entropy, rates) = (Arc::new(SystemEntropy), FaultRates::default());
        let log = Arc::new(FaultyLog::new(Arc::clone(&sound), entropy.clone(), rates));
        let world = World { log: log.clone(), clock, objects, folder };
        let (node, mut parts) = world.start().await;
        // This service completes the repartition.
        let options = SnapshotOptions::new(Duration::from_millis(50), 3).unwrap();
        let _maintenance = maintain(&node, options);
        // Only the replicator lags.
        parts.service.context.catalog =
            Arc::new(CatalogFollower::start(Arc::clone(&sound), entropy));
        parts.service.context.log = sound;
        let store = node.client().await.store("users").await.unwrap();
        fill(&store).await;
        shards_answer(&store, "old-7", Some(Some(Value::String("before".to_owned())))).await;

        log.set_rates(FaultRates { read_refused: 10_000, ..rates });
        // The waiting reads end with these writes, and no read waits for those after them.
        fill(&store).await;
        let mut late_batch = store.batch();
        (0..64).for_each(|number| {
            late_batch.add(store.upsert(&*format!("late-{number}")).set("name", "late")).unwrap();
        });
        assert!(late_batch.send().await.unwrap().results.iter().all(Result::is_ok));
        let file = files.text("one.csv", "id,name\nann,pushed\n");
        let ask = Push { partitions, ..replace(&file) };
        let push_task = tokio::spawn(async move { parts.push(&ask, quiet).await });
        // Time in which the push could mistake the replicator for one that has everything.
        tokio::time::sleep(Duration::from_millis(300)).await;
        log.set_rates(rates);
        push_task.await.unwrap().unwrap();

        let fresh = reader(&node.address, "users").await;
        assert_eq!(read_fields(&fresh, "ann"), Some(name("pushed")));
        for key in (0..64).map(|number| format!("late-{number}")) {
            assert_eq!(read_fields(&fresh, &key), None, "{key}");
            shards_answer(&store, &key, None).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditional_changes_with_differing_outcomes_are_reported() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let file = files.text("one.csv", "id,name\nann,pushed\n");
    let (push_task, hold) = start_held_push(&parts, replace(&file), PARTITIONS);
    hold.wait().await;
    // The live version has no such document, and the other one has it; and vice versa.
    for (key, is_met) in [("ann", true), ("old-7", false), ("nobody", true)] {
        let write = store.upsert(key).set("name", "mine").if_absent().send().await.unwrap();
        assert_eq!(
            !matches!(write.result, WriteResult::ConditionFailed(_)),
            is_met,
            "{key}: {write:?}"
        );
    }
    hold.go_on();
    let mut changes = push_task.await.unwrap().unwrap().changed_outcomes;
    changes.sort_by_key(|change| change.outcome.sequence);
    let were_applied: Vec<_> =
        changes.iter().map(|it| it.outcome.condition == ConditionOutcome::Applied).collect();
    let fresh = reader(&node.address, "users").await;
    assert_eq!(read_fields(&fresh, "ann"), Some(name("pushed")));
    assert_eq!(read_fields(&fresh, "old-7"), Some(name("mine")));
    assert_eq!(were_applied.len(), 2, "{changes:?}");
    assert!(were_applied.contains(&true) && were_applied.contains(&false), "{changes:?}");
}

/// Holds a push after its partitions are built and before the version is in the definition.
#[derive(Clone, Default)]
pub struct HeldUp(Arc<AtomicBool>);

impl HeldUp {
    fn hold(&self) {
        self.0.store(true, Ordering::SeqCst);
        while self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the push is held.
    pub async fn wait(&self) {
        while !self.0.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn go_on(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

type PushTask = tokio::task::JoinHandle<forebay_core::Result<PushResult>>;

/// Starts a push that is held once this many partitions are built.
pub fn start_held_push(parts: &PushParts, ask: Push, partitions: u32) -> (PushTask, HeldUp) {
    let (parts, hold) = (parts.clone(), HeldUp::default());
    let callback_hold = hold.clone();
    let pushing = async move {
        let tell = |progress: PushProgress| {
            if progress.partitions_done == partitions {
                callback_hold.hold();
            }
        };
        parts.push(&ask, tell).await
    };
    (tokio::spawn(pushing), hold)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_survive_restarts_and_are_removed_one_after_another() {
    let (world, files) = (World::new(), Files::new());
    let (mut node, mut parts) = world.start().await;
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    for version in 2..5_u32 {
        let text = format!("id,name\nann,version {version}\n");
        let file = files.text(&format!("{version}.csv"), &text);
        let result = parts.push(&replace(&file), quiet).await.unwrap();
        assert_eq!((result.version.0, result.documents), (version, 1));
        assert_eq!(live_of(&parts), (version, vec![version - 1, version]));
        let fresh = reader(&node.address, "users").await;
        assert_eq!(read_fields(&fresh, "ann"), Some(name(&format!("version {version}"))));
        assert_eq!(read_fields(&fresh, "old-7"), None);

        node.end().await;
        (node, parts) = world.restart(parts.service.snapshots.clone()).await;
        let store = node.client().await.store("users").await.unwrap();
        let value = Value::String(format!("version {version}"));
        shards_answer(&store, "ann", Some(Some(value))).await;
        let fresh = reader(&node.address, "users").await;
        assert_eq!(read_fields(&fresh, "ann"), Some(name(&format!("version {version}"))));
        let status = node.replica(store.definition().store, is_caught_up).await;
        assert_eq!(status.partitions.len(), PARTITIONS as usize);
    }
    let error = parts.activate_version("users", VersionNumber(2)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    let error = parts.drop_version("users", VersionNumber(4)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    parts.drop_version("users", VersionNumber(3)).await.unwrap();
    assert_eq!(live_of(&parts), (4, vec![4]));
}

/// The address of the only replicator, until the replicator is lost.
struct LosableReplicator {
    address: String,
    is_lost: AtomicBool,
}

#[tonic::async_trait]
impl ReplicatorLocator for LosableReplicator {
    async fn address(&self, at: PartitionRef) -> forebay_core::Result<String> {
        if self.is_lost.load(Ordering::SeqCst) {
            let error = Error::unavailable("the replicator is lost; try again");
            return Err(error.with_partition(at.partition));
        }
        Ok(self.address.clone())
    }
}

/// Kills a push after its version is in the definition and before the version is live.
async fn leave_version(parts: &PushParts, address: &str, ask: Push) {
    let (address, is_lost) = (address.to_owned(), AtomicBool::new(false));
    let replicator = Arc::new(LosableReplicator { address, is_lost });
    let mut killed_parts = parts.clone();
    killed_parts.service.replicators = replicator.clone();
    let tell = move |progress: PushProgress| {
        if progress.partitions_done == PARTITIONS {
            replicator.is_lost.store(true, Ordering::SeqCst);
        }
    };
    let before = live_of(parts).1;
    let push_task = tokio::spawn(async move { killed_parts.push(&ask, tell).await });
    let wait = async {
        while live_of(parts).1 == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the version is not in the definition");
    push_task.abort();
    assert!(push_task.await.unwrap_err().is_cancelled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_activates_the_version_that_was_live_before() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let error = parts.rollback_version("users").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    let value = |version: u32| format!("version {version}");
    let file = |version| {
        let text = format!("id,name\nann,{}\n", value(version));
        files.text(&format!("{version}.csv"), &text)
    };
    for version in 2..4 {
        parts.push(&replace(&file(version)), quiet).await.unwrap();
    }
    assert_eq!(live_of(&parts), (3, vec![2, 3]));
    leave_version(&parts, &node.address, replace(&file(4))).await;
    assert_eq!(live_of(&parts), (3, vec![2, 3, 4]));
    // Version 4 was never live. The second rollback returns to the version that the first one left.
    for live in [2, 3, 2] {
        let versions = parts.rollback_version("users").await.unwrap();
        assert_eq!(versions.live().number, VersionNumber(live));
        assert_eq!(live_of(&parts), (live, vec![2, 3, 4]));
        shards_answer(&store, "ann", Some(Some(Value::String(value(live))))).await;
    }
    parts.drop_version("users", VersionNumber(3)).await.unwrap();
    let error = parts.rollback_version("users").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    assert_eq!(live_of(&parts), (2, vec![2, 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_is_removed_after_its_rollback_window() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let window = Duration::from_millis(500);
    let options = SnapshotOptions::new(Duration::from_millis(50), 3).unwrap();
    let options = SnapshotOptions { rollback_window: window, ..options };
    let _maintenance = maintain(&node, options);
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    parts.push(&replace(&files.text("one.csv", "id,name\nann,pushed\n")), quiet).await.unwrap();
    let wait = async {
        while live_of(&parts) != (2, vec![2]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // All data of the version is removed, including snapshots built in the meantime.
        let folder = format!("{:016x}", store.definition().store.0);
        let is_left = |name: &String| {
            name.contains(&folder) && (name.contains("/chunks/") || name.contains("/manifests/"))
        };
        while world.objects.names().await.iter().any(is_left) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the version before stays");
    let fresh = reader(&node.address, "users").await;
    assert_eq!(
        (read_fields(&fresh, "ann"), read_fields(&fresh, "old-7")),
        (Some(name("pushed")), None)
    );
}

/// Proves that the clocks of the node, its log and the object store do not affect how long a
/// version is retained, even if they jump far forward and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jumps_beyond_the_rollback_window_remove_no_version() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let (world, files) = (World::at(clock.clone()), Files::new());
    let (node, parts) = world.start().await;
    let options = SnapshotOptions::new(Duration::from_millis(50), 3).unwrap();
    let options = SnapshotOptions { collect_interval: Duration::from_millis(50), ..options };
    let maintenance = maintain(&node, options);
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    for (version, (hours, is_back)) in (2..).zip([(48, false), (96, true), (25, false)]) {
        let text = format!("id,name\nann,version {version}\n");
        let file = files.text(&format!("{version}.csv"), &text);
        parts.push(&replace(&file), quiet).await.unwrap();
        match is_back {
            false => world.objects.pass(hours * HOUR),
            true => world.objects.go_back(hours * HOUR),
        }
        let hours = i64::from(hours) * if is_back { -1 } else { 1 };
        clock.advance_micros(hours * HOUR.as_micros() as i64);
        // The snapshot service has checked, built and collected since.
        let built_count = maintenance.counts().snapshots_built;
        let write = store.upsert("late").set("name", format!("late {version}"));
        write.send().await.unwrap();
        let wait = async {
            while maintenance.counts().snapshots_built < built_count + 2 {
                let write = store.upsert("more").set("name", "more");
                write.send().await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        tokio::time::timeout(LONG, wait)
            .await
            .unwrap_or_else(|_| panic!("{:?}", maintenance.counts()));
        assert_eq!(live_of(&parts), (version, vec![version - 1, version]));
        let name = |version| Some(Some(Value::String(format!("version {version}"))));
        let before = if version == 2 { None } else { name(version - 1) };
        for (live, value) in [(version - 1, before), (version, name(version))] {
            alter(&parts, live).await;
            shards_answer(&store, "ann", value).await;
            let late_name = Value::String(format!("late {version}"));
            shards_answer(&store, "late", Some(Some(late_name))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_trimmed_behind_all_versions() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start_with(Some(0)).await;
    let options = SnapshotOptions::new(Duration::from_millis(50), 3).unwrap();
    let _maintenance = maintain(&node, options);
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let ask = replace(&files.parts(2));
    let pushing = async {
        loop {
            match parts.push(&ask, quiet).await {
                Ok(result) => return result.version.0,
                // A push during which the log is trimmed must be repeated, as another version.
                Err(error) => assert_eq!(error.code(), ErrorCode::Conflict, "{error}"),
            }
        }
    };
    let pushing = tokio::time::timeout(LONG, pushing).await;
    let pushed_version = pushing.expect("the log is trimmed all the time");
    let old = reader(&node.address, "users").await;
    let write = store.upsert("user-1").set("name", "after").if_absent().send().await.unwrap();
    assert!(matches!(write.result, WriteResult::ConditionFailed(Some(_))), "{write:?}");
    let write = store.upsert("late").set("name", "late").send().await.unwrap();
    for partition in 0..PARTITIONS {
        let store = store.definition().store;
        let at = PartitionRef { store, partition: PartitionId(partition) };
        let end = world.log.bounds(at).await.unwrap().end;
        let wait = async {
            // Heartbeats advance the log.
            while world.log.bounds(at).await.unwrap().start < end {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the log is not trimmed");
    }
    // Both versions bootstrap from their own snapshots.
    old.await_token(&write.token, LONG).await.unwrap();
    for (live, fields) in [(pushed_version, None), (1, Some(name("before")))] {
        alter(&parts, live).await;
        answers(&old, "old-7", fields.clone()).await;
        let fresh = reader(&node.address, "users").await;
        assert_eq!(
            (read_fields(&fresh, "old-7"), read_fields(&fresh, "late")),
            (fields, Some(name("late")))
        );
        assert_eq!(
            read_fields(&fresh, "user-1").unwrap().len(),
            if live == pushed_version { 7 } else { 1 }
        );
    }
    assert_eq!(expected(1).len(), 7);
    assert!(
        reader(&node.address, "users")
            .await
            .get_document(KeyValue::String("nobody"))
            .unwrap()
            .is_none()
    );
}

/// Returns a text of some hundred bytes; in each version, a twentieth of the documents have another
/// one.
fn long_name(number: u64, version: u64) -> String {
    let version = if number % 20 == version % 20 { version } else { 0 };
    format!("{number}.{version}.").repeat(40)
}

const LONG_NAMES: u64 = 30_000;

/// Writes all documents of a version to a file.
fn long_names(files: &Files, version: u64) -> std::path::PathBuf {
    let rows = (0..LONG_NAMES).map(|number| format!("u{number},{}\n", long_name(number, version)));
    let text: String = std::iter::once("id,name\n".to_owned()).chain(rows).collect();
    files.text(&format!("names-{version}.csv"), &text)
}

/// Waits until a reader answers from a version, and compares all documents.
async fn has_names(reader: &Reader, version: u64) {
    answers(reader, &format!("u{version}"), Some(name(&long_name(version, version)))).await;
    for number in 0..LONG_NAMES {
        let fields = Some(name(&long_name(number, version)));
        assert_eq!(read_fields(reader, &format!("u{number}")), fields, "u{number} in {version}");
    }
}

/// Returns the number of versions that have copies in a reader's directory.
fn versions_in(dir: &std::path::Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap();
    let is_header = |name: &std::ffi::OsStr| name.to_str().unwrap().starts_with("live-");
    let headers = names.filter(|name| is_header(&name.as_ref().unwrap().file_name())).count();
    headers / PARTITIONS as usize
}

/// A store with mostly equal documents in all versions, and readers with a directory.
struct LongNames {
    files: Files,
    dir: tempfile::TempDir,
    node: ServedNode,
    parts: PushParts,
    store: Store,
    token: Token,
    _world: World,
}

impl LongNames {
    async fn new() -> Self {
        let (world, files, dir) = (World::new(), Files::new(), tempfile::tempdir().unwrap());
        let (node, parts) = world.start_with_options(StoreOptions::default()).await;
        let store = node.client().await.store("users").await.unwrap();
        let mut token = None;
        for first in (0..LONG_NAMES).step_by(500) {
            let mut batch = store.batch();
            for number in first..first + 500 {
                let text = long_name(number, 0);
                batch.add(store.upsert(&*format!("u{number}")).set("name", text)).unwrap();
            }
            token = Some(batch.send().await.unwrap().token);
        }
        Self { files, dir, node, parts, store, token: token.unwrap(), _world: world }
    }

    async fn reader(&self) -> Reader {
        let options =
            ReaderOptions::new("users").checkpoint(CheckpointOptions::new(self.dir.path()));
        let reader = Reader::open(&self.node.address, options).await.unwrap();
        reader.await_ready(LONG).await.unwrap();
        reader.await_token(&self.token, LONG).await.unwrap();
        reader
    }

    async fn push(&self, version: u64) {
        self.parts.push(&replace(&long_names(&self.files, version)), quiet).await.unwrap();
    }

    /// Waits until there are copies of only one version.
    async fn has_one_version(&self) {
        let wait = async {
            while versions_in(self.dir.path()) != 1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let result = tokio::time::timeout(LONG, wait).await;
        result.unwrap_or_else(|_| panic!("{} versions", versions_in(self.dir.path())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn similar_versions_share_the_memory_of_a_reader() {
    let names = LongNames::new().await;
    let (first, second) = (names.reader().await, names.reader().await);
    has_names(&first, 0).await;
    // Only the reader that has the lock writes a copy.
    let used_bytes = || first.metrics().memory.used + second.metrics().memory.used;
    let first_bytes = used_bytes();
    for version in 1..4 {
        names.push(version).await;
        has_names(&first, version).await;
        has_names(&second, version).await;
        let own_bytes = used_bytes();
        assert!(
            own_bytes * 4 < first_bytes && own_bytes > 0,
            "version {version} has {own_bytes}, the first had {first_bytes}"
        );
        // Both readers continue.
        let write = names.store.upsert("more").set("name", format!("{version}"));
        let write = write.send().await.unwrap();
        first.await_token(&write.token, LONG).await.unwrap();
        assert_eq!(read_fields(&first, "more"), Some(name(&version.to_string())));
    }
    // A rollback, and back.
    alter(&names.parts, 3).await;
    has_names(&first, 2).await;
    alter(&names.parts, 4).await;
    has_names(&first, 3).await;

    // Once no rollback target remains, the version has its own memory, and the other versions are
    // removed.
    names.parts.drop_version("users", VersionNumber(3)).await.unwrap();
    names.has_one_version().await;
    let wait = async {
        while used_bytes() * 2 < first_bytes {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let result = tokio::time::timeout(LONG, wait).await;
    result.unwrap_or_else(|_| panic!("{:#?}", first.metrics()));
    has_names(&first, 3).await;
    has_names(&second, 3).await;
    drop((first, second));
    has_names(&names.reader().await, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_sharing_version_survives_a_machine_restart_without_leftovers() {
    let names = LongNames::new().await;
    let reader = names.reader().await;
    has_names(&reader, 0).await;
    names.push(1).await;
    has_names(&reader, 1).await;
    let write = names.store.upsert("more").set("name", "more").send().await.unwrap();
    reader.await_token(&write.token, LONG).await.unwrap();
    reader.close(LONG).await.unwrap();
    // A reboot: the copies in memory are gone, and none of the files on disk shares records.
    for entry in std::fs::read_dir(names.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("live-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let reader = names.reader().await;
    has_names(&reader, 1).await;
    reader.await_token(&write.token, LONG).await.unwrap();
    assert_eq!(read_fields(&reader, "more"), Some(name("more")));

    // A version that is dropped while no reader runs is removed by the next reader.
    names.push(2).await;
    has_names(&reader, 2).await;
    reader.close(LONG).await.unwrap();
    assert_eq!(versions_in(names.dir.path()), 2);
    names.parts.drop_version("users", VersionNumber(2)).await.unwrap();
    let reader = names.reader().await;
    names.has_one_version().await;
    has_names(&reader, 2).await;
}
