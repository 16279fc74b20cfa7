//! A partition of a stream, of the one that a view is of or of the view's own: what it holds, each
//! event once.

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

/// What is read at once.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
/// How long the catalog may take to tell of a definition that a log names.
const DEFINITION_WAIT: Duration = Duration::from_secs(10);

/// A partition that is read.
pub(crate) struct SourceLog {
    /// What its entries do, up to those that were taken.
    pub(crate) state: PartitionState,
    /// When the last one was appended.
    pub(super) append_time: Option<Timestamp>,
    /// What was read and not derived yet.
    waiting: VecDeque<Waiting>,
    /// Whether it was read to its end.
    is_at_end: bool,
    /// What the last entry changed of the state, to be kept with it.
    changed: Applied,
}

/// A record that was read.
struct Waiting {
    offset: Offset,
    append_time: Timestamp,
    bytes: usize,
    entry: Result<Entry>,
}

/// An entry's events, and where they stand.
pub(crate) struct Events {
    pub(super) position: Position,
    pub(super) append_time: Timestamp,
    pub(crate) events: Vec<(Position, Change)>,
}

/// A stream's entries change no documents.
struct NoDocuments;

impl Documents for NoDocuments {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

/// The definitions of a store, as far as the catalog has them.
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

    /// When the next entry was appended; `None` where none was read.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.waiting.front().map(|record| record.append_time)
    }

    /// In a view's log, the moment that the next entry is of: that of what it was derived of. What
    /// was not derived is of none.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let next = self.waiting.front()?;
        let source = next.entry.as_ref().ok().and_then(|entry| entry.source);
        Some(source.map_or(Timestamp::MIN, |source| source.append_time))
    }

    /// Changes and bytes of the next entry.
    pub(super) fn next_size(&self) -> (usize, usize) {
        self.waiting
            .front()
            .map_or((0, 0), |next| (next.entry.as_ref().map_or(0, Entry::change_count), next.bytes))
    }

    /// Whether all was derived that it held when it was last read.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end && self.waiting.is_empty()
    }

    /// What has changed of the state since it was last asked.
    pub(super) fn take_changed(&mut self) -> Applied {
        std::mem::take(&mut self.changed)
    }

    /// Reads on, where nothing waits.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) async fn read(&mut self, parts: &FeatureParts) -> Result<()> {
        if self.waiting.is_empty() {
            let from = self.state.offset_applied;
            let read = parts.log.read(self.state.partition, from, READ).await?;
            self.waiting.extend(read.records.into_iter().map(Waiting::of));
            self.is_at_end = self.waiting.is_empty();
        }
        Ok(())
    }

    /// Waits until there is more, or for so long.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) async fn wait(&self, parts: &FeatureParts, wait_max: Duration) -> Result<()> {
        let limit = ReadLimit { bytes_max: 1, wait_max };
        let from = self.state.offset_applied;
        parts.log.read(self.state.partition, from, limit).await.map(drop)
    }

    /// The events of the next entry that waits.
    ///
    /// # Errors
    /// `UpgradeNeeded` for an entry of a newer build; `Unavailable` for one whose definition is not
    /// known here yet.
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
                |version| Error::unavailable(format!("definition {version} is not known"));
            blocked.into_error(unknown)
        })?;
        self.append_time = Some(append_time);
        let Applied { clients, sources, skipped, events, .. } = applied;
        self.changed.clients.extend(clients);
        self.changed.sources.extend(sources);
        self.changed.skipped = skipped.or(self.changed.skipped.take());
        Ok(Some(Events { position: self.state.position, append_time, events }))
    }

    /// Appends an entry that says nothing, where the log has been silent for so long: windows move
    /// by the log's time.
    ///
    /// # Errors
    /// Those of the log.
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
