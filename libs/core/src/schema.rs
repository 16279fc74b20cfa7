//! Definition of a store: its fields by id, its options, and the alterations that keep data
//! readable.
//!
//! A definition is complete, never a delta: a process that has version N can write without any
//! earlier version. A field is identified by an id that is never used again; names only serve
//! people to find ids.

mod check;
mod stream;
mod stream_check;

use std::collections::BTreeSet;

use self::check::check_field_id;
pub use self::check::check_name;
pub(crate) use self::check::check_ttl;
pub use self::stream::{ColumnIndex, ColumnRules, Stream, StreamSpec};
use crate::coerce::coerce_value;
use crate::error::{Error, Result};
use crate::id::{
    DocumentVersion, FieldId, Offset, PartitionCount, Position, SchemaVersion, StoreId,
};
use crate::key::KeyType;
use crate::value::{FieldType, Value};
use crate::versions::{StoreLogs, StoreVersions, VersionNumber};

/// Bits of a document version below the count of repartitions.
const REPARTITION_COUNT_SHIFT: u32 = 56;
/// Number of partitions of a store whose specification sets none.
const PARTITIONS_DEFAULT: u32 = 8;
/// Name of the only field of a key-value store.
pub const KEY_VALUE_FIELD: &str = "value";

/// A field of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Permanent id.
    pub id: FieldId,
    /// Current name.
    pub name: String,
    /// Earlier names, which stay valid until the field is dropped.
    pub aliases: Vec<String>,
    /// Type of the field.
    pub field_type: FieldType,
    /// Value that a gather writes for absent or null, unless the call passes a default.
    pub default: Option<Value>,
    /// Time to live of each write without its own, in microseconds.
    pub ttl_us: Option<i64>,
    /// Rules that a stream applies to the column.
    pub rules: ColumnRules,
}

/// Options of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Time to live of documents whose put has none of its own, in microseconds.
    pub ttl_us: Option<i64>,
    /// Whether the store records each document's version, which `if-version` needs.
    pub versioned: bool,
    /// Silence after which the partition's replicator appends a heartbeat, in milliseconds.
    pub heartbeat_ms: u32,
    /// Retention of the logs before the newest verified snapshot, in microseconds; older entries
    /// are trimmed. `None` retains everything. A stream has no snapshots; for it this is the
    /// retention of its events.
    pub log_retention_us: Option<i64>,
    /// Approximate retention of each partition of a stream, in bytes of events; older events are
    /// dropped. `None` sets no limit, and is the only value for a document store.
    pub log_retention_bytes: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            ttl_us: None,
            versioned: false,
            heartbeat_ms: 1_000,
            log_retention_us: None,
            log_retention_bytes: None,
        }
    }
}

/// Field specification of a caller that creates it; the store assigns the id.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSpec {
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub field_type: FieldType,
    /// Value that a gather writes for absent or null.
    pub default: Option<Value>,
    /// Time to live of each write without its own, in microseconds.
    pub ttl_us: Option<i64>,
    /// Rules that a stream applies to the column.
    pub rules: ColumnRules,
}

impl FieldSpec {
    /// Creates a field without default, time to live and rules.
    pub fn new(name: impl Into<String>, field_type: FieldType) -> Self {
        let rules = ColumnRules::default();
        Self { name: name.into(), field_type, default: None, ttl_us: None, rules }
    }
}

/// Specification of a store that a caller creates.
///
/// ```
/// use forebay_core::key::KeyType;
/// use forebay_core::schema::StoreSpec;
/// use forebay_core::value::FieldType;
/// let spec = StoreSpec::documents("users", KeyType::String)
///     .partitions(8)
///     .field("age", FieldType::INT32);
/// let definition = spec.define(forebay_core::id::StoreId(1))?;
/// assert_eq!(definition.field("age").unwrap().id.0, 1);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSpec {
    /// Name of the store.
    pub name: String,
    /// Type of the primary key.
    pub key_type: KeyType,
    /// Name of the partition key's field, if it is not the primary key.
    pub partition_key: Option<String>,
    /// Number of partitions.
    pub partitions: u32,
    /// Fields of the store.
    pub fields: Vec<FieldSpec>,
    /// Options of the store.
    pub options: StoreOptions,
    /// Whether the store is a key-value store: one bytes field named `value`.
    pub key_value: bool,
    /// Stream specification, if the store is a stream of events.
    pub stream: Option<StreamSpec>,
}

impl StoreSpec {
    /// Creates the specification of a document store without fields, with 8 partitions.
    pub fn documents(name: impl Into<String>, key_type: KeyType) -> Self {
        Self {
            name: name.into(),
            key_type,
            partition_key: None,
            partitions: PARTITIONS_DEFAULT,
            fields: Vec::new(),
            options: StoreOptions::default(),
            key_value: false,
            stream: None,
        }
    }

    /// Creates the specification of a key-value store: documents with one bytes field named
    /// `value`, in 8 partitions.
    pub fn key_value(name: impl Into<String>, key_type: KeyType) -> Self {
        let bytes = FieldType::BYTES;
        let mut spec = Self::documents(name, key_type).field(KEY_VALUE_FIELD, bytes);
        spec.key_value = true;
        spec
    }

    /// Creates the specification of a stream of events without columns, with 8 partitions. An
    /// event's key selects its partition; any number of events share one key.
    pub fn stream(name: impl Into<String>, key_type: KeyType) -> Self {
        let stream = Some(StreamSpec::default());
        Self { stream, ..Self::documents(name, key_type) }
    }

    /// Sets the number of partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, field_type: FieldType) -> Self {
        self.fields.push(FieldSpec::new(name, field_type));
        self
    }

    /// Creates the first definition of the store.
    ///
    /// # Errors
    /// Returns `InvalidArgument` or `LimitExceeded`, naming the invalid field or option.
    pub fn define(&self, store: StoreId) -> Result<Definition> {
        let mut definition = Definition {
            store,
            name: self.name.clone(),
            version: SchemaVersion(1),
            key_type: self.key_type,
            partition_key: None,
            partitions: PartitionCount::new(self.partitions)?,
            fields: Vec::new(),
            retired: BTreeSet::new(),
            next_field_id: FieldId(1),
            drop_all_count: 0,
            options: self.options.clone(),
            key_value: self.key_value,
            stream: None,
            versions: StoreVersions::first(store, PartitionCount(self.partitions)),
        };
        let value = [FieldSpec::new(KEY_VALUE_FIELD, FieldType::BYTES)];
        let implied = self.key_value && self.fields.is_empty();
        for field in if implied { &value[..] } else { &self.fields } {
            definition.add_field(field)?;
        }
        if let Some(name) = &self.partition_key {
            let field = definition.field(name).ok_or_else(|| {
                Error::invalid_argument(
                    "the partition key is not among the fields; declare a field of that name",
                )
                .with_field(name)
            })?;
            definition.partition_key = Some(field.id);
        }
        definition.stream = self.stream.as_ref().map(|it| it.define(&definition)).transpose()?;
        definition.check()?;
        Ok(definition)
    }
}

/// An alteration of a definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Alteration {
    /// Adds a field under a new id.
    AddField(FieldSpec),
    /// Retires a field's id.
    DropField(String),
    /// Retires the ids of all fields whose current name starts with this prefix.
    DropFieldsByPrefix(String),
    /// Gives a field another name; the old name stays an alias.
    RenameField {
        /// Current name.
        from: String,
        /// New name.
        to: String,
    },
    /// Gives a field a wider type.
    WidenField {
        /// Name of the field.
        name: String,
        /// The wider type.
        to: FieldType,
    },
    /// Replaces the rules of a stream's column.
    SetRules {
        /// Name of the column.
        name: String,
        /// New rules.
        rules: ColumnRules,
    },
    /// Deletes every document of the store.
    DropAll,
    /// Replaces the options.
    SetOptions(StoreOptions),
}

/// Definition of a store at one version: everything that a write or a read needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Permanent id of the store.
    pub store: StoreId,
    /// Name of the store.
    pub name: String,
    /// Version of this definition, from 1.
    pub version: SchemaVersion,
    /// Type of the primary key.
    pub key_type: KeyType,
    /// Field of the partition key, if it is not the primary key.
    pub partition_key: Option<FieldId>,
    /// Partition count of the version whose storage id is the store's id; in the store's own
    /// definition, that of the first version. Writes go to the partitions of
    /// [`Definition::write_logs`].
    pub partitions: PartitionCount,
    /// Live fields, by ascending id.
    pub fields: Vec<Field>,
    /// Ids of dropped fields; never used again.
    pub retired: BTreeSet<FieldId>,
    /// Id of the next new field.
    pub next_field_id: FieldId,
    /// Number of drop-alls; a partition that sees it grow deletes its documents.
    pub drop_all_count: u32,
    /// Options of the store.
    pub options: StoreOptions,
    /// Whether the store is a key-value store.
    pub key_value: bool,
    /// Stream properties, if the store is a stream of events.
    pub stream: Option<Stream>,
    /// Versions of the store's documents.
    pub versions: StoreVersions,
}

impl Definition {
    /// Returns the live field with this name or alias; a current name wins over an alias.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name).or_else(|| {
            self.fields.iter().find(|field| field.aliases.iter().any(|alias| alias == name))
        })
    }

    /// Returns the live field with this id.
    pub fn field_by_id(&self, id: FieldId) -> Option<&Field> {
        let place = self.fields.binary_search_by_key(&id, |field| field.id).ok()?;
        self.fields.get(place)
    }

    /// Returns the type of the partition key, if the store declares one.
    pub fn partition_key_type(&self) -> Option<KeyType> {
        let field = self.field_by_id(self.partition_key?)?;
        Some(match field.field_type {
            FieldType::STRING => KeyType::String,
            FieldType::INT64 => KeyType::Int64,
            // `check` admits only these three types.
            _ => KeyType::Bytes,
        })
    }

    /// Returns the next definition, with one more version of the documents under this storage id.
    /// The version's push holds everything before these offsets of the logs. The version is not
    /// live yet.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if the store has too many versions, or used up its schema versions;
    /// `Conflict` during a repartition.
    pub fn with_version(&self, storage_id: StoreId, start_offsets: Vec<Offset>) -> Result<Self> {
        self.with_revision(|versions| versions.add(storage_id, start_offsets).map(drop))
    }

    /// Returns the next definition, with another version of the documents live.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version; `LimitExceeded` if the store used up its
    /// schema versions.
    pub fn with_live(&self, number: VersionNumber) -> Result<Self> {
        self.with_revision(|versions| versions.activate(number))
    }

    /// Returns the next definition, without a version of the documents.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version, `InvalidArgument` for the live one;
    /// `LimitExceeded` if the store used up its schema versions.
    pub fn without_version(&self, number: VersionNumber) -> Result<Self> {
        self.with_revision(|versions| versions.remove(number))
    }

    /// Returns the next definition, with one more version of the documents that has another
    /// partition count. The version has logs of its own; its storage id is also the id of these
    /// logs. Entries of the present write logs from these offsets on are forwarded there. The
    /// version is not live yet.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if the store has too many versions, or used up its schema versions;
    /// `Conflict` if the documents are being repartitioned, or were a short time ago.
    pub fn with_repartitioned_version(
        &self,
        storage_id: StoreId,
        partitions: PartitionCount,
        start_offsets: Vec<Offset>,
    ) -> Result<Self> {
        self.with_revision(|versions| {
            versions.add_repartitioned(storage_id, partitions, start_offsets).map(drop)
        })
    }

    /// Returns the next definition, which redirects writes to the logs of this version and pauses
    /// them until the version is live.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version; `LimitExceeded` if the store used up its
    /// schema versions.
    pub fn with_writes_to(&self, number: VersionNumber) -> Result<Self> {
        self.with_revision(|versions| versions.write_to(number))
    }

    /// Returns the next definition, which ends the forwarding to the logs of this version.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version; `LimitExceeded` if the store used up its
    /// schema versions.
    pub fn with_forwarding_ended(&self, number: VersionNumber) -> Result<Self> {
        self.with_revision(|versions| versions.end_forwarding(number))
    }

    /// Returns the logs to which writes go.
    pub fn write_logs(&self) -> StoreLogs {
        self.versions.write_logs()
    }

    /// Returns the logs of the version whose storage id is this definition's store id.
    pub fn logs(&self) -> StoreLogs {
        let logs = self.versions.by_storage_id(self.store).map(|version| version.logs);
        logs.unwrap_or_else(|| match self.store == self.versions.home() {
            true => StoreLogs::first(self.store, self.partitions),
            false => self.write_logs(),
        })
    }

    /// Returns the document version that a change at this position of the logs gives, which is
    /// above all document versions from before the repartition to these logs.
    pub fn document_version(&self, at: Position) -> DocumentVersion {
        let repartitions = u64::from(self.logs().repartition_count);
        DocumentVersion(at.document_version().0 | repartitions << REPARTITION_COUNT_SHIFT)
    }

    fn with_revision(&self, revise: impl FnOnce(&mut StoreVersions) -> Result<()>) -> Result<Self> {
        let mut next = self.clone();
        next.version = SchemaVersion(self.version.0.saturating_add(1));
        revise(&mut next.versions).map_err(|error| error.with_store(&self.name))?;
        next.check()?;
        Ok(next)
    }

    /// Returns the next version of the definition, with these alterations.
    ///
    /// # Errors
    /// Returns `NotFound` for a field that does not exist, `InvalidArgument` with the reason for an
    /// incompatible alteration, `LimitExceeded` if the store used up its fields or schema versions.
    pub fn altered(&self, alterations: &[Alteration]) -> Result<Self> {
        let mut next = self.clone();
        next.version = SchemaVersion(self.version.0.saturating_add(1));
        for alteration in alterations {
            next.alter(alteration)?;
        }
        next.check()?;
        Ok(next)
    }

    fn alter(&mut self, alteration: &Alteration) -> Result<()> {
        let message = "a key-value store has one fixed field; create a document store instead";
        let touches_fields = !matches!(alteration, Alteration::DropAll | Alteration::SetOptions(_));
        if self.key_value && touches_fields {
            return Err(Error::invalid_argument(message).with_store(&self.name));
        }
        match alteration {
            Alteration::AddField(field) => self.add_field(field),
            Alteration::DropField(name) => {
                let id = self.require(name)?.id;
                self.retire(|field| field.id == id)
            }
            Alteration::DropFieldsByPrefix(prefix) => {
                self.retire(|field| field.name.starts_with(prefix.as_str()))
            }
            Alteration::RenameField { from, to } => self.rename(from, to),
            Alteration::WidenField { name, to } => self.widen(name, *to),
            Alteration::SetRules { name, rules } => {
                let (id, field_type) = (self.require(name)?.id, self.require(name)?.field_type);
                let rules = rules.clone().coerce(field_type);
                let rules = rules.map_err(|error| error.with_field(name))?;
                let column = self.fields.iter_mut().find(|field| field.id == id);
                column.into_iter().for_each(|column| column.rules = rules.clone());
                Ok(())
            }
            Alteration::DropAll if self.stream.is_some() => {
                let message = "the events of a stream cannot be dropped; delete the stream, or \
                    wait for the retention";
                Err(Error::invalid_argument(message).with_store(&self.name))
            }
            Alteration::DropAll => {
                self.versions
                    .check_not_repartitioning()
                    .map_err(|error| error.with_store(&self.name))?;
                let advice =
                    "the store has used up its drop-alls; move the documents into a new store";
                let limit = u64::from(u32::MAX);
                self.drop_all_count = self
                    .drop_all_count
                    .checked_add(1)
                    .ok_or_else(|| Error::limit_exceeded(advice, limit, limit + 1))?;
                Ok(())
            }
            Alteration::SetOptions(options) => {
                self.options = options.clone();
                Ok(())
            }
        }
    }

    fn require(&self, name: &str) -> Result<&Field> {
        self.field(name).ok_or_else(|| {
            Error::not_found("no such field; describe the store for its fields")
                .with_store(&self.name)
                .with_field(name)
        })
    }

    fn add_field(&mut self, spec: &FieldSpec) -> Result<()> {
        check_name(&spec.name)?;
        if let Some(field) = self.field(&spec.name) {
            let message = if field.name == spec.name {
                "the field exists already; choose another name"
            } else {
                "the name is an alias of a renamed field; drop that field first"
            };
            return Err(Error::invalid_argument(message).with_field(&spec.name));
        }
        let id = self.next_field_id;
        check_field_id(id).map_err(|error| error.with_field(&spec.name))?;
        let default =
            spec.default.clone().map(|value| coerce_value(value, spec.field_type)).transpose();
        let default = default.map_err(|error| error.with_field(&spec.name))?;
        let rules = spec.rules.clone().coerce(spec.field_type);
        let rules = rules.map_err(|error| error.with_field(&spec.name))?;
        self.next_field_id = FieldId(id.0 + 1);
        self.fields.push(Field {
            id,
            name: spec.name.clone(),
            aliases: Vec::new(),
            field_type: spec.field_type,
            default,
            ttl_us: spec.ttl_us,
            rules,
        });
        Ok(())
    }

    fn retire(&mut self, drops: impl Fn(&Field) -> bool) -> Result<()> {
        let event_time = self.stream.as_ref().and_then(|stream| stream.event_time);
        for (id, role) in [(self.partition_key, "partition key"), (event_time, "event time")] {
            let field = self.fields.iter().find(|field| Some(field.id) == id);
            if let Some(field) = field.filter(|field| drops(field)) {
                let message =
                    format!("the {role} cannot be dropped; create another store without it");
                return Err(Error::invalid_argument(message).with_field(&field.name));
            }
        }
        let dropped_ids = self.fields.iter().filter(|field| drops(field)).map(|field| field.id);
        self.retired.extend(dropped_ids);
        self.fields.retain(|field| !drops(field));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let id = self.require(from)?.id;
        if self.field(to).is_some_and(|field| field.id != id) {
            return Err(Error::invalid_argument(
                "another field has that name; choose another name",
            )
            .with_field(to));
        }
        for field in self.fields.iter_mut().filter(|field| field.id == id && field.name != to) {
            field.aliases.retain(|alias| alias != to);
            field.aliases.push(std::mem::replace(&mut field.name, to.to_owned()));
        }
        Ok(())
    }

    fn widen(&mut self, name: &str, to: FieldType) -> Result<()> {
        let field = self.require(name)?;
        if !field.field_type.widens_to(to) {
            let message = format!(
                "{} does not widen to {to} (int32 widens to int64 or float64, float32 to float64); \
                 add another field instead",
                field.field_type
            );
            return Err(Error::invalid_argument(message).with_field(name));
        }
        let id = field.id;
        for field in self.fields.iter_mut().filter(|field| field.id == id) {
            field.field_type = to;
            field.default = field.default.take().map(|value| value.widened_to(to));
            let values = std::mem::take(&mut field.rules.allowed).into_iter();
            field.rules.allowed = values.map(|value| value.widened_to(to)).collect();
        }
        Ok(())
    }
}
