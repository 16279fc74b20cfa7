//! The fold: the effect of one log record on a partition's state. The same log prefix gives the
//! same state on every replica.
//!
//! The fold reads no clock: `partition_time` is the running maximum of append times. The fold does
//! not touch an index either; rows come from [`RowLookup`]. The result is the list of writes,
//! each key once with its last state, so a reader of the index never sees half an entry.

mod document_change;
mod lookup;
mod overlay;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::lookup::find_definition;
pub use self::lookup::{FoldError, RowLookup, Schemas};
use self::overlay::Overlay;
use crate::catalog::SchemaAt;
use crate::change::{Change, ClientBatch, Entry, EntryBody, Source};
use crate::clock::Timestamp;
use crate::dedup::{Dedup, SequenceStatus};
use crate::error::{Error, ErrorCode, Result};
use crate::id::{
    ClientId, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
};
use crate::key::Key;
use crate::limits::{ENTRY_CHANGES_MAX, SCHEMA_VERSION_MAX};
use crate::outcome::{ConditionOutcome, Outcome};
use crate::partition::partition_of;
use crate::schema::Stream;

/// A record of the log, whether it decodes or not.
#[derive(Debug)]
pub struct Record {
    /// Offset of the record.
    pub offset: Offset,
    /// Time at which the log appended the record.
    pub append_time: Timestamp,
    /// The entry, or the reason why the bytes do not decode. `UpgradeNeeded` halts the partition;
    /// any other error skips the record.
    pub entry: Result<Entry>,
}

/// Effects of one applied record.
#[derive(Debug, Default, PartialEq)]
pub struct FoldEffects {
    /// Whether all documents are deleted before the writes below.
    pub drop_all: bool,
    /// The last row of each key that changed; `None` deletes it. Ordered by key.
    pub writes: Vec<(Key, Option<Vec<u8>>)>,
    /// For a stream: the events that were inserted, each with its position. Repeats are left out.
    pub events: Vec<(Position, Change)>,
    /// Outcomes of conditional changes, and of changes that were too large.
    pub outcomes: Vec<Outcome>,
    /// Number of repeats that were skipped.
    pub repeats: u64,
    /// Reason, if the whole record was skipped.
    pub skipped: Option<Error>,
    /// Clients whose windows changed or were forgotten; a client may occur twice.
    pub clients: Vec<ClientId>,
    /// Source partitions whose positions changed.
    pub sources: Vec<PartitionId>,
}

/// The part of the state after an entry that the entry's changes are applied with.
struct NextState {
    /// Newest definition; `None` before the first one.
    schema: Option<Arc<SchemaAt>>,
    /// Partition time.
    partition_time: Timestamp,
    /// Number of drop-alls of the newest definition.
    drop_all_count: u32,
}

impl NextState {
    /// Returns the properties of the store as a stream, if it is one.
    fn stream(&self) -> Option<&Stream> {
        self.schema.as_ref().and_then(|at| at.definition.stream.as_ref())
    }
}

/// The whole state of a partition, except for its documents.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionState {
    /// The partition.
    pub partition: PartitionRef,
    /// Partition count of its store.
    pub partitions: PartitionCount,
    /// Id of the log that the partition follows; set by the log's first header entry.
    pub log_id: Option<LogId>,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Position of the last entry applied.
    pub position: Position,
    /// Running maximum of append times.
    pub partition_time: Timestamp,
    /// Newest schema version that the partition has seen.
    pub schema_version: SchemaVersion,
    /// Number of drop-alls that the partition has applied.
    pub drop_all_count: u32,
    /// De-duplication windows of the clients.
    pub dedup: Dedup,
    /// Position of the last entry applied from each source partition.
    pub sources: BTreeMap<PartitionId, Position>,
}

impl PartitionState {
    /// Creates the state before the first record.
    pub fn new(partition: PartitionRef, partitions: PartitionCount) -> Self {
        Self {
            partition,
            partitions,
            log_id: None,
            offset_applied: Offset(0),
            position: Position::default(),
            partition_time: Timestamp::MIN,
            schema_version: SchemaVersion(0),
            drop_all_count: 0,
            dedup: Dedup::default(),
            sources: BTreeMap::new(),
        }
    }

    /// Applies one record. If it returns `Err`, the state is unchanged.
    ///
    /// # Errors
    /// Returns [`FoldError`]: fetch the definition and apply the record again, or stop at this
    /// offset.
    pub fn apply(
        &mut self,
        record: Record,
        rows: &impl RowLookup,
        schemas: &impl Schemas,
    ) -> std::result::Result<FoldEffects, FoldError> {
        let Record { offset, append_time, entry } = record;
        if offset < self.offset_applied {
            let message = format!("record {offset} comes again after {}", self.offset_applied);
            return Err(FoldError::Internal(self.locate(Error::internal(message))));
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.code() == ErrorCode::UpgradeNeeded => {
                return Err(FoldError::UpgradeNeeded(self.locate(error)));
            }
            Err(error) => return Ok(self.skip(offset, error)),
        };
        let header = matches!(entry.body, EntryBody::LogHeader).then_some(entry.log_id);
        let log_id = self.log_id.or(header);
        if header != log_id && header.is_some() {
            // Several writers opened the log at once and the first won: the other header entries
            // lose nothing.
            self.offset_applied = offset.next();
            return Ok(FoldEffects::default());
        }
        if let Err(error) = self.check_log(&entry, log_id) {
            self.log_id = log_id;
            return Ok(self.skip(offset, error));
        }
        let entry_schema = find_definition(schemas, entry.schema_version)?;
        let current = find_definition(schemas, self.schema_version.max(entry.schema_version))?;
        if let Err(error) = self.check_changes(&entry, entry_schema.as_deref()) {
            self.log_id = log_id;
            let sources = self.note_source(&entry).into_iter().collect();
            return Ok(FoldEffects { sources, ..self.skip(offset, error) });
        }
        let next = self.state_after(&entry, append_time, current);
        let overlay = self.load_documents(&entry, &next, rows, schemas)?;
        // No step below can fail: the state moves by the whole record.
        let mut effects = self.advance(offset, &entry, &next);
        if let Some(stream) = next.stream() {
            if let EntryBody::Changes(batches) = entry.body {
                let is_derived = stream.view.is_some();
                self.take_events(batches, is_derived, &mut effects);
            }
        } else if let (EntryBody::Changes(batches), Some(schema)) = (&entry.body, &next.schema) {
            self.apply_changes(batches, schema, overlay, &mut effects);
        }
        Ok(effects)
    }

    /// Returns the part of the state after a valid entry that its changes are applied with.
    /// `schema` is the newest definition after the entry.
    fn state_after(
        &self,
        entry: &Entry,
        append_time: Timestamp,
        schema: Option<Arc<SchemaAt>>,
    ) -> NextState {
        let is_of_view = schema.as_ref().is_some_and(|at| at.definition.view().is_some());
        let partition_time = self.time_behind(entry, append_time, is_of_view);
        let drop_all_count = schema.as_ref().map_or(0, |at| at.definition.drop_all_count);
        NextState { schema, partition_time, drop_all_count }
    }

    /// Reads the documents whose previous state the entry's changes need.
    fn load_documents<'e>(
        &self,
        entry: &'e Entry,
        next: &NextState,
        rows: &impl RowLookup,
        schemas: &impl Schemas,
    ) -> std::result::Result<Overlay<'e>, FoldError> {
        let (EntryBody::Changes(batches), Some(schema), None) =
            (&entry.body, &next.schema, next.stream())
        else {
            return Ok(Overlay::default());
        };
        let mut overlay = Overlay::of(batches);
        if next.drop_all_count <= self.drop_all_count {
            let result = overlay.load(rows, schemas, schema, next.partition_time);
            result.map_err(|error| error.with_partition(self.partition.partition))?;
        }
        Ok(overlay)
    }

    /// Moves the state behind a valid entry, and returns the effects that do not depend on its
    /// changes.
    fn advance(&mut self, offset: Offset, entry: &Entry, next: &NextState) -> FoldEffects {
        let drop_all = next.drop_all_count > self.drop_all_count;
        self.log_id = Some(entry.log_id);
        self.partition_time = next.partition_time;
        self.schema_version = self.schema_version.max(entry.schema_version);
        self.drop_all_count = self.drop_all_count.max(next.drop_all_count);
        let clients = self.dedup.forget_idle(next.partition_time);
        let sources = self.note_source(entry).into_iter().collect();
        self.position = entry.position(offset);
        self.offset_applied = offset.next();
        FoldEffects { drop_all, clients, sources, ..FoldEffects::default() }
    }

    /// Returns the partition time after an entry. The time of a view's log follows only its source:
    /// its append times are later than those of the events that are derived into it (ADR 0046).
    fn time_behind(&self, entry: &Entry, append_time: Timestamp, is_of_view: bool) -> Timestamp {
        match (entry.source, is_of_view) {
            (None, false) => self.partition_time.max(append_time),
            (None, true) => self.partition_time,
            (Some(source), true) if self.sources.is_empty() => source.append_time,
            (Some(source), _) => self.partition_time.max(source.append_time),
        }
    }

    fn skip(&mut self, offset: Offset, reason: Error) -> FoldEffects {
        self.offset_applied = offset.next();
        FoldEffects { skipped: Some(self.locate(reason)), ..FoldEffects::default() }
    }

    fn locate(&self, error: Error) -> Error {
        error.with_partition(self.partition.partition)
    }

    /// Refuses an entry that does not belong to the log with this id, whatever its content.
    fn check_log(&self, entry: &Entry, log_id: Option<LogId>) -> Result<()> {
        // A log that was recreated may begin with entries that were in flight to the old one.
        let Some(log_id) = log_id else {
            return Err(Error::corrupt("an entry precedes the log's header entry"));
        };
        if log_id != entry.log_id {
            return Err(Error::corrupt("an entry is of another log"));
        }
        if matches!(entry.body, EntryBody::Control(_)) {
            return Err(Error::corrupt("a control record is outside the control log"));
        }
        if matches!(entry.body, EntryBody::DeadLetters(_)) {
            return Err(Error::corrupt("dead letters are outside a dead-letter log"));
        }
        if entry.schema_version.0 > SCHEMA_VERSION_MAX {
            return Err(Error::corrupt("the schema version of an entry is above the limit"));
        }
        let Some(Source { partition, previous, .. }) = entry.source else { return Ok(()) };
        if self.sources.get(&partition).copied() != previous {
            return Err(Error::corrupt("a copied entry is out of order"));
        }
        Ok(())
    }

    /// Refuses an entry if any of its changes is invalid: an entry applies as a whole or not at
    /// all.
    fn check_changes(&self, entry: &Entry, schema: Option<&SchemaAt>) -> Result<()> {
        let EntryBody::Changes(batches) = &entry.body else { return Ok(()) };
        let schema =
            schema.ok_or_else(|| Error::corrupt("an entry has changes but no schema version"))?;
        let (limit, actual) = (ENTRY_CHANGES_MAX as u64, entry.change_count() as u64);
        if actual > limit {
            return Err(Error::limit_exceeded("an entry has too many changes", limit, actual));
        }
        let definition = &schema.definition;
        for change in batches.iter().flat_map(|batch| &batch.changes) {
            change.check(definition)?;
            let (partition_key, primary) =
                Key::split(change.key.as_bytes(), definition.partition_key.is_some())?;
            let belongs = partition_of(partition_key.unwrap_or(primary), self.partitions);
            if belongs != self.partition.partition {
                let message = format!("an entry has a key that belongs to partition {belongs}");
                return Err(Error::corrupt(message).with_key_digest(change.key.digest()));
            }
        }
        Ok(())
    }

    /// Advances the source's position, even if the entry's changes are refused. If the position
    /// stayed, the copier would send the refused entry again forever.
    fn note_source(&mut self, entry: &Entry) -> Option<PartitionId> {
        let source = entry.source?;
        self.sources.insert(source.partition, source.position);
        Some(source.partition)
    }

    /// Passes on the events of an entry that were not inserted before. A view's entries need no
    /// de-duplication by client: repeats are removed at the source, and the source positions admit
    /// each entry once.
    fn take_events(
        &mut self,
        batches: Vec<ClientBatch>,
        is_derived: bool,
        effects: &mut FoldEffects,
    ) {
        let now = self.partition_time;
        let mut next = self.position;
        for batch in batches {
            if is_derived {
                for change in batch.changes {
                    effects.events.push((next, change));
                    next.index_in_entry = next.index_in_entry.wrapping_add(1);
                }
                continue;
            }
            effects.clients.push(batch.client);
            let Some(first) = batch.changes.first() else { continue };
            let mut recorder = self.dedup.recorder(batch.client, first.sequence, now);
            for change in batch.changes {
                let position = next;
                next.index_in_entry = next.index_in_entry.wrapping_add(1);
                match recorder.record(change.sequence) {
                    SequenceStatus::New => effects.events.push((position, change)),
                    _ => effects.repeats += 1,
                }
            }
        }
    }

    fn apply_changes<'e>(
        &mut self,
        batches: &'e [ClientBatch],
        schema: &SchemaAt,
        mut overlay: Overlay<'e>,
        effects: &mut FoldEffects,
    ) {
        let now = self.partition_time;
        let (mut next, mut number) = (self.position, 0);
        for batch in batches {
            effects.clients.push(batch.client);
            let Some(first) = batch.changes.first() else { continue };
            let mut recorder = self.dedup.recorder(batch.client, first.sequence, now);
            for change in &batch.changes {
                let (position, change_number) = (next, number);
                next.index_in_entry = next.index_in_entry.wrapping_add(1);
                number += 1;
                let (client, sequence) = (batch.client, change.sequence);
                if recorder.record(sequence) != SequenceStatus::New {
                    effects.repeats += 1;
                    continue;
                }
                let condition = overlay.apply(change_number, change, schema, now, position);
                if change.condition.is_some() || condition == ConditionOutcome::TooLarge {
                    effects.outcomes.push(Outcome { client, sequence, position, condition });
                }
            }
        }
        effects.writes = overlay.into_writes();
    }
}
