//! Reader of a partition of a stream, either of a view's source or of the view's own log; returns
//! each event once.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{Applied, Documents, PartitionState, Record, Schemas};
use forebay_core::id::{Epoch, Offset, Position, SchemaVersion, StoreId};
use forebay_core::{Error, Result};
use forebay_log::{LogRecord, ReadLimit};
use forebay_wire::entry::{decode_entry, encode_entry};

use crate::parts::FeatureParts;

/// Limit of one read.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
/// Longest wait until the catalog has a definition that a log names.
const DEFINITION_WAIT: Duration = Duration::from_secs(10);

/// A partition that is read.
pub(crate) struct SourceLog {
    /// State of the fold, up to the last taken entry.
    pub(crate) state: PartitionState,
    /// Append time of the last taken entry.
    pub(super) append_time: Option<Timestamp>,
    /// Records that were read and not derived yet.
    waiting: VecDeque<Waiting>,
    /// Whether the log was read to its end.
    is_at_end: bool,
    /// Changes of the state since the last checkpoint.
    changed: Applied,
}

/// A record that was read.
struct Waiting {
    offset: Offset,
    append_time: Timestamp,
    bytes: usize,
    entry: Result<Entry>,
}

/// The events of an entry, with their positions.
pub(crate) struct Events {
    pub(super) position: Position,
    pub(super) append_time: Timestamp,
    pub(crate) events: Vec<(Position, Change)>,
}

/// A lookup that finds no documents: a stream's entries change none.
struct NoDocuments;

impl Documents for NoDocuments {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

/// The definitions of a store in the catalog.
struct Known<'p>(&'p FeatureParts, StoreId);

impl Schemas for Known<'_> {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.0.catalog.catalog().store(self.1).and_then(|history| history.at(version)).cloned()
    }
}

impl Waiting {
    fn of(record: LogRecord) -> Self {
        let LogRecord { offset, append_time, entry } = record;
        Self { offset, append_time, bytes: entry.len(), entry: decode_entry(&entry) }
    }
}

impl SourceLog {
    pub(crate) fn new(state: PartitionState, append_time: Option<Timestamp>) -> Self {
        let (waiting, changed) = (VecDeque::new(), Applied::default());
        Self { state, append_time, waiting, is_at_end: false, changed }
    }

    /// Returns the append time of the next entry; `None` if none was read.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.waiting.front().map(|record| record.append_time)
    }

    /// Returns the time of the next entry of a view's log: the time of the source entries from
    /// which it was derived. An entry that was not derived has the minimum time.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let next = self.waiting.front()?;
        let source = next.entry.as_ref().ok().and_then(|entry| entry.source);
        Some(source.map_or(Timestamp::MIN, |source| source.append_time))
    }

    /// Returns the number of changes and bytes of the next entry.
    pub(super) fn next_size(&self) -> (usize, usize) {
        self.waiting
            .front()
            .map_or((0, 0), |next| (next.entry.as_ref().map_or(0, Entry::change_count), next.bytes))
    }

    /// Returns whether all entries up to the end of the last read were derived.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end && self.waiting.is_empty()
    }

    /// Takes the changes of the state since the last call.
    pub(super) fn take_changed(&mut self) -> Applied {
        std::mem::take(&mut self.changed)
    }

    /// Reads more records if none are waiting.
    ///
    /// # Errors
    /// As the log.
    pub(crate) async fn read(&mut self, parts: &FeatureParts) -> Result<()> {
        if self.waiting.is_empty() {
            let from = self.state.offset_applied;
            let read = parts.log.read(self.state.partition, from, READ).await?;
            self.waiting.extend(read.records.into_iter().map(Waiting::of));
            self.is_at_end = self.waiting.is_empty();
        }
        Ok(())
    }

    /// Waits until the log has more records, for at most `wait_max`.
    ///
    /// # Errors
    /// As the log.
    pub(super) async fn wait(&self, parts: &FeatureParts, wait_max: Duration) -> Result<()> {
        let limit = ReadLimit { bytes_max: 1, wait_max };
        let from = self.state.offset_applied;
        parts.log.read(self.state.partition, from, limit).await.map(drop)
    }

    /// Takes the next waiting entry and returns its events.
    ///
    /// # Errors
    /// `UpgradeNeeded` for an entry of a newer build; `Unavailable` if the entry's definition is
    /// not known here yet.
    pub(crate) async fn take(
        &mut self,
        parts: &FeatureParts,
        store: StoreId,
    ) -> Result<Option<Events>> {
        let Some(Waiting { offset, append_time, entry, .. }) = self.waiting.pop_front() else {
            return Ok(None);
        };
        let known = Known(parts, store);
        let version = entry.as_ref().map_or(SchemaVersion(0), |entry| entry.schema_version);
        if version != SchemaVersion(0) && known.at(version).is_none() {
            parts.catalog.definition(store, version, DEFINITION_WAIT).await?;
        }
        let record = Record { offset, append_time, entry };
        let applied = self.state.apply(record, &NoDocuments, &known).map_err(|blocked| {
            let unknown =
                |version| Error::unavailable(format!("definition {version} is not known yet"));
            blocked.into_error(unknown)
        })?;
        self.append_time = Some(append_time);
        let Applied { clients, sources, skipped, events, .. } = applied;
        self.changed.clients.extend(clients);
        self.changed.sources.extend(sources);
        self.changed.skipped = skipped.or(self.changed.skipped.take());
        Ok(Some(Events { position: self.state.position, append_time, events }))
    }

    /// Appends a heartbeat if the log has been silent for the interval: windows move with the log's
    /// time.
    ///
    /// # Errors
    /// As the log.
    pub(super) async fn beat(
        &self,
        parts: &FeatureParts,
        version: SchemaVersion,
        interval: Duration,
    ) -> Result<()> {
        let Some(log_id) = self.state.log_id.filter(|_| self.is_at_end()) else { return Ok(()) };
        let silent_us = parts.clock.now().micros_since(self.append_time.unwrap_or(Timestamp::MIN));
        if silent_us < interval.as_micros() as i64 {
            return Ok(());
        }
        let (epoch, source, body) = (Epoch(0), None, EntryBody::Heartbeat);
        let entry = Entry { log_id, epoch, schema_version: version, source, body };
        parts.log.append(self.state.partition, encode_entry(&entry)?).await.map(drop)
    }
}
