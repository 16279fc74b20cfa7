//! The fold: what one log record makes of a partition's state. Same prefix, same state.
//!
//! The fold reads no clock: `partition_time` is the running maximum of append times. It touches no
//! index either: it reads documents through [`Documents`] and answers with the writes to make, the
//! last state of each key once, so that a reader of the index never sees half an entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::SchemaAt;
use crate::change::{Change, Condition, Entry, EntryBody, FieldChange, FieldOp, Source, Verb};
use crate::clock::Timestamp;
use crate::dedup::{Dedup, Seen};
use crate::error::{Error, ErrorCode, Result};
use crate::id::{
    LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
};
use crate::key::Key;
use crate::merge::{Merged, compare, merge};
use crate::outcome::{Outcome, Verdict};
use crate::partition::partition_of;
use crate::row::{Document, row_schema_version};
use crate::schema::Definition;
use crate::value::{FieldType, ScalarType, Value};

/// The documents of one partition, as the fold needs to see them.
pub trait Documents {
    /// The row under a key, or `None`.
    fn row(&self, key: &[u8]) -> Option<Vec<u8>>;
}

/// The definitions of one store, as the fold needs to see them.
pub trait Schemas {
    /// The definition of this version, or `None` when it is not known here yet.
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>>;
}

/// One record as the log holds it, decoded or not.
#[derive(Debug)]
pub struct Record {
    /// Its offset.
    pub offset: Offset,
    /// When the log appended it.
    pub append_time: Timestamp,
    /// The entry, or why its bytes are none: `Corrupt` is skipped, `UpgradeNeeded` halts.
    pub entry: Result<Entry>,
}

/// What applying a record did.
#[derive(Debug, Default, PartialEq)]
pub struct Applied {
    /// Whether all documents go before the writes below.
    pub drop_all: bool,
    /// The last row of each key that changed; `None` deletes it. Ordered by key.
    pub writes: Vec<(Key, Option<Vec<u8>>)>,
    /// Outcomes of the conditional changes, and of changes that were too large.
    pub outcomes: Vec<Outcome>,
    /// Repeats that were skipped.
    pub repeats: u64,
    /// Why the whole record was skipped, if it was.
    pub skipped: Option<Error>,
}

/// Why a record cannot be applied now.
#[derive(Debug, PartialEq)]
pub enum Blocked {
    /// The definition of this version must be fetched first; then apply the record again.
    NeedsDefinition(SchemaVersion),
    /// This build does not know the record's format; the partition stays where it is.
    UpgradeNeeded(Error),
    /// A broken invariant; the state is poisoned.
    Internal(Error),
}

/// Everything of a partition's state but the documents.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionState {
    /// Which partition.
    pub partition: PartitionRef,
    /// Partition count of its store.
    pub partitions: PartitionCount,
    /// Id of the log that it follows; set by the first well-formed entry.
    pub log_id: Option<LogId>,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Position of the last entry applied.
    pub position: Position,
    /// Running maximum of append times.
    pub partition_time: Timestamp,
    /// Newest schema version that the partition has seen.
    pub schema_version: SchemaVersion,
    /// Drop-alls that the partition has carried out.
    pub drop_all_count: u32,
    /// What each client has sent.
    pub dedup: Dedup,
    /// Position of the last entry applied from each source partition.
    pub sources: BTreeMap<PartitionId, Position>,
}

impl PartitionState {
    /// The state before the first record.
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

    /// Applies one record. On `Err` the state is as it was.
    ///
    /// # Errors
    /// [`Blocked`]: fetch the definition and apply again, or stop here.
    pub fn apply(
        &mut self,
        record: Record,
        documents: &impl Documents,
        schemas: &impl Schemas,
    ) -> std::result::Result<Applied, Blocked> {
        if record.offset < self.offset_applied {
            let message =
                format!("record {} comes again after {}", record.offset, self.offset_applied);
            return Err(Blocked::Internal(self.locate(Error::internal(message))));
        }
        let entry = match record.entry {
            Ok(entry) => entry,
            Err(error) if error.code() == ErrorCode::UpgradeNeeded => {
                return Err(Blocked::UpgradeNeeded(self.locate(error)));
            }
            Err(error) => return Ok(self.skip(record.offset, error)),
        };
        if let Err(error) = self.check_log(&entry) {
            return Ok(self.skip(record.offset, error));
        }
        let current = self.schema_version.max(entry.schema_version);
        let Some(entry_schema) = find(schemas, entry.schema_version) else {
            return Err(Blocked::NeedsDefinition(entry.schema_version));
        };
        let Some(current_schema) = find(schemas, current) else {
            return Err(Blocked::NeedsDefinition(current));
        };
        if let Err(error) = self.check_changes(&entry, entry_schema.as_deref()) {
            return Ok(self.skip(record.offset, error));
        }
        let append_time = entry.source.map_or(record.append_time, |source| source.append_time);
        self.partition_time = self.partition_time.max(append_time);
        self.log_id = Some(entry.log_id);
        self.schema_version = current;
        let mut applied = Applied::default();
        if let Some(schema) = &current_schema
            && schema.definition.drop_all_count > self.drop_all_count
        {
            self.drop_all_count = schema.definition.drop_all_count;
            applied.drop_all = true;
        }
        let position = entry.position(record.offset);
        if let (EntryBody::Changes(_), Some(schema)) = (&entry.body, &current_schema) {
            self.apply_changes(&entry, position, schema, documents, schemas, &mut applied)?;
        }
        if let Some(source) = entry.source {
            self.sources.insert(source.partition, source.position);
        }
        self.position = position;
        self.offset_applied = record.offset.next();
        Ok(applied)
    }

    fn skip(&mut self, offset: Offset, reason: Error) -> Applied {
        self.offset_applied = offset.next();
        Applied { skipped: Some(self.locate(reason)), ..Applied::default() }
    }

    fn locate(&self, error: Error) -> Error {
        error.with_partition(self.partition.partition)
    }

    fn check_log(&self, entry: &Entry) -> Result<()> {
        if self.log_id.is_some_and(|log_id| log_id != entry.log_id) {
            return Err(Error::corrupt("an entry of another log"));
        }
        if matches!(entry.body, EntryBody::Control(_)) {
            return Err(Error::corrupt("a control record outside the control log"));
        }
        let Some(Source { partition, previous, .. }) = entry.source else { return Ok(()) };
        if self.sources.get(&partition).copied() != previous {
            return Err(Error::corrupt("a copied entry out of its order"));
        }
        Ok(())
    }

    /// Refuses an entry of which any change cannot be: an entry is applied whole or not at all.
    fn check_changes(&self, entry: &Entry, schema: Option<&SchemaAt>) -> Result<()> {
        let EntryBody::Changes(batches) = &entry.body else { return Ok(()) };
        let schema = schema.ok_or_else(|| Error::corrupt("changes without a schema version"))?;
        let definition = &schema.definition;
        for change in batches.iter().flat_map(|batch| &batch.changes) {
            change.check(definition)?;
            let (partition_key, primary) =
                Key::split(change.key.as_bytes(), definition.partition_key.is_some())?;
            let belongs = partition_of(partition_key.unwrap_or(primary), self.partitions);
            if belongs != self.partition.partition {
                let message = format!("a key that belongs to partition {belongs}");
                return Err(Error::corrupt(message).with_key_digest(change.key.digest()));
            }
        }
        Ok(())
    }

    fn apply_changes(
        &mut self,
        entry: &Entry,
        position: Position,
        schema: &SchemaAt,
        documents: &impl Documents,
        schemas: &impl Schemas,
        applied: &mut Applied,
    ) -> std::result::Result<(), Blocked> {
        let EntryBody::Changes(batches) = &entry.body else { return Ok(()) };
        let now = self.partition_time;
        let mut overlay = Overlay { rows: BTreeMap::new(), now, dropped: applied.drop_all };
        let mut position = position;
        for batch in batches {
            for change in &batch.changes {
                let at = position;
                position.place = position.place.wrapping_add(1);
                if self.dedup.seen(batch.client, change.sequence, now) != Seen::New {
                    applied.repeats += 1;
                    continue;
                }
                let present = overlay
                    .take(&change.key, documents, schemas, &schema.definition)
                    .map_err(|error| Blocked::Internal(self.locate(error)))?;
                let (document, verdict) = change_document(present, change, schema, now, at);
                let row = overlay.put(&change.key, document, schema);
                let verdict = if row.is_ok() { verdict } else { Verdict::TooLarge };
                self.dedup.record(batch.client, change.sequence, now);
                if change.condition.is_some() || verdict == Verdict::TooLarge {
                    let (client, sequence) = (batch.client, change.sequence);
                    applied.outcomes.push(Outcome { client, sequence, position: at, verdict });
                }
            }
        }
        applied.writes = overlay.into_writes();
        Ok(())
    }
}

fn find(schemas: &impl Schemas, version: SchemaVersion) -> Option<Option<Arc<SchemaAt>>> {
    if version == SchemaVersion(0) { Some(None) } else { schemas.at(version).map(Some) }
}

/// The documents that an entry touched so far.
struct Overlay {
    rows: BTreeMap<Key, Touched>,
    now: Timestamp,
    dropped: bool,
}

struct Touched {
    document: Option<Document>,
    row: Option<Vec<u8>>,
    changed: bool,
}

impl Overlay {
    /// The document as the entry has made it so far, without what has expired.
    fn take(
        &mut self,
        key: &Key,
        documents: &impl Documents,
        schemas: &impl Schemas,
        current: &Definition,
    ) -> Result<Option<Document>> {
        if let Some(touched) = self.rows.get(key) {
            return Ok(touched.document.clone());
        }
        let row = if self.dropped { None } else { documents.row(key.as_bytes()) };
        let Some(row) = row else { return Ok(None) };
        let version = row_schema_version(&row).unwrap_or_default();
        let schema = schemas
            .at(version)
            .ok_or_else(|| Error::internal(format!("a row of unknown schema version {version}")))?;
        let document = Document::decode(&row, &schema.layout)?;
        Ok(live_part(document, self.now, current))
    }

    fn put(&mut self, key: &Key, outcome: Changed, schema: &SchemaAt) -> Result<()> {
        let (document, changed) = match outcome {
            Changed::To(document) => (document, true),
            Changed::Nothing(document) => (document, false),
        };
        let row = match &document {
            Some(document) if changed => Some(document.encode(&schema.layout)?),
            _ => None,
        };
        if changed {
            self.rows.insert(key.clone(), Touched { document, row, changed });
        }
        Ok(())
    }

    fn into_writes(self) -> Vec<(Key, Option<Vec<u8>>)> {
        let changed = self.rows.into_iter().filter(|(_, touched)| touched.changed);
        changed.map(|(key, touched)| (key, touched.row)).collect()
    }
}

/// The document as the current definition sees it: without what has expired at `now` and without
/// retired fields, its values as wide as their fields; `None` when all of it has expired.
fn live_part(document: Document, now: Timestamp, current: &Definition) -> Option<Document> {
    if document.expires_at.is_some_and(|at| at <= now) {
        return None;
    }
    let mut live = Document::new(document.expires_at, document.version);
    for cell in document.into_cells() {
        let Some(field) = current.field_by_id(cell.field) else { continue };
        if cell.expires_at.is_none_or(|at| at > now) {
            let value = cell.value.map(|value| value.widened_to(field.field_type));
            live.set(cell.field, value, cell.expires_at);
        }
    }
    Some(live)
}

enum Changed {
    To(Option<Document>),
    Nothing(Option<Document>),
}

fn change_document(
    present: Option<Document>,
    change: &Change,
    schema: &SchemaAt,
    now: Timestamp,
    at: Position,
) -> (Changed, Verdict) {
    let definition = &schema.definition;
    if !condition_holds(present.as_ref(), change, definition) {
        let version = present.as_ref().and_then(|document| document.version);
        return (Changed::Nothing(present), Verdict::NotMet(version));
    }
    if change.verb == Verb::Delete {
        let changed = if present.is_some() { Changed::To(None) } else { Changed::Nothing(None) };
        return (changed, Verdict::Applied);
    }
    let takes_only =
        |change: &FieldChange| matches!(change.op, FieldOp::Remove | FieldOp::SetRemove { .. });
    let only_takes = !change.fields.is_empty() && change.fields.iter().all(takes_only);
    if present.is_none() && change.verb == Verb::Upsert && only_takes {
        return (Changed::Nothing(None), Verdict::Applied);
    }
    let expiry = |ttl_us: Option<i64>| ttl_us.map(|ttl| now.plus_micros(ttl));
    let default_expiry = expiry(definition.options.ttl_us);
    let mut document = match (change.verb, present) {
        (Verb::Upsert, Some(document)) => document,
        _ => Document::new(default_expiry, None),
    };
    if change.ttl_us.is_some() {
        document.expires_at = expiry(change.ttl_us);
    }
    document.version = definition.options.versioned.then(|| at.document_version());
    set_partition_key(&mut document, &change.key, definition);
    for field_change in &change.fields {
        // An id that was retired since the entry was made: its value is ignored.
        let Some(field) = definition.field_by_id(field_change.field) else { continue };
        let expires_at = expiry(field_change.ttl_us.or(field.ttl_us));
        match merge(document.value(field.id), &field_change.op, field.field_type) {
            Merged::Set(value) => document.set(field.id, value, expires_at),
            Merged::Absent => document.remove(field.id),
            Merged::Unchanged => {}
        }
    }
    (Changed::To(Some(document)), Verdict::Applied)
}

fn condition_holds(present: Option<&Document>, change: &Change, definition: &Definition) -> bool {
    match change.condition {
        None => true,
        Some(Condition::IfAbsent) => present.is_none(),
        Some(Condition::IfVersion(version)) => {
            present.and_then(|document| document.version) == Some(version)
        }
        Some(Condition::IfNewer(id)) => {
            // A retired field orders nothing: the change is skipped, as its value would be.
            let Some(field) = definition.field_by_id(id) else { return false };
            let new = change.fields.iter().find_map(|field_change| match &field_change.op {
                FieldOp::Set(Some(value)) if field_change.field == id => {
                    Some(value.clone().widened_to(field.field_type))
                }
                _ => None,
            });
            match (new, present.and_then(|document| document.value(id))) {
                (Some(new), Some(old)) => compare(&new, old) == Some(std::cmp::Ordering::Greater),
                (Some(new), None) => compare(&new, &new).is_some(),
                (None, _) => false,
            }
        }
    }
}

fn set_partition_key(document: &mut Document, key: &Key, definition: &Definition) {
    let Some(id) = definition.partition_key else { return };
    let Ok((Some(bytes), _)) = Key::split(key.as_bytes(), true) else { return };
    let Some(field) = definition.field_by_id(id) else { return };
    let value = match field.field_type {
        FieldType::Scalar(ScalarType::Int64) => match bytes.try_into() {
            Ok(bytes) => Value::Int64(i64::from_le_bytes(bytes)),
            Err(_) => return,
        },
        FieldType::Scalar(ScalarType::String) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => return,
        },
        _ => Value::Bytes(bytes.to_vec()),
    };
    document.set(id, Some(value), None);
}
