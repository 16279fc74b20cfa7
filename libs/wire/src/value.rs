//! Conversion of values and their types to and from the messages of `value.proto`.

use bytes::Bytes;
use forebay_core::limits::{LIST_COMPONENTS_MAX, VECTOR_COMPONENTS_MAX};
use forebay_core::row::{decode_value, encode_value};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::{Error, Result};

use crate::decode_error::{self, enumeration, newer_error};
use crate::v1;
use crate::v1::value::Kind;

enumeration!("a scalar type": ScalarType, v1::ScalarType {
    Bool = Bool,
    Int32 = Int32,
    Int64 = Int64,
    Float32 = Float32,
    Float64 = Float64,
    String = String,
    Bytes = Bytes,
    Timestamp = Timestamp,
});

enumeration!("a vector component": VectorType, v1::VectorComponent {
    F32 = F32,
    F16 = F16,
    I8 = I8,
});

pub(crate) fn scalar_type(number: i32) -> Result<ScalarType> {
    decode_error::from_number::<v1::ScalarType, _>(number, "scalar type")
}

fn vector_type(number: i32) -> Result<VectorType> {
    decode_error::from_number::<v1::VectorComponent, _>(number, "vector component")
}

impl From<FieldType> for v1::FieldType {
    fn from(field_type: FieldType) -> Self {
        use v1::field_type::Kind;
        let kind = match field_type {
            FieldType::Scalar(scalar) => Kind::Scalar(v1::ScalarType::from(scalar).into()),
            FieldType::List(scalar) => Kind::List(v1::ScalarType::from(scalar).into()),
            FieldType::Vector(component, length) => Kind::Vector(v1::VectorType {
                component: v1::VectorComponent::from(component).into(),
                length: length.into(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::FieldType> for FieldType {
    type Error = Error;

    fn try_from(wire: v1::FieldType) -> Result<Self> {
        use v1::field_type::Kind;
        match wire.kind.ok_or_else(|| newer_error("the kind of a field type"))? {
            Kind::Scalar(number) => Ok(Self::Scalar(scalar_type(number)?)),
            Kind::List(number) => Ok(Self::List(scalar_type(number)?)),
            Kind::Vector(vector) => {
                let component = vector_type(vector.component)?;
                Ok(Self::Vector(component, vector_length(vector.length as usize)?))
            }
        }
    }
}

fn vector_length(components: usize) -> Result<u16> {
    u16::try_from(components).map_err(|_| {
        let (limit, actual) = (VECTOR_COMPONENTS_MAX as u64, components as u64);
        Error::limit_exceeded(
            "the vector has too many components; shorten the vector",
            limit,
            actual,
        )
    })
}

impl From<&Value> for v1::Value {
    fn from(value: &Value) -> Self {
        let kind = match value {
            Value::Bool(v) => Kind::BoolValue(*v),
            Value::Int32(v) => Kind::Int32Value(*v),
            Value::Int64(v) => Kind::Int64Value(*v),
            Value::Float32(v) => Kind::Float32Value(*v),
            Value::Float64(v) => Kind::Float64Value(*v),
            Value::String(v) => Kind::StringValue(v.clone()),
            Value::Bytes(v) => Kind::BytesValue(Bytes::copy_from_slice(v)),
            Value::Timestamp(v) => Kind::TimestampValue(*v),
            Value::List(scalar, _) => {
                let scalar = v1::ScalarType::from(*scalar).into();
                Kind::ListValue(v1::List { r#type: scalar, items: encoded(value) })
            }
            Value::VectorF32(_) => vector(VectorType::F32, value),
            Value::VectorF16(_) => vector(VectorType::F16, value),
            Value::VectorI8(_) => vector(VectorType::I8, value),
        };
        Self { kind: Some(kind) }
    }
}

fn vector(component: VectorType, value: &Value) -> Kind {
    let component = v1::VectorComponent::from(component).into();
    Kind::VectorValue(v1::Vector { component, items: encoded(value) })
}

fn encoded(value: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(value.encoded_bytes() as usize);
    encode_value(value, &mut bytes);
    bytes.into()
}

impl TryFrom<v1::Value> for Value {
    type Error = Error;

    /// Converts a value that is not null.
    fn try_from(wire: v1::Value) -> Result<Self> {
        nullable_value(wire)?.ok_or_else(|| {
            Error::invalid_argument("null is valid only where a field is set; send a value")
        })
    }
}

/// Creates the message of a value, or of null for `None`.
pub fn nullable_value_message(value: Option<&Value>) -> v1::Value {
    match value {
        Some(value) => value.into(),
        None => v1::Value { kind: Some(Kind::Null(v1::Null {})) },
    }
}

/// Decodes the value of a message; `None` is null.
///
/// # Errors
/// Returns `InvalidArgument` or `LimitExceeded` for a message that is not a value, `UpgradeNeeded`
/// for a kind of value that this build does not know.
pub fn nullable_value(wire: v1::Value) -> Result<Option<Value>> {
    Ok(Some(match wire.kind.ok_or_else(|| newer_error("the kind of a value"))? {
        Kind::Null(_) => return Ok(None),
        Kind::BoolValue(v) => Value::Bool(v),
        Kind::Int32Value(v) => Value::Int32(v),
        Kind::Int64Value(v) => Value::Int64(v),
        Kind::Float32Value(v) => Value::Float32(v),
        Kind::Float64Value(v) => Value::Float64(v),
        Kind::StringValue(v) => Value::String(v),
        Kind::BytesValue(v) => Value::Bytes(v.into()),
        Kind::TimestampValue(v) => Value::Timestamp(v),
        Kind::ListValue(list) => {
            let (scalar, items) = list_items(&list)?;
            Value::List(scalar, items)
        }
        Kind::VectorValue(vector) => {
            let component = vector_type(vector.component)?;
            let length = vector_length(vector.items.len() / component.width())?;
            decode_value(&vector.items, FieldType::Vector(component, length))
                .map_err(value_error)?
        }
    }))
}

/// Creates the message of a list's components. An empty list does not show its component type and
/// no decoder reads it; the message says `bytes`.
pub(crate) fn list_message(items: &[Value]) -> v1::List {
    let scalar = match items.first().and_then(Value::field_type) {
        Some(FieldType::Scalar(scalar)) => scalar,
        _ => ScalarType::Bytes,
    };
    let mut bytes = Vec::new();
    for item in items {
        if scalar.width().is_none() {
            bytes.extend_from_slice(&(item.encoded_bytes() as u32).to_le_bytes());
        }
        encode_value(item, &mut bytes);
    }
    v1::List { r#type: v1::ScalarType::from(scalar).into(), items: bytes.into() }
}

/// Decodes the components of a list message and their type. Checks the count before it decodes a
/// component.
pub(crate) fn list_items(wire: &v1::List) -> Result<(ScalarType, Vec<Value>)> {
    let scalar = scalar_type(wire.r#type)?;
    let components = match scalar.width() {
        Some(width) => wire.items.len() / width,
        None => count_sized(&wire.items),
    };
    if components > LIST_COMPONENTS_MAX {
        let advice = "the list has too many components; shorten the list, or split the list over \
            several documents";
        let (limit, actual) = (LIST_COMPONENTS_MAX as u64, components as u64);
        return Err(Error::limit_exceeded(advice, limit, actual));
    }
    match decode_value(&wire.items, FieldType::List(scalar)).map_err(value_error)? {
        Value::List(scalar, items) => Ok((scalar, items)),
        _ => Err(Error::internal("the bytes of a list decode to another type")),
    }
}

/// Counts the length-prefixed components in these bytes; a broken component ends the count.
fn count_sized(mut bytes: &[u8]) -> usize {
    let mut components = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        components += 1;
        bytes = rest.get(u32::from_le_bytes(*length) as usize..).unwrap_or_default();
    }
    components
}

/// Converts to an argument error: broken components are an error of the sender.
fn value_error(error: Error) -> Error {
    Error::invalid_argument(format!("{}; encode it as proto/spec/row.md says", error.message()))
}
