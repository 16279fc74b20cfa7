//! A handle to one store: writes, batches and write streams start here.

use std::fmt;
use std::sync::Arc;

use forebay_core::change::Verb;
use forebay_core::schema::{Definition, KEY_VALUE_FIELD};
use forebay_core::{Error, Result};
use forebay_index::DocumentKey;

use crate::batch::Batch;
use crate::change_spec::ChangeSpec;
use crate::memory_store::MemoryStore;
use crate::options::StreamOptions;
use crate::store_backend::StoreBackend;
use crate::store_state::StoreState;
use crate::stream::WriteStream;
use crate::write_builder::Write;

/// A store, opened by [`Client::store`](crate::Client::store). Cheap to clone; clones share
/// everything.
///
/// The handle is bound to the store, not to its name: once the store is deleted, the handle returns
/// `NotFound`, also if another store has taken the name.
#[derive(Clone)]
pub struct Store {
    backend: StoreBackend,
}

impl Store {
    pub(crate) fn new(state: Arc<StoreState>) -> Self {
        Self { backend: StoreBackend::Node(state) }
    }

    pub(crate) fn in_memory(memory: Arc<MemoryStore>) -> Self {
        Self { backend: StoreBackend::Memory(memory) }
    }

    /// Returns whether this is the store of an in-memory reader: its writes end at once, on any
    /// thread.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.backend, StoreBackend::Memory(_))
    }

    pub(crate) fn backend(&self) -> &StoreBackend {
        &self.backend
    }

    /// Returns the store's definition as this client has last seen it.
    pub fn definition(&self) -> Arc<Definition> {
        self.backend.definition()
    }

    /// Fetches the newest definition.
    ///
    /// # Errors
    /// `NotFound` if the store was deleted, `Unavailable` if the writer does not answer.
    pub async fn refresh(&self) -> Result<Arc<Definition>> {
        self.backend.refresh().await
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

    fn write(&self, verb: Verb, key: DocumentKey<'_>) -> Write {
        Write::new(self.backend.clone(), ChangeSpec::new(verb, key))
    }

    /// Creates a batch of changes, which are sent together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.backend.clone())
    }

    /// Opens a write stream for many changes, with a bounded number in flight.
    ///
    /// # Errors
    /// `InvalidArgument` for options that leave no space for a change; `Unsupported` if the store
    /// is the store of an in-memory reader.
    pub fn write_stream(&self, options: StreamOptions) -> Result<WriteStream> {
        match &self.backend {
            StoreBackend::Node(state) => WriteStream::new(Arc::clone(state), options),
            StoreBackend::Memory(memory) => {
                let message =
                    "a store in memory has no streams; send batches, which keep their order";
                Err(Error::unsupported(message).with_store(memory.name()))
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("name", &self.backend.name()).finish_non_exhaustive()
    }
}
