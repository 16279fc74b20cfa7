//! Cells of Arrow columns as values.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::{Error, Result};

/// Returns the value of a cell of an array that was cast to this type's Arrow type; `None` if the
/// cell is null.
///
/// # Errors
/// `InvalidArgument` for a list that contains a null.
///
/// ```
/// use forebay_arrow::{cell, column};
/// use forebay_core::value::{FieldType, Value};
///
/// let int32 = FieldType::INT32;
/// let cells = column(int32, vec![Some(Value::Int32(7)), None]).unwrap();
/// assert_eq!(cell(&cells, int32, 0).unwrap(), Some(Value::Int32(7)));
/// assert_eq!(cell(&cells, int32, 1).unwrap(), None);
/// ```
pub fn cell(cells: &ArrayRef, field_type: FieldType, row: usize) -> Result<Option<Value>> {
    if cells.is_null(row) {
        return Ok(None);
    }
    let value = match field_type {
        FieldType::Scalar(scalar) => self::scalar(cells, scalar, row),
        FieldType::List(scalar) => {
            let items = cells.as_list::<i32>().value(row);
            check_whole(&items)?;
            let items = (0..items.len()).map(|place| self::scalar(&items, scalar, place));
            Value::List(scalar, items.collect())
        }
        FieldType::Vector(component, _) => {
            let items = cells.as_fixed_size_list().value(row);
            check_whole(&items)?;
            match component {
                VectorType::F32 => {
                    Value::VectorF32(items.as_primitive::<Float32Type>().values().to_vec())
                }
                VectorType::F16 => {
                    Value::VectorF16(items.as_primitive::<Float16Type>().values().to_vec())
                }
                VectorType::I8 => {
                    Value::VectorI8(items.as_primitive::<Int8Type>().values().to_vec())
                }
            }
        }
    };
    Ok(Some(value))
}

fn check_whole(items: &ArrayRef) -> Result<()> {
    match items.null_count() {
        0 => Ok(()),
        _ => Err(Error::invalid_argument(
            "a list in a column may not hold a null; leave the null out",
        )),
    }
}

fn scalar(cells: &ArrayRef, scalar_type: ScalarType, row: usize) -> Value {
    match scalar_type {
        ScalarType::Bool => Value::Bool(cells.as_boolean().value(row)),
        ScalarType::Int32 => Value::Int32(cells.as_primitive::<Int32Type>().value(row)),
        ScalarType::Int64 => Value::Int64(cells.as_primitive::<Int64Type>().value(row)),
        ScalarType::Float32 => Value::Float32(cells.as_primitive::<Float32Type>().value(row)),
        ScalarType::Float64 => Value::Float64(cells.as_primitive::<Float64Type>().value(row)),
        ScalarType::String => Value::String(cells.as_string::<i32>().value(row).to_owned()),
        ScalarType::Bytes => Value::Bytes(cells.as_binary::<i32>().value(row).to_vec()),
        ScalarType::Timestamp => {
            Value::Timestamp(cells.as_primitive::<TimestampMicrosecondType>().value(row))
        }
    }
}
