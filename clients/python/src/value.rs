//! Conversion of field values from Python's own types and back.
//!
//! A value keeps its own type: an int is an int64, a float a float64. The store's definition then
//! converts the value to the field's type if the conversion is exact. Vectors are NumPy arrays in
//! both directions, through the buffer protocol.

use forebay::Error;
use forebay::schema::{ScalarType, Timestamp, Value};
use half::f16;
use pyo3::buffer::{Element, PyUntypedBuffer};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDateTime, PyDelta, PyDeltaAccess, PyFloat, PyInt, PyList,
    PyString, PyTuple, PyTzInfo, PyTzInfoAccess,
};

use crate::buffer::typed;
use crate::error::CallError;
use crate::python::class;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 24 * 60 * 60 * SECOND_US;

/// Converts a Python object to a value.
///
/// # Errors
/// `InvalidArgument` for an object whose type no field has.
pub(crate) fn value_of(object: &Bound<'_, PyAny>) -> Result<Value, CallError> {
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        return integer_of(object).map(Value::Int64);
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Value::Float64(object.extract()?));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(text_of(text)?.to_owned()));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Value::Bytes(bytes.to_vec()));
    }
    if let Ok(time) = object.cast::<PyDateTime>() {
        return timestamp_of(time).map(Value::Timestamp);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.map(|item| value_of(&item?));
        return list_of(items.collect::<Result<_, _>>()?);
    }
    if let Ok(buffer) = PyUntypedBuffer::get(object) {
        return array_of(object, buffer);
    }
    // The remaining objects are NumPy's scalars, which convert themselves to plain values.
    match object.call_method0("item") {
        Ok(item) if !item.get_type().is(object.get_type()) => value_of(&item),
        _ => Err(no_value(object)),
    }
}

/// Converts the components of a list operation.
///
/// # Errors
/// Errors of [`value_of`].
pub(crate) fn values_of(objects: &Bound<'_, PyAny>) -> Result<Vec<Value>, CallError> {
    if objects.is_instance_of::<PyString>() || objects.is_instance_of::<PyBytes>() {
        let message =
            "the components are one text or bytes, which is a single component; give a list";
        return Err(Error::invalid_argument(message).into());
    }
    objects.try_iter()?.map(|item| value_of(&item?)).collect()
}

fn no_value(object: &Bound<'_, PyAny>) -> CallError {
    let name = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let message = format!(
        "no field holds a {name}; give a bool, int, float, str, bytes, datetime, list or a NumPy \
         array of float32, float16 or int8"
    );
    Error::invalid_argument(message).into()
}

/// Converts an int that fits 64 bits.
pub(crate) fn integer_of(object: &Bound<'_, PyAny>) -> Result<i64, CallError> {
    object.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            let message = "the int needs more than 64 bits; give the number as text or bytes";
            return Error::invalid_argument(message).into();
        }
        error.into()
    })
}

/// Returns a str's UTF-8, without a copy.
pub(crate) fn text_of<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str, CallError> {
    text.to_str().map_err(|_| {
        let message = "the str holds a lone surrogate, which is no text; give it as bytes";
        Error::invalid_argument(message).into()
    })
}

/// Returns microseconds since the Unix epoch, exactly.
///
/// # Errors
/// `InvalidArgument` for a datetime without a time zone.
pub(crate) fn timestamp_of(time: &Bound<'_, PyDateTime>) -> Result<i64, CallError> {
    if time.get_tzinfo().is_none() {
        let message = "the datetime has no time zone; set one, such as datetime.timezone.utc";
        return Err(Error::invalid_argument(message).into());
    }
    let since_epoch = time.sub(epoch(time.py())?)?;
    let since_epoch = since_epoch.cast::<PyDelta>().map_err(PyErr::from)?;
    let days = i64::from(since_epoch.get_days()) * DAY_US;
    Ok(days
        + i64::from(since_epoch.get_seconds()) * SECOND_US
        + i64::from(since_epoch.get_microseconds()))
}

fn epoch<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyDateTime>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let make = || {
        let utc = PyTzInfo::utc(py)?;
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc)).map(Bound::unbind)
    };
    Ok(EPOCH.get_or_try_init(py, make)?.bind(py))
}

/// Converts a list, whose type is that of its components; ints next to floats become floats.
fn list_of(items: Vec<Value>) -> Result<Value, CallError> {
    let mut scalar = None;
    for item in &items {
        let item_type = match item {
            Value::Bool(_) => ScalarType::Bool,
            Value::Int64(_) => ScalarType::Int64,
            Value::Float64(_) => ScalarType::Float64,
            Value::String(_) => ScalarType::String,
            Value::Bytes(_) => ScalarType::Bytes,
            Value::Timestamp(_) => ScalarType::Timestamp,
            _ => {
                return Err(Error::invalid_argument(
                    "a list holds a list or an array; give a list of scalars",
                )
                .into());
            }
        };
        scalar = Some(match (scalar, item_type) {
            (None, item_type) => item_type,
            (Some(scalar_type), item_type) if scalar_type == item_type => item_type,
            (
                Some(ScalarType::Int64 | ScalarType::Float64),
                ScalarType::Int64 | ScalarType::Float64,
            ) => ScalarType::Float64,
            _ => {
                return Err(Error::invalid_argument(
                    "the list has components of several types; give a list of one type",
                )
                .into());
            }
        });
    }
    let scalar = scalar.unwrap_or(ScalarType::Int64);
    let is_float = scalar == ScalarType::Float64;
    let float = |item| match item {
        Value::Int64(number) if is_float => exact_float(number),
        item => Ok(item),
    };
    let items = items.into_iter().map(float).collect::<Result<_, _>>()?;
    Ok(Value::List(scalar, items))
}

fn exact_float(number: i64) -> Result<Value, CallError> {
    let float = number as f64;
    if float as i128 == i128::from(number) {
        return Ok(Value::Float64(float));
    }
    Err(Error::invalid_argument(
        "an int next to floats is larger than a float can hold; give floats only",
    )
    .into())
}

/// Converts an array of one dimension: a vector, a list of numbers, or bytes.
fn array_of(object: &Bound<'_, PyAny>, buffer: PyUntypedBuffer) -> Result<Value, CallError> {
    if buffer.dimensions() != 1 {
        let message = format!("the array has {} dimensions; give one", buffer.dimensions());
        return Err(Error::invalid_argument(message).into());
    }
    let py = object.py();
    let format = buffer.format().to_bytes();
    let format = format.strip_prefix(b"<").or(format.strip_prefix(b"=")).unwrap_or(format);
    match format {
        b"f" => Ok(Value::VectorF32(items(py, buffer)?)),
        b"b" => Ok(Value::VectorI8(items(py, buffer)?)),
        b"B" | b"c" => Ok(Value::Bytes(bytes_of(object)?)),
        b"e" => {
            let bytes = bytes_of(object)?;
            let halves = bytes
                .chunks_exact(2)
                .map(|half_bytes| f16::from_le_bytes([half_bytes[0], half_bytes[1]]));
            Ok(Value::VectorF16(halves.collect()))
        }
        b"d" => {
            let floats: Vec<f64> = items(py, buffer)?;
            let floats = floats.into_iter().map(Value::Float64).collect();
            Ok(Value::List(ScalarType::Float64, floats))
        }
        b"i" | b"l" | b"q" => {
            let items = object.call_method0("tolist")?;
            match value_of(&items)? {
                Value::List(_, items) => Ok(Value::List(ScalarType::Int64, items)),
                _ => Err(no_value(object)),
            }
        }
        _ => Err(no_value(object)),
    }
}

fn items<T: Element>(py: Python<'_>, buffer: PyUntypedBuffer) -> Result<Vec<T>, CallError> {
    let unsuitable_array = || {
        Error::invalid_argument(
            "the array is not aligned or has another byte order; give an aligned array in the \
             machine's byte order",
        )
    };
    Ok(typed(buffer).ok_or_else(unsuitable_array)?.to_vec(py)?)
}

fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    object.call_method0("tobytes")?.extract()
}

/// Converts a value to a Python object.
///
/// # Errors
/// `InvalidArgument` for a timestamp outside datetime's range.
pub(crate) fn object_of<'py>(
    py: Python<'py>,
    value: &Value,
) -> Result<Bound<'py, PyAny>, CallError> {
    Ok(match value {
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int32(value) => value.into_pyobject(py)?.into_any(),
        Value::Int64(value) => value.into_pyobject(py)?.into_any(),
        Value::Float32(value) => f64::from(*value).into_pyobject(py)?.into_any(),
        Value::Float64(value) => value.into_pyobject(py)?.into_any(),
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Timestamp(micros) => datetime_of(py, Timestamp::from_micros(*micros))?,
        Value::List(_, items) => {
            let objects = items.iter().map(|item| object_of(py, item));
            PyList::new(py, objects.collect::<Result<Vec<_>, _>>()?)?.into_any()
        }
        Value::VectorF32(_) => vector(py, value, "float32")?,
        Value::VectorF16(_) => vector(py, value, "float16")?,
        Value::VectorI8(_) => vector(py, value, "int8")?,
    })
}

/// Returns a datetime in UTC, exact to the microsecond.
///
/// # Errors
/// `InvalidArgument` outside the years 1 to 9999.
pub(crate) fn datetime_of(py: Python<'_>, time: Timestamp) -> Result<Bound<'_, PyAny>, CallError> {
    let micros = time.as_micros();
    let (days, rest) = (micros.div_euclid(DAY_US), micros.rem_euclid(DAY_US));
    let outside = || {
        let message =
            "the timestamp is outside the years of datetime; gather the timestamp as int64";
        Error::invalid_argument(message)
    };
    let days = i32::try_from(days).map_err(|_| outside())?;
    let (seconds, rest) = ((rest / SECOND_US) as i32, (rest % SECOND_US) as i32);
    let since_epoch = PyDelta::new(py, days, seconds, rest, false)?;
    epoch(py)?.add(since_epoch).map_err(|_| outside().into())
}

/// Returns a new, read-only NumPy array.
fn vector<'py>(py: Python<'py>, value: &Value, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut bytes = Vec::with_capacity(value.encoded_bytes() as usize);
    forebay_core::row::encode_value(value, &mut bytes);
    class(py, "numpy", "frombuffer")?.call1((PyBytes::new(py, &bytes), dtype))
}
