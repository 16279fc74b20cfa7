//! Reader of a partition of a stream, either of a view's source or of the view's own log; returns
//! each event once.

use std::time::Duration;

use forebay_core::Result;
use forebay_core::change::{Change, Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{
    ClientId, LogId, Offset, PartitionId, PartitionRef, Position, SchemaVersion, StoreId,
};
use forebay_entries::{AppliedEntry, OrderedSource};
use forebay_wire::entry::encode_entry;

use crate::parts::FeatureParts;

/// A partition whose events are read.
pub(crate) struct SourceLog {
    source: OrderedSource,
    /// Changes of the state since the last checkpoint.
    unsaved: StateChanges,
}

/// Parts of a source's state that changed.
#[derive(Default)]
pub(super) struct StateChanges {
    /// Clients whose windows changed.
    pub(super) clients: Vec<ClientId>,
    /// Source partitions whose positions changed.
    pub(super) sources: Vec<PartitionId>,
}

/// The events of an entry, with their positions.
pub(crate) struct Events {
    pub(super) position: Position,
    pub(super) append_time: Timestamp,
    pub(crate) events: Vec<(Position, Change)>,
}

impl SourceLog {
    /// Creates a source that continues after `state`, and whose entries name the definitions of
    /// `store`.
    pub(crate) fn new(
        store: StoreId,
        state: PartitionState,
        append_time: Option<Timestamp>,
    ) -> Self {
        let source = OrderedSource::new(store, state, append_time);
        Self { source, unsaved: StateChanges::default() }
    }

    /// Moves the start of a source from which nothing was read yet to this offset of this log.
    pub(super) fn begin_at(&mut self, log_id: Option<LogId>, offset: Offset) {
        self.source.begin_at(log_id, offset);
    }

    /// Returns the partition.
    pub(super) fn partition(&self) -> PartitionRef {
        self.source.partition()
    }

    /// Returns the state of the fold, up to the last taken entry.
    pub(crate) fn state(&self) -> &PartitionState {
        self.source.state()
    }

    /// Returns the append time of the last taken entry.
    pub(super) fn append_time(&self) -> Option<Timestamp> {
        self.source.append_time()
    }

    /// Returns the append time of the next entry; `None` if none was read.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.source.peek().map(|next| next.append_time)
    }

    /// Returns the time of the next entry of a view's log: the time of the source entries from
    /// which it was derived. An entry that was not derived has the minimum time.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let source = self.source.peek()?.entry.as_ref().ok().and_then(|entry| entry.source);
        Some(source.map_or(Timestamp::MIN, |source| source.append_time))
    }

    /// Returns the number of changes and bytes of the next entry.
    pub(super) fn next_size(&self) -> (usize, usize) {
        self.source.peek().map_or((0, 0), |next| (next.change_count(), next.bytes))
    }

    /// Returns whether all entries up to the end of the last read were derived.
    pub(super) fn is_at_end(&self) -> bool {
        self.source.is_at_end()
    }

    /// Takes the changes of the state since the last call.
    pub(super) fn take_unsaved(&mut self) -> StateChanges {
        std::mem::take(&mut self.unsaved)
    }

    /// Reads more records if none are waiting.
    ///
    /// # Errors
    /// As the log.
    pub(crate) async fn read(&mut self, parts: &FeatureParts) -> Result<()> {
        self.source.read(&*parts.context.log).await
    }

    /// Waits until the log has more records, for at most `wait_max`.
    ///
    /// # Errors
    /// As the log.
    pub(super) async fn wait(&self, parts: &FeatureParts, wait_max: Duration) -> Result<()> {
        self.source.wait(&*parts.context.log, wait_max).await
    }

    /// Takes the next waiting entry and returns its events.
    ///
    /// # Errors
    /// `UpgradeNeeded` for an entry of a newer build; `Unavailable` if the entry's definition is
    /// not known here yet.
    pub(crate) async fn take(&mut self, parts: &FeatureParts) -> Result<Option<Events>> {
        let entry = self.source.apply_next(&*parts.context.log, &parts.context.catalog).await?;
        let Some(AppliedEntry { append_time, effects }) = entry else { return Ok(None) };
        let FoldEffects { clients, sources, events, .. } = effects;
        self.unsaved.clients.extend(clients);
        self.unsaved.sources.extend(sources);
        Ok(Some(Events { position: self.state().position, append_time, events }))
    }

    /// Appends a heartbeat if the log has been silent for the interval: windows move with the log's
    /// time.
    ///
    /// # Errors
    /// As the log.
    pub(super) async fn append_heartbeat(
        &self,
        parts: &FeatureParts,
        version: SchemaVersion,
        interval: Duration,
    ) -> Result<()> {
        let log_id = self.state().log_id.filter(|_| self.is_at_end());
        let Some(log_id) = log_id else { return Ok(()) };
        let last = self.append_time().unwrap_or(Timestamp::MIN);
        let silent_us = parts.context.clock.now().micros_since(last);
        if silent_us < interval.as_micros() as i64 {
            return Ok(());
        }
        let entry = Entry::original(log_id, version, EntryBody::Heartbeat);
        parts.context.log.append(self.partition(), encode_entry(&entry)?).await.map(drop)
    }
}
