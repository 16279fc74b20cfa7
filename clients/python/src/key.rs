//! Keys from Python: a str, bytes or an int, each of the store's key type and never converted; and
//! `(partition key, key)` where the store is partitioned by a field.

use forebay::{DocumentKey, Error, KeyList, KeyValue};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};

use crate::buffer::typed;
use crate::fault::Fault;
use crate::python::class;
use crate::value::{integer_of, text_of};

/// A key as a caller gave it; shares the memory of the Python object, which never changes.
pub(crate) struct GivenKey {
    primary: Part,
    partition_key: Option<Part>,
}

enum Part {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    Int(i64),
}

impl GivenKey {
    /// The key that an object is.
    ///
    /// # Errors
    /// `InvalidArgument` for an object that is no key.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self, Fault> {
        let Ok(parts) = object.cast::<PyTuple>() else {
            return Ok(Self { primary: Part::of(object)?, partition_key: None });
        };
        if parts.len() != 2 {
            let message = "a key of two parts is (partition key, key)";
            return Err(Error::invalid_argument(message).into());
        }
        let partition_key = Some(Part::of(&parts.get_item(0)?)?);
        Ok(Self { primary: Part::of(&parts.get_item(1)?)?, partition_key })
    }

    /// The key itself.
    pub(crate) fn key(&self) -> DocumentKey<'_> {
        let key = DocumentKey::new(self.primary.value());
        match &self.partition_key {
            Some(part) => key.with_partition_key(part.value()),
            None => key,
        }
    }
}

impl Part {
    fn of(object: &Bound<'_, PyAny>) -> Result<Self, Fault> {
        if let Ok(text) = object.cast::<PyString>() {
            text_of(text)?;
            return Ok(Self::Text(text.clone().try_into()?));
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone().into()));
        }
        if object.is_instance_of::<PyInt>() {
            return integer_of(object).map(Self::Int);
        }
        let name = object.get_type().name()?;
        let message = format!("a key is a str, bytes or an int, not a {name}");
        Err(Error::invalid_argument(message).into())
    }

    fn value(&self) -> KeyValue<'_> {
        match self {
            Self::Text(text) => KeyValue::String(text),
            Self::Bytes(bytes) => KeyValue::Bytes(bytes),
            Self::Int(number) => KeyValue::Int64(*number),
        }
    }
}

/// The keys of a batch, in the caller's order.
pub(crate) enum GivenKeys {
    /// Keys one by one.
    Each(Vec<GivenKey>),
    /// A NumPy array of int64.
    Ints(Vec<i64>),
}

impl GivenKeys {
    /// The keys of a sequence, or of an array of int64.
    ///
    /// # Errors
    /// `InvalidArgument` for something that holds no keys.
    pub(crate) fn of(objects: &Bound<'_, PyAny>) -> Result<Self, Fault> {
        if objects.is_instance_of::<PyString>() || objects.is_instance_of::<PyBytes>() {
            let message = "give the keys as a list; a str or bytes is one key";
            return Err(Error::invalid_argument(message).into());
        }
        if let Some(numbers) = PyUntypedBuffer::get(objects).ok().and_then(typed::<i64>) {
            if numbers.dimensions() != 1 {
                let message = "give the keys as an array of one dimension";
                return Err(Error::invalid_argument(message).into());
            }
            return Ok(Self::Ints(numbers.to_vec(objects.py())?));
        }
        let each = objects.try_iter()?.map(|object| GivenKey::of(&object?));
        each.collect::<Result<_, _>>().map(Self::Each)
    }
}

impl KeyList for GivenKeys {
    fn count(&self) -> usize {
        match self {
            Self::Each(keys) => keys.len(),
            Self::Ints(numbers) => numbers.len(),
        }
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        match self {
            Self::Each(keys) => keys[place].key(),
            Self::Ints(numbers) => DocumentKey::from(numbers[place]),
        }
    }
}

/// The Python object that a key is.
pub(crate) fn key_object<'py>(
    py: Python<'py>,
    key: DocumentKey<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let primary = part_object(py, key.primary())?;
    match key.partition_key() {
        None => Ok(primary),
        Some(part) => {
            class(py, "forebay._model", "PartitionedKey")?.call1((part_object(py, part)?, primary))
        }
    }
}

fn part_object<'py>(py: Python<'py>, part: KeyValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match part {
        KeyValue::String(text) => PyString::new(py, text).into_any(),
        KeyValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        KeyValue::Int64(number) => number.into_pyobject(py)?.into_any(),
    })
}
