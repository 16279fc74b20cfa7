//! Reader processes that are killed at each quarter of a bootstrap. Proves that no wrong answer is
//! given, that the next reader fetches only the rest, and that no files are left over.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay::reads::{CheckpointOptions, SnapshotStore};
use forebay::schema::{FieldType, KeyType, KeyValue, StoreOptions, StoreSpec, Value};
use forebay::{ErrorCode, Reader, ReaderOptions, Store};
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_snapshot::Manifest;
use forebay_testkit::child::OwnedChild;
use forebay_testkit::object_proxy::{ObjectCall, ObjectProxy};
use forebay_testkit::objects::ObjectFault;
use forebay_testkit::random::SeededRng;
use parking_lot::{Condvar, Mutex};

use crate::users::LONG;
use crate::{World, client, server};

const TEST: &str =
    "killed_readers::readers_killed_at_each_quarter_of_a_bootstrap_resume_and_answer_correctly";
/// Environment variables of a reading process: the node, the snapshots, and the directory of its
/// copies.
const NODE: &str = "FOREBAY_TEST_READS_AT";
const SNAPSHOTS: &str = "FOREBAY_TEST_READS_SNAPSHOTS";
const DIRECTORY: &str = "FOREBAY_TEST_READS_IN";
const DOCUMENTS: i64 = 8_000;
const VALUE_BYTES: usize = 8 << 10;

fn spec() -> StoreSpec {
    let bytes = FieldType::BYTES;
    let mut spec = StoreSpec::documents("blobs", KeyType::Int64).partitions(1).field("blob", bytes);
    spec.options = StoreOptions { log_retention_us: Some(0), ..StoreOptions::default() };
    spec
}

/// Returns incompressible bytes.
fn value(key: i64) -> Value {
    Value::Bytes(SeededRng::new(key as u64).noise(VALUE_BYTES))
}

fn value_of(reader: &Reader, key: i64) -> forebay::Result<Option<Value>> {
    let field = reader.definition().field("blob").unwrap().id;
    let document = reader.get_document(KeyValue::Int64(key))?;
    Ok(document.and_then(|document| document.value(field).cloned()))
}

/// Reads until stdin ends, and prints the progress.
async fn read(node: &str) {
    let variable = |name: &str| std::env::var(name).unwrap();
    let options = ReaderOptions::new("blobs")
        .snapshots(SnapshotStore::open(&variable(SNAPSHOTS)).unwrap())
        .checkpoint(CheckpointOptions::new(variable(DIRECTORY)));
    // The test harness has printed an incomplete line.
    println!();
    let reader = Reader::open(node, options).await.unwrap();
    let fetched = async {
        while !reader.status().is_ready {
            match value_of(&reader, 1) {
                Ok(found) => assert_eq!(found, Some(value(1))),
                Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
            }
            if let Some(download) = reader.status().partitions[0].snapshot_download {
                println!("fetched {}", download.bytes);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, fetched).await.unwrap_or_else(|_| panic!("{:?}", reader.status()));
    for key in 0..DOCUMENTS {
        assert_eq!(value_of(&reader, key).unwrap(), Some(value(key)), "{key}");
    }
    println!("whole");
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
    reader.close(LONG).await.unwrap();
    println!("ended");
}

/// A reading process; killed when dropped.
struct Reading {
    child: OwnedChild,
    lines: Lines<BufReader<ChildStdout>>,
    /// The process's own connection, so that its outstanding requests end with it.
    _way: ObjectProxy,
}

impl Reading {
    /// Starts a process for which this many chunks may pass in total, including those that have
    /// passed before.
    fn start(world: &World, gate: (&Arc<Gate>, usize), node: &str, directory: &Path) -> Self {
        let (gate, allowed) = gate;
        let way = gate.way(allowed);
        let child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .envs(way.options())
            .env(NODE, node)
            .env(SNAPSHOTS, &world.snapshots)
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = OwnedChild(child.unwrap());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, _way: way }
    }

    /// Waits until the process prints a wanted line; fails if the process ends before.
    fn says(&mut self, mut is_wanted: impl FnMut(&str) -> bool) {
        let mut lines = self.lines.by_ref().map(|line| line.unwrap());
        assert!(lines.any(|line| is_wanted(&line)), "the reader has ended");
    }

    fn until_whole(mut self) -> Self {
        self.says(|line| line == "whole");
        self
    }

    /// Lets the process end in order.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.says(|line| line == "ended");
        assert!(self.child.wait().unwrap().success());
    }
}

/// A gate that lets a number of an image's chunks pass, and holds the others.
struct Gate {
    /// Sizes of the chunks, by the hashes in their paths.
    chunks: BTreeMap<String, u64>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    passed: Vec<String>,
    allowed: usize,
    /// Number of the newest connection; requests of an older one are closed.
    way: u64,
}

impl Gate {
    fn of(manifest: &Manifest) -> Arc<Self> {
        let chunks = manifest.base.chunks.iter();
        let chunks = chunks.map(|chunk| (chunk.hash.to_string(), chunk.bytes.into())).collect();
        Arc::new(Self { chunks, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Opens a new connection through the gate for this many chunks in total, and closes the
    /// previous one.
    fn way(self: &Arc<Self>, allowed: usize) -> ObjectProxy {
        let (gate, proxy) = (Arc::clone(self), ObjectProxy::start(server()).unwrap());
        let mut state = self.state.lock();
        state.way += 1;
        state.allowed = allowed;
        self.changed.notify_all();
        let way = state.way;
        proxy.decide(Some(Arc::new(move |call| gate.pass(call, way))));
        proxy
    }

    fn pass(&self, call: &ObjectCall, way: u64) -> Option<ObjectFault> {
        let chunk = call.target.split_once("/chunks/")?.1.split('-').next()?;
        if !call.is_fetch() || !self.chunks.contains_key(chunk) {
            return None;
        }
        let mut state = self.state.lock();
        while state.way == way && state.passed.len() >= state.allowed {
            if self.changed.wait_for(&mut state, LONG).timed_out() {
                break;
            }
        }
        if state.way != way || state.passed.len() >= state.allowed {
            return Some(ObjectFault::Refused);
        }
        state.passed.push(chunk.to_owned());
        None
    }

    fn passed(&self) -> Vec<String> {
        self.state.lock().passed.clone()
    }

    /// Returns whether all permitted chunks have passed, and have this many bytes.
    fn is_all_that_passed(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        let passed: u64 = state.passed.iter().map(|chunk| self.chunks[chunk]).sum();
        state.passed.len() == state.allowed && passed == bytes
    }
}

/// Returns the newest snapshot, once it has all documents. The image has most of them; otherwise it
/// would be rebuilt.
async fn snapshot(world: &World, store: &Store) -> Manifest {
    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    let (snapshots, mut found) = (world.straight().partition(at), None);
    let held = |newest: &Manifest| newest.base.documents + newest.delta_documents();
    let wait = async {
        while found.as_ref().is_none_or(|newest| held(newest) < DOCUMENTS as u64) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            found = snapshots.newest(None).await.unwrap();
        }
    };
    let waited = tokio::time::timeout(LONG, wait).await;
    waited.unwrap_or_else(|_| panic!("{:?} documents", found.as_ref().map(held)));
    found.unwrap()
}

/// Returns the kinds of files in a directory.
fn kinds(directory: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| name.replace(|letter: char| letter.is_ascii_hexdigit(), "")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_killed_at_each_quarter_of_a_bootstrap_resume_and_answer_correctly() {
    if let Ok(node) = std::env::var(NODE) {
        return read(&node).await;
    }
    let world = World::new("killed-readers");
    let node = world.start("127.0.0.1:0");
    let store = client(&node.address).await.create_store(&spec()).await.unwrap();
    for keys in (0..DOCUMENTS).collect::<Vec<_>>().chunks(200) {
        let mut batch = store.batch();
        for key in keys {
            batch.add(store.put(*key).set("blob", value(*key))).unwrap();
        }
        assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
    }
    snapshot(&world, &store).await;
    // The snapshot stays the newest, since nobody builds snapshots any more.
    let address = node.kill();
    let manifest = snapshot(&world, &store).await;
    let node = world.start_with(&[], &address);
    let all = manifest.base.chunks.len();
    assert!(all >= 12, "{all} chunks");

    let (gate, directory) = (Gate::of(&manifest), tempfile::tempdir().unwrap());
    for quarter in 1..=3 {
        let quarter = (&gate, all * quarter / 4);
        let mut reading = Reading::start(&world, quarter, &node.address, directory.path());
        reading.says(|line| {
            assert_ne!(line, "whole", "not all has come");
            let bytes = line.strip_prefix("fetched ").and_then(|bytes| bytes.parse().ok());
            bytes.is_some_and(|bytes| gate.is_all_that_passed(bytes))
        });
    }
    let whole = (&gate, 2 * all);
    Reading::start(&world, whole, &node.address, directory.path()).until_whole().end();
    let mut passed = gate.passed();
    passed.sort_unstable();
    let wanted: Vec<_> = gate.chunks.keys().cloned().collect();
    assert_eq!(passed, wanted, "each chunk once");

    // A reader that is killed after it has everything leaves a complete copy, and the next reader
    // fetches nothing.
    drop(Reading::start(&world, whole, &node.address, directory.path()).until_whole());
    Reading::start(&world, whole, &node.address, directory.path()).until_whole().end();
    assert_eq!(gate.passed().len(), all);
    let never_killed = tempfile::tempdir().unwrap();
    Reading::start(&world, whole, &node.address, never_killed.path()).until_whole().end();
    assert_eq!(gate.passed().len(), 2 * all);
    assert_eq!(kinds(directory.path()), kinds(never_killed.path()), "nothing is left");
}
