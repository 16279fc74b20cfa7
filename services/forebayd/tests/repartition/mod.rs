//! A store whose documents list the writes to them, so that a repartition shows lost, doubled and
//! reordered writes; and the moments of a repartition.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use forebay::reads::{Document, ReadOptions};
use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec, Value};
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions, Store};
use forebay_core::id::{Offset, PartitionCount, PartitionId};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::versions::StoreVersions;
use forebay_log::{ChangeLog, RemoteLog};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use tokio::task::JoinHandle;
use tonic::transport::Endpoint;

/// Longest wait for an expected event.
pub const LONG: Duration = Duration::from_secs(60);
/// Number of partitions before and after the repartition.
pub const PARTITIONS: u32 = 3;
pub const PARTITIONS_AFTER: u32 = 5;
/// Number of keys that each writer writes in turn: with one key the changes follow each other
/// immediately, with many keys every partition has changes at any moment.
const KEYS: [i64; 3] = [1, 6, 24];
/// Distance between the first keys of two writers.
const KEYS_APART: i64 = 1_000;
/// Upper bound of a list's length, which no test reaches.
const SEEN_MAX: u32 = 60_000;
/// Number of unknown outcomes per writer that a kill and the repartition may cause.
const UNKNOWN_MAX: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// Documents that nobody writes: those before the push, and the pushed ones.
const BEFORE: std::ops::Range<i64> = 10_000..10_400;
const PUSHED: std::ops::Range<i64> = 20_000..20_500;

pub fn spec() -> StoreSpec {
    let number = FieldType::INT64;
    StoreSpec::documents("users", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("count", number)
        .field("last", number)
        .field("seen", FieldType::List(ScalarType::Int64))
}

pub async fn client(address: &str) -> Client {
    let options = ClientOptions::default().deadline(LONG);
    Client::connect(address, options).await.unwrap()
}

/// Creates the store, with its documents before the push.
pub async fn create(address: &str) -> Store {
    let store = client(address).await.create_store(&spec()).await.unwrap();
    let mut batch = store.batch();
    for key in BEFORE {
        batch.add(store.upsert(key).set("count", -key)).unwrap();
    }
    assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
    store
}

pub async fn reader(address: &str, name: &str) -> Reader {
    let reader = Reader::open(address, ReaderOptions::new(name)).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader
}

/// Writes the file to push.
pub fn file(folder: &Path) -> PathBuf {
    let lines: String = PUSHED.map(|key| format!("{key},{}\n", -key)).collect();
    let path = folder.join("pushed.csv");
    std::fs::write(&path, format!("id,count\n{lines}")).unwrap();
    path
}

/// Returns the request that replaces the documents by those of a file, in other partitions.
pub fn request(file: &Path) -> v1::PushFilesRequest {
    v1::PushFilesRequest {
        store: "users".to_owned(),
        partitions: Some(PARTITIONS_AFTER),
        inputs: vec![format!("file://{}", file.display())],
        key_column: "id".to_owned(),
        ..v1::PushFilesRequest::default()
    }
}

/// Sends the request to a node; returns the version, unless the push breaks off.
pub async fn push(address: &str, file: &Path) -> Option<u32> {
    let mut pushes = PushesClient::connect(format!("http://{address}")).await.unwrap();
    let mut answers = pushes.push_files(request(file)).await.unwrap().into_inner();
    while let Ok(Some(answer)) = answers.message().await {
        if let Some(result) = answer.pushed {
            return Some(result.version);
        }
    }
    None
}

/// A moment of a repartition.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// The version is in the definition.
    Known,
    /// Entries since the push are being forwarded to the version's partitions.
    Forwarding,
    /// Writes are paused.
    WritesPaused,
}

/// Returns the end offsets of a version's logs, as a node has them.
async fn ends(address: &str, versions: &StoreVersions) -> Vec<Offset> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let log = RemoteLog::new(endpoint.connect_lazy());
    let mut ends = Vec::new();
    for at in versions.newest().logs.all() {
        ends.push(log.bounds(at).await.map_or(Offset(0), |bounds| bounds.end));
    }
    ends
}

/// Waits for a moment of the first repartition of a store; returns whether it was seen before the
/// version was live.
pub async fn comes(moment: Moment, store: &Store, address: &str) -> bool {
    let mut first = None;
    let wait = async {
        loop {
            let Ok(now) = store.refresh().await else { continue };
            let versions = &now.versions;
            if versions.live().number.0 > 1 {
                return false;
            }
            let is_there = versions.is_repartitioning()
                && match moment {
                    Moment::Known => true,
                    Moment::WritesPaused => versions.writes_paused(),
                    Moment::Forwarding => {
                        let now = ends(address, versions).await;
                        *first.get_or_insert_with(|| now.clone()) != now
                    }
                };
            if is_there {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("no {moment:?}"))
}

/// Waits until a condition is true.
pub async fn eventually(description: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("never happened: {description}"));
}

/// Waits until the pushed version is live.
pub async fn is_live(store: &Store) -> Arc<Definition> {
    let wait = async {
        loop {
            match store.refresh().await {
                Ok(now) if now.versions.live().number.0 > 1 => return now,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the version is not live")
}

/// Writers that write until they are stopped.
pub struct Writers {
    stop: Arc<AtomicBool>,
    /// Number of each writer's current write.
    now: Vec<Arc<AtomicI64>>,
    tasks: Vec<JoinHandle<WriterHistory>>,
}

/// A writer's writes: for each number, whether the write was acknowledged or its outcome is
/// unknown.
#[derive(Default)]
struct WriterHistory(Vec<bool>);

/// The writes of all writers.
#[derive(Default)]
pub struct WriteHistories(Vec<WriterHistory>);

/// The list of writes in each key's document, in order.
pub type WriteLists = BTreeMap<i64, Vec<i64>>;

fn key_of(writer: usize, number: i64) -> i64 {
    writer as i64 * KEYS_APART + number % KEYS[writer]
}

impl Writers {
    /// Starts writers, distributed over these nodes.
    pub async fn start(addresses: &[&str]) -> Self {
        Self::start_after(WriteHistories::default(), addresses).await
    }

    /// Starts writers that continue after earlier writes.
    pub async fn start_after(
        WriteHistories(mut histories): WriteHistories,
        addresses: &[&str],
    ) -> Self {
        histories.resize_with(KEYS.len(), WriterHistory::default);
        let stop = Arc::new(AtomicBool::new(false));
        let (mut numbers, mut tasks) = (Vec::new(), Vec::new());
        for ((writer, history), address) in (0..).zip(histories).zip(addresses.iter().cycle()) {
            let store = client(address).await.store("users").await.unwrap();
            let now = Arc::new(AtomicI64::new(history.0.len() as i64));
            let goes_on = history.go_on(writer, store, Arc::clone(&stop), Arc::clone(&now));
            tasks.push(tokio::spawn(goes_on));
            numbers.push(now);
        }
        Self { stop, now: numbers, tasks }
    }

    /// Returns the number of each writer's current write: all writes before it are in the log.
    pub fn now(&self) -> Vec<i64> {
        self.now.iter().map(|now| now.load(Ordering::SeqCst)).collect()
    }

    /// Returns the first number that each writer has certainly not sent yet.
    pub fn next(&self) -> Vec<i64> {
        self.now().into_iter().map(|now| now + 1).collect()
    }

    /// Waits until each writer has written each of its keys once more.
    pub async fn go_on(&self) {
        let targets: Vec<_> =
            self.next().into_iter().zip(KEYS).map(|(next, it)| next + it).collect();
        let wait = async {
            while self.next().iter().zip(&targets).any(|(next, target)| next <= target) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("nothing is written");
    }

    pub async fn stop(self) -> WriteHistories {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for task in self.tasks {
            all.push(task.await.unwrap());
        }
        WriteHistories(all)
    }
}

impl WriterHistory {
    async fn go_on(
        mut self,
        writer: usize,
        store: Store,
        stop: Arc<AtomicBool>,
        now: Arc<AtomicI64>,
    ) -> Self {
        while !stop.load(Ordering::SeqCst) {
            let number = self.0.len() as i64;
            now.store(number, Ordering::SeqCst);
            let write = store.upsert(key_of(writer, number)).increment("count", 1);
            let write = write.set("last", number).list_append("seen", [number], SEEN_MAX);
            match write.send().await {
                Ok(_) => self.0.push(true),
                // The write may be on either side of the repartition. If it is not resolved in
                // time, it cannot be resolved any more.
                Err(error) if error.code() == ErrorCode::UnknownOutcome => {
                    self.0.push(false);
                    let message = format!("write {number} of {writer}: {error}");
                    assert!(error.into_pending().is_none(), "{message}");
                }
                Err(error) => panic!("write {number} of {writer}: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        self
    }

    fn numbers(&self, is_included: impl Fn(i64) -> bool) -> impl Iterator<Item = (i64, bool)> {
        (0..).zip(self.0.iter().copied()).filter(move |(number, _)| is_included(*number))
    }
}

impl WriteHistories {
    /// Asserts that all writes are there: for each old partition from some moment on, which is not
    /// later than `first_numbers`; each write once, and in order.
    pub fn assert_is_in(&self, lists: &WriteLists, first_numbers: &[i64]) {
        self.assert_is_in_until(lists, first_numbers, &[i64::MAX; KEYS.len()]);
    }

    /// Asserts the same as [`WriteHistories::assert_is_in`] for the writes before
    /// `end_numbers`; later writes may be missing, but only after all that are there.
    pub fn assert_is_in_until(
        &self,
        lists: &WriteLists,
        first_numbers: &[i64],
        end_numbers: &[i64],
    ) {
        self.assert_in_order(lists);
        let before = PartitionCount(PARTITIONS);
        for (writer, history) in self.0.iter().enumerate() {
            let is_in = |number| {
                let of_key = lists.get(&key_of(writer, number));
                of_key.is_some_and(|numbers| numbers.binary_search(&number).is_ok())
            };
            for partition in before.partitions() {
                let is_of = |number| home(key_of(writer, number), before) == partition;
                let first = history.numbers(is_of).map(|(number, _)| number).find(|it| is_in(*it));
                let first = first.unwrap_or(i64::MAX).min(first_numbers[writer]);
                let numbers = history.numbers(|number| is_of(number) && !is_in(number));
                let lost_writes: Vec<_> = numbers
                    .filter(|(number, is_known)| *is_known && *number >= first)
                    .filter(|(number, _)| *number < end_numbers[writer])
                    .collect();
                assert!(
                    lost_writes.is_empty(),
                    "of {writer} from {first} on: {lost_writes:?} are lost"
                );
            }
            let unknown_count = history.0.iter().filter(|is_known| !**is_known).count();
            assert!(unknown_count <= UNKNOWN_MAX, "{unknown_count} of {}", history.0.len());
        }
    }

    /// Asserts that each document has a consecutive part of its writes, each once and in order.
    fn assert_in_order(&self, lists: &WriteLists) {
        for (key, numbers) in lists {
            let writer = (key / KEYS_APART) as usize;
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { continue };
            assert!(numbers.is_sorted_by(|a, b| a < b), "{key} holds {numbers:?}");
            let history = &self.0[writer];
            let run = history.numbers(|number| key_of(writer, number) == *key);
            let run: BTreeMap<i64, bool> =
                run.filter(|(number, _)| (first..=last).contains(&number)).collect();
            let has = |number: &i64| numbers.binary_search(number).is_ok();
            assert!(numbers.iter().all(|number| run.contains_key(number)), "{key}: {numbers:?}");
            let lost_writes: Vec<_> =
                run.iter().filter(|(it, is_known)| **is_known && !has(it)).collect();
            assert!(lost_writes.is_empty(), "{key} has lost {lost_writes:?}");
        }
    }
}

fn home(key: i64, count: PartitionCount) -> PartitionId {
    partition_of(&key.to_le_bytes(), count)
}

fn keys() -> BTreeSet<i64> {
    let keys_of = |writer: usize| (0..KEYS[writer]).map(move |number| key_of(writer, number));
    (0..KEYS.len()).flat_map(keys_of).collect()
}

/// Returns the writes that a document lists, after checking that its count and its last value
/// agree.
fn read_list(definition: &Definition, document: &Document) -> Vec<i64> {
    let value = |name: &str| document.value(definition.field(name).unwrap().id);
    let number = |value: &Value| match value {
        Value::Int64(number) => *number,
        other => panic!("{other:?}"),
    };
    let list: Vec<_> = match value("seen") {
        Some(Value::List(_, items)) => items.iter().map(number).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value("count").map(number), Some(list.len() as i64), "{list:?}");
    assert_eq!(value("last").map(number), list.last().copied(), "{list:?}");
    list
}

/// Returns the writes that all written documents list, as a reader has them now.
pub async fn read_lists(reader: &Reader) -> WriteLists {
    let mut lists = WriteLists::new();
    for key in keys() {
        let document = reader.get_document_with(&ReadOptions::latest(LONG), key).await.unwrap();
        let definition = reader.definition();
        lists.extend(document.map(|document| (key, read_list(&definition, &document))));
    }
    lists
}

/// Returns the writes that all written documents list, as the shards have them now.
pub async fn read_lists_in_shards(store: &Store) -> WriteLists {
    let (ordered, definition) = (store.ordered().unwrap(), store.definition());
    let mut lists = WriteLists::new();
    for key in keys() {
        let document = ordered.get(&ReadOptions::latest(LONG), key).await.unwrap();
        lists.extend(document.map(|document| (key, read_list(&definition, &document))));
    }
    lists
}

/// Returns whether a reader answers from the pushed version.
pub fn is_pushed(reader: &Reader) -> bool {
    reader.get_document(PUSHED.start).unwrap().is_some()
}

/// Asserts that a reader has all documents of the live version, and none of another one.
pub fn assert_is_whole(reader: &Reader, is_pushed: bool) {
    let count = reader.definition().field("count").unwrap().id;
    let (present_keys, absent_keys) = if is_pushed { (PUSHED, BEFORE) } else { (BEFORE, PUSHED) };
    for key in present_keys {
        let document = reader.get_document(key).unwrap();
        let found = document.and_then(|document| document.value(count).cloned());
        assert_eq!(found, Some(Value::Int64(-key)), "{key}");
    }
    for key in absent_keys {
        assert_eq!(reader.get_document(key).unwrap(), None, "{key}");
    }
}
