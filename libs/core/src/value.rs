//! Types of fields, values of fields, and the conversions of values to wider types.

use std::cmp::Ordering;

use half::f16;

use crate::error::{Error, Result};
use crate::limits::{LIST_COMPONENTS_MAX, VALUE_BYTES_MAX, VECTOR_COMPONENTS_MAX};

/// Type of a scalar field, or of one component of a list.
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
    /// Returns the encoded size of a value in bytes, or `None` if the size varies.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int32 | Self::Float32 => Some(4),
            Self::Int64 | Self::Float64 | Self::Timestamp => Some(8),
            Self::String | Self::Bytes => None,
        }
    }

    /// Returns the type's name in definitions and messages.
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
    /// Returns the size of one component in bytes.
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
    /// A fixed-length vector of numbers, for embeddings.
    Vector(VectorType, u16),
}

impl FieldType {
    /// A boolean.
    pub const BOOL: Self = Self::Scalar(ScalarType::Bool);
    /// A signed 32-bit integer.
    pub const INT32: Self = Self::Scalar(ScalarType::Int32);
    /// A signed 64-bit integer.
    pub const INT64: Self = Self::Scalar(ScalarType::Int64);
    /// A 32-bit IEEE float.
    pub const FLOAT32: Self = Self::Scalar(ScalarType::Float32);
    /// A 64-bit IEEE float.
    pub const FLOAT64: Self = Self::Scalar(ScalarType::Float64);
    /// UTF-8 text.
    pub const STRING: Self = Self::Scalar(ScalarType::String);
    /// Bytes.
    pub const BYTES: Self = Self::Scalar(ScalarType::Bytes);
    /// A time in microseconds since the Unix epoch.
    pub const TIMESTAMP: Self = Self::Scalar(ScalarType::Timestamp);

    /// Returns the encoded size of a value in bytes, or `None` if the size varies.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::Scalar(scalar) => scalar.width(),
            Self::List(_) => None,
            Self::Vector(component, length) => Some(component.width() * usize::from(length)),
        }
    }

    /// Returns whether every value of this type keeps its meaning as a value of `to`.
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

/// A value of a field. Null and absent are states of a field, not values.
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
    /// A list. The component type is explicit, so that an empty list has one, too.
    List(ScalarType, Vec<Value>),
    /// A vector of f32.
    VectorF32(Vec<f32>),
    /// A vector of f16.
    VectorF16(Vec<f16>),
    /// A vector of i8.
    VectorI8(Vec<i8>),
}

impl Value {
    /// Returns the field type that holds this value exactly; `None` for a vector over the limit.
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

    /// Refuses a value that does not have the field's type, or is over a limit.
    pub fn check(&self, field_type: FieldType) -> Result<()> {
        let Some(found) = self.field_type() else {
            let (limit, actual) = (VECTOR_COMPONENTS_MAX as u64, self.components() as u64);
            return Err(Error::limit_exceeded(
                "the vector has too many components; shorten the vector",
                limit,
                actual,
            ));
        };
        if found != field_type {
            let message =
                format!("the value is a {found}, not a {field_type}; send a {field_type}");
            return Err(Error::invalid_argument(message));
        }
        if let Self::List(scalar, items) = self {
            return check_list(*scalar, items);
        }
        check_value_bytes(self.encoded_bytes())
    }

    /// Returns the number of components of a list or vector; 1 for a scalar.
    fn components(&self) -> usize {
        match self {
            Self::List(_, items) => items.len(),
            Self::VectorF32(items) => items.len(),
            Self::VectorF16(items) => items.len(),
            Self::VectorI8(items) => items.len(),
            _ => 1,
        }
    }

    /// Returns the size of the value in a row, in bytes.
    pub fn encoded_bytes(&self) -> u64 {
        match self {
            Self::String(text) => text.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(scalar, items) => list_bytes(*scalar, items),
            Self::VectorF32(items) => 4 * items.len() as u64,
            Self::VectorF16(items) => 2 * items.len() as u64,
            Self::VectorI8(items) => items.len() as u64,
            Self::Bool(_) => 1,
            Self::Int32(_) | Self::Float32(_) => 4,
            Self::Int64(_) | Self::Float64(_) | Self::Timestamp(_) => 8,
        }
    }

    /// Converts to the wider type; returns the value unchanged if its type does not widen to `to`.
    /// A NaN becomes the canonical one, so that replicas on any processor agree.
    #[must_use]
    pub fn widened_to(self, to: FieldType) -> Self {
        match (self, to) {
            (Self::Int32(v), FieldType::INT64) => Self::Int64(v.into()),
            (Self::Int32(v), FieldType::FLOAT64) => Self::Float64(v.into()),
            (Self::Float32(v), FieldType::FLOAT64) => Self::Float64(v.into()).canonical(),
            (value, _) => value,
        }
    }

    /// Returns whether the value is a NaN.
    pub fn is_nan(&self) -> bool {
        match self {
            Self::Float32(v) => v.is_nan(),
            Self::Float64(v) => v.is_nan(),
            _ => false,
        }
    }

    /// Replaces a NaN by the quiet NaN without sign and payload: processors differ in the NaN that
    /// arithmetic and widening give, and replicas must not.
    #[must_use]
    pub(crate) fn canonical(self) -> Self {
        match self {
            Self::Float32(v) if v.is_nan() => Self::Float32(f32::from_bits(0x7fc0_0000)),
            Self::Float64(v) if v.is_nan() => Self::Float64(f64::from_bits(0x7ff8_0000_0000_0000)),
            value => value,
        }
    }
}

fn list_bytes(scalar: ScalarType, items: &[Value]) -> u64 {
    match scalar.width() {
        Some(width) => (width * items.len()) as u64,
        None => items.iter().map(|item| 4 + item.encoded_bytes()).sum(),
    }
}

fn check_value_bytes(bytes: u64) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX as u64 {
        return Ok(());
    }
    let advice = "the value is too large; split the value over several documents";
    Err(Error::limit_exceeded(advice, VALUE_BYTES_MAX as u64, bytes))
}

/// Refuses list components that do not have the list's type, or are over a limit.
pub(crate) fn check_list(scalar: ScalarType, items: &[Value]) -> Result<()> {
    if items.len() > LIST_COMPONENTS_MAX {
        let advice = "the list has too many components; shorten the list, or split the list over \
            several documents";
        return Err(Error::limit_exceeded(advice, LIST_COMPONENTS_MAX as u64, items.len() as u64));
    }
    if items.iter().any(|item| item.field_type() != Some(FieldType::Scalar(scalar))) {
        let message = format!("every component of the list must be a {}", scalar.name());
        return Err(Error::invalid_argument(message));
    }
    check_value_bytes(list_bytes(scalar, items))
}

/// Returns the order of two scalars of one type; `None` for other types and for NaN.
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int32(a), Value::Int32(b)) => Some(a.cmp(b)),
        (Value::Int64(a), Value::Int64(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => {
            Some(a.cmp(b))
        }
        (Value::Float32(a), Value::Float32(b)) => a.partial_cmp(b),
        (Value::Float64(a), Value::Float64(b)) => a.partial_cmp(b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    const FLOAT64: FieldType = FieldType::FLOAT64;

    #[test]
    fn only_lossless_types_widen() {
        let scalars = [ScalarType::Int32, ScalarType::Float32, ScalarType::Int64];
        let to = |scalar: ScalarType| -> Vec<&str> {
            let targets = [
                ScalarType::Bool,
                ScalarType::Int32,
                ScalarType::Int64,
                ScalarType::Float32,
                ScalarType::Float64,
                ScalarType::Timestamp,
            ];
            let from = FieldType::Scalar(scalar);
            let widens = |to: &ScalarType| from.widens_to(FieldType::Scalar(*to));
            targets.iter().filter(|to| widens(to)).map(|to| to.name()).collect()
        };
        assert_eq!(scalars.map(to), [vec!["int64", "float64"], vec!["float64"], vec![]]);
        let list = FieldType::List(ScalarType::Int32);
        assert!(!list.widens_to(FieldType::List(ScalarType::Int64)));
    }

    #[test]
    fn widening_preserves_numbers_and_canonicalizes_nan() {
        assert_eq!(Value::Int32(-7).widened_to(FLOAT64), Value::Float64(-7.0));
        assert_eq!(Value::Int64(7).widened_to(FLOAT64), Value::Int64(7));
        for bits in [0x7fc0_0000, 0xffc0_0001, 0x7f80_0001] {
            let Value::Float64(wide) = Value::Float32(f32::from_bits(bits)).widened_to(FLOAT64)
            else {
                panic!("not widened")
            };
            assert_eq!(wide.to_bits(), 0x7ff8_0000_0000_0000, "{bits:x}");
        }
    }

    #[test]
    fn values_are_checked_against_type_and_limit() {
        let code = |value: &Value, field_type| value.check(field_type).unwrap_err().code();
        let bytes = FieldType::BYTES;
        assert_eq!(Value::Bytes(vec![0; VALUE_BYTES_MAX]).check(bytes), Ok(()));
        let large = Value::Bytes(vec![0; VALUE_BYTES_MAX + 1]);
        assert_eq!(code(&large, bytes), ErrorCode::LimitExceeded);
        let vector = FieldType::Vector(VectorType::I8, 3);
        assert_eq!(Value::VectorI8(vec![0; 3]).check(vector), Ok(()));
        assert_eq!(code(&Value::VectorI8(vec![0; 4]), vector), ErrorCode::InvalidArgument);
        let error = Value::VectorF32(vec![0.0; 65_536]).check(vector).unwrap_err();
        assert_eq!(error.context().actual, Some(65_536));
        let texts = FieldType::List(ScalarType::String);
        let mixed_list = Value::List(ScalarType::String, vec![Value::Bool(true)]);
        assert_eq!(code(&mixed_list, texts), ErrorCode::InvalidArgument);
        let long = Value::List(ScalarType::Bool, vec![Value::Bool(true); 65_536]);
        assert_eq!(code(&long, FieldType::List(ScalarType::Bool)), ErrorCode::LimitExceeded);
        let half = Value::String("x".repeat(VALUE_BYTES_MAX / 2));
        let large = Value::List(ScalarType::String, vec![half.clone(), half]);
        assert_eq!(code(&large, texts), ErrorCode::LimitExceeded);
    }
}
