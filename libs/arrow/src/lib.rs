//! Conversion of values to Arrow columns, and back.
//!
//! | type | Arrow type |
//! |---|---|
//! | bool, int32, int64, float32, float64 | the same |
//! | string, bytes | Utf8, Binary |
//! | timestamp | Timestamp of microseconds, UTC |
//! | list | List of the item's type |
//! | vector | FixedSizeList of Float32, Float16 or Int8 |

mod cell;

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, Float16Array, Float32Array,
    Float64Array, Int8Array, Int32Array, Int64Array, ListArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::{Error, Result};

pub use cell::cell;

/// Time zone of all timestamps.
const UTC: &str = "UTC";

/// Returns the Arrow type of a column of values of a type.
///
/// ```
/// use arrow::datatypes::DataType;
/// use forebay_core::value::FieldType;
/// use forebay_arrow::arrow_type;
///
/// assert_eq!(arrow_type(FieldType::INT32), DataType::Int32);
/// ```
pub fn arrow_type(field_type: FieldType) -> DataType {
    match field_type {
        FieldType::Scalar(scalar) => match scalar {
            ScalarType::Bool => DataType::Boolean,
            ScalarType::Int32 => DataType::Int32,
            ScalarType::Int64 => DataType::Int64,
            ScalarType::Float32 => DataType::Float32,
            ScalarType::Float64 => DataType::Float64,
            ScalarType::String => DataType::Utf8,
            ScalarType::Bytes => DataType::Binary,
            ScalarType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        },
        FieldType::List(item) => DataType::List(item_of(FieldType::Scalar(item))),
        FieldType::Vector(component, length) => {
            DataType::FixedSizeList(component_of(component), length.into())
        }
    }
}

fn item_of(item: FieldType) -> FieldRef {
    Arc::new(Field::new_list_field(arrow_type(item), true))
}

fn component_of(component: VectorType) -> FieldRef {
    Arc::new(Field::new_list_field(
        match component {
            VectorType::F32 => DataType::Float32,
            VectorType::F16 => DataType::Float16,
            VectorType::I8 => DataType::Int8,
        },
        true,
    ))
}

/// Builds the column of these values, each of this type or missing.
///
/// # Errors
/// `Corrupt` for a value of another type; `LimitExceeded` for more than 2 GiB.
///
/// ```
/// use forebay_core::value::{FieldType, Value};
/// use forebay_arrow::column;
///
/// let int32 = FieldType::INT32;
/// assert_eq!(column(int32, vec![Some(Value::Int32(7)), None]).unwrap().null_count(), 1);
/// assert!(column(int32, vec![Some(Value::Bool(true))]).is_err());
/// ```
pub fn column(field_type: FieldType, values: Vec<Option<Value>>) -> Result<ArrayRef> {
    let is_valid = |value: &Value| value.check(field_type).is_ok();
    if !values.iter().flatten().all(is_valid) {
        return Err(Error::corrupt(format!(
            "a column of {field_type} holds a value of another type"
        )));
    }
    match field_type {
        FieldType::Scalar(scalar) => self::scalars(scalar, values),
        FieldType::List(item) => lists(item, values),
        FieldType::Vector(component, length) => vectors(component, length, values),
    }
}

/// Builds the array of the values that match a pattern.
macro_rules! array {
    ($array:ident, $values:expr, $value:ident) => {{
        let values = $values.into_iter().map(|value| match value {
            Some(Value::$value(value)) => Some(value),
            _ => None,
        });
        Arc::new(values.collect::<$array>()) as ArrayRef
    }};
}

fn scalars(scalar: ScalarType, values: Vec<Option<Value>>) -> Result<ArrayRef> {
    Ok(match scalar {
        ScalarType::Bool => array!(BooleanArray, values, Bool),
        ScalarType::Int32 => array!(Int32Array, values, Int32),
        ScalarType::Int64 => array!(Int64Array, values, Int64),
        ScalarType::Float32 => array!(Float32Array, values, Float32),
        ScalarType::Float64 => array!(Float64Array, values, Float64),
        ScalarType::String => array!(StringArray, values, String),
        ScalarType::Bytes => array!(BinaryArray, values, Bytes),
        ScalarType::Timestamp => {
            let micros = values.into_iter().map(|value| match value {
                Some(Value::Timestamp(micros)) => Some(micros),
                _ => None,
            });
            Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone(UTC))
        }
    })
}

fn lists(item: ScalarType, values: Vec<Option<Value>>) -> Result<ArrayRef> {
    let (mut items, mut lengths, mut validity) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        validity.push(value.is_some());
        let of_row = match value {
            Some(Value::List(_, of_row)) => of_row,
            _ => Vec::new(),
        };
        lengths.push(of_row.len());
        items.extend(of_row.into_iter().map(Some));
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let items = scalars(item, items)?;
    let nulls = Some(NullBuffer::from(validity));
    let lists = ListArray::try_new(item_of(FieldType::Scalar(item)), offsets, items, nulls);
    Ok(Arc::new(lists.map_err(arrow_error)?))
}

fn vectors(component: VectorType, length: u16, values: Vec<Option<Value>>) -> Result<ArrayRef> {
    let validity: Vec<_> = values.iter().map(Option::is_some).collect();
    // A missing row also has components, which no reader sees.
    macro_rules! components {
        ($array:ident, $value:ident) => {{
            let of_row = |value| match value {
                Some(Value::$value(components)) => components,
                _ => vec![Default::default(); length.into()],
            };
            let components: Vec<_> = values.into_iter().flat_map(of_row).collect();
            Arc::new($array::from(components)) as ArrayRef
        }};
    }
    let components = match component {
        VectorType::F32 => components!(Float32Array, VectorF32),
        VectorType::F16 => components!(Float16Array, VectorF16),
        VectorType::I8 => components!(Int8Array, VectorI8),
    };
    let nulls = Some(NullBuffer::from(validity));
    let field = component_of(component);
    let vectors = FixedSizeListArray::try_new(field, length.into(), components, nulls);
    Ok(Arc::new(vectors.map_err(arrow_error)?))
}

fn arrow_error(error: ArrowError) -> Error {
    Error::internal(format!("the values of a column do not form an array: {error}"))
}
