//! Lossless type coercion: converts a caller's value to the type that its field declares.
//!
//! - Integers convert to wider and narrower integers that hold them, and to floats that hold them
//!   exactly.
//! - Floats convert to floats that hold them exactly.
//! - Text converts to bytes.
//! - Lists and vectors convert component by component.
//!
//! A float never becomes an integer, and a number never becomes a timestamp: the value does not
//! show whether the caller meant that.

use half::f16;

use crate::error::{Error, Result};
use crate::value::{FieldType, ScalarType, Value, VectorType};

/// Converts a value to type `to`. Writes and definitions call this themselves.
///
/// # Errors
/// Returns `InvalidArgument`, naming both types, if the conversion would change the value.
pub fn coerce_value(value: Value, to: FieldType) -> Result<Value> {
    if value.field_type() == Some(to) {
        return Ok(value);
    }
    let from = value.field_type();
    let coerced = match to {
        FieldType::Scalar(scalar) => coerce_scalar(&value, scalar),
        FieldType::List(scalar) => components(value).and_then(|items| {
            let items =
                items.iter().map(|item| coerce_scalar(item, scalar)).collect::<Option<_>>()?;
            Some(Value::List(scalar, items))
        }),
        FieldType::Vector(component, length) => components(value)
            .filter(|items| items.len() == usize::from(length))
            .and_then(|items| coerce_vector(&items, component)),
    };
    coerced.ok_or_else(|| type_mismatch(from, to))
}

/// Converts the components of a list operation to the list's component type.
///
/// # Errors
/// Returns `InvalidArgument`, naming both types.
pub fn coerce_items(items: Vec<Value>, to: ScalarType) -> Result<Vec<Value>> {
    items.into_iter().map(|item| coerce_value(item, FieldType::Scalar(to))).collect()
}

fn type_mismatch(from: Option<FieldType>, to: FieldType) -> Error {
    let from = from.map_or_else(|| "vector over the limit".to_owned(), |from| from.to_string());
    Error::invalid_argument(format!(
        "the value is a {from}, which the field's {to} cannot hold exactly; send a {to}"
    ))
}

fn coerce_scalar(value: &Value, to: ScalarType) -> Option<Value> {
    if value.field_type() == Some(FieldType::Scalar(to)) {
        return Some(value.clone());
    }
    match (value, to) {
        (Value::Int32(number), _) => coerce_integer((*number).into(), to),
        (Value::Int64(number), _) => coerce_integer(*number, to),
        (Value::Float32(number), ScalarType::Float64) => Some(Value::Float64((*number).into())),
        (Value::Float64(number), ScalarType::Float32) => {
            let narrow = *number as f32;
            let is_same = f64::from(narrow) == *number || number.is_nan();
            is_same.then_some(Value::Float32(narrow))
        }
        (Value::String(text), ScalarType::Bytes) => Some(Value::Bytes(text.clone().into_bytes())),
        _ => None,
    }
}

fn coerce_integer(number: i64, to: ScalarType) -> Option<Value> {
    // A float as large as 2^63 does not fit i64, although the cast back saturates to the same
    // number.
    let is_same = |restored: i128| restored == i128::from(number);
    match to {
        ScalarType::Int32 => i32::try_from(number).ok().map(Value::Int32),
        ScalarType::Int64 => Some(Value::Int64(number)),
        ScalarType::Float32 => {
            let float = number as f32;
            is_same(float as i128).then_some(Value::Float32(float))
        }
        ScalarType::Float64 => {
            let float = number as f64;
            is_same(float as i128).then_some(Value::Float64(float))
        }
        _ => None,
    }
}

fn components(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::List(_, items) => Some(items),
        Value::VectorF32(items) => Some(items.into_iter().map(Value::Float32).collect()),
        Value::VectorF16(items) => {
            Some(items.into_iter().map(|item| Value::Float32(item.to_f32())).collect())
        }
        Value::VectorI8(items) => {
            Some(items.into_iter().map(|item| Value::Int32(item.into())).collect())
        }
        _ => None,
    }
}

fn coerce_vector(items: &[Value], component: VectorType) -> Option<Value> {
    let floats = || {
        items.iter().map(|item| match coerce_scalar(item, ScalarType::Float32) {
            Some(Value::Float32(float)) => Some(float),
            _ => None,
        })
    };
    match component {
        VectorType::F32 => floats().collect::<Option<_>>().map(Value::VectorF32),
        VectorType::F16 => {
            let halves = floats().map(|float| {
                let half = f16::from_f32(float?);
                let is_same = Some(half.to_f32()) == float || half.is_nan();
                is_same.then_some(half)
            });
            halves.collect::<Option<_>>().map(Value::VectorF16)
        }
        VectorType::I8 => {
            let bytes = items.iter().map(|item| match coerce_scalar(item, ScalarType::Int32) {
                Some(Value::Int32(number)) => i8::try_from(number).ok(),
                _ => None,
            });
            bytes.collect::<Option<_>>().map(Value::VectorI8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn scalar(value: impl Into<Value>, to: ScalarType) -> Option<Value> {
        coerce_value(value.into(), FieldType::Scalar(to)).ok()
    }

    #[test]
    fn integers_coerce_to_types_that_preserve_their_value() {
        assert_eq!(scalar(41, ScalarType::Int64), Some(Value::Int64(41)));
        assert_eq!(scalar(41i64, ScalarType::Int32), Some(Value::Int32(41)));
        assert_eq!(scalar(1i64 << 31, ScalarType::Int32), None);
        assert_eq!(scalar(41, ScalarType::Float32), Some(Value::Float32(41.0)));
        assert_eq!(scalar((1 << 24) + 1, ScalarType::Float32), None);
        assert_eq!(scalar(1i64 << 53, ScalarType::Float64), Some(Value::Float64(2f64.powi(53))));
        assert_eq!(scalar((1i64 << 53) + 1, ScalarType::Float64), None);
        assert_eq!(scalar(i64::MAX, ScalarType::Float64), None);
        assert_eq!(scalar(i64::MIN, ScalarType::Float64), Some(Value::Float64(-2f64.powi(63))));
        assert_eq!(scalar(41, ScalarType::Timestamp), None);
        assert_eq!(scalar(1, ScalarType::Bool), None);
    }

    #[test]
    fn floats_coerce_to_floats_and_never_to_integers() {
        assert_eq!(scalar(0.5f32, ScalarType::Float64), Some(Value::Float64(0.5)));
        assert_eq!(scalar(0.5f64, ScalarType::Float32), Some(Value::Float32(0.5)));
        assert_eq!(scalar(0.1f64, ScalarType::Float32), None);
        assert_eq!(scalar(1e300, ScalarType::Float32), None);
        let infinite = Some(Value::Float32(f32::INFINITY));
        assert_eq!(scalar(f64::INFINITY, ScalarType::Float32), infinite);
        assert!(scalar(f64::NAN, ScalarType::Float32).is_some_and(|value| value.is_nan()));
        assert_eq!(scalar(3.0, ScalarType::Int64), None);
    }

    #[test]
    fn text_coerces_to_bytes_but_bytes_do_not_coerce_to_text() {
        assert_eq!(scalar("ab", ScalarType::Bytes), Some(Value::Bytes(b"ab".to_vec())));
        assert_eq!(scalar(b"ab", ScalarType::String), None);
    }

    #[test]
    fn lists_and_vectors_coerce_component_by_component() {
        let list = FieldType::List(ScalarType::Float32);
        let expected = Value::List(ScalarType::Float32, vec![Value::Float32(1.5)]);
        assert_eq!(coerce_value(vec![1.5f32].into(), list).unwrap(), expected);
        assert_eq!(coerce_value(vec![1.5f64].into(), list).unwrap(), expected);
        let halves = FieldType::Vector(VectorType::F16, 2);
        let expected = Value::VectorF16(vec![f16::from_f32(0.5), f16::from_f32(-2.0)]);
        assert_eq!(coerce_value(vec![0.5f32, -2.0].into(), halves).unwrap(), expected);
        assert!(coerce_value(vec![0.1f32, -2.0].into(), halves).is_err());
        let bytes = FieldType::Vector(VectorType::I8, 2);
        assert_eq!(
            coerce_value(vec![1, -128].into(), bytes).unwrap(),
            Value::VectorI8(vec![1, -128])
        );
        assert!(coerce_value(vec![1, 128].into(), bytes).is_err());
        assert!(coerce_value(vec![1, 2, 3].into(), bytes).is_err());
        let empty =
            coerce_value(Vec::<i32>::new().into(), FieldType::List(ScalarType::String)).unwrap();
        assert_eq!(empty, Value::List(ScalarType::String, Vec::new()));
    }

    #[test]
    fn type_mismatch_names_both_types_and_no_value() {
        let error = coerce_value(0.1f64.into(), FieldType::FLOAT32).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains("float64") && error.message().contains("float32"));
        assert!(!error.message().contains("0.1"));
    }
}
