//! The naive model of one partition: the meaning of a log prefix, implemented as simply as
//! possible.
//!
//! The model holds a map of documents, each a map of fields, and a set of all changes ever applied;
//! at each entry it removes expired data. The model shares no code with the fold that it checks,
//! except the domain types and `Change::check`. Rows and values may have any size in the model, so
//! callers limit their documents.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forebay_core::change::{Change, Condition, Entry, EntryBody, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    ClientId, DocumentVersion, FieldId, LogId, Offset, PartitionCount, PartitionId, PartitionRef,
    Position, SchemaVersion, Sequence,
};
use forebay_core::key::Key;
use forebay_core::limits::{DEDUP_IDLE_US, DEDUP_WINDOW, ENTRY_CHANGES_MAX, SCHEMA_VERSION_MAX};
use forebay_core::outcome::{ConditionOutcome, Outcome};
use forebay_core::partition::partition_of;
use forebay_core::row::{Document, encode_value};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, ScalarType, Value};

/// A field of a model document.
#[derive(Clone, Debug)]
pub struct ModelField {
    /// Value of the field; `None` is null.
    pub value: Option<Value>,
    /// Time at which the field expires.
    pub expires_at: Option<Timestamp>,
}

impl PartialEq for ModelField {
    fn eq(&self, other: &Self) -> bool {
        let bits =
            |field: &Self| field.value.as_ref().map(|value| (value.field_type(), bytes(value)));
        bits(self) == bits(other) && self.expires_at == other.expires_at
    }
}

/// A document of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelDocument {
    /// Present fields; absent fields are not in the map.
    pub fields: BTreeMap<FieldId, ModelField>,
    /// Time at which the whole document expires.
    pub expires_at: Option<Timestamp>,
    /// Version of the document, in a versioned store.
    pub version: Option<DocumentVersion>,
}

impl ModelDocument {
    /// Returns the document as a reader sees it at this time; `None` if it has expired.
    pub fn visible_at(&self, now: Timestamp) -> Option<Self> {
        let lives = |expires_at: Option<Timestamp>| expires_at.is_none_or(|at| now < at);
        let mut visible = self.clone();
        visible.fields.retain(|_, field| lives(field.expires_at));
        lives(self.expires_at).then_some(visible)
    }

    fn value(&self, field: FieldId) -> Option<&Value> {
        self.fields.get(&field)?.value.as_ref()
    }

    fn bring_up_to(&mut self, definition: &Definition) {
        self.fields.retain(|id, _| definition.field_by_id(*id).is_some());
        for (id, field) in &mut self.fields {
            let field_type = definition.field_by_id(*id).expect("retained above").field_type;
            field.value = field.value.take().map(|value| widen(value, field_type));
        }
    }
}

impl From<&Document> for ModelDocument {
    fn from(document: &Document) -> Self {
        let field = |cell: &forebay_core::row::FieldCell| {
            (cell.field, ModelField { value: cell.value.clone(), expires_at: cell.expires_at })
        };
        Self {
            fields: document.cells().iter().map(field).collect(),
            expires_at: document.expires_at,
            version: document.version,
        }
    }
}

/// The observable effects of an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelApplied {
    /// Whether the whole entry was skipped.
    pub skipped: bool,
    /// Number of duplicate changes in the entry, which were skipped.
    pub repeats: u64,
    /// Outcomes of the entry's conditional changes.
    pub outcomes: Vec<Outcome>,
}

/// The state of one partition.
#[derive(Clone, Debug)]
pub struct Model {
    partition: PartitionRef,
    partitions: PartitionCount,
    definitions: BTreeMap<SchemaVersion, Definition>,
    documents: BTreeMap<Key, ModelDocument>,
    log_id: Option<LogId>,
    schema_version: SchemaVersion,
    partition_time: Timestamp,
    drop_all_count: u32,
    applied: BTreeSet<(ClientId, Sequence)>,
    last_seen: BTreeMap<ClientId, Timestamp>,
    sources: BTreeMap<PartitionId, Position>,
}

impl Model {
    /// Returns the state before the first record.
    pub fn new(partition: PartitionRef, partitions: PartitionCount) -> Self {
        Self {
            partition,
            partitions,
            definitions: BTreeMap::new(),
            documents: BTreeMap::new(),
            log_id: None,
            schema_version: SchemaVersion(0),
            partition_time: Timestamp::MIN,
            drop_all_count: 0,
            applied: BTreeSet::new(),
            last_seen: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }

    /// Adds a definition; the model must know the schema version of every entry that it applies.
    pub fn define(&mut self, definition: Definition) {
        self.definitions.insert(definition.version, definition);
    }

    /// Returns the documents that exist at partition time, by key, without expired or dropped data.
    pub fn documents(&self) -> &BTreeMap<Key, ModelDocument> {
        &self.documents
    }

    /// Returns the partition time: the running maximum of append times.
    pub fn partition_time(&self) -> Timestamp {
        self.partition_time
    }

    /// Returns the meaning of a stored document at partition time: without expired or dropped data,
    /// and with values as wide as their fields. A replica's row must have this meaning.
    ///
    /// # Panics
    /// Panics before the first definition takes effect.
    pub fn meaning(&self, document_read: &Document) -> Option<ModelDocument> {
        let mut document = ModelDocument::from(document_read).visible_at(self.partition_time)?;
        document.bring_up_to(&self.definitions[&self.schema_version]);
        Some(document)
    }

    /// Returns the document that a reader whose clock shows `now` reads under a key.
    pub fn get(&self, key: &Key, now: Timestamp) -> Option<ModelDocument> {
        self.documents.get(key)?.visible_at(now.max(self.partition_time))
    }

    /// Applies a well-formed entry. Callers leave out records that are no entry, because they
    /// change nothing.
    ///
    /// # Panics
    /// Panics if the entry's definition is unknown.
    pub fn apply(&mut self, offset: Offset, append_time: Timestamp, entry: &Entry) -> ModelApplied {
        let skipped = ModelApplied { skipped: true, ..ModelApplied::default() };
        if matches!(entry.body, EntryBody::LogHeader) {
            let log_id = *self.log_id.get_or_insert(entry.log_id);
            if log_id != entry.log_id {
                return ModelApplied::default();
            }
        }
        if self.log_id != Some(entry.log_id)
            || matches!(entry.body, EntryBody::Control(_) | EntryBody::DeadLetters(_))
            || entry.schema_version.0 > SCHEMA_VERSION_MAX
        {
            return skipped;
        }
        if let Some(source) = entry.source {
            if self.sources.get(&source.partition) != source.previous.as_ref() {
                return skipped;
            }
            self.sources.insert(source.partition, source.position);
        }
        if !self.is_well_formed(entry) {
            return skipped;
        }
        let append_time = entry.source.map_or(append_time, |source| source.append_time);
        self.partition_time = self.partition_time.max(append_time);
        self.take_up(entry.schema_version);
        self.expire();
        let mut applied = ModelApplied::default();
        if let EntryBody::Changes(batches) = &entry.body {
            let mut at = entry.position(offset);
            for batch in batches {
                for change in &batch.changes {
                    self.apply_change(batch.client, change, at, &mut applied);
                    at.index_in_entry += 1;
                }
            }
        }
        applied
    }

    fn is_well_formed(&self, entry: &Entry) -> bool {
        let EntryBody::Changes(batches) = &entry.body else { return true };
        if entry.schema_version == SchemaVersion(0) || entry.change_count() > ENTRY_CHANGES_MAX {
            return false;
        }
        let definition = &self.definitions[&entry.schema_version];
        let belongs = |change: &Change| {
            let has_partition_key = definition.partition_key.is_some();
            Key::split(change.key.as_bytes(), has_partition_key).is_ok_and(
                |(partition, primary)| {
                    let hashed_key = partition.unwrap_or(primary);
                    partition_of(hashed_key, self.partitions) == self.partition.partition
                },
            )
        };
        let mut changes = batches.iter().flat_map(|batch| &batch.changes);
        changes.all(|change| change.check(definition).is_ok() && belongs(change))
    }

    fn take_up(&mut self, version: SchemaVersion) {
        if version <= self.schema_version {
            return;
        }
        self.schema_version = version;
        let definition = &self.definitions[&version];
        if definition.drop_all_count > self.drop_all_count {
            self.drop_all_count = definition.drop_all_count;
            self.documents.clear();
        }
        self.documents.values_mut().for_each(|document| document.bring_up_to(definition));
    }

    fn expire(&mut self) {
        let now = self.partition_time;
        self.documents = std::mem::take(&mut self.documents)
            .into_iter()
            .filter_map(|(key, document)| Some((key, document.visible_at(now)?)))
            .collect();
        let idle = |at: Timestamp| now.as_micros().saturating_sub(at.as_micros()) >= DEDUP_IDLE_US;
        self.last_seen.retain(|_, at| !idle(*at));
        self.applied.retain(|(client, _)| self.last_seen.contains_key(client));
    }

    fn is_repeat(&self, client: ClientId, sequence: Sequence) -> bool {
        let client_changes = (client, Sequence(0))..=(client, Sequence(u64::MAX));
        let highest =
            self.applied.range(client_changes).next_back().map_or(0, |(_, highest)| highest.0);
        self.applied.contains(&(client, sequence))
            || highest.saturating_sub(sequence.0) > DEDUP_WINDOW
    }

    fn apply_change(
        &mut self,
        client: ClientId,
        change: &Change,
        at: Position,
        applied: &mut ModelApplied,
    ) {
        self.last_seen.insert(client, self.partition_time);
        if self.is_repeat(client, change.sequence) {
            applied.repeats += 1;
            return;
        }
        self.applied.insert((client, change.sequence));
        let definition = self.definitions[&self.schema_version].clone();
        let present = self.documents.get(&change.key);
        let is_met = condition_holds(present, change, &definition);
        if change.condition.is_some() {
            let version = present.and_then(|document| document.version);
            let condition = if is_met {
                ConditionOutcome::Applied
            } else {
                ConditionOutcome::ConditionFailed(version)
            };
            let sequence = change.sequence;
            applied.outcomes.push(Outcome { client, sequence, position: at, condition });
        }
        if !is_met {
            return;
        }
        let present = self.documents.remove(&change.key);
        if let Some(document) = self.change_document(present, change, &definition, at) {
            self.documents.insert(change.key.clone(), document);
        }
    }

    fn change_document(
        &self,
        present: Option<ModelDocument>,
        change: &Change,
        definition: &Definition,
        at: Position,
    ) -> Option<ModelDocument> {
        let after = |ttl: i64| self.partition_time.plus_micros(ttl);
        let new_document = ModelDocument {
            expires_at: definition.options.ttl_us.map(after),
            ..Default::default()
        };
        let takes = |op: &FieldOp| matches!(op, FieldOp::Remove | FieldOp::SetRemove { .. });
        let mut document = match change.verb {
            Verb::Delete => return None,
            // A stream has no documents.
            Verb::Insert => return present,
            Verb::Put => new_document,
            Verb::Upsert => match present {
                Some(document) => document,
                None if change.fields.is_empty() => new_document,
                None if change.fields.iter().all(|field| takes(&field.op)) => return None,
                None => new_document,
            },
        };
        if let Some(ttl) = change.ttl_us {
            document.expires_at = Some(after(ttl));
        }
        let version = DocumentVersion((at.offset.0 << 16) + u64::from(at.index_in_entry));
        document.version = definition.options.versioned.then_some(version);
        if let Some(id) = definition.partition_key {
            let value = Some(partition_key_value(&change.key, id, definition));
            document.fields.insert(id, ModelField { value, expires_at: None });
        }
        for field_change in &change.fields {
            let Some(field) = definition.field_by_id(field_change.field) else { continue };
            let expires_at = field_change.ttl_us.or(field.ttl_us).map(after);
            match operate(document.value(field.id).cloned(), &field_change.op, field.field_type) {
                ModelStep::Holds(value) => {
                    document.fields.insert(field.id, ModelField { value, expires_at });
                }
                ModelStep::Gone => {
                    document.fields.remove(&field.id);
                }
                ModelStep::Stays => {
                    if let Some(present) = document.fields.get_mut(&field.id) {
                        present.expires_at = expires_at;
                    }
                }
            }
        }
        Some(document)
    }
}

/// The effect of one operation on one field.
enum ModelStep {
    Holds(Option<Value>),
    Gone,
    Stays,
}

fn operate(present: Option<Value>, op: &FieldOp, field_type: FieldType) -> ModelStep {
    let wide = |value: &Value| widen(value.clone(), field_type);
    let list = |present: Option<Value>| match present {
        Some(Value::List(_, items)) => items,
        _ => Vec::new(),
    };
    let holds_list = |items: Vec<Value>| {
        let FieldType::List(scalar) = field_type else { unreachable!("checked: a list field") };
        ModelStep::Holds(Some(Value::List(scalar, items)))
    };
    let last = |items: Vec<Value>, bound: u32| {
        let newest_first = items.into_iter().rev().take(bound as usize);
        newest_first.collect::<Vec<_>>().into_iter().rev().collect()
    };
    match op {
        FieldOp::Set(value) => ModelStep::Holds(value.as_ref().map(wide)),
        FieldOp::Remove => ModelStep::Gone,
        FieldOp::Increment(increment) => ModelStep::Holds(Some(match present {
            Some(present) => sum(&present, &wide(increment)),
            None => wide(increment),
        })),
        FieldOp::Min(value) => better(present, wide(value), Ordering::Less),
        FieldOp::Max(value) => better(present, wide(value), Ordering::Greater),
        FieldOp::ListAppend { items, bound } => {
            let mut all = list(present);
            all.extend(items.iter().cloned());
            holds_list(last(all, *bound))
        }
        FieldOp::SetAdd { items, bound } => {
            let mut all = list(present);
            for item in items {
                if all.iter().all(|component| bytes(component) != bytes(item)) {
                    all.push(item.clone());
                }
            }
            holds_list(last(all, *bound))
        }
        FieldOp::SetRemove { items } if present.is_some() => {
            let mut all = list(present);
            all.retain(|component| items.iter().all(|item| bytes(component) != bytes(item)));
            holds_list(all)
        }
        FieldOp::SetRemove { .. } => ModelStep::Stays,
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(value, &mut bytes);
    bytes
}

/// Returns the canonical NaN, regardless of the processor's.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(0x7ff8 << 48) } else { value }
}

fn widen(value: Value, field_type: FieldType) -> Value {
    let FieldType::Scalar(scalar_type) = field_type else { return value };
    match (&value, scalar_type) {
        (Value::Int32(v), ScalarType::Int64) => Value::Int64(i64::from(*v)),
        (Value::Int32(v), ScalarType::Float64) => Value::Float64(f64::from(*v)),
        (Value::Float32(v), ScalarType::Float64) => Value::Float64(one_nan(f64::from(*v))),
        _ => value,
    }
}

fn sum(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Int32(a), Value::Int32(b)) => {
            let sum = i64::from(*a) + i64::from(*b);
            Value::Int32(sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
        }
        (Value::Int64(a), Value::Int64(b)) => {
            let sum = i128::from(*a) + i128::from(*b);
            Value::Int64(sum.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
        }
        (Value::Float32(a), Value::Float32(b)) if (a + b).is_nan() => {
            Value::Float32(f32::from_bits(0x7fc0 << 16))
        }
        (Value::Float32(a), Value::Float32(b)) => Value::Float32(a + b),
        (Value::Float64(a), Value::Float64(b)) => Value::Float64(one_nan(a + b)),
        _ => unreachable!("checked: two numbers of one type"),
    }
}

fn is_nan(value: &Value) -> bool {
    matches!(value, Value::Float32(v) if v.is_nan())
        || matches!(value, Value::Float64(v) if v.is_nan())
}

/// Compares `a` with `b`; NaN is below everything.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        _ if is_nan(a) || is_nan(b) => is_nan(b).cmp(&is_nan(a)),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Float32(a), Value::Float32(b)) => a.partial_cmp(b).expect("not NaN"),
        (Value::Float64(a), Value::Float64(b)) => a.partial_cmp(b).expect("not NaN"),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => unreachable!("checked: two scalars of one type"),
    }
}

fn better(present: Option<Value>, value: Value, ordering: Ordering) -> ModelStep {
    let wins = match &present {
        _ if is_nan(&value) => false,
        Some(value_before) if !is_nan(value_before) => order(&value, value_before) == ordering,
        _ => true,
    };
    if wins { ModelStep::Holds(Some(value)) } else { ModelStep::Stays }
}

fn condition_holds(
    present: Option<&ModelDocument>,
    change: &Change,
    definition: &Definition,
) -> bool {
    match change.condition {
        None => true,
        Some(Condition::IfAbsent) => present.is_none(),
        Some(Condition::IfVersion(version)) => {
            present.is_some_and(|document| document.version == Some(version))
        }
        Some(Condition::IfNewer(id)) => {
            let Some(field) = definition.field_by_id(id) else { return false };
            let set = change.fields.iter().find(|field_change| field_change.field == id);
            let Some(FieldOp::Set(Some(value))) = set.map(|field_change| &field_change.op) else {
                return false;
            };
            let value = widen(value.clone(), field.field_type);
            match present.and_then(|document| document.value(id)) {
                None => !is_nan(&value),
                Some(value_before) => order(&value, value_before) == Ordering::Greater,
            }
        }
    }
}

fn partition_key_value(key: &Key, id: FieldId, definition: &Definition) -> Value {
    let key_parts = Key::split(key.as_bytes(), true).expect("checked: it has a partition key");
    let bytes = key_parts.0.expect("checked: it has a partition key");
    let field = definition.field_by_id(id).expect("a partition key is never dropped");
    match field.field_type {
        FieldType::INT64 => {
            Value::Int64(i64::from_le_bytes(bytes.try_into().expect("checked: 8 bytes")))
        }
        FieldType::STRING => {
            Value::String(std::str::from_utf8(bytes).expect("checked: UTF-8").to_owned())
        }
        _ => Value::Bytes(bytes.to_vec()),
    }
}
