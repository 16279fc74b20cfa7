//! Field types and field values, and how one may widen into another.

use half::f16;

use crate::error::{Error, Result};
use crate::limits::{LIST_COMPONENTS_MAX, VALUE_BYTES_MAX, VECTOR_COMPONENTS_MAX};

/// A type that one component of a list, or a whole field, may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarType {
    /// True or false.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// 32-bit IEEE float.
    Float32,
    /// 64-bit IEEE float.
    Float64,
    /// UTF-8 text.
    String,
    /// Any bytes.
    Bytes,
    /// Microseconds since the Unix epoch.
    Timestamp,
}

impl ScalarType {
    /// Encoded bytes of a value, or `None` when its length varies.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int32 | Self::Float32 => Some(4),
            Self::Int64 | Self::Float64 | Self::Timestamp => Some(8),
            Self::String | Self::Bytes => None,
        }
    }

    /// The type's name in definitions and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
        }
    }
}

/// The component type of a fixed-length vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorType {
    /// 32-bit IEEE float.
    F32,
    /// 16-bit IEEE float.
    F16,
    /// 8-bit integer.
    I8,
}

impl VectorType {
    /// Bytes of one component.
    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::I8 => 1,
        }
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// One value.
    Scalar(ScalarType),
    /// Any number of values of one type, none of them null.
    List(ScalarType),
    /// A fixed number of numbers, for embeddings.
    Vector(VectorType, u16),
}

impl FieldType {
    /// Encoded bytes of a value, or `None` when its length varies.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Scalar(scalar) => scalar.width(),
            Self::List(_) => None,
            Self::Vector(component, length) => Some(component.width() * usize::from(length)),
        }
    }

    /// Whether every value of this type stays itself when it is read as `to`.
    pub fn widens_to(self, to: Self) -> bool {
        use ScalarType::{Float32, Float64, Int32, Int64};
        let (Self::Scalar(from), Self::Scalar(to)) = (self, to) else { return false };
        matches!((from, to), (Int32, Int64 | Float64) | (Float32, Float64))
    }
}

impl std::fmt::Display for FieldType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scalar(scalar) => f.write_str(scalar.name()),
            Self::List(scalar) => write!(f, "list<{}>", scalar.name()),
            Self::Vector(VectorType::F32, length) => write!(f, "f32[{length}]"),
            Self::Vector(VectorType::F16, length) => write!(f, "f16[{length}]"),
            Self::Vector(VectorType::I8, length) => write!(f, "i8[{length}]"),
        }
    }
}

/// One value of a field. Null and absent are states of a field, not values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A bool.
    Bool(bool),
    /// An int32.
    Int32(i32),
    /// An int64.
    Int64(i64),
    /// A float32.
    Float32(f32),
    /// A float64.
    Float64(f64),
    /// A string.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A timestamp, in microseconds since the Unix epoch.
    Timestamp(i64),
    /// A list; the type is named, so that an empty list has one too.
    List(ScalarType, Vec<Value>),
    /// A vector of f32.
    VectorF32(Vec<f32>),
    /// A vector of f16.
    VectorF16(Vec<f16>),
    /// A vector of i8.
    VectorI8(Vec<i8>),
}

impl Value {
    /// The field type that holds this value exactly; `None` for a vector over the limit.
    pub fn field_type(&self) -> Option<FieldType> {
        let vector = |component, length: usize| {
            u16::try_from(length).ok().map(|length| FieldType::Vector(component, length))
        };
        let scalar = match self {
            Self::Bool(_) => ScalarType::Bool,
            Self::Int32(_) => ScalarType::Int32,
            Self::Int64(_) => ScalarType::Int64,
            Self::Float32(_) => ScalarType::Float32,
            Self::Float64(_) => ScalarType::Float64,
            Self::String(_) => ScalarType::String,
            Self::Bytes(_) => ScalarType::Bytes,
            Self::Timestamp(_) => ScalarType::Timestamp,
            Self::List(scalar, _) => return Some(FieldType::List(*scalar)),
            Self::VectorF32(items) => return vector(VectorType::F32, items.len()),
            Self::VectorF16(items) => return vector(VectorType::F16, items.len()),
            Self::VectorI8(items) => return vector(VectorType::I8, items.len()),
        };
        Some(FieldType::Scalar(scalar))
    }

    /// Refuses a value that is not of the field's type, or over a limit.
    pub fn check(&self, field_type: FieldType) -> Result<()> {
        if let Self::VectorF32(_) | Self::VectorF16(_) | Self::VectorI8(_) = self
            && self.field_type().is_none()
        {
            let limit = VECTOR_COMPONENTS_MAX as u64;
            return Err(Error::limit_exceeded("shorten the vector", limit, self.encoded_bytes()));
        }
        let found = self.field_type();
        if found != Some(field_type) {
            let found = found.map_or_else(|| "another type".to_owned(), |ty| ty.to_string());
            let message = format!("send a {field_type}, not a {found}");
            return Err(Error::invalid_argument(message));
        }
        if let Self::List(scalar, items) = self {
            check_list(*scalar, items)?;
        }
        let bytes = self.encoded_bytes();
        if bytes > VALUE_BYTES_MAX as u64 {
            return Err(Error::limit_exceeded(
                "split the value over several documents",
                VALUE_BYTES_MAX as u64,
                bytes,
            ));
        }
        Ok(())
    }

    /// Bytes that the value takes in a row.
    pub fn encoded_bytes(&self) -> u64 {
        match self {
            Self::String(text) => text.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(scalar, items) => match scalar.width() {
                Some(width) => (width * items.len()) as u64,
                None => items.iter().map(|item| 4 + item.encoded_bytes()).sum(),
            },
            Self::VectorF32(items) => 4 * items.len() as u64,
            Self::VectorF16(items) => 2 * items.len() as u64,
            Self::VectorI8(items) => items.len() as u64,
            Self::Bool(_) => 1,
            Self::Int32(_) | Self::Float32(_) => 4,
            Self::Int64(_) | Self::Float64(_) | Self::Timestamp(_) => 8,
        }
    }

    /// The value as the wider type says it; the value itself where the type does not widen to it.
    #[must_use]
    pub fn widened_to(self, to: FieldType) -> Self {
        match (self, to) {
            (Self::Int32(v), FieldType::Scalar(ScalarType::Int64)) => Self::Int64(v.into()),
            (Self::Int32(v), FieldType::Scalar(ScalarType::Float64)) => Self::Float64(v.into()),
            (Self::Float32(v), FieldType::Scalar(ScalarType::Float64)) => Self::Float64(v.into()),
            (value, _) => value,
        }
    }
}

fn check_list(scalar: ScalarType, items: &[Value]) -> Result<()> {
    if items.len() > LIST_COMPONENTS_MAX {
        let advice = "shorten the list, or spread it over several documents";
        return Err(Error::limit_exceeded(advice, LIST_COMPONENTS_MAX as u64, items.len() as u64));
    }
    let odd = items.iter().find(|item| item.field_type() != Some(FieldType::Scalar(scalar)));
    match odd {
        None => Ok(()),
        Some(_) => Err(Error::invalid_argument(format!(
            "every component of the list must be a {}",
            scalar.name()
        ))),
    }
}
