//! The fold: the effect of one log record on a partition's state. The same log prefix gives the
//! same state on every replica.
//!
//! The fold reads no clock: `partition_time` is the running maximum of append times. The fold does
//! not touch an index either; documents come from [`Documents`]. The result is the list of writes,
//! each key once with its last state, so a reader of the index never sees half an entry.

mod document_change;
mod overlay;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use self::overlay::Overlay;
use crate::catalog::SchemaAt;
use crate::change::{Change, ClientBatch, Entry, EntryBody, Source};
use crate::clock::Timestamp;
use crate::dedup::{Dedup, Seen};
use crate::error::{Error, ErrorCode, Result};
use crate::id::{
    ClientId, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
};
use crate::key::Key;
use crate::limits::{ENTRY_CHANGES_MAX, SCHEMA_VERSION_MAX};
use crate::outcome::{Outcome, Verdict};
use crate::partition::partition_of;

/// Lookup of the documents of one partition for the fold.
pub trait Documents {
    /// Returns the row under a key, or `None`.
    ///
    /// # Errors
    /// Returns an error if the row cannot be read, for example after a disk error; the record is
    /// then not applied.
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;

    /// Announces the next keys, a few dozen at most, so that an implementation can prefetch their
    /// memory in parallel.
    fn prefetch(&self, keys: &[&[u8]]) {
        let _ = keys;
    }
}

/// Lookup of the definitions of one store for the fold.
pub trait Schemas {
    /// Returns the definition of this version, or `None` if this process does not know it yet.
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>>;
}

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
pub struct Applied {
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

/// Reason why a record cannot be applied now.
#[derive(Debug, PartialEq)]
pub enum Blocked {
    /// The definition of this version is unknown; fetch it, then apply the record again.
    NeedsDefinition(SchemaVersion),
    /// This build does not know the record's format; the partition stays at its offset.
    UpgradeNeeded(Error),
    /// A document that the record changes could not be read.
    Unreadable(Error),
    /// An invariant is broken; the state is poisoned.
    Internal(Error),
}

impl Blocked {
    /// Converts to an error, for callers that cannot wait. `unknown` creates the error for an
    /// unknown definition.
    pub fn into_error(self, unknown: impl FnOnce(SchemaVersion) -> Error) -> Error {
        match self {
            Self::NeedsDefinition(version) => unknown(version),
            Self::UpgradeNeeded(error) | Self::Unreadable(error) | Self::Internal(error) => error,
        }
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
    /// Returns [`Blocked`]: fetch the definition and apply the record again, or stop at this
    /// offset.
    pub fn apply(
        &mut self,
        record: Record,
        documents: &impl Documents,
        schemas: &impl Schemas,
    ) -> std::result::Result<Applied, Blocked> {
        let Record { offset, append_time, entry } = record;
        if offset < self.offset_applied {
            let message = format!("record {offset} comes again after {}", self.offset_applied);
            return Err(Blocked::Internal(self.locate(Error::internal(message))));
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.code() == ErrorCode::UpgradeNeeded => {
                return Err(Blocked::UpgradeNeeded(self.locate(error)));
            }
            Err(error) => return Ok(self.skip(offset, error)),
        };
        let opens = matches!(entry.body, EntryBody::LogHeader).then_some(entry.log_id);
        let log_id = self.log_id.or(opens);
        if opens != log_id && opens.is_some() {
            // Several writers opened the log at once and the first won: the other header entries
            // lose nothing.
            self.offset_applied = offset.next();
            return Ok(Applied::default());
        }
        if let Err(error) = self.check_log(&entry, log_id) {
            self.log_id = log_id;
            return Ok(self.skip(offset, error));
        }
        let entry_schema = find(schemas, entry.schema_version)?;
        let current = find(schemas, self.schema_version.max(entry.schema_version))?;
        if let Err(error) = self.check_changes(&entry, entry_schema.as_deref()) {
            self.log_id = log_id;
            let sources = self.note_source(&entry).into_iter().collect();
            return Ok(Applied { sources, ..self.skip(offset, error) });
        }
        let stream = current.as_ref().and_then(|at| at.definition.stream.as_ref());
        let is_of_view = stream.is_some_and(|stream| stream.view.is_some());
        let now = self.time_behind(&entry, append_time, is_of_view);
        let drop_all_count = current.as_ref().map_or(0, |at| at.definition.drop_all_count);
        let drop_all = drop_all_count > self.drop_all_count;
        let mut overlay = Overlay::default();
        if let (EntryBody::Changes(batches), Some(schema), None) = (&entry.body, &current, stream) {
            overlay = Overlay::of(batches);
            if !drop_all {
                let loaded = overlay.load(documents, schemas, schema, now);
                loaded.map_err(|blocked| self.locate_blocked(blocked))?;
            }
        }
        // No step below can fail: the state moves by the whole record.
        self.log_id = log_id;
        self.partition_time = now;
        self.schema_version = self.schema_version.max(entry.schema_version);
        self.drop_all_count = self.drop_all_count.max(drop_all_count);
        let clients = self.dedup.forget_idle(now);
        let sources = self.note_source(&entry).into_iter().collect();
        self.position = entry.position(offset);
        self.offset_applied = offset.next();
        let mut applied = Applied { drop_all, clients, sources, ..Applied::default() };
        if let Some(stream) = stream {
            if let EntryBody::Changes(batches) = entry.body {
                let is_derived = stream.view.is_some();
                self.take_events(batches, is_derived, &mut applied);
            }
        } else if let (EntryBody::Changes(batches), Some(schema)) = (&entry.body, &current) {
            self.apply_changes(batches, schema, overlay, &mut applied);
        }
        Ok(applied)
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

    fn skip(&mut self, offset: Offset, reason: Error) -> Applied {
        self.offset_applied = offset.next();
        Applied { skipped: Some(self.locate(reason)), ..Applied::default() }
    }

    fn locate(&self, error: Error) -> Error {
        error.with_partition(self.partition.partition)
    }

    fn locate_blocked(&self, blocked: Blocked) -> Blocked {
        match blocked {
            Blocked::NeedsDefinition(version) => Blocked::NeedsDefinition(version),
            Blocked::UpgradeNeeded(error) => Blocked::UpgradeNeeded(self.locate(error)),
            Blocked::Unreadable(error) => Blocked::Unreadable(self.locate(error)),
            Blocked::Internal(error) => Blocked::Internal(self.locate(error)),
        }
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
    fn take_events(&mut self, batches: Vec<ClientBatch>, is_derived: bool, applied: &mut Applied) {
        let now = self.partition_time;
        let mut next = self.position;
        for batch in batches {
            if is_derived {
                for change in batch.changes {
                    applied.events.push((next, change));
                    next.place = next.place.wrapping_add(1);
                }
                continue;
            }
            applied.clients.push(batch.client);
            let Some(first) = batch.changes.first() else { continue };
            let mut admission = self.dedup.admission(batch.client, first.sequence, now);
            for change in batch.changes {
                let position = next;
                next.place = next.place.wrapping_add(1);
                match admission.admit(change.sequence) {
                    Seen::New => applied.events.push((position, change)),
                    _ => applied.repeats += 1,
                }
            }
        }
    }

    fn apply_changes<'e>(
        &mut self,
        batches: &'e [ClientBatch],
        schema: &SchemaAt,
        mut overlay: Overlay<'e>,
        applied: &mut Applied,
    ) {
        let now = self.partition_time;
        let (mut next, mut number) = (self.position, 0);
        for batch in batches {
            applied.clients.push(batch.client);
            let Some(first) = batch.changes.first() else { continue };
            let mut admission = self.dedup.admission(batch.client, first.sequence, now);
            for change in &batch.changes {
                let (position, place) = (next, number);
                next.place = next.place.wrapping_add(1);
                number += 1;
                let (client, sequence) = (batch.client, change.sequence);
                if admission.admit(sequence) != Seen::New {
                    applied.repeats += 1;
                    continue;
                }
                let verdict = overlay.apply(place, change, schema, now, position);
                if change.condition.is_some() || verdict == Verdict::TooLarge {
                    applied.outcomes.push(Outcome { client, sequence, position, verdict });
                }
            }
        }
        applied.writes = overlay.into_writes();
    }
}

/// Returns the definition of this version; `Ok(None)` for version 0, before the first definition.
fn find(
    schemas: &impl Schemas,
    version: SchemaVersion,
) -> std::result::Result<Option<Arc<SchemaAt>>, Blocked> {
    if version == SchemaVersion(0) {
        return Ok(None);
    }
    schemas.at(version).map(Some).ok_or(Blocked::NeedsDefinition(version))
}
