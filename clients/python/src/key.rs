//! Keys from Python: a str, bytes or an int, of the store's key type and never converted; or
//! `(partition key, key)` if the store is partitioned by a field.

use forebay::Error;
use forebay::reads::{DocumentKey, KeyList};
use forebay::schema::KeyValue;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::buffer::typed;
use crate::error::CallError;
use crate::python::class;
use crate::value::{integer_of, text_of};

/// Returns the key of an object; the key shares the object's memory.
///
/// # Errors
/// `InvalidArgument` for an object that is not a key.
pub(crate) fn key_of<'a>(object: &'a Bound<'_, PyAny>) -> Result<DocumentKey<'a>, CallError> {
    borrowed_key(object.as_borrowed())
}

fn borrowed_key<'a>(object: Borrowed<'a, '_, PyAny>) -> Result<DocumentKey<'a>, CallError> {
    if let Some(primary) = plain(object)? {
        return Ok(DocumentKey::new(primary));
    }
    let parts = object.cast::<PyTuple>().map_err(|_| no_key(object))?;
    if parts.len() != 2 {
        let message = "the key is a tuple that does not have two parts; give (partition key, key)";
        return Err(Error::invalid_argument(message).into());
    }
    let (partition_key, primary) = (item(parts, 0)?, item(parts, 1)?);
    let part = |object| plain(object)?.ok_or_else(|| no_key(object));
    Ok(DocumentKey::new(part(primary)?).with_partition_key(part(partition_key)?))
}

/// Returns an item of a tuple, for as long as the tuple is borrowed.
fn item<'a, 'py>(
    tuple: Borrowed<'a, 'py, PyTuple>,
    place: usize,
) -> PyResult<Borrowed<'a, 'py, PyAny>> {
    let item = tuple.get_borrowed_item(place)?;
    // SAFETY: a tuple never changes, so its items live as long as it does.
    #[allow(unsafe_code)]
    Ok(unsafe { Borrowed::from_ptr(tuple.py(), item.as_ptr()) })
}

fn plain<'a>(object: Borrowed<'a, '_, PyAny>) -> Result<Option<KeyValue<'a>>, CallError> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes_part(bytes)));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return text_part(text).map(Some);
    }
    if object.is_instance_of::<PyInt>() {
        return integer_of(&object).map(|number| Some(KeyValue::Int64(number)));
    }
    Ok(None)
}

#[cold]
fn no_key(object: Borrowed<'_, '_, PyAny>) -> CallError {
    let name = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let message = format!("a key must be a str, bytes or an int, not a {name}");
    Error::invalid_argument(message).into()
}

fn text_part<'a>(text: Borrowed<'a, '_, PyString>) -> Result<KeyValue<'a>, CallError> {
    let in_place = text_of(&text)?;
    // SAFETY: the borrower of the object keeps it alive for 'a, and a str never changes; its UTF-8
    // does not move while the object lives.
    #[allow(unsafe_code)]
    let in_place: &'a str = unsafe { &*std::ptr::from_ref(in_place) };
    Ok(KeyValue::String(in_place))
}

fn bytes_part<'a>(bytes: Borrowed<'a, '_, PyBytes>) -> KeyValue<'a> {
    // SAFETY: as for a str; bytes never change either.
    #[allow(unsafe_code)]
    let in_place: &'a [u8] = unsafe { &*std::ptr::from_ref(bytes.as_bytes()) };
    KeyValue::Bytes(in_place)
}

/// The keys of a batch as the caller gave them, held until the batch has been read.
pub(crate) enum KeyObjects<'py> {
    /// Individual keys, in a tuple, which cannot change while the interpreter is released.
    Each(Bound<'py, PyTuple>),
    /// A NumPy array of int64.
    Ints(Vec<i64>),
}

impl<'py> KeyObjects<'py> {
    /// Takes a sequence, or an array of int64.
    ///
    /// # Errors
    /// `InvalidArgument` for an object that contains no keys.
    pub(crate) fn of(objects: &Bound<'py, PyAny>) -> Result<Self, CallError> {
        if let Ok(list) = objects.cast::<PyList>() {
            return Ok(Self::Each(list.to_tuple()));
        }
        if objects.is_instance_of::<PyString>() || objects.is_instance_of::<PyBytes>() {
            let message =
                "the keys are one str or bytes, which is a single key; give a list of keys";
            return Err(Error::invalid_argument(message).into());
        }
        if let Some(numbers) = PyUntypedBuffer::get(objects).ok().and_then(typed::<i64>) {
            if numbers.dimensions() != 1 {
                let message =
                    "the array of keys does not have one dimension; give an array of one dimension";
                return Err(Error::invalid_argument(message).into());
            }
            return Ok(Self::Ints(numbers.to_vec(objects.py())?));
        }
        let key_objects = objects.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        Ok(Self::Each(PyTuple::new(objects.py(), key_objects)?))
    }

    /// Returns the keys, which borrow the objects' memory.
    ///
    /// # Errors
    /// `InvalidArgument` for an object that is not a key.
    pub(crate) fn keys(&self) -> Result<GivenKeys<'_>, CallError> {
        Ok(match self {
            Self::Each(objects) => {
                let mut keys = Vec::with_capacity(objects.len());
                for place in 0..objects.len() {
                    keys.push(borrowed_key(item(objects.as_borrowed(), place)?)?);
                }
                GivenKeys::Each(keys)
            }
            Self::Ints(numbers) => GivenKeys::Ints(numbers),
        })
    }
}

/// The keys of a batch, in the caller's order.
pub(crate) enum GivenKeys<'a> {
    /// Individual keys.
    Each(Vec<DocumentKey<'a>>),
    /// Numbers of an array.
    Ints(&'a [i64]),
}

impl KeyList for GivenKeys<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Each(keys) => keys.len(),
            Self::Ints(numbers) => numbers.len(),
        }
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        match self {
            Self::Each(keys) => keys[place],
            Self::Ints(numbers) => DocumentKey::from(numbers[place]),
        }
    }
}

/// An owned key, which needs no interpreter.
pub(crate) struct OwnedKey {
    primary: OwnedPart,
    partition_key: Option<OwnedPart>,
}

enum OwnedPart {
    Text(String),
    Bytes(Vec<u8>),
    Int(i64),
}

impl OwnedPart {
    fn of(value: KeyValue<'_>) -> Self {
        match value {
            KeyValue::String(text) => Self::Text(text.to_owned()),
            KeyValue::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            KeyValue::Int64(number) => Self::Int(number),
        }
    }

    fn value(&self) -> KeyValue<'_> {
        match self {
            Self::Text(text) => KeyValue::String(text),
            Self::Bytes(bytes) => KeyValue::Bytes(bytes),
            Self::Int(number) => KeyValue::Int64(*number),
        }
    }
}

impl OwnedKey {
    /// Copies a key.
    pub(crate) fn of(key: DocumentKey<'_>) -> Self {
        let partition_key = key.partition_key().map(OwnedPart::of);
        Self { primary: OwnedPart::of(key.primary()), partition_key }
    }

    /// Returns the key.
    pub(crate) fn key(&self) -> DocumentKey<'_> {
        let key = DocumentKey::new(self.primary.value());
        match &self.partition_key {
            Some(part) => key.with_partition_key(part.value()),
            None => key,
        }
    }
}

/// Converts a key to a Python object.
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
