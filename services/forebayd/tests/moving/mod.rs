//! A store whose documents tell what was written to them, so that a move of them to other
//! partitions shows what it has lost, doubled or put out of order; and the moments of such a move.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use forebay::{
    Client, ClientOptions, Document, ErrorCode, FieldType, KeyType, Read, Reader, ReaderOptions,
    ScalarType, Store, StoreSpec, Value,
};
use forebay_core::id::{Offset, PartitionCount, PartitionId};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::versions::StoreVersions;
use forebay_log::{ChangeLog, RemoteLog};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use tokio::task::JoinHandle;
use tonic::transport::Endpoint;

/// Longest wait for what must happen.
pub const LONG: Duration = Duration::from_secs(60);
/// Partitions that the store begins with, and those that its documents move to.
pub const PARTITIONS: u32 = 3;
pub const MOVED_TO: u32 = 5;
/// How many keys each writer writes one behind the other: of one each change follows the one before
/// at once, of many there is something in each partition at any moment.
const KEYS: [i64; 3] = [1, 6, 24];
/// Between the first keys of two writers.
const KEYS_APART: i64 = 1_000;
/// More components than a list gets here.
const SEEN_MAX: u32 = 60_000;
/// A kill and the move cost each writer a write of which nobody knows what became of it.
const UNKNOWN_MAX: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// Documents that nobody writes: those that were there before, and those that are pushed.
const BEFORE: std::ops::Range<i64> = 10_000..10_400;
const PUSHED: std::ops::Range<i64> = 20_000..20_500;

pub fn spec() -> StoreSpec {
    let number = FieldType::Scalar(ScalarType::Int64);
    StoreSpec::documents("users", KeyType::Int64, PARTITIONS)
        .field("count", number)
        .field("last", number)
        .field("seen", FieldType::List(ScalarType::Int64))
}

pub async fn client(address: &str) -> Client {
    let options = ClientOptions { deadline: LONG, ..ClientOptions::default() };
    Client::connect(address, options).await.unwrap()
}

/// The store, with what it holds before anything is pushed.
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

/// The file that is pushed.
pub fn file(folder: &Path) -> PathBuf {
    let lines: String = PUSHED.map(|key| format!("{key},{}\n", -key)).collect();
    let path = folder.join("pushed.csv");
    std::fs::write(&path, format!("id,count\n{lines}")).unwrap();
    path
}

/// Asks for the documents to be replaced by those of a file, in other partitions.
pub fn request(file: &Path) -> v1::PushRequest {
    v1::PushRequest {
        store: "users".to_owned(),
        partitions: Some(MOVED_TO),
        inputs: vec![format!("file://{}", file.display())],
        key_column: "id".to_owned(),
        ..v1::PushRequest::default()
    }
}

/// Asks a node for it; answers the version, unless it breaks off.
pub async fn push(address: &str, file: &Path) -> Option<u32> {
    let mut pushes = PushesClient::connect(format!("http://{address}")).await.unwrap();
    let mut told = pushes.push(request(file)).await.unwrap().into_inner();
    while let Ok(Some(answer)) = told.message().await {
        if let Some(pushed) = answer.pushed {
            return Some(pushed.version);
        }
    }
    None
}

/// A moment of a move.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// The version is known.
    Known,
    /// What was written since the push comes to its partitions.
    Carried,
    /// Writes are held.
    Held,
}

/// Where the logs of a version end, as a node has them.
async fn ends(address: &str, versions: &StoreVersions) -> Vec<Offset> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let log = RemoteLog::new(endpoint.connect_lazy());
    let mut ends = Vec::new();
    for at in versions.newest().logs.all() {
        ends.push(log.bounds(at).await.map_or(Offset(0), |bounds| bounds.end));
    }
    ends
}

/// Waits for a moment of the first move of a store; answers whether it was seen, or the version was
/// live before.
pub async fn comes(moment: Moment, store: &Store, address: &str) -> bool {
    let mut first = None;
    let wait = async {
        loop {
            let Ok(now) = store.refresh().await else { continue };
            let versions = &now.versions;
            if versions.live().number.0 > 1 {
                return false;
            }
            let is_there = versions.is_moving()
                && match moment {
                    Moment::Known => true,
                    Moment::Held => versions.are_held(),
                    Moment::Carried => {
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

/// Waits until something is so.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}

/// Waits until the version is live that was pushed.
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

/// Writers that go on until they are stopped.
pub struct Writers {
    stop: Arc<AtomicBool>,
    /// Of each the number that it writes now.
    now: Vec<Arc<AtomicI64>>,
    writing: Vec<JoinHandle<Sent>>,
}

/// What a writer has sent: under the number of each write whether it was acknowledged, or nobody
/// knows.
#[derive(Default)]
struct Sent(Vec<bool>);

/// What writers have sent, each of them.
#[derive(Default)]
pub struct Written(Vec<Sent>);

/// What each key's document says was written to it, in its order.
pub type Seen = BTreeMap<i64, Vec<i64>>;

fn key_of(writer: usize, number: i64) -> i64 {
    writer as i64 * KEYS_APART + number % KEYS[writer]
}

impl Writers {
    /// Begins to write, each at one of these nodes in turn.
    pub async fn start(addresses: &[&str]) -> Self {
        Self::behind(Written::default(), addresses).await
    }

    /// Goes on behind what was written.
    pub async fn behind(Written(mut written): Written, addresses: &[&str]) -> Self {
        written.resize_with(KEYS.len(), Sent::default);
        let stop = Arc::new(AtomicBool::new(false));
        let (mut numbers, mut writing) = (Vec::new(), Vec::new());
        for ((writer, sent), address) in (0..).zip(written).zip(addresses.iter().cycle()) {
            let store = client(address).await.store("users").await.unwrap();
            let now = Arc::new(AtomicI64::new(sent.0.len() as i64));
            let goes_on = sent.go_on(writer, store, Arc::clone(&stop), Arc::clone(&now));
            writing.push(tokio::spawn(goes_on));
            numbers.push(now);
        }
        Self { stop, now: numbers, writing }
    }

    /// Of each writer the number that it sends now: all before it are in the log.
    pub fn now(&self) -> Vec<i64> {
        self.now.iter().map(|now| now.load(Ordering::SeqCst)).collect()
    }

    /// Of each writer the first number that it has certainly not sent yet.
    pub fn next(&self) -> Vec<i64> {
        self.now().into_iter().map(|now| now + 1).collect()
    }

    /// Waits until each writer has written each of its keys once more.
    pub async fn go_on(&self) {
        let wanted: Vec<_> =
            self.next().into_iter().zip(KEYS).map(|(next, it)| next + it).collect();
        let wait = async {
            while self.next().iter().zip(&wanted).any(|(next, wanted)| next <= wanted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("nothing is written");
    }

    pub async fn stop(self) -> Written {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for writing in self.writing {
            all.push(writing.await.unwrap());
        }
        Written(all)
    }
}

impl Sent {
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
                // It may be on either side of a move. What is not settled in time is too late.
                Err(error) if error.code() == ErrorCode::UnknownOutcome => {
                    self.0.push(false);
                    let told = format!("write {number} of {writer}: {error}");
                    assert!(error.into_pending().is_none(), "{told}");
                }
                Err(error) => panic!("write {number} of {writer}: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        self
    }

    fn numbers(&self, of: impl Fn(i64) -> bool) -> impl Iterator<Item = (i64, bool)> {
        (0..).zip(self.0.iter().copied()).filter(move |(number, _)| of(*number))
    }
}

impl Written {
    /// Checks that all of it is there: in each partition from before from one moment on, which is
    /// no later than these numbers; each once, and in its order.
    pub fn assert_is_in(&self, seen: &Seen, from: &[i64]) {
        self.assert_is_in_until(seen, from, &[i64::MAX; KEYS.len()]);
    }

    /// As [`Written::assert_is_in`], of what was sent before these numbers; of what was sent since
    /// anything may be missing behind all that is there.
    pub fn assert_is_in_until(&self, seen: &Seen, from: &[i64], until: &[i64]) {
        self.assert_in_order(seen);
        let before = PartitionCount(PARTITIONS);
        for (writer, sent) in self.0.iter().enumerate() {
            let is_in = |number| {
                let of_key = seen.get(&key_of(writer, number));
                of_key.is_some_and(|numbers| numbers.binary_search(&number).is_ok())
            };
            for partition in before.partitions() {
                let is_of = |number| home(key_of(writer, number), before) == partition;
                let first = sent.numbers(is_of).map(|(number, _)| number).find(|it| is_in(*it));
                let first = first.unwrap_or(i64::MAX).min(from[writer]);
                let numbers = sent.numbers(|number| is_of(number) && !is_in(number));
                let lost: Vec<_> = numbers
                    .filter(|(number, is_known)| *is_known && *number >= first)
                    .filter(|(number, _)| *number < until[writer])
                    .collect();
                assert!(lost.is_empty(), "of {writer} from {first} on: {lost:?} are lost");
            }
            let unknown = sent.0.iter().filter(|is_known| !**is_known).count();
            assert!(unknown <= UNKNOWN_MAX, "{unknown} of {}", sent.0.len());
        }
    }

    /// Checks that each document has a run of what was written to it, each once and in its order.
    fn assert_in_order(&self, seen: &Seen) {
        for (key, numbers) in seen {
            let writer = (key / KEYS_APART) as usize;
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { continue };
            assert!(numbers.is_sorted_by(|a, b| a < b), "{key} holds {numbers:?}");
            let sent = &self.0[writer];
            let run = sent.numbers(|number| key_of(writer, number) == *key);
            let run: BTreeMap<i64, bool> =
                run.filter(|(number, _)| (first..=last).contains(&number)).collect();
            let has = |number: &i64| numbers.binary_search(number).is_ok();
            assert!(numbers.iter().all(|number| run.contains_key(number)), "{key}: {numbers:?}");
            let lost: Vec<_> = run.iter().filter(|(it, known)| **known && !has(it)).collect();
            assert!(lost.is_empty(), "{key} has lost {lost:?}");
        }
    }
}

fn home(key: i64, count: PartitionCount) -> PartitionId {
    partition_of(&key.to_le_bytes(), count)
}

fn keys() -> BTreeSet<i64> {
    let of = |writer: usize| (0..KEYS[writer]).map(move |number| key_of(writer, number));
    (0..KEYS.len()).flat_map(of).collect()
}

/// What a document says was written to it. Its count and its last value say the same.
fn told(definition: &Definition, document: &Document) -> Vec<i64> {
    let value = |name: &str| document.value(definition.field(name).unwrap().id);
    let number = |value: &Value| match value {
        Value::Int64(number) => *number,
        other => panic!("{other:?}"),
    };
    let seen: Vec<_> = match value("seen") {
        Some(Value::List(_, items)) => items.iter().map(number).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value("count").map(number), Some(seen.len() as i64), "{seen:?}");
    assert_eq!(value("last").map(number), seen.last().copied(), "{seen:?}");
    seen
}

/// What all documents say that are written, as a reader has them now.
pub async fn seen(reader: &Reader) -> Seen {
    let mut seen = Seen::new();
    for key in keys() {
        let document = reader.get_with(&Read::latest(LONG), key).await.unwrap();
        let definition = reader.schema();
        seen.extend(document.map(|document| (key, told(&definition.definition, &document))));
    }
    seen
}

/// What all documents say that are written, as the shards have them now.
pub async fn seen_in_shards(store: &Store) -> Seen {
    let (ordered, definition) = (store.ordered().unwrap(), store.definition());
    let mut seen = Seen::new();
    for key in keys() {
        let document = ordered.get(&Read::latest(LONG), key).await.unwrap();
        seen.extend(document.map(|document| (key, told(&definition, &document))));
    }
    seen
}

/// Whether a reader answers from the version that was pushed.
pub fn is_pushed(reader: &Reader) -> bool {
    reader.get(PUSHED.start).unwrap().is_some()
}

/// Checks that a reader has all documents of the version that is live, and none of another one.
pub fn assert_is_whole(reader: &Reader, is_pushed: bool) {
    let count = reader.schema().definition.field("count").unwrap().id;
    let (there, gone) = if is_pushed { (PUSHED, BEFORE) } else { (BEFORE, PUSHED) };
    for key in there {
        let document = reader.get(key).unwrap();
        let found = document.and_then(|document| document.value(count).cloned());
        assert_eq!(found, Some(Value::Int64(-key)), "{key}");
    }
    for key in gone {
        assert_eq!(reader.get(key).unwrap(), None, "{key}");
    }
}
