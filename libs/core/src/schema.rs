//! A store's definition: its fields by id, its options, and which alterations keep data readable.
//!
//! A definition is complete, never a delta: whoever holds version N needs no earlier one to write.
//! A field is an id that is never used again; names are only how people find ids.

mod check;
mod stream;

use std::collections::BTreeSet;

use self::check::check_field_id;
pub use self::check::check_name;
pub(crate) use self::check::check_ttl;
pub use self::stream::{ColumnIndex, ColumnRules, Stream, StreamSpec};
use crate::error::{Error, Result};
use crate::fit::fit;
use crate::id::{
    DocumentVersion, FieldId, Offset, PartitionCount, Position, SchemaVersion, StoreId,
};
use crate::key::KeyType;
use crate::value::{FieldType, ScalarType, Value};
use crate::versions::{StoreLogs, StoreVersions, VersionNumber};

/// Where a document version has how often the documents have moved to other logs.
const MOVES_SHIFT: u32 = 56;
/// Name of the one field of a key-value store.
pub const KEY_VALUE_FIELD: &str = "value";

/// One field of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its lasting id.
    pub id: FieldId,
    /// Its current name.
    pub name: String,
    /// Earlier names, which go on working until the field is dropped.
    pub aliases: Vec<String>,
    /// Its type.
    pub field_type: FieldType,
    /// What a gather writes for absent or null, where the call itself gives no default.
    pub default: Option<Value>,
    /// Time to live of each write that carries none, in microseconds.
    pub ttl_us: Option<i64>,
    /// What a stream does with it.
    pub rules: ColumnRules,
}

/// What a store does beside holding fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Time to live of documents whose put carries none, in microseconds.
    pub ttl_us: Option<i64>,
    /// Keeps each document's version, which `if-version` needs.
    pub versioned: bool,
    /// Silence after which the partition's replicator appends a heartbeat, in milliseconds.
    pub heartbeat_ms: u32,
    /// How much of its logs is kept behind the newest verified snapshot, in microseconds; what is
    /// older is trimmed. `None` keeps all. Of a stream, which has no snapshots, it is how long its
    /// events are retained.
    pub log_window_us: Option<i64>,
    /// How many bytes of events each partition of a stream retains, about; older ones go. `None`
    /// bounds nothing, and is all that a store of documents has.
    pub log_bytes: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            ttl_us: None,
            versioned: false,
            heartbeat_ms: 1_000,
            log_window_us: None,
            log_bytes: None,
        }
    }
}

/// A field as its creator asks for it; the id comes from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSpec {
    /// Its name.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
    /// What a gather writes for absent or null.
    pub default: Option<Value>,
    /// Time to live of each write that carries none, in microseconds.
    pub ttl_us: Option<i64>,
    /// What a stream does with it.
    pub rules: ColumnRules,
}

impl FieldSpec {
    /// A field without default, time to live and rules.
    pub fn new(name: impl Into<String>, field_type: FieldType) -> Self {
        let rules = ColumnRules::default();
        Self { name: name.into(), field_type, default: None, ttl_us: None, rules }
    }
}

/// A store as its creator asks for it.
///
/// ```
/// use forebay_core::key::KeyType;
/// use forebay_core::schema::StoreSpec;
/// use forebay_core::value::{FieldType, ScalarType};
/// let spec = StoreSpec::documents("users", KeyType::String, 8)
///     .field("age", FieldType::Scalar(ScalarType::Int32));
/// let definition = spec.define(forebay_core::id::StoreId(1))?;
/// assert_eq!(definition.field("age").unwrap().id.0, 1);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSpec {
    /// Its name.
    pub name: String,
    /// Type of its primary key.
    pub key_type: KeyType,
    /// Name of the field that partitions it, if not the primary key.
    pub partition_key: Option<String>,
    /// Number of partitions.
    pub partitions: u32,
    /// Its fields.
    pub fields: Vec<FieldSpec>,
    /// Its options.
    pub options: StoreOptions,
    /// Whether it is a key-value store: one bytes field named `value`.
    pub key_value: bool,
    /// What makes it a stream of events, if it is one.
    pub stream: Option<StreamSpec>,
}

impl StoreSpec {
    /// A document store without fields yet.
    pub fn documents(name: impl Into<String>, key_type: KeyType, partitions: u32) -> Self {
        Self {
            name: name.into(),
            key_type,
            partition_key: None,
            partitions,
            fields: Vec::new(),
            options: StoreOptions::default(),
            key_value: false,
            stream: None,
        }
    }

    /// A key-value store: documents with one bytes field named `value`.
    pub fn key_value(name: impl Into<String>, key_type: KeyType, partitions: u32) -> Self {
        let bytes = FieldType::Scalar(ScalarType::Bytes);
        let mut spec = Self::documents(name, key_type, partitions).field(KEY_VALUE_FIELD, bytes);
        spec.key_value = true;
        spec
    }

    /// A stream of events without columns yet. An event's key says which partition it goes to; any
    /// number of events have one key.
    pub fn stream(name: impl Into<String>, key_type: KeyType, partitions: u32) -> Self {
        let stream = Some(StreamSpec::default());
        Self { stream, ..Self::documents(name, key_type, partitions) }
    }

    /// The same store with one more field.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, field_type: FieldType) -> Self {
        self.fields.push(FieldSpec::new(name, field_type));
        self
    }

    /// The first definition of the store.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded`, naming the field or option that cannot be.
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
        let value = [FieldSpec::new(KEY_VALUE_FIELD, FieldType::Scalar(ScalarType::Bytes))];
        let implied = self.key_value && self.fields.is_empty();
        for field in if implied { &value[..] } else { &self.fields } {
            definition.add_field(field)?;
        }
        if let Some(name) = &self.partition_key {
            let field = definition.field(name).ok_or_else(|| {
                Error::invalid_argument("declare the partition key among the fields")
                    .with_field(name)
            })?;
            definition.partition_key = Some(field.id);
        }
        definition.stream = self.stream.as_ref().map(|it| it.define(&definition)).transpose()?;
        definition.check()?;
        Ok(definition)
    }
}

/// One alteration of a definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Alteration {
    /// Adds a field under a new id.
    AddField(FieldSpec),
    /// Retires a field's id.
    DropField(String),
    /// Retires the ids of all fields whose current name starts so.
    DropFieldsByPrefix(String),
    /// Gives a field another name; the old one stays an alias.
    RenameField {
        /// Current name.
        from: String,
        /// New name.
        to: String,
    },
    /// Gives a field a wider type.
    WidenField {
        /// Its name.
        name: String,
        /// The wider type.
        to: FieldType,
    },
    /// Replaces what a stream does with a column.
    SetRules {
        /// The column's name.
        name: String,
        /// What it does from now on.
        rules: ColumnRules,
    },
    /// Deletes every document of the store.
    DropAll,
    /// Replaces the options.
    SetOptions(StoreOptions),
}

/// Everything that is needed to write to and read from a store, at one version.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The store's lasting id.
    pub store: StoreId,
    /// Its name.
    pub name: String,
    /// Version of this definition, from 1.
    pub version: SchemaVersion,
    /// Type of its primary key.
    pub key_type: KeyType,
    /// The field that partitions it, if not the primary key.
    pub partition_key: Option<FieldId>,
    /// Number of partitions of the version of the documents that is kept under the store's id; the
    /// first one's, where the store itself is meant. Writes go to those of [`Definition::written`].
    pub partitions: PartitionCount,
    /// Live fields, by ascending id.
    pub fields: Vec<Field>,
    /// Ids of dropped fields; never used again.
    pub retired: BTreeSet<FieldId>,
    /// The id that the next field gets.
    pub next_field_id: FieldId,
    /// How often all documents were dropped; a partition that sees it grow drops its documents.
    pub drop_all_count: u32,
    /// Its options.
    pub options: StoreOptions,
    /// Whether it is a key-value store.
    pub key_value: bool,
    /// What makes it a stream of events, if it is one.
    pub stream: Option<Stream>,
    /// The versions of its documents.
    pub versions: StoreVersions,
}

impl Definition {
    /// The live field with this name or alias; a current name wins over an alias.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name).or_else(|| {
            self.fields.iter().find(|field| field.aliases.iter().any(|alias| alias == name))
        })
    }

    /// The live field with this id.
    pub fn field_by_id(&self, id: FieldId) -> Option<&Field> {
        let place = self.fields.binary_search_by_key(&id, |field| field.id).ok()?;
        self.fields.get(place)
    }

    /// Type of its partition key, if it declares one.
    pub fn partition_key_type(&self) -> Option<KeyType> {
        let field = self.field_by_id(self.partition_key?)?;
        Some(match field.field_type {
            FieldType::Scalar(ScalarType::String) => KeyType::String,
            FieldType::Scalar(ScalarType::Int64) => KeyType::Int64,
            // Checked to be one of the three.
            _ => KeyType::Bytes,
        })
    }

    /// The next one, with one more version of the documents: kept under this id, of pushes that
    /// hold what the logs do before these offsets. It is not live yet.
    ///
    /// # Errors
    /// `LimitExceeded` beside too many, or beyond the number of schema versions.
    pub fn with_version(&self, kept_as: StoreId, began: Vec<Offset>) -> Result<Self> {
        self.revised(|versions| versions.add(kept_as, began).map(drop))
    }

    /// The next one, with another version of the documents live.
    ///
    /// # Errors
    /// `NotFound` for one that is not there; `LimitExceeded` beyond the number of schema versions.
    pub fn with_live(&self, number: VersionNumber) -> Result<Self> {
        self.revised(|versions| versions.make_live(number))
    }

    /// The next one, without a version of the documents.
    ///
    /// # Errors
    /// `NotFound` for one that is not there, `InvalidArgument` for the live one; `LimitExceeded`
    /// beyond the number of schema versions.
    pub fn without_version(&self, number: VersionNumber) -> Result<Self> {
        self.revised(|versions| versions.remove(number))
    }

    /// The next one, with one more version of the documents, that has another number of partitions:
    /// kept under this id, which its logs have too. What the logs that writes are for hold from
    /// these offsets on is carried there. It is not live yet.
    ///
    /// # Errors
    /// `LimitExceeded` beside too many, or beyond the number of schema versions; `Conflict` where
    /// the documents move already, or have moved a short time ago.
    pub fn with_moved_version(
        &self,
        kept_as: StoreId,
        partitions: PartitionCount,
        began: Vec<Offset>,
    ) -> Result<Self> {
        self.revised(|versions| versions.add_moved(kept_as, partitions, began).map(drop))
    }

    /// The next one, with writes for the logs of this version, held until it is live.
    ///
    /// # Errors
    /// `NotFound` for one that is not there; `LimitExceeded` beyond the number of schema versions.
    pub fn with_writes_to(&self, number: VersionNumber) -> Result<Self> {
        self.revised(|versions| versions.write_to(number))
    }

    /// The next one, with nothing more carried to the logs of this version.
    ///
    /// # Errors
    /// `NotFound` for one that is not there; `LimitExceeded` beyond the number of schema versions.
    pub fn with_carrying_ended(&self, number: VersionNumber) -> Result<Self> {
        self.revised(|versions| versions.end_carrying(number))
    }

    /// The logs that writes are for.
    pub fn written(&self) -> StoreLogs {
        self.versions.written()
    }

    /// The logs that the version of the documents follows which is kept under the store's id.
    pub fn logs(&self) -> StoreLogs {
        let own = self.versions.kept_as(self.store).map(|version| version.logs);
        own.unwrap_or_else(|| match self.store == self.versions.home() {
            true => StoreLogs::first(self.store, self.partitions),
            false => self.written(),
        })
    }

    /// The document version that a change at this position of its logs gives: above all that were
    /// given before the documents moved to these.
    pub fn document_version(&self, at: Position) -> DocumentVersion {
        let moves = u64::from(self.logs().moves);
        DocumentVersion(at.document_version().0 | moves << MOVES_SHIFT)
    }

    fn revised(&self, revise: impl FnOnce(&mut StoreVersions) -> Result<()>) -> Result<Self> {
        let mut next = self.clone();
        next.version = SchemaVersion(self.version.0.saturating_add(1));
        revise(&mut next.versions).map_err(|error| error.with_store(&self.name))?;
        next.check()?;
        Ok(next)
    }

    /// The next version, with these alterations.
    ///
    /// # Errors
    /// `NotFound` for a field that does not exist, `InvalidArgument` with the reason for an
    /// incompatible alteration, `LimitExceeded` beyond the number of fields or versions.
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
        let fixed = "a key-value store has one field for ever; create a document store instead";
        let touches_fields = !matches!(alteration, Alteration::DropAll | Alteration::SetOptions(_));
        if self.key_value && touches_fields {
            return Err(Error::invalid_argument(fixed).with_store(&self.name));
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
                let rules = rules.clone().fitted(field_type);
                let rules = rules.map_err(|error| error.with_field(name))?;
                let column = self.fields.iter_mut().find(|field| field.id == id);
                column.into_iter().for_each(|column| column.rules = rules.clone());
                Ok(())
            }
            Alteration::DropAll if self.stream.is_some() => {
                let message = "events go by their retention; delete the stream, or wait";
                Err(Error::invalid_argument(message).with_store(&self.name))
            }
            Alteration::DropAll => {
                self.versions.check_rests().map_err(|error| error.with_store(&self.name))?;
                let advice = "the store used up its drop-alls; move it into a new store";
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
                "the field exists already"
            } else {
                "the name is an alias of a renamed field; drop that field first"
            };
            return Err(Error::invalid_argument(message).with_field(&spec.name));
        }
        let id = self.next_field_id;
        check_field_id(id).map_err(|error| error.with_field(&spec.name))?;
        let default = spec.default.clone().map(|value| fit(value, spec.field_type)).transpose();
        let default = default.map_err(|error| error.with_field(&spec.name))?;
        let rules = spec.rules.clone().fitted(spec.field_type);
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
        for (kept, what) in [(self.partition_key, "partition key"), (event_time, "event time")] {
            let field = self.fields.iter().find(|field| Some(field.id) == kept);
            if let Some(field) = field.filter(|field| drops(field)) {
                let message = format!("the {what} cannot be dropped; create another store");
                return Err(Error::invalid_argument(message).with_field(&field.name));
            }
        }
        let dropped = self.fields.iter().filter(|field| drops(field)).map(|field| field.id);
        self.retired.extend(dropped);
        self.fields.retain(|field| !drops(field));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let id = self.require(from)?.id;
        if self.field(to).is_some_and(|field| field.id != id) {
            return Err(Error::invalid_argument("another field has that name").with_field(to));
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
            let allowed = std::mem::take(&mut field.rules.allowed).into_iter();
            field.rules.allowed = allowed.map(|value| value.widened_to(to)).collect();
        }
        Ok(())
    }
}
