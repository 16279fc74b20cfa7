//! In-memory readers, for tests of programs that read: the production reader over a store that the
//! test fills, moves through time and breaks.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::change::{FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_index::DocumentKey;
use forebay_reader::SimulatedState;

use crate::change_spec::{ChangeSpec, ttl_us};
use crate::memory_store::MemoryStore;
use crate::outcome::WriteOutcome;
use crate::reader::Reader;
use crate::store::Store;
use crate::write_builder::Write;

/// An initial document of an in-memory reader.
#[derive(Clone)]
#[must_use = "a row does nothing before a reader is opened with it"]
pub struct Row {
    spec: ChangeSpec,
}

impl Row {
    /// Creates a document without fields under a key.
    pub fn new<'k>(key: impl Into<DocumentKey<'k>>) -> Self {
        Self { spec: ChangeSpec::new(Verb::Put, key.into()) }
    }

    /// Sets a field. The value is converted to the field's declared type if the conversion is
    /// exact.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.spec.fields.push((field.to_owned(), FieldOp::Set(Some(value.into()))));
        self
    }

    /// Sets a field to null, which is not the same as absent.
    pub fn set_null(mut self, field: &str) -> Self {
        self.spec.fields.push((field.to_owned(), FieldOp::Set(None)));
        self
    }

    /// Sets the document's time to live, counted from the initial time of the reader's clock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.spec.ttl_us = Some(ttl_us(ttl));
        self
    }
}

/// The output never contains a key or a value.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("fields", &self.spec.fields.len()).finish_non_exhaustive()
    }
}

/// A [`Reader`] over a store in this process's memory, from [`Reader::in_memory`]. The type derefs
/// to the reader that the program under test takes; its methods are the test's controls.
///
/// Everything below the writes is production code: the index, the fold, merges, conditions, times
/// to live and alterations. A write is visible when its call returns. The clock starts at the
/// host's time and then stands still until the test moves it.
///
/// ```
/// use std::time::Duration;
/// use forebay::{ErrorCode, Reader};
/// use forebay::schema::{FieldType, KeyType, StoreSpec};
/// use forebay::testing::{SimulatedState, Row};
///
/// // The program under test: it takes the reader that it has in production.
/// fn visits(users: &Reader, user: &str) -> forebay::Result<i64> {
///     let visits = users.field_as("visits", FieldType::INT64)?;
///     users.view()?.max_staleness(Duration::from_secs(5)).get_i64(&visits, user, 0)
/// }
///
/// let spec = StoreSpec::documents("users", KeyType::String)
///     .partitions(4)
///     .field("visits", FieldType::INT64);
/// let users = Reader::in_memory(&spec, [Row::new("ada").set("visits", 2)])?;
/// assert_eq!(visits(&users, "ada")?, 2);
///
/// users.write(users.upsert("ada").increment("visits", 1).ttl(Duration::from_secs(60)))?;
/// assert_eq!(visits(&users, "ada")?, 3);
/// users.advance(Duration::from_secs(60))?;
/// assert_eq!(visits(&users, "ada")?, 0, "expired");
///
/// users.simulate(SimulatedState::Stale(Duration::from_secs(3600)))?;
/// assert_eq!(visits(&users, "ada").unwrap_err().code(), ErrorCode::Stale);
/// # Ok::<(), forebay::Error>(())
/// ```
pub struct InMemoryReader {
    reader: Reader,
    store: Store,
    memory: Arc<MemoryStore>,
}

impl Reader {
    /// Opens a reader of a store in this process's memory, for tests of programs that read; see
    /// [`InMemoryReader`]. The reader is ready at once and contains these rows. No file and no
    /// port is opened, no thread and no task is started, and no runtime is needed.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` for an invalid store or row.
    pub fn in_memory(
        spec: &StoreSpec,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<InMemoryReader> {
        let memory = Arc::new(MemoryStore::open(spec)?);
        let specs: Vec<_> = rows.into_iter().map(|row| row.spec).collect();
        memory.write(&specs)?.require_complete()?;
        let reader = Self::over_memory(memory.reader().clone());
        Ok(InMemoryReader { reader, store: Store::in_memory(Arc::clone(&memory)), memory })
    }
}

impl InMemoryReader {
    /// Returns the store behind this reader, for programs that write. Writes and batches are
    /// visible when they return, and need no runtime. The store has no write streams.
    pub fn as_store(&self) -> &Store {
        &self.store
    }

    /// Creates an upsert; see [`Store::upsert`].
    pub fn upsert<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.store.upsert(key)
    }

    /// Creates a put; see [`Store::put`].
    pub fn put<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.store.put(key)
    }

    /// Creates a delete; see [`Store::delete`].
    pub fn delete<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Write {
        self.store.delete(key)
    }

    /// Applies a write of this store at once: [`Write::send`] for tests that do not await.
    ///
    /// # Errors
    /// Errors of [`Write::send`] except for connection errors; `Closed`.
    pub fn write(&self, write: Write) -> Result<WriteOutcome> {
        if write.backend().id() != self.memory.id() {
            let message = "the write is of another store; make the write with this reader";
            return Err(Error::invalid_argument(message).with_store(self.memory.name()));
        }
        self.memory.write(&[write.into_spec()])?.into_single()
    }

    /// Alters the store, which gives the store its next version. All alterations happen, or none.
    ///
    /// # Errors
    /// `InvalidArgument`, with the reason, if old data would become unreadable; `NotFound` for an
    /// unknown field; `Closed`.
    pub fn alter(&self, alterations: &[Alteration]) -> Result<Definition> {
        self.memory.alter(alterations)
    }

    /// Returns the time of the reader's clock.
    pub fn clock(&self) -> Timestamp {
        self.memory.now()
    }

    /// Sets the reader's clock.
    ///
    /// # Errors
    /// `InvalidArgument` for a time before the clock's current time, `Closed`.
    pub fn set_clock(&self, now: Timestamp) -> Result<()> {
        self.memory.set_clock(now)
    }

    /// Moves the reader's clock forward, by whole microseconds.
    ///
    /// # Errors
    /// `Closed`.
    pub fn advance(&self, duration: Duration) -> Result<()> {
        let by_us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.set_clock(self.clock().plus_micros(by_us))
    }

    /// Simulates a state, until the next call replaces the state.
    ///
    /// # Errors
    /// `Closed`.
    pub fn simulate(&self, state: SimulatedState) -> Result<()> {
        self.memory.simulate(state)
    }
}

impl Deref for InMemoryReader {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl fmt::Debug for InMemoryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryReader").field("store", &self.memory.name()).finish_non_exhaustive()
    }
}
