//! A handle to one store: its definition as last seen, and its partitions' sequences.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forebay_core::change::Verb;
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::schema::{Definition, KEY_VALUE_FIELD};
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::DocumentKey;
use parking_lot::RwLock;

use crate::batch::Batch;
use crate::client::ClientInner;
use crate::draft::{Draft, Routed};
use crate::memory::MemoryStore;
use crate::options::{ClientOptions, StreamOptions};
use crate::sequence::SequenceWindow;
use crate::stream::WriteStream;
use crate::write::Write;

/// A store, opened by [`Client::store`](crate::Client::store). Cheap to clone; clones share
/// everything.
///
/// The handle is bound to the store, not to its name: once the store is deleted, the handle returns
/// `NotFound`, also if another store has taken the name.
#[derive(Clone)]
pub struct Store {
    place: Place,
}

/// The destination of a store's writes.
#[derive(Clone)]
pub(crate) enum Place {
    /// A writer, over a client's connection.
    Node(Arc<StoreState>),
    /// An in-memory reader.
    Memory(Arc<MemoryStore>),
}

/// A client's state of a store, with the client.
pub(crate) struct StoreState {
    client: Arc<ClientInner>,
    known: Arc<KnownStore>,
}

/// A client's state of a store; it outlives the handles, and does not keep the client alive.
pub(crate) struct KnownStore {
    id: StoreId,
    name: String,
    definition: RwLock<Arc<Definition>>,
    /// The newest version that the writer has mentioned.
    newest_seen: AtomicU32,
    windows: RwLock<Windows>,
}

/// The sequences of all partitions of the logs that writes go to.
struct Windows {
    logs: StoreLogs,
    partitions: Vec<Arc<SequenceWindow>>,
}

impl Windows {
    fn new(logs: StoreLogs) -> Self {
        Self { logs, partitions: logs.all().map(|_| Arc::default()).collect() }
    }
}

impl Store {
    pub(crate) fn new(state: Arc<StoreState>) -> Self {
        Self { place: Place::Node(state) }
    }

    pub(crate) fn in_memory(memory: Arc<MemoryStore>) -> Self {
        Self { place: Place::Memory(memory) }
    }

    /// Returns whether this is the store of an in-memory reader: its writes end at once, on any
    /// thread.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory(_))
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn id(&self) -> StoreId {
        match &self.place {
            Place::Node(state) => state.id(),
            Place::Memory(memory) => memory.id(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match &self.place {
            Place::Node(state) => state.name(),
            Place::Memory(memory) => memory.name(),
        }
    }

    /// Returns the default deadline of a call; a store in memory needs none.
    pub(crate) fn deadline(&self) -> Duration {
        match &self.place {
            Place::Node(state) => state.client.deadline(),
            Place::Memory(_) => ClientOptions::default().deadline,
        }
    }

    /// Returns the store's definition as this client has last seen it.
    pub fn definition(&self) -> Arc<Definition> {
        match &self.place {
            Place::Node(state) => state.definition(),
            Place::Memory(memory) => Arc::new(memory.definition()),
        }
    }

    /// Fetches the newest definition.
    ///
    /// # Errors
    /// `NotFound` if the store was deleted, `Unavailable` if the writer does not answer.
    pub async fn refresh(&self) -> Result<Arc<Definition>> {
        match &self.place {
            Place::Node(state) => state.refresh().await,
            Place::Memory(_) => Ok(self.definition()),
        }
    }

    /// Changes the named fields and keeps the others; creates the document if it does not exist.
    ///
    /// Upsert is the default verb: an older program that upserts keeps fields that it does not
    /// know. A store that is partitioned by a field takes
    /// `DocumentKey::from(key).with_partition_key(value)`, here as in every read and write.
    pub fn upsert<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.write(Verb::Upsert, key.into())
    }

    /// Replaces the whole document by the named fields. All other fields become absent, including
    /// fields that this program does not know.
    pub fn put<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.write(Verb::Put, key.into())
    }

    /// Deletes the document.
    pub fn delete<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.write(Verb::Delete, key.into())
    }

    /// Adds an event to a stream; columns that are not named take their defaults. Events never
    /// change. Any number of events may have the same key, which selects the partition.
    ///
    /// A retry of one `Write` adds the event once; two writes add two events.
    pub fn insert<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.write(Verb::Insert, key.into())
    }

    /// Puts the value of a key in a key-value store.
    pub fn put_value<'k>(
        &self,
        key: impl Into<DocumentKey<'k>>,
        value: impl Into<Vec<u8>>,
    ) -> Write {
        self.write(Verb::Put, key.into()).set(KEY_VALUE_FIELD, value.into())
    }

    pub(crate) fn write(&self, verb: Verb, key: DocumentKey<'_>) -> Write {
        Write::new(self.clone(), Draft::new(verb, key))
    }

    /// Creates a batch of changes, which are sent together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// Opens a write stream for many changes, with a bounded number in flight.
    ///
    /// # Errors
    /// `InvalidArgument` for options that leave no space for a change; `Unsupported` if the store
    /// is the store of an in-memory reader.
    pub fn write_stream(&self, options: StreamOptions) -> Result<WriteStream> {
        match &self.place {
            Place::Node(state) => WriteStream::new(Arc::clone(state), options),
            Place::Memory(memory) => {
                let message =
                    "a store in memory has no streams; send batches, which keep their order";
                Err(Error::unsupported(message).with_store(memory.name()))
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl KnownStore {
    pub(crate) fn new(definition: Definition) -> Self {
        let windows = RwLock::new(Windows::new(definition.written()));
        Self {
            id: definition.store,
            name: definition.name.clone(),
            newest_seen: AtomicU32::new(definition.version.0),
            definition: RwLock::new(Arc::new(definition)),
            windows,
        }
    }

    /// Stores a definition if it is newer.
    pub(crate) fn learn(&self, definition: Definition) {
        self.notice_version(definition.version.0);
        let mut held = self.definition.write();
        if definition.version > held.version {
            let mut windows = self.windows.write();
            if windows.logs != definition.written() {
                *windows = Windows::new(definition.written());
            }
            *held = Arc::new(definition);
        }
    }

    fn notice_version(&self, version: u32) {
        self.newest_seen.fetch_max(version, Ordering::Relaxed);
    }
}

impl StoreState {
    pub(crate) fn new(client: Arc<ClientInner>, known: Arc<KnownStore>) -> Self {
        Self { client, known }
    }

    pub(crate) fn client(&self) -> &Arc<ClientInner> {
        &self.client
    }

    pub(crate) fn id(&self) -> StoreId {
        self.known.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.known.name
    }

    pub(crate) fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.known.definition.read())
    }

    /// Returns the logs that writes go to.
    pub(crate) fn logs(&self) -> StoreLogs {
        self.known.windows.read().logs
    }

    /// Returns the sequences of a partition of these logs; `None` if writes have moved to other
    /// logs.
    pub(crate) fn window(
        &self,
        logs: StoreLogs,
        partition: PartitionId,
    ) -> Option<Arc<SequenceWindow>> {
        let windows = self.known.windows.read();
        let of_logs = (windows.logs == logs).then_some(&windows.partitions)?;
        of_logs.get(partition.0 as usize).cloned()
    }

    /// Stores a definition if it is newer.
    pub(crate) fn learn(&self, definition: Definition) {
        self.known.learn(definition);
    }

    /// Notes that the store has this version; a newer definition is fetched before the next write.
    pub(crate) fn notice_version(&self, version: u32) {
        self.known.notice_version(version);
    }

    pub(crate) async fn refresh(&self) -> Result<Arc<Definition>> {
        let definition = self.client.describe(self.name(), 0).await?;
        if definition.store != self.id() {
            let message = "the store was deleted, and another store has its name; open that store";
            return Err(Error::not_found(message).with_store(self.name()));
        }
        self.learn(definition);
        Ok(self.definition())
    }

    /// Resolves drafts with the newest known definition. A field that the definition does not have
    /// may be new: then the client fetches the definition once more.
    ///
    /// # Errors
    /// The error of the first invalid draft.
    pub(crate) async fn resolve(&self, drafts: &[Draft]) -> Result<(Arc<Definition>, Vec<Routed>)> {
        let mut definition = self.definition();
        if self.known.newest_seen.load(Ordering::Relaxed) > definition.version.0 {
            // An older definition still writes the fields that it knows, so a failed refresh is
            // ignored.
            definition = self.refresh().await.unwrap_or(definition);
        }
        match resolve_all(drafts, &definition) {
            Err(error) if error.code() == ErrorCode::NotFound => {
                definition = self.refresh().await?;
                let routed = resolve_all(drafts, &definition)?;
                Ok((definition, routed))
            }
            routed => Ok((definition, routed?)),
        }
    }
}

/// Resolves drafts with this definition.
///
/// # Errors
/// The error of the first invalid draft.
pub(crate) fn resolve_all(drafts: &[Draft], definition: &Definition) -> Result<Vec<Routed>> {
    let named = |(place, draft): (usize, &Draft)| {
        draft.resolve(definition).map_err(|error| match drafts.len() {
            1 => error,
            _ => error.while_doing(&format!("check change {place}")),
        })
    };
    drafts.iter().enumerate().map(named).collect()
}
