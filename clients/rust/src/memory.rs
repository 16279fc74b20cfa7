//! In-memory readers, for tests of programs that read: the production reader over a store that the
//! test fills, moves through time and breaks.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::change::{FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::id::StoreId;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_index::DocumentKey;
use forebay_reader::{Forced, MemoryReader};
use forebay_wire::token::Token;

use crate::draft::{Draft, ttl_us};
use crate::options::ClientParts;
use crate::outcome::{BatchOutcome, WriteOutcome, WriteResult};
use crate::plan::{Item, rounds};
use crate::reader::Reader;
use crate::store::{Store, resolve_all};
use crate::write::Write;

/// An initial document of an in-memory reader.
#[derive(Clone)]
#[must_use = "a row does nothing before a reader is opened with it"]
pub struct Row {
    draft: Draft,
}

impl Row {
    /// Creates a document without fields under a key.
    pub fn new<'k>(key: impl Into<DocumentKey<'k>>) -> Self {
        Self { draft: Draft::new(Verb::Put, key.into()) }
    }

    /// Sets a field. The value is converted to the field's declared type if the conversion is
    /// exact.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.draft.fields.push((field.to_owned(), FieldOp::Set(Some(value.into()))));
        self
    }

    /// Sets a field to null, which is not the same as absent.
    pub fn set_null(mut self, field: &str) -> Self {
        self.draft.fields.push((field.to_owned(), FieldOp::Set(None)));
        self
    }

    /// Sets the document's time to live, counted from the initial time of the reader's clock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl_us = Some(ttl_us(ttl));
        self
    }
}

/// The output never contains a key or a value.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("fields", &self.draft.fields.len()).finish_non_exhaustive()
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
/// use forebay::{ErrorCode, FieldType, Forced, KeyType, Reader, Row, ScalarType, StoreSpec};
///
/// // The program under test: it takes the reader that it has in production.
/// fn visits(users: &Reader, user: &str) -> forebay::Result<i64> {
///     let visits = users.handle("visits", FieldType::Scalar(ScalarType::Int64))?;
///     users.read_local(Some(Duration::from_secs(5)), |view| view.get_i64(&visits, user, 0))
/// }
///
/// let spec = StoreSpec::documents("users", KeyType::String, 4)
///     .field("visits", FieldType::Scalar(ScalarType::Int64));
/// let users = Reader::in_memory(&spec, [Row::new("ada").set("visits", 2)])?;
/// assert_eq!(visits(&users, "ada")?, 2);
///
/// users.write(users.upsert("ada").increment("visits", 1).ttl(Duration::from_secs(60)))?;
/// assert_eq!(visits(&users, "ada")?, 3);
/// users.advance(Duration::from_secs(60))?;
/// assert_eq!(visits(&users, "ada")?, 0, "expired");
///
/// users.force(Forced::Stale(Duration::from_secs(3600)))?;
/// assert_eq!(visits(&users, "ada").unwrap_err().code(), ErrorCode::Stale);
/// # Ok::<(), forebay::Error>(())
/// ```
pub struct InMemoryReader {
    reader: Reader,
    store: Store,
    memory: Arc<MemoryStore>,
}

impl InMemoryReader {
    pub(crate) fn open(spec: &StoreSpec, rows: impl IntoIterator<Item = Row>) -> Result<Self> {
        let parts = ClientParts::default();
        let definition = spec.define(parts.entropy.store_id()?);
        let definition = definition.map_err(|error| error.with_store(&spec.name))?;
        let held = MemoryReader::open(definition, parts.clock.now(), parts.entropy)?;
        let reader = Reader::over_memory(held.reader().clone());
        let memory = Arc::new(MemoryStore { held });
        let drafts: Vec<_> = rows.into_iter().map(|row| row.draft).collect();
        memory.write(&drafts)?.into_complete()?;
        Ok(Self { reader, store: Store::in_memory(Arc::clone(&memory)), memory })
    }

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
        if write.store().id() != self.store.id() {
            let message = "the write is of another store; make the write with this reader";
            return Err(Error::invalid_argument(message).with_store(self.store.name()));
        }
        self.memory.write(&[write.into_draft()])?.into_single()
    }

    /// Alters the store, which gives the store its next version. All alterations happen, or none.
    ///
    /// # Errors
    /// `InvalidArgument`, with the reason, if old data would become unreadable; `NotFound` for an
    /// unknown field; `Closed`.
    pub fn alter(&self, alterations: &[Alteration]) -> Result<Definition> {
        self.memory.held.alter(alterations).map(|schema| schema.definition.clone())
    }

    /// Returns the time of the reader's clock.
    pub fn now(&self) -> Timestamp {
        self.memory.held.now()
    }

    /// Sets the reader's clock.
    ///
    /// # Errors
    /// `InvalidArgument` for a time before the clock's current time, `Closed`.
    pub fn set_clock(&self, now: Timestamp) -> Result<()> {
        self.memory.held.set_clock(now)
    }

    /// Moves the reader's clock forward, by whole microseconds.
    ///
    /// # Errors
    /// `Closed`.
    pub fn advance(&self, by: Duration) -> Result<()> {
        let by_us = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.set_clock(self.now().plus_micros(by_us))
    }

    /// Simulates a state, until the next call replaces the state.
    ///
    /// # Errors
    /// `Closed`.
    pub fn force(&self, state: Forced) -> Result<()> {
        self.memory.held.force(state)
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
        f.debug_struct("InMemoryReader").field("store", &self.store.name()).finish_non_exhaustive()
    }
}

/// A store in memory, as its writes see it.
pub(crate) struct MemoryStore {
    held: MemoryReader,
}

impl MemoryStore {
    pub(crate) fn id(&self) -> StoreId {
        self.held.reader().schema().definition.store
    }

    pub(crate) fn name(&self) -> &str {
        self.held.reader().store()
    }

    pub(crate) fn definition(&self) -> Definition {
        self.held.reader().schema().definition.clone()
    }

    /// Applies changes, cut into entries as a client cuts them on their way to a writer.
    ///
    /// # Errors
    /// Errors of the drafts, with nothing written; `Closed`.
    pub(crate) fn write(&self, drafts: &[Draft]) -> Result<BatchOutcome> {
        let definition = self.definition();
        let routed = resolve_all(drafts, &definition)?;
        let item = |(place, routed)| Item::new(routed, place);
        let items = routed.iter().enumerate().map(item).collect::<Result<_>>();
        let items = items.map_err(|error| error.with_store(self.name()))?;
        let mut token = Token::new(definition.store);
        let mut results: Vec<Option<Result<WriteResult>>> = vec![None; drafts.len()];
        for chunk in rounds(items).into_iter().flatten() {
            let Some(partition) = chunk.first().map(|item| item.partition) else { continue };
            let changes = chunk.iter().map(|item| routed[item.place].change.clone()).collect();
            let (log_id, position, judged) =
                self.held.apply(partition, definition.version, changes)?;
            token.advance(partition, log_id, position)?;
            for (item, result) in chunk.iter().zip(judged) {
                results[item.place] = Some(WriteResult::try_from(result.outcome));
            }
        }
        let untold = || Err(Error::internal("a change has no result"));
        let results = results.into_iter().map(|result| result.unwrap_or_else(untold)).collect();
        Ok(BatchOutcome { token, results })
    }
}
