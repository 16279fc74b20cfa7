//! Changes, each of one document, and the log entries that carry them.

mod event_rules;

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{
    ClientId, DocumentVersion, Epoch, FieldId, LogId, Offset, PartitionId, Position, SchemaVersion,
    Sequence,
};
use crate::key::{Key, KeyType, check_length};
use crate::limits::LIST_COMPONENTS_MAX;
use crate::schema::{Definition, Field, check_ttl};
use crate::value::{FieldType, ScalarType, Value, check_list};

/// Effect of a change on the document as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Replaces the document by the fields given.
    Put,
    /// Changes the fields given and keeps the others; the default verb.
    Upsert,
    /// Deletes the document.
    Delete,
    /// Adds an event to a stream; any number of events share one key.
    Insert,
}

/// Operation on one field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldOp {
    /// Sets a value, or null with `None`.
    Set(Option<Value>),
    /// Makes the field absent.
    Remove,
    /// Adds a number; absent and null count as 0, integers saturate.
    Increment(Value),
    /// Keeps the smaller of the two values; absent and null lose, NaN never wins.
    Min(Value),
    /// Keeps the larger of the two values; absent and null lose, NaN never wins.
    Max(Value),
    /// Appends components to a list and keeps the last `bound` of them.
    ListAppend {
        /// The components to append.
        items: Vec<Value>,
        /// Maximum number of components to keep.
        bound: u32,
    },
    /// Appends the components that the list does not hold yet and keeps the last `bound`.
    SetAdd {
        /// The components to add.
        items: Vec<Value>,
        /// Maximum number of components to keep.
        bound: u32,
    },
    /// Removes components from a list.
    SetRemove {
        /// The components to remove.
        items: Vec<Value>,
    },
}

/// A field and the operation on it.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// The field.
    pub field: FieldId,
    /// The operation.
    pub op: FieldOp,
    /// Time to live of the field from now on, in microseconds; `None` takes the field's own, if it
    /// has one. Every operation on a field sets the expiry, even if the value does not change.
    pub ttl_us: Option<i64>,
}

/// Condition of a change: if the document does not meet it, the change is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No document exists under the key.
    IfAbsent,
    /// The document has exactly this version.
    IfVersion(DocumentVersion),
    /// The change sets this field to a value above its present one. Absent, null and NaN are below
    /// every value; a new NaN is above nothing.
    IfNewer(FieldId),
}

/// A change of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The client's number of this change in its partition.
    pub sequence: Sequence,
    /// Key of the document.
    pub key: Key,
    /// Effect on the document as a whole.
    pub verb: Verb,
    /// Operations on fields; empty for a delete.
    pub fields: Vec<FieldChange>,
    /// Condition under which the change applies.
    pub condition: Option<Condition>,
    /// Time to live of the document from now on, in microseconds.
    pub ttl_us: Option<i64>,
}

/// The changes of one client in one entry, in the client's order.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientBatch {
    /// Client that sent the changes.
    pub client: ClientId,
    /// The changes.
    pub changes: Vec<Change>,
}

/// Origin of a copied entry (`tools/docs/src/semantics.md`, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Partition that the entry was copied from.
    pub partition: PartitionId,
    /// Position of the entry in that partition.
    pub position: Position,
    /// Position of the entry that was copied to this target before; `None` for the first.
    pub previous: Option<Position>,
    /// Append time at the source.
    pub append_time: Timestamp,
    /// Whether the entry was forwarded to other partitions than it was written to. If so, it has a
    /// position of its own: the source's position belongs to another log.
    pub is_forwarded: bool,
}

/// Purpose and content of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryBody {
    /// The first entry of a log; sets the log id.
    LogHeader,
    /// Changes of documents.
    Changes(Vec<ClientBatch>),
    /// Announces that the definition of this version applies to the partition from here on.
    Definition,
    /// Heartbeat without changes; gives readers the age of their data.
    Heartbeat,
    /// Barrier without changes: a caller waits until a replica has applied it.
    Barrier,
    /// A control record; only in the control log.
    Control(crate::catalog::ControlRecord),
    /// Copies of skipped records; only in a dead-letter log.
    DeadLetters(Vec<crate::dead_letter::DeadLetter>),
}

/// An atomic batch for one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Id of the log that the entry was created for.
    pub log_id: LogId,
    /// Home epoch.
    pub epoch: Epoch,
    /// Version of the definition that the entry was created with.
    pub schema_version: SchemaVersion,
    /// Origin of the entry, if it was copied.
    pub source: Option<Source>,
    /// Purpose and content.
    pub body: EntryBody,
}

impl Entry {
    /// Creates an entry that is no copy of another one, at home epoch 0: there is one region.
    pub fn original(log_id: LogId, schema_version: SchemaVersion, body: EntryBody) -> Self {
        Self { log_id, epoch: Epoch(0), schema_version, source: None, body }
    }

    /// Returns the number of changes in the entry.
    pub fn change_count(&self) -> usize {
        match &self.body {
            EntryBody::Changes(batches) => batches.iter().map(|batch| batch.changes.len()).sum(),
            _ => 0,
        }
    }

    /// Returns the position of the entry in its home log, if this log holds it at `offset`.
    pub fn position(&self, offset: Offset) -> Position {
        match self.source {
            Some(source) if !source.is_forwarded => source.position,
            _ => Position { epoch: self.epoch, offset, index_in_entry: 0 },
        }
    }
}

impl Change {
    /// Refuses a change that the definition does not allow: an unknown field, a wrong type, a wrong
    /// operator, a value over a limit. Retired field ids pass, because the fold ignores them.
    pub fn check(&self, definition: &Definition) -> Result<()> {
        self.check_key(definition)?;
        self.check_verb(definition)?;
        if self.verb == Verb::Delete && !self.fields.is_empty() {
            let message = "a delete names no fields; remove fields with an upsert";
            return Err(Error::invalid_argument(message));
        }
        check_ttl(self.ttl_us)?;
        self.check_fields_differ()?;
        for change in &self.fields {
            if definition.retired.contains(&change.field) {
                continue;
            }
            let field = definition.field_by_id(change.field).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "the store has no field {}; describe the store for its fields",
                    change.field
                ))
            })?;
            self.check_field(change, field, definition)
                .map_err(|error| error.with_field(&field.name))?;
        }
        self.check_condition(definition).map_err(|error| error.with_key_digest(self.key.digest()))
    }

    fn check_key(&self, definition: &Definition) -> Result<()> {
        let (partition_key, primary) =
            Key::split(self.key.as_bytes(), definition.partition_key.is_some())?;
        check_key_part(primary, definition.key_type, "primary key")?;
        let field = definition.partition_key.and_then(|id| definition.field_by_id(id));
        let key_field = field.zip(definition.partition_key_type());
        let Some((bytes, (field, key_type))) = partition_key.zip(key_field) else { return Ok(()) };
        check_key_part(bytes, key_type, "partition key").map_err(|e| e.with_field(&field.name))
    }

    fn check_fields_differ(&self) -> Result<()> {
        let ascends = |pair: &[FieldChange]| pair[0].field < pair[1].field;
        if self.fields.windows(2).all(ascends) {
            return Ok(());
        }
        let mut seen_fields = BTreeSet::new();
        if self.fields.iter().all(|change| seen_fields.insert(change.field)) {
            return Ok(());
        }
        Err(Error::invalid_argument("a change names a field more than once; name each field once"))
    }

    fn check_field(
        &self,
        change: &FieldChange,
        field: &Field,
        definition: &Definition,
    ) -> Result<()> {
        check_ttl(change.ttl_us)?;
        if Some(field.id) == definition.partition_key {
            let message =
                "the partition key is part of the key and never changes; leave the field out";
            return Err(Error::invalid_argument(message));
        }
        if self.verb == Verb::Put && !matches!(change.op, FieldOp::Set(_)) {
            let message = "a put only sets fields; use an upsert for other operations";
            return Err(Error::invalid_argument(message));
        }
        check_op(&change.op, field.field_type)
    }

    fn check_condition(&self, definition: &Definition) -> Result<()> {
        match self.condition {
            None | Some(Condition::IfAbsent) => Ok(()),
            Some(Condition::IfVersion(_)) if definition.options.versioned => Ok(()),
            Some(Condition::IfVersion(_)) => {
                let message = "if-version works only on a store with the option `versioned`; set \
                    the option, or leave the condition out";
                Err(Error::invalid_argument(message))
            }
            Some(Condition::IfNewer(id)) => {
                if definition.retired.contains(&id) {
                    return Ok(());
                }
                let sets = |change: &FieldChange| {
                    change.field == id && matches!(change.op, FieldOp::Set(Some(_)))
                };
                let is_scalar = definition
                    .field_by_id(id)
                    .is_some_and(|field| matches!(field.field_type, FieldType::Scalar(_)));
                if is_scalar && self.fields.iter().any(sets) {
                    return Ok(());
                }
                let message =
                    "if-newer needs a scalar field that the change sets to a value; set the field";
                Err(Error::invalid_argument(message))
            }
        }
    }
}

fn check_key_part(bytes: &[u8], key_type: KeyType, part: &str) -> Result<()> {
    check_length(bytes)?;
    let is_valid = match key_type {
        KeyType::Bytes => true,
        KeyType::Int64 => bytes.len() == 8,
        KeyType::String => std::str::from_utf8(bytes).is_ok(),
    };
    if is_valid {
        return Ok(());
    }
    let message = match key_type {
        KeyType::Int64 => format!("the {part} is an int64: send 8 bytes, little-endian"),
        _ => format!("the {part} is a string: send UTF-8, or declare bytes for any bytes"),
    };
    Err(Error::invalid_argument(message))
}

fn check_op(op: &FieldOp, field_type: FieldType) -> Result<()> {
    match op {
        FieldOp::Set(None) | FieldOp::Remove => Ok(()),
        FieldOp::Set(Some(value)) => value.check(field_type),
        FieldOp::Increment(value) => {
            value.check(field_type)?;
            use ScalarType::{Float32, Float64, Int32, Int64};
            match field_type {
                FieldType::Scalar(Int32 | Int64 | Float32 | Float64) => Ok(()),
                other => {
                    let message = format!(
                        "an increment needs a number, not a {other}; increment another field"
                    );
                    Err(Error::invalid_argument(message))
                }
            }
        }
        FieldOp::Min(value) | FieldOp::Max(value) => {
            value.check(field_type)?;
            match field_type {
                FieldType::Scalar(_) => Ok(()),
                other => {
                    let message =
                        format!("min and max need a scalar, not a {other}; use another field");
                    Err(Error::invalid_argument(message))
                }
            }
        }
        FieldOp::ListAppend { items, bound } | FieldOp::SetAdd { items, bound } => {
            if *bound == 0 || *bound as usize > LIST_COMPONENTS_MAX {
                let (limit, actual) = (LIST_COMPONENTS_MAX as u64, u64::from(*bound));
                return Err(Error::limit_exceeded(
                    "the bound of a list operation is out of range; set a bound from 1 to the \
                     limit",
                    limit,
                    actual,
                ));
            }
            check_items(items, field_type)
        }
        FieldOp::SetRemove { items } => check_items(items, field_type),
    }
}

fn check_items(items: &[Value], field_type: FieldType) -> Result<()> {
    let FieldType::List(scalar) = field_type else {
        let message = format!("list operations need a list, not a {field_type}; use another field");
        return Err(Error::invalid_argument(message));
    };
    check_list(scalar, items)
}
