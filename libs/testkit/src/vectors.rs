//! Golden vectors of `proto/vectors` that core writes: partitioning and rows, to JSON and back.
//!
//! 64-bit integers are decimal strings and floats are the hex of their bits, so that no JSON
//! library of any language rounds them.

use std::path::PathBuf;

use forebay_core::clock::Timestamp;
use forebay_core::id::{DocumentVersion, FieldId, PartitionCount, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::row::{Document, FieldCell};
use forebay_core::schema::{ColumnRules, Definition, Field, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::view::AggregateKind;
use half::f16;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::tree;

/// The content of `partitioning.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartitioningVectors {
    /// Path of the specification of the bytes.
    pub spec: String,
    /// Content of the file and instructions to read it.
    pub description: String,
    /// Partition counts of the `partitions` below.
    pub counts: Vec<u32>,
    /// Keys of stores that are partitioned by their primary key.
    pub keys: Vec<KeyVector>,
    /// Keys of stores that declare a partition key.
    pub identities: Vec<IdentityVector>,
}

/// A key, its hash and its partitions.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeyVector {
    /// Special property of the key.
    pub name: String,
    /// `string`, `bytes` or `int64`.
    pub key_type: String,
    /// The key as a caller gives it: text for a string, decimal digits for an int64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Bytes of the key, in hex, once.
    pub key_hex: String,
    /// Number of repetitions of these bytes.
    pub repeat: usize,
    /// xxh3_64 of the bytes, in hex.
    pub hash_hex: String,
    /// Partition of the key at each count.
    pub partitions: Vec<u32>,
}

/// A key with a declared partition key.
#[derive(Debug, Serialize, Deserialize)]
pub struct IdentityVector {
    /// Special property of the key.
    pub name: String,
    /// Bytes of the partition key, in hex.
    pub partition_key_hex: String,
    /// Bytes of the primary key, in hex.
    pub primary_key_hex: String,
    /// The document's identity bytes, in hex.
    pub identity_hex: String,
    /// xxh3_64 of the partition key's bytes, in hex.
    pub hash_hex: String,
    /// Partition of the key at each count.
    pub partitions: Vec<u32>,
}

/// The content of `shard.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardVectors {
    /// Path of the specification of the bytes.
    pub spec: String,
    /// Content of the file and instructions to read it.
    pub description: String,
    /// Keys of documents as a shard stores them; keys of the same types in the shard's order.
    pub keys: Vec<ShardKeyVector>,
    /// Rows of a shard's state.
    pub state: Vec<ShardRowVector>,
}

/// The key of a document in a shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardKeyVector {
    /// Special property of the key.
    pub name: String,
    /// Type of the store's primary key.
    pub key_type: String,
    /// Type of the store's partition key, if it declares one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key_type: Option<String>,
    /// The document's identity bytes, in hex.
    pub identity_hex: String,
    /// The key that the shard stores, in hex.
    pub stored_hex: String,
}

/// A row of a shard's state.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardRowVector {
    /// Meaning of the row.
    pub name: String,
    /// Key of the row, in hex.
    pub key_hex: String,
    /// Value of the row, in hex.
    pub row_hex: String,
}

/// The content of `row.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowVectors {
    /// Path of the specification of the bytes.
    pub spec: String,
    /// Content of the file and instructions to read it.
    pub description: String,
    /// Definitions that the rows below name.
    pub definitions: Vec<DefinitionVector>,
    /// Documents and the only bytes that they encode to.
    pub rows: Vec<RowVector>,
    /// Bytes that are no row, and their error.
    pub refused: Vec<RefusedVector>,
}

/// The part of a definition that a row needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct DefinitionVector {
    /// Name of the definition in this file.
    pub name: String,
    /// Schema version of the definition.
    pub version: u32,
    /// Fields of the definition, by ascending id.
    pub fields: Vec<FieldVector>,
}

/// A field of a definition.
#[derive(Debug, Serialize, Deserialize)]
pub struct FieldVector {
    /// Id of the field.
    pub id: u32,
    /// Name of the field.
    pub name: String,
    /// Type of the field, as a definition prints it: `int32`, `list<string>`, `f16[3]`.
    #[serde(rename = "type")]
    pub field_type: String,
}

/// A document and its row.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowVector {
    /// Special property of the document.
    pub name: String,
    /// Name of the definition.
    pub definition: String,
    /// The document.
    pub document: DocumentVector,
    /// Row of the document, in hex.
    pub row_hex: String,
}

/// Bytes that are refused.
#[derive(Debug, Serialize, Deserialize)]
pub struct RefusedVector {
    /// Defect of the bytes.
    pub name: String,
    /// Name of the definition.
    pub definition: String,
    /// The bytes, in hex.
    pub row_hex: String,
    /// Name of the error code.
    pub code: String,
}

/// A document.
#[derive(Debug, Serialize, Deserialize)]
pub struct DocumentVector {
    /// Time at which the document expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_us: Option<String>,
    /// Version of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Present fields, by ascending id; absent fields are left out.
    pub fields: Vec<CellVector>,
}

/// A field of a document.
#[derive(Debug, Serialize, Deserialize)]
pub struct CellVector {
    /// Id of the field.
    pub id: u32,
    /// Value of the field, or null.
    pub value: Option<ValueVector>,
    /// Time at which the field expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_us: Option<String>,
}

/// A value, under the name of its type.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it: type, then how it is written")]
pub enum ValueVector {
    Bool(bool),
    Int32(i32),
    Int64(String),
    Float32Bits(String),
    Float64Bits(String),
    String(String),
    BytesHex(String),
    TimestampUs(String),
    List { component: String, items: Vec<ValueVector> },
    VectorF32Bits(Vec<String>),
    VectorF16Bits(Vec<String>),
    VectorI8(Vec<i8>),
}

/// Returns the path of a file of `proto/vectors`, which may not exist yet.
///
/// # Panics
/// Panics outside the repository, and under Bazel without the file.
pub fn path(name: &str) -> PathBuf {
    tree::find("proto/vectors").unwrap_or_else(|problem| panic!("{problem}")).join(name)
}

/// Reads a file of `proto/vectors`.
///
/// # Panics
/// Panics if the file is missing or has another structure.
pub fn read<T: DeserializeOwned>(name: &str) -> T {
    let fix = "write it with UPDATE_VECTORS=1 and the test that makes it";
    let text = std::fs::read_to_string(path(name))
        .unwrap_or_else(|error| panic!("{name} is missing ({error}); {fix}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}; {fix}"))
}

/// Compares a file of `proto/vectors` with its generator's output, byte for byte. With
/// `UPDATE_VECTORS=1` in the environment, writes the file first.
///
/// # Panics
/// Panics if they differ.
pub fn check<T: Serialize>(name: &str, vectors: &T, command: &str) {
    let text = serde_json::to_string_pretty(vectors).expect("vectors are plain data") + "\n";
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(path(name), &text).unwrap_or_else(|error| panic!("write {name}: {error}"));
    }
    let stored_text = std::fs::read_to_string(path(name)).unwrap_or_default();
    let fix = format!("if the bytes were meant to change, run: UPDATE_VECTORS=1 {command}");
    assert!(stored_text == text, "{name} differs from what this build makes; {fix}");
}

/// Returns the name of a kind of aggregate in the vectors. The vectors do not change, so they have
/// the first words of declarations for some kinds.
pub fn aggregate_name(kind: &AggregateKind) -> &'static str {
    match kind {
        AggregateKind::LastN { .. } => "last_n",
        AggregateKind::ApproxCountDistinct { .. } => "distinct_count",
        AggregateKind::ApproxQuantile { .. } => "quantiles",
        other => other.name(),
    }
}

impl DefinitionVector {
    /// Converts a definition to its vector.
    pub fn of(name: &str, definition: &Definition) -> Self {
        let field = |field: &Field| FieldVector {
            id: field.id.0,
            name: field.name.clone(),
            field_type: field.field_type.to_string(),
        };
        let fields = definition.fields.iter().map(field).collect();
        Self { name: name.to_owned(), version: definition.version.0, fields }
    }

    /// Returns an equal definition.
    ///
    /// # Panics
    /// Panics if the vector is invalid.
    pub fn definition(&self) -> Definition {
        let spec = StoreSpec::documents(&self.name, KeyType::Bytes).partitions(1);
        let mut definition = spec.define(StoreId(1)).expect("an empty store");
        definition.version = SchemaVersion(self.version);
        definition.partitions = PartitionCount(1);
        definition.fields = self.fields.iter().map(FieldVector::field).collect();
        let last = self.fields.last().map_or(0, |field| field.id);
        definition.next_field_id = FieldId(last + 1);
        definition.check().expect("a definition");
        definition
    }
}

impl FieldVector {
    fn field(&self) -> Field {
        Field {
            id: FieldId(self.id),
            name: self.name.clone(),
            aliases: Vec::new(),
            field_type: field_type(&self.field_type),
            default: None,
            ttl_us: None,
            rules: ColumnRules::default(),
        }
    }
}

fn scalar_type(name: &str) -> ScalarType {
    let scalar_type = crate::random::SCALAR_TYPES.into_iter().find(|scalar| scalar.name() == name);
    scalar_type.unwrap_or_else(|| panic!("no scalar type: {name}"))
}

fn field_type(name: &str) -> FieldType {
    if let Some(scalar) = name.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
        return FieldType::List(scalar_type(scalar));
    }
    let Some((component, length)) = name.strip_suffix(']').and_then(|rest| rest.split_once('['))
    else {
        return FieldType::Scalar(scalar_type(name));
    };
    let component = match component {
        "f32" => VectorType::F32,
        "f16" => VectorType::F16,
        "i8" => VectorType::I8,
        other => panic!("no vector type: {other}"),
    };
    FieldType::Vector(component, length.parse().expect("a length"))
}

fn micros(at: &str) -> Timestamp {
    Timestamp::from_micros(at.parse().expect("decimal microseconds"))
}

fn micros_text(at: Timestamp) -> String {
    at.as_micros().to_string()
}

impl DocumentVector {
    /// Converts a document to its vector.
    pub fn of(document: &Document) -> Self {
        let cell = |cell: &FieldCell| CellVector {
            id: cell.field.0,
            value: cell.value.as_ref().map(ValueVector::of),
            expires_at_us: cell.expires_at.map(micros_text),
        };
        Self {
            expires_at_us: document.expires_at.map(micros_text),
            version: document.version.map(|version| version.0.to_string()),
            fields: document.cells().iter().map(cell).collect(),
        }
    }

    /// Returns the document.
    ///
    /// # Panics
    /// Panics if a number is invalid.
    pub fn document(&self) -> Document {
        let version = self.version.as_ref().map(|version| version.parse().expect("a version"));
        let expires_at = self.expires_at_us.as_deref().map(micros);
        let mut document = Document::new(expires_at, version.map(DocumentVersion));
        for cell in &self.fields {
            let value = cell.value.as_ref().map(ValueVector::value);
            document.set(FieldId(cell.id), value, cell.expires_at_us.as_deref().map(micros));
        }
        document
    }
}

impl ValueVector {
    fn of(value: &Value) -> Self {
        match value {
            Value::Bool(v) => Self::Bool(*v),
            Value::Int32(v) => Self::Int32(*v),
            Value::Int64(v) => Self::Int64(v.to_string()),
            Value::Float32(v) => Self::Float32Bits(format!("{:08x}", v.to_bits())),
            Value::Float64(v) => Self::Float64Bits(format!("{:016x}", v.to_bits())),
            Value::String(v) => Self::String(v.clone()),
            Value::Bytes(v) => Self::BytesHex(hex::encode(v)),
            Value::Timestamp(v) => Self::TimestampUs(v.to_string()),
            Value::List(scalar, items) => Self::List {
                component: scalar.name().to_owned(),
                items: items.iter().map(Self::of).collect(),
            },
            Value::VectorF32(v) => {
                Self::VectorF32Bits(v.iter().map(|v| format!("{:08x}", v.to_bits())).collect())
            }
            Value::VectorF16(v) => {
                Self::VectorF16Bits(v.iter().map(|v| format!("{:04x}", v.to_bits())).collect())
            }
            Value::VectorI8(v) => Self::VectorI8(v.clone()),
        }
    }

    fn value(&self) -> Value {
        let bits32 = |hex: &String| u32::from_str_radix(hex, 16).expect("8 hex digits");
        let bits16 = |hex: &String| u16::from_str_radix(hex, 16).expect("4 hex digits");
        match self {
            Self::Bool(v) => Value::Bool(*v),
            Self::Int32(v) => Value::Int32(*v),
            Self::Int64(v) => Value::Int64(v.parse().expect("an int64")),
            Self::Float32Bits(v) => Value::Float32(f32::from_bits(bits32(v))),
            Self::Float64Bits(v) => {
                let bits = u64::from_str_radix(v, 16).expect("16 hex digits");
                Value::Float64(f64::from_bits(bits))
            }
            Self::String(v) => Value::String(v.clone()),
            Self::BytesHex(v) => Value::Bytes(hex::decode(v).unwrap()),
            Self::TimestampUs(v) => Value::Timestamp(v.parse().expect("a timestamp")),
            Self::List { component, items } => {
                Value::List(scalar_type(component), items.iter().map(Self::value).collect())
            }
            Self::VectorF32Bits(v) => {
                Value::VectorF32(v.iter().map(|v| f32::from_bits(bits32(v))).collect())
            }
            Self::VectorF16Bits(v) => {
                Value::VectorF16(v.iter().map(|v| f16::from_bits(bits16(v))).collect())
            }
            Self::VectorI8(v) => Value::VectorI8(v.clone()),
        }
    }
}
