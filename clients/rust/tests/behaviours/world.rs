//! A node for all tests, a separate store for each test, and documents by the names of their
//! fields.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forebay::reads::{
    Document, DocumentKey, Element, FieldHandle, FieldRead, FieldScalar, GatherOut, GatherPlan,
    KeyAnswer, KeyList, ReadOptions, View,
};
use forebay::schema::{Alteration, Definition, FieldType, KeyType, StoreSpec, Value};
use forebay::writes::{Token, Write, WriteOutcome};
use forebay::{Client, ClientOptions, Error, ErrorCode, Reader, ReaderOptions, Result, Store};
use forebay_core::clock::SystemClock;
use forebay_log::{ChangeLog, MemoryLog};
use tokio::sync::OnceCell;

use crate::common::TestNode;
pub use crate::common::{INT64, PATIENCE, SOON, STRING};

pub const BOOL: FieldType = FieldType::BOOL;
pub const INT32: FieldType = FieldType::INT32;
pub const FLOAT32: FieldType = FieldType::FLOAT32;
pub const FLOAT64: FieldType = FieldType::FLOAT64;
pub const BYTES: FieldType = FieldType::BYTES;
pub const TIMESTAMP: FieldType = FieldType::TIMESTAMP;

/// Time between two polls for an event.
const LOOK: Duration = Duration::from_millis(5);

static NODE: OnceCell<TestNode> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// A document by its fields' names; `None` is null.
pub type Fields = BTreeMap<String, Option<Value>>;

/// Starts a node over a log in memory, which outlives a kill of the node.
pub async fn memory_node() -> TestNode {
    node_with_snapshots(None).await
}

/// Starts a node; if a URL is given, the node stores snapshots there.
pub async fn node_with_snapshots(url: Option<&str>) -> TestNode {
    let memory: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    TestNode::start(url, move || std::future::ready(memory.clone())).await
}

/// Returns the address of the node that all tests share.
pub async fn endpoint() -> String {
    NODE.get_or_init(memory_node).await.endpoint()
}

pub async fn client_of(endpoint: &str) -> Client {
    let options = ClientOptions::default().deadline(PATIENCE);
    Client::connect(endpoint, options).await.unwrap()
}

pub async fn client() -> Client {
    client_of(&endpoint().await).await
}

/// Returns a store name that no other test has.
pub fn new_name() -> String {
    format!("store-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// Returns a spec of string keys in two partitions.
pub fn spec<const N: usize>(fields: [(&str, FieldType); N]) -> StoreSpec {
    keyed(KeyType::String, 2, fields)
}

pub fn keyed<const N: usize>(
    key_type: KeyType,
    partitions: u32,
    fields: [(&str, FieldType); N],
) -> StoreSpec {
    let spec = StoreSpec::documents(new_name(), key_type).partitions(partitions);
    fields.into_iter().fold(spec, |spec, (name, field_type)| spec.field(name, field_type))
}

/// A test's store, with its own client and a reader that is ready.
pub struct StoreFixture {
    pub client: Client,
    pub store: Store,
    pub reader: Reader,
}

impl StoreFixture {
    pub async fn create(spec: StoreSpec) -> Self {
        Self::create_at(&endpoint().await, spec).await
    }

    pub async fn create_at(endpoint: &str, spec: StoreSpec) -> Self {
        let client = client_of(endpoint).await;
        let store = client.create_store(&spec).await.unwrap();
        let reader = ready_reader(&client, ReaderOptions::new(&spec.name)).await;
        Self { client, store, reader }
    }

    /// Creates a store of these fields, with string keys.
    pub async fn with<const N: usize>(fields: [(&str, FieldType); N]) -> Self {
        Self::create(spec(fields)).await
    }

    pub fn name(&self) -> &str {
        self.reader.store()
    }

    pub async fn alter(&self, alteration: Alteration) -> Definition {
        self.client.alter_store(self.name(), None, &[alteration]).await.unwrap()
    }

    /// Sends the writes in one batch, all of which must succeed; returns its token.
    pub async fn write_all(&self, writes: impl IntoIterator<Item = Write>) -> Token {
        let mut batch = self.store.batch();
        for write in writes {
            batch.add(write).unwrap();
        }
        batch.send().await.unwrap().require_complete().unwrap().token
    }

    /// Returns the document once the token is applied.
    pub async fn after<'k>(
        &self,
        token: &Token,
        key: impl Into<DocumentKey<'k>>,
    ) -> Option<Fields> {
        document(&self.reader, &after(token), key).await.unwrap()
    }

    /// Returns the document as the log has it.
    pub async fn latest<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Option<Fields> {
        document(&self.reader, &latest(), key).await.unwrap()
    }

    /// Reads these keys, as the log has them.
    pub async fn read_latest<K: KeyList + ?Sized, T>(
        &self,
        keys: &K,
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        let partitions = self.reader.partitions_of(keys)?;
        self.reader.read(&latest(), &partitions, visit).await
    }

    /// Returns a number of many documents, as the log has them; `None` for absent and null.
    pub async fn numbers<K: KeyList + ?Sized>(&self, keys: &K, field: &str) -> Vec<Option<i64>> {
        let handle = self.reader.field(field).unwrap();
        let mut numbers = Vec::new();
        let read = self.read_latest(keys, |view| {
            view.get_many(keys, |_, answer| {
                numbers.push(match answer {
                    KeyAnswer::Found(row) => row.scalar::<i64>(&handle)?.value(),
                    KeyAnswer::None(_) => None,
                });
                Ok(())
            })
        });
        read.await.unwrap();
        numbers
    }

    /// Returns a gathered matrix, as the log has it.
    pub async fn gather<E: Element, K: KeyList + ?Sized>(
        &self,
        plan: &GatherPlan<E>,
        keys: &K,
    ) -> Vec<E> {
        let mut values = vec![E::default(); keys.count() * plan.width()];
        let mut gather_out = GatherOut::values(&mut values);
        self.read_latest(keys, |view| view.gather(plan, keys, &mut gather_out)).await.unwrap();
        values
    }

    /// Asserts that no document is in the log.
    pub async fn assert_nothing_written(&self) {
        let partitions: Vec<_> = self.store.definition().partitions.partitions().collect();
        self.reader.wait(&latest(), &partitions).await.unwrap();
        let visited = self.reader.scan_next(&mut self.reader.scan(), None, 1, |_| Ok(()));
        assert_eq!(visited.unwrap(), 0);
    }

    /// Returns every live document by its string key; asserts that each key comes once.
    pub fn scan(&self) -> BTreeMap<String, Fields> {
        scan(&self.reader)
    }
}

pub async fn ready_reader(client: &Client, options: ReaderOptions) -> Reader {
    let reader = client.reader(options).await.unwrap();
    reader.await_ready(PATIENCE).await.unwrap();
    reader
}

pub fn latest() -> ReadOptions {
    ReadOptions::latest(PATIENCE)
}

pub fn after(token: &Token) -> ReadOptions {
    ReadOptions::after(token.clone(), PATIENCE)
}

/// Sends a write that must succeed; returns its token.
pub async fn sent(write: Write) -> Token {
    outcome(write).await.token
}

/// Sends a write that must succeed; returns its outcome.
pub async fn outcome(write: Write) -> WriteOutcome {
    write.send().await.unwrap()
}

pub async fn document<'k>(
    reader: &Reader,
    read: &ReadOptions,
    key: impl Into<DocumentKey<'k>>,
) -> Result<Option<Fields>> {
    let document = reader.get_document_with(read, key).await?;
    Ok(document.map(|document| named(document, &reader.definition())))
}

/// Returns one field as this process has it now.
pub fn value<'k>(
    reader: &Reader,
    handle: &FieldHandle,
    key: impl Into<DocumentKey<'k>>,
) -> Result<FieldRead<Value>> {
    reader.get_value(handle, key)
}

/// Returns a number, bool or timestamp as this process has it now.
pub fn scalar<'k, T: FieldScalar>(
    reader: &Reader,
    handle: &FieldHandle,
    key: impl Into<DocumentKey<'k>>,
) -> Result<FieldRead<T>> {
    reader.get_scalar(handle, key)
}

/// Returns every live document by its string key; asserts that each key comes once.
pub fn scan(reader: &Reader) -> BTreeMap<String, Fields> {
    let mut documents = BTreeMap::new();
    let mut scan = reader.scan();
    loop {
        let visited = reader.scan_next(&mut scan, None, 100, |found| {
            let key = found.key.primary().with_bytes(|key| String::from_utf8(key.to_vec()));
            let fields = named(found.row.document()?, found.row.definition());
            let replaced = documents.insert(key.unwrap(), fields);
            assert_eq!(replaced, None, "a document came twice");
            Ok(())
        });
        if visited.unwrap() == 0 {
            return documents;
        }
    }
}

/// Returns the fields of a document, by their current names.
pub fn named(document: Document, definition: &Definition) -> Fields {
    let name = |field| definition.field_by_id(field).unwrap().name.clone();
    document.cells().iter().map(|cell| (name(cell.field), cell.value.clone())).collect()
}

pub fn fields<const N: usize>(values: [(&str, Value); N]) -> Fields {
    values.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect()
}

pub fn int(number: i64) -> Value {
    Value::Int64(number)
}

/// Returns `k0`, `k1` and so on.
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("k{number}")).collect()
}

/// Returns the error of a call that must be refused with this code.
#[track_caller]
pub fn assert_refused<T>(result: Result<T, impl Into<Error>>, code: ErrorCode) -> Error {
    let Err(error) = result else { panic!("not refused; expected {code:?}") };
    let error = error.into();
    assert_eq!(error.code(), code, "{error}");
    error
}

/// Returns the limit and the actual value of a call that must be over a limit.
#[track_caller]
pub fn over_limit<T>(result: Result<T, impl Into<Error>>) -> (u64, u64) {
    let error = assert_refused(result, ErrorCode::LimitExceeded);
    (error.context().limit.unwrap(), error.context().actual.unwrap())
}

/// Polls until the event has happened.
pub async fn eventually(event: &str, mut has_happened: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !has_happened().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("never: {event}"));
}
