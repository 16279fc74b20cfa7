//! Numbers as rows store them, and their conversion to the type that a caller requests: exact, or
//! lossy if the caller allows it.

use forebay_core::clock::Timestamp;
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::{Error, Result};
use half::f16;

/// A number of a row or a default, before conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A bool.
    Bool(bool),
    /// An integer of any width, or a timestamp.
    Int(i64),
    /// A float32, or an f16 that was widened.
    Float32(f32),
    /// A float64.
    Float64(f64),
}

impl Number {
    /// Reads a scalar as a row stores it; returns `None` for types that are not numbers.
    pub(crate) fn decode(bytes: &[u8], scalar: ScalarType) -> Result<Option<Self>> {
        fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
            let message = "the value has another length than its type";
            bytes.try_into().map_err(|_| Error::corrupt(message))
        }
        Ok(Some(match scalar {
            ScalarType::Bool => Self::Bool(exactly::<1>(bytes)? != [0]),
            ScalarType::Int32 => Self::Int(i32::from_le_bytes(exactly(bytes)?).into()),
            ScalarType::Int64 | ScalarType::Timestamp => {
                Self::Int(i64::from_le_bytes(exactly(bytes)?))
            }
            ScalarType::Float32 => Self::Float32(f32::from_le_bytes(exactly(bytes)?)),
            ScalarType::Float64 => Self::Float64(f64::from_le_bytes(exactly(bytes)?)),
            ScalarType::String | ScalarType::Bytes => return Ok(None),
        }))
    }

    /// Returns a value as a number; `None` for values that are not a single number.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(v) => Self::Bool(*v),
            Value::Int32(v) => Self::Int((*v).into()),
            Value::Int64(v) | Value::Timestamp(v) => Self::Int(*v),
            Value::Float32(v) => Self::Float32(*v),
            Value::Float64(v) => Self::Float64(*v),
            _ => return None,
        })
    }

    fn exact_int(self) -> Option<i64> {
        match self {
            Self::Bool(v) => Some(v.into()),
            Self::Int(v) => Some(v),
            Self::Float32(v) => Self::Float64(v.into()).exact_int(),
            // 2^63 itself does not fit; its lower neighbours do.
            Self::Float64(v) => {
                let in_range = (-(2f64.powi(63))..2f64.powi(63)).contains(&v);
                (in_range && v.fract() == 0.0).then_some(v as i64)
            }
        }
    }

    fn exact_float(self) -> Option<f64> {
        match self {
            Self::Bool(v) => Some(f64::from(u8::from(v))),
            Self::Int(v) => {
                let float = v as f64;
                (Self::Float64(float).exact_int() == Some(v)).then_some(float)
            }
            Self::Float32(v) => Some(v.into()),
            Self::Float64(v) => Some(v),
        }
    }

    fn nearest_int(self) -> i64 {
        match self {
            Self::Bool(v) => v.into(),
            Self::Int(v) => v,
            Self::Float32(v) => v as i64,
            Self::Float64(v) => v as i64,
        }
    }

    fn nearest_float(self) -> f64 {
        match self {
            Self::Bool(v) => f64::from(u8::from(v)),
            Self::Int(v) => v as f64,
            Self::Float32(v) => v.into(),
            Self::Float64(v) => v,
        }
    }
}

/// A type that one field of a document is read as.
pub trait FieldScalar: Sized + sealed::Convert {
    /// The field type that a handle must have been resolved for.
    const SCALAR: ScalarType;
}

/// A type that the cells of a gathered matrix may have: f32, f64, i32 or i64.
pub trait Element: Copy + Default + Send + Sync + sealed::Convert + 'static {
    /// The type's name in messages.
    const NAME: &'static str;

    /// Whether every value of this field type converts exactly to this element type.
    fn holds(field_type: FieldType) -> bool;

    /// Whether a row stores values of this field type as the bytes of this element type.
    fn is_stored_as(field_type: FieldType) -> bool;

    /// Fills cells from as many bytes as they have.
    fn copy_from_row(bytes: &[u8], cells: &mut [Self]);
}

/// Traits that only this crate may implement.
pub(crate) mod sealed {
    use super::Number;

    /// Conversion of a number.
    pub trait Convert: Sized {
        /// Returns the same value, or `None` if this type cannot represent it.
        fn exactly(number: Number) -> Option<Self>;
        /// Returns the nearest value of this type.
        fn nearest(number: Number) -> Self;
    }
}

macro_rules! convert {
    ($type:ty, $exactly:expr, $nearest:expr) => {
        impl sealed::Convert for $type {
            fn exactly(number: Number) -> Option<Self> {
                $exactly(number)
            }

            fn nearest(number: Number) -> Self {
                $nearest(number)
            }
        }
    };
}

convert!(bool, |n: Number| if let Number::Bool(v) = n { Some(v) } else { None }, |n: Number| n
    .nearest_float()
    != 0.0);
convert!(i64, Number::exact_int, Number::nearest_int);
convert!(i32, |n: Number| n.exact_int().and_then(|v| v.try_into().ok()), |n: Number| n
    .nearest_int()
    .clamp(i32::MIN.into(), i32::MAX.into())
    as i32);
convert!(f64, Number::exact_float, Number::nearest_float);
convert!(
    f32,
    |n: Number| match n {
        Number::Float32(v) => Some(v),
        other => other.exact_float().and_then(|wide| {
            let narrow = wide as f32;
            (f64::from(narrow) == wide || wide.is_nan()).then_some(narrow)
        }),
    },
    |n: Number| match n {
        Number::Float32(v) => v,
        Number::Int(v) => v as f32,
        other => other.nearest_float() as f32,
    }
);
convert!(Timestamp, |n: Number| n.exact_int().map(Timestamp::from_micros), |n: Number| {
    Timestamp::from_micros(n.nearest_int())
});

macro_rules! field_scalar {
    ($($type:ty => $scalar:ident),*) => {
        $(impl FieldScalar for $type {
            const SCALAR: ScalarType = ScalarType::$scalar;
        })*
    };
}

field_scalar!(
    bool => Bool, i32 => Int32, i64 => Int64, f32 => Float32, f64 => Float64,
    Timestamp => Timestamp
);

macro_rules! element {
    ($type:ty, $name:literal, $($scalar:ident)|*, $($vector:ident)|*, $stored:pat) => {
        impl Element for $type {
            const NAME: &'static str = $name;

            fn holds(field_type: FieldType) -> bool {
                match field_type {
                    FieldType::Scalar(scalar) => matches!(scalar, $(ScalarType::$scalar)|*),
                    FieldType::Vector(vector, _) => matches!(vector, $(VectorType::$vector)|*),
                    FieldType::List(_) => false,
                }
            }

            fn is_stored_as(field_type: FieldType) -> bool {
                matches!(field_type, $stored)
            }

            #[inline]
            fn copy_from_row(bytes: &[u8], cells: &mut [Self]) {
                let bytes = bytes.as_chunks::<{ size_of::<Self>() }>().0;
                for (cell, bytes) in cells.iter_mut().zip(bytes) {
                    *cell = Self::from_le_bytes(*bytes);
                }
            }
        }
    };
}

element!(
    f32,
    "float32",
    Bool | Float32,
    F32 | F16 | I8,
    FieldType::FLOAT32 | FieldType::Vector(VectorType::F32, _)
);
element!(f64, "float64", Bool | Int32 | Float32 | Float64, F32 | F16 | I8, FieldType::FLOAT64);
element!(i32, "int32", Bool | Int32, I8, FieldType::INT32);
element!(
    i64,
    "int64",
    Bool | Int32 | Int64 | Timestamp,
    I8,
    FieldType::Scalar(ScalarType::Int64 | ScalarType::Timestamp)
);

/// The components of a vector as a row stores it.
pub(crate) fn vector_numbers(
    bytes: &[u8],
    component: VectorType,
) -> impl Iterator<Item = Number> + '_ {
    bytes.chunks_exact(component.width()).map(move |chunk| match (component, chunk) {
        (VectorType::F32, &[a, b, c, d]) => Number::Float32(f32::from_le_bytes([a, b, c, d])),
        (VectorType::F16, &[a, b]) => Number::Float32(f16::from_le_bytes([a, b]).to_f32()),
        (_, chunk) => Number::Int((chunk[0] as i8).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::sealed::Convert;
    use super::*;

    #[test]
    fn exact_conversions_preserve_the_value_or_refuse() {
        assert_eq!(i32::exactly(Number::Int(1 << 31)), None);
        assert_eq!(i32::exactly(Number::Int(-(1 << 31))), Some(i32::MIN));
        assert_eq!(i32::exactly(Number::Float64(-3.0)), Some(-3));
        assert_eq!(i32::exactly(Number::Float64(0.5)), None);
        assert_eq!(i64::exactly(Number::Float64(2f64.powi(63))), None);
        assert_eq!(i64::exactly(Number::Float64(-(2f64.powi(63)))), Some(i64::MIN));
        assert_eq!(i64::exactly(Number::Float64(f64::NAN)), None);
        assert_eq!(f32::exactly(Number::Float64(0.1)), None);
        assert_eq!(f32::exactly(Number::Float64(0.5)), Some(0.5));
        assert!(f32::exactly(Number::Float64(f64::NAN)).unwrap().is_nan());
        assert_eq!(f32::exactly(Number::Float64(f64::INFINITY)), Some(f32::INFINITY));
        assert_eq!(f32::exactly(Number::Int((1 << 24) + 1)), None);
        assert_eq!(f32::exactly(Number::Int(1 << 24)), Some(16_777_216.0));
        assert_eq!(f64::exactly(Number::Int(i64::MAX)), None);
        assert_eq!(f64::exactly(Number::Int(i64::MIN)), Some(-(2f64.powi(63))));
        assert_eq!(bool::exactly(Number::Int(1)), None);
    }

    #[test]
    fn lossy_conversions_round_and_saturate() {
        assert_eq!(f32::nearest(Number::Int(i64::MAX)), i64::MAX as f32);
        assert_eq!(f32::nearest(Number::Float64(0.1)), 0.1f32);
        assert_eq!(i32::nearest(Number::Int(i64::MIN)), i32::MIN);
        assert_eq!(i32::nearest(Number::Float64(-1.9)), -1);
        assert_eq!(i64::nearest(Number::Float32(f32::NAN)), 0);
    }

    #[test]
    fn supported_pairs_convert_their_extremes_exactly() {
        fn check<E: Element + PartialEq + std::fmt::Debug>() {
            let extremes = [
                (ScalarType::Bool, vec![Number::Bool(true)]),
                (
                    ScalarType::Int32,
                    vec![Number::Int(i32::MIN.into()), Number::Int(i32::MAX.into())],
                ),
                (ScalarType::Int64, vec![Number::Int(i64::MAX)]),
                (ScalarType::Timestamp, vec![Number::Int(i64::MAX)]),
                (ScalarType::Float32, vec![Number::Float32(f32::MAX), Number::Float32(0.1)]),
                (ScalarType::Float64, vec![Number::Float64(f64::MAX), Number::Float64(0.1)]),
            ];
            for (scalar, numbers) in extremes {
                let all_fit = numbers.iter().all(|number| E::exactly(*number).is_some());
                assert_eq!(all_fit, E::holds(FieldType::Scalar(scalar)), "{} {scalar:?}", E::NAME);
            }
        }
        check::<f32>();
        check::<f64>();
        check::<i32>();
        check::<i64>();
    }
}
