//! Conversions from Rust's own types to values and keys.
//!
//! Vectors and lists of `f32` and `i8` have the same Rust type, so both become a vector. A write
//! coerces the value to the type that the field declares.

use half::f16;

use crate::clock::Timestamp;
use crate::key::KeyValue;
use crate::value::{ScalarType, Value};

macro_rules! values {
    ($($native:ty => $variant:ident),* $(,)?) => {
        $(
            impl From<$native> for Value {
                fn from(native: $native) -> Self {
                    Self::$variant(native.into())
                }
            }
        )*
    };
}

values! {
    bool => Bool,
    i32 => Int32,
    u32 => Int64,
    i64 => Int64,
    f32 => Float32,
    f64 => Float64,
    &str => String,
    &String => String,
    String => String,
    &[u8] => Bytes,
    Vec<u8> => Bytes,
    Vec<f32> => VectorF32,
    &[f32] => VectorF32,
    Vec<f16> => VectorF16,
    &[f16] => VectorF16,
    Vec<i8> => VectorI8,
    &[i8] => VectorI8,
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Self {
        Self::Timestamp(time.as_micros())
    }
}

macro_rules! lists {
    ($($native:ty => $scalar:ident),* $(,)?) => {
        $(
            impl From<Vec<$native>> for Value {
                fn from(items: Vec<$native>) -> Self {
                    Self::List(ScalarType::$scalar, items.into_iter().map(Into::into).collect())
                }
            }
        )*
    };
}

lists! {
    bool => Bool,
    i32 => Int32,
    i64 => Int64,
    f64 => Float64,
    &str => String,
    String => String,
    Vec<u8> => Bytes,
    Timestamp => Timestamp,
}

impl From<i32> for KeyValue<'_> {
    fn from(number: i32) -> Self {
        Self::Int64(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_values_keep_their_type() {
        assert_eq!(Value::from(7), Value::Int32(7));
        assert_eq!(Value::from(u32::MAX), Value::Int64(4_294_967_295));
        assert_eq!(Value::from("a"), Value::String("a".to_owned()));
        assert_eq!(Value::from(b"a"), Value::Bytes(vec![b'a']));
        assert_eq!(Value::from(Timestamp::from_micros(-1)), Value::Timestamp(-1));
        assert_eq!(Value::from(vec![1.0f32]), Value::VectorF32(vec![1.0]));
        let list = Value::List(ScalarType::String, vec![Value::from("a"), Value::from("b")]);
        assert_eq!(Value::from(vec!["a", "b"]), list);
        assert_eq!(KeyValue::from(5i32), KeyValue::Int64(5));
    }
}
