//! Byte form of values, shared by rows, list components and messages.

use crate::error::{Error, Result};
use crate::limits::LIST_COMPONENTS_MAX;
use crate::value::{FieldType, ScalarType, Value, VectorType};

/// Appends a value in the byte form of a row.
pub fn encode_value(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Bool(v) => bytes.push(u8::from(*v)),
        Value::Int32(v) => bytes.extend_from_slice(&v.to_le_bytes()),
        Value::Int64(v) | Value::Timestamp(v) => bytes.extend_from_slice(&v.to_le_bytes()),
        Value::Float32(v) => bytes.extend_from_slice(&v.to_le_bytes()),
        Value::Float64(v) => bytes.extend_from_slice(&v.to_le_bytes()),
        Value::String(v) => bytes.extend_from_slice(v.as_bytes()),
        Value::Bytes(v) => bytes.extend_from_slice(v),
        Value::List(scalar, items) => {
            for item in items {
                if scalar.width().is_none() {
                    bytes.extend_from_slice(&(item.encoded_bytes() as u32).to_le_bytes());
                }
                encode_value(item, bytes);
            }
        }
        Value::VectorF32(v) => v.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
        Value::VectorF16(v) => v.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
        Value::VectorI8(v) => v.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
    }
}

/// Decodes a value from the byte form of a row.
///
/// # Errors
/// Returns `Corrupt` if the length or the content does not fit this type, `LimitExceeded` for a
/// list with too many components.
pub fn decode_value(bytes: &[u8], field_type: FieldType) -> Result<Value> {
    match field_type {
        FieldType::Scalar(scalar) => decode_scalar(bytes, scalar),
        FieldType::List(scalar) => decode_list(bytes, scalar),
        FieldType::Vector(component, length) => decode_vector(bytes, component, length),
    }
}

fn decode_scalar(bytes: &[u8], scalar: ScalarType) -> Result<Value> {
    Ok(match scalar {
        ScalarType::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(Error::corrupt("a bool is neither 0 nor 1")),
        },
        ScalarType::Int32 => Value::Int32(i32::from_le_bytes(exactly(bytes)?)),
        ScalarType::Int64 => Value::Int64(i64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Float32 => Value::Float32(f32::from_le_bytes(exactly(bytes)?)),
        ScalarType::Float64 => Value::Float64(f64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Timestamp => Value::Timestamp(i64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Bytes => Value::Bytes(bytes.to_vec()),
        ScalarType::String => match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => return Err(Error::corrupt("a string of a row is not UTF-8")),
        },
    })
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Error::corrupt("a value has another length than its type"))
}

fn decode_list(mut bytes: &[u8], scalar: ScalarType) -> Result<Value> {
    let component_error = || Error::corrupt("a list ends inside a component");
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let length = match scalar.width() {
            Some(width) => width,
            None => {
                let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(component_error)?;
                bytes = rest;
                u32::from_le_bytes(*length) as usize
            }
        };
        let (item, rest) = bytes.split_at_checked(length).ok_or_else(component_error)?;
        if items.len() == LIST_COMPONENTS_MAX {
            let limit = LIST_COMPONENTS_MAX as u64;
            return Err(Error::limit_exceeded(
                "the list has too many components; shorten the list",
                limit,
                limit + 1,
            ));
        }
        items.push(decode_scalar(item, scalar)?);
        bytes = rest;
    }
    Ok(Value::List(scalar, items))
}

fn decode_vector(bytes: &[u8], component: VectorType, length: u16) -> Result<Value> {
    if bytes.len() != component.width() * usize::from(length) {
        return Err(Error::corrupt("a vector has another length than its type"));
    }
    Ok(match component {
        VectorType::F32 => {
            let (chunks, _) = bytes.as_chunks::<4>();
            Value::VectorF32(chunks.iter().map(|c| f32::from_le_bytes(*c)).collect())
        }
        VectorType::F16 => {
            let (chunks, _) = bytes.as_chunks::<2>();
            Value::VectorF16(chunks.iter().map(|c| half::f16::from_le_bytes(*c)).collect())
        }
        VectorType::I8 => Value::VectorI8(bytes.iter().map(|b| *b as i8).collect()),
    })
}
