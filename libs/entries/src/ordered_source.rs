//! The source of copies: a partition that is read in order, and whose entries are folded one by
//! one. The fold decides which entries count, as on every replica of the partition.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::Entry;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, FoldError, PartitionState, Record, RowLookup, Schemas};
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion, StoreId};
use forebay_core::{Error, Result};
use forebay_log::{ChangeLog, LogRecord, ReadLimit};
use forebay_wire::entry::decode_entry;

use crate::catalog::CatalogFollower;

/// Limit of one read.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
/// Longest wait until the catalog has a definition that the log names.
const DEFINITION_WAIT: Duration = Duration::from_secs(10);

/// A partition that one process reads in order.
pub struct OrderedSource {
    /// The store whose definitions the entries name.
    store: StoreId,
    state: PartitionState,
    append_time: Option<Timestamp>,
    /// Entries that were read and not applied yet.
    pending: VecDeque<PendingEntry>,
    /// Whether the last read found the end of the log.
    is_at_end: bool,
}

/// An entry that was read and not applied yet.
#[derive(Clone, Debug)]
pub struct PendingEntry {
    /// Offset of the entry.
    pub offset: Offset,
    /// Time at which the log appended the entry.
    pub append_time: Timestamp,
    /// Length of the record in the log.
    pub bytes: usize,
    /// The entry, or the reason why the record does not decode.
    pub entry: Result<Entry>,
}

/// An entry that was applied.
#[derive(Debug)]
pub struct AppliedEntry {
    /// Time at which the log appended the entry.
    pub append_time: Timestamp,
    /// Effects of the entry, except for those on documents.
    pub effects: FoldEffects,
}

/// A lookup that finds no rows: the effect of an entry on documents does not matter here.
struct EmptyRows;

impl RowLookup for EmptyRows {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

/// The definitions of a store in the catalog.
struct StoreSchemas<'c> {
    catalog: &'c CatalogFollower,
    store: StoreId,
}

impl Schemas for StoreSchemas<'_> {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.catalog.catalog().store(self.store).and_then(|history| history.at(version)).cloned()
    }
}

impl PendingEntry {
    fn of(record: LogRecord) -> Self {
        let LogRecord { offset, append_time, entry } = record;
        Self { offset, append_time, bytes: entry.len(), entry: decode_entry(&entry) }
    }

    /// Returns the number of changes in the entry.
    pub fn change_count(&self) -> usize {
        self.entry.as_ref().map_or(0, Entry::change_count)
    }
}

impl OrderedSource {
    /// Creates a source that continues after `state`, and whose entries name the definitions of
    /// `store`. `append_time` is the append time of the last entry in the state.
    pub fn new(store: StoreId, state: PartitionState, append_time: Option<Timestamp>) -> Self {
        Self { store, state, append_time, pending: VecDeque::new(), is_at_end: false }
    }

    /// Moves the start of a source from which nothing was read yet to this offset of this log.
    pub fn begin_at(&mut self, log_id: Option<LogId>, offset: Offset) {
        (self.state.log_id, self.state.offset_applied) = (log_id, offset);
    }

    /// Returns the partition.
    pub fn partition(&self) -> PartitionRef {
        self.state.partition
    }

    /// Returns the state of the fold after the last applied entry.
    pub fn state(&self) -> &PartitionState {
        &self.state
    }

    /// Returns the append time of the last applied entry.
    pub fn append_time(&self) -> Option<Timestamp> {
        self.append_time
    }

    /// Returns the next entry to apply; `None` if the source must be read first.
    pub fn peek(&self) -> Option<&PendingEntry> {
        self.pending.front()
    }

    /// Returns whether all entries up to the log's end, as of the last read, are applied.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end && self.pending.is_empty()
    }

    /// Reads more entries if none are pending.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn read(&mut self, log: &dyn ChangeLog) -> Result<()> {
        if self.pending.is_empty() {
            let read = log.read(self.state.partition, self.state.offset_applied, READ).await?;
            self.pending.extend(read.records.into_iter().map(PendingEntry::of));
            self.is_at_end = self.pending.is_empty();
        }
        Ok(())
    }

    /// Waits until the log has more entries, for at most `wait_max`.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn wait(&self, log: &dyn ChangeLog, wait_max: Duration) -> Result<()> {
        let limit = ReadLimit { bytes_max: 1, wait_max };
        log.read(self.state.partition, self.state.offset_applied, limit).await.map(drop)
    }

    /// Applies the next pending entry; returns `None` if no entry is pending.
    ///
    /// # Errors
    /// `UpgradeNeeded` for an entry of a newer build; `Unavailable` if the catalog does not have
    /// the definition that the entry names; the errors of the log. After an error the next read
    /// begins at this entry again.
    pub async fn apply_next(
        &mut self,
        log: &dyn ChangeLog,
        catalog: &CatalogFollower,
    ) -> Result<Option<AppliedEntry>> {
        let Some(next) = self.pending.pop_front() else { return Ok(None) };
        let append_time = next.append_time;
        match self.apply(log, catalog, next).await {
            Ok(effects) => {
                self.append_time = Some(append_time);
                Ok(Some(AppliedEntry { append_time, effects }))
            }
            Err(error) => {
                self.pending.clear();
                self.is_at_end = false;
                Err(error)
            }
        }
    }

    async fn apply(
        &mut self,
        log: &dyn ChangeLog,
        catalog: &CatalogFollower,
        next: PendingEntry,
    ) -> Result<FoldEffects> {
        let PendingEntry { offset, append_time, entry, .. } = next;
        let schemas = StoreSchemas { catalog, store: self.store };
        // The fold consumes the entry, and may need it again after the catalog has caught up.
        let entry_copy = (!self.has_definitions(&schemas, &entry)).then(|| entry.clone());
        let mut record = Record { offset, append_time, entry };
        loop {
            let version = match self.state.apply(record, &EmptyRows, &schemas) {
                Ok(effects) => return Ok(effects),
                Err(FoldError::NeedsDefinition(version)) => version,
                Err(error) => return Err(error.into_error(unknown_version_error)),
            };
            catch_up(log, catalog).await?;
            let entry = entry_copy.clone().filter(|_| schemas.at(version).is_some());
            record = Record {
                offset,
                append_time,
                entry: entry.ok_or_else(|| unknown_version_error(version))?,
            };
        }
    }

    /// Returns whether the catalog has the definitions that the fold of an entry needs.
    fn has_definitions(&self, schemas: &StoreSchemas<'_>, entry: &Result<Entry>) -> bool {
        let Ok(entry) = entry else { return true };
        let versions = [entry.schema_version, self.state.schema_version.max(entry.schema_version)];
        versions.iter().all(|it| *it == SchemaVersion(0) || schemas.at(*it).is_some())
    }
}

/// Waits until the catalog has all definitions that the control log holds at the call.
async fn catch_up(log: &dyn ChangeLog, catalog: &CatalogFollower) -> Result<()> {
    let end = log.bounds(PartitionRef::CONTROL).await?.end;
    catalog.wait_applied(end, DEFINITION_WAIT).await
}

fn unknown_version_error(version: SchemaVersion) -> Error {
    Error::unavailable(format!("definition {version} is not known yet; try again"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use forebay_core::ErrorCode;
    use forebay_core::catalog::{Catalog, ControlRecord};
    use forebay_core::change::EntryBody;
    use forebay_core::clock::SystemClock;
    use forebay_core::id::{PartitionCount, PartitionId};
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_log::MemoryLog;
    use forebay_wire::entry::encode_entry;

    use super::*;

    const AT: PartitionRef = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
    const ONE: PartitionCount = PartitionCount(1);

    fn entry(log_id: u64, version: u32, body: EntryBody) -> Bytes {
        encode_entry(&Entry::original(LogId(log_id), SchemaVersion(version), body)).unwrap()
    }

    /// Returns a source over a log with these records, and a catalog that has definition 1.
    async fn source_of(records: Vec<Bytes>) -> (MemoryLog, CatalogFollower, OrderedSource) {
        let log = MemoryLog::new(Arc::new(SystemClock));
        log.create(AT.store, ONE).await.unwrap();
        for record in records {
            log.append(AT, record).await.unwrap();
        }
        let mut catalog = Catalog::default();
        let store =
            StoreSpec::documents("users", KeyType::Int64).partitions(1).define(AT.store).unwrap();
        catalog.apply(ControlRecord::Define(Box::new(store)));
        let source = OrderedSource::new(AT.store, PartitionState::new(AT, ONE), None);
        (log, CatalogFollower::standing(catalog), source)
    }

    #[tokio::test]
    async fn source_applies_each_entry_once_and_skips_foreign_entries() {
        let records = vec![
            entry(5, 0, EntryBody::LogHeader),
            entry(5, 1, EntryBody::Heartbeat),
            // No definition is awaited for the entry of another log.
            entry(6, 9, EntryBody::Heartbeat),
            Bytes::from_static(b"garbage"),
            entry(5, 1, EntryBody::Heartbeat),
        ];
        let (log, catalog, mut source) = source_of(records).await;
        let mut skipped = Vec::new();
        for _ in 0..2 {
            source.read(&log).await.unwrap();
            while let Some(next) = source.apply_next(&log, &catalog).await.unwrap() {
                assert_eq!(source.append_time(), Some(next.append_time));
                skipped.push(next.effects.skipped.is_some());
            }
        }
        assert_eq!(skipped, [false, false, true, true, false]);
        assert!(source.is_at_end());
        assert_eq!(source.state().offset_applied, Offset(5));
    }

    #[tokio::test]
    async fn source_reads_an_entry_again_after_its_definition_was_unknown() {
        let records = vec![entry(5, 0, EntryBody::LogHeader), entry(5, 2, EntryBody::Heartbeat)];
        let (log, catalog, mut source) = source_of(records).await;
        source.read(&log).await.unwrap();
        source.apply_next(&log, &catalog).await.unwrap().unwrap();
        for _ in 0..2 {
            let error = source.apply_next(&log, &catalog).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
            assert!(source.peek().is_none() && !source.is_at_end());
            source.read(&log).await.unwrap();
            assert_eq!(source.peek().unwrap().offset, Offset(1));
        }
    }
}
