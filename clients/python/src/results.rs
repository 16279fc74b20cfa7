//! Conversion of read results to Python.

use std::time::Duration;

use forebay::reads::{
    CopyOut, Document, DocumentKey, FieldHandle, FieldRead, KeyAnswer, KeyList, KeyStatus,
    PackedValues, RowRef, View,
};
use forebay::schema::{Definition, FieldType, Value};
use forebay::{Error, Reader};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString};

use crate::buffer::OutArray;
use crate::error::CallError;
use crate::gather::{presence_code, status_code};
use crate::key::GivenKeys;
use crate::value::object_of;

/// Most objects created without releasing the interpreter, which takes some tenths of a
/// millisecond.
const HELD_MAX: usize = 4_096;

/// A read value: plain types become objects directly, without a copy in between.
pub(crate) enum PyValue<'py> {
    Object(Bound<'py, PyAny>),
    /// A value whose conversion may run Python code, and so must not happen while a view is held.
    Value(Value),
}

impl<'py> PyValue<'py> {
    /// Converts the value to an object.
    ///
    /// # Errors
    /// Errors of [`object_of`].
    pub(crate) fn into_object(self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        match self {
            Self::Object(object) => Ok(object),
            Self::Value(value) => object_of(py, &value),
        }
    }
}

/// Reads one field of one document.
pub(crate) fn read_field<'py>(
    py: Python<'py>,
    view: &View<'_>,
    handle: &FieldHandle,
    key: DocumentKey<'_>,
) -> forebay::Result<FieldRead<PyValue<'py>>> {
    view.get(key)?.map_or(Ok(FieldRead::Absent), |row| read_value(py, &row, handle))
}

fn read_value<'py>(
    py: Python<'py>,
    row: &RowRef<'_>,
    handle: &FieldHandle,
) -> forebay::Result<FieldRead<PyValue<'py>>> {
    let int = |number| Ok(PyValue::Object(PyInt::new(py, number).into_any()));
    let float = |number| Ok(PyValue::Object(PyFloat::new(py, number).into_any()));
    match handle.asked() {
        FieldType::STRING => {
            row.str(handle)?.try_map(|text| Ok(PyValue::Object(PyString::new(py, text).into_any())))
        }
        FieldType::BYTES => row
            .bytes(handle)?
            .try_map(|bytes| Ok(PyValue::Object(PyBytes::new(py, bytes).into_any()))),
        FieldType::INT64 => row.scalar::<i64>(handle)?.try_map(int),
        FieldType::INT32 => row.scalar::<i32>(handle)?.try_map(|number| int(number.into())),
        FieldType::FLOAT64 => row.scalar::<f64>(handle)?.try_map(float),
        FieldType::FLOAT32 => row.scalar::<f32>(handle)?.try_map(|number| float(number.into())),
        _ => row.value(handle)?.try_map(|value| Ok(PyValue::Value(value))),
    }
}

/// Copies a string or bytes field of one document to the caller's buffer.
pub(crate) fn copy_field(
    view: &View<'_>,
    handle: &FieldHandle,
    key: DocumentKey<'_>,
    buffer: &mut [u8],
) -> forebay::Result<CopyOut> {
    match handle.asked() {
        FieldType::STRING => view.get_str(handle, key, buffer),
        FieldType::BYTES => view.get_bytes(handle, key, buffer),
        other => {
            let message = format!(
                "a {other} is neither a string nor bytes; read the field with get or gather"
            );
            Err(Error::invalid_argument(message).with_field(handle.name()))
        }
    }
}

/// Checks the array that takes a status per key.
pub(crate) fn check_statuses(
    statuses: Option<&Bound<'_, PyAny>>,
    keys: &GivenKeys<'_>,
) -> Result<Option<OutArray<u8>>, CallError> {
    let check = |all| OutArray::check(all, "statuses", "uint8", keys.count(), None);
    statuses.map(check).transpose()
}

/// The parameters of a read of many keys.
pub(crate) struct BatchRead<'a> {
    pub(crate) keys: &'a GivenKeys<'a>,
    pub(crate) max_staleness: Option<Duration>,
    /// Whether the caller takes a status per key. Otherwise a key whose partition does not answer
    /// is an error, because it would look like an absent key.
    pub(crate) statuses: bool,
}

impl BatchRead<'_> {
    /// Visits the documents in the order of the keys, and returns the statuses if requested.
    fn read(
        &self,
        view: &View<'_>,
        mut visit: impl FnMut(Option<&RowRef<'_>>) -> forebay::Result<()>,
    ) -> forebay::Result<Vec<u8>> {
        let mut codes = Vec::with_capacity(if self.statuses { self.keys.count() } else { 0 });
        view.get_many(self.keys, |place, answer| {
            if self.statuses {
                codes.push(status_code(answer.status()));
            }
            match answer {
                KeyAnswer::Found(row) => visit(Some(&row)),
                KeyAnswer::None(status) if self.statuses || status == KeyStatus::Absent => {
                    visit(None)
                }
                // The single read returns the reason.
                KeyAnswer::None(_) => visit(view.get(self.keys.key(place))?.as_ref()),
            }
        })?;
        Ok(codes)
    }
}

/// Reads one field of many documents, with `default` for absent, in the order of the keys.
///
/// Objects are created directly from the documents, which holds the interpreter; other threads get
/// the interpreter after every [`HELD_MAX`] objects.
pub(crate) fn read_values<'py>(
    py: Python<'py>,
    reader: &Reader,
    batch: &BatchRead<'_>,
    handle: &FieldHandle,
    default: &Bound<'py, PyAny>,
) -> Result<(Vec<Bound<'py, PyAny>>, Vec<u8>), CallError> {
    let mut objects: Vec<Bound<'py, PyAny>> = Vec::with_capacity(batch.keys.count());
    let mut later_values = Vec::new();
    let codes = reader.read_local(batch.max_staleness, |view| {
        batch.read(view, |row| {
            let place = objects.len();
            if place % HELD_MAX == HELD_MAX - 1 {
                py.detach(|| ());
            }
            let read = row.map_or(Ok(FieldRead::Absent), |row| read_value(py, row, handle))?;
            objects.push(match read {
                FieldRead::Value(PyValue::Object(object)) => object,
                FieldRead::Value(PyValue::Value(value)) => {
                    later_values.push((place, value));
                    py.None().into_bound(py)
                }
                FieldRead::Null => py.None().into_bound(py),
                FieldRead::Absent => default.clone(),
            });
            Ok(())
        })
    })?;
    for (place, value) in later_values {
        objects[place] = object_of(py, &value)?;
    }
    Ok((objects, codes))
}

/// Reads many documents with the interpreter released.
pub(crate) fn read_documents(
    py: Python<'_>,
    reader: &Reader,
    batch: &BatchRead<'_>,
) -> Result<(Vec<Option<Document>>, Vec<u8>), CallError> {
    let answers = py.detach(|| {
        reader.read_local(batch.max_staleness, |view| {
            let mut found = Vec::with_capacity(batch.keys.count());
            let codes = batch.read(view, |row| {
                found.push(row.map(RowRef::document).transpose()?);
                Ok(())
            })?;
            Ok((found, codes))
        })
    });
    Ok(answers?)
}

/// Bytes of all values, the end of each (u64), a status and a presence (u8) per key.
pub(crate) type PackedBuffers<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Reads a string or bytes field of many documents, with the interpreter released and without an
/// object per value.
pub(crate) fn read_packed<'py>(
    py: Python<'py>,
    reader: &Reader,
    keys: &GivenKeys<'_>,
    max_staleness: Option<Duration>,
    handle: &FieldHandle,
) -> Result<PackedBuffers<'py>, CallError> {
    let mut packed = PackedValues::default();
    py.detach(|| {
        reader.read_local(max_staleness, |view| view.get_packed(keys, handle, &mut packed))
    })?;
    let (statuses, presences) = (packed.statuses.into_iter(), packed.presences.into_iter());
    Ok((
        PyBytes::new(py, &packed.bytes),
        bytes_of(py, packed.ends.into_iter().map(u64::to_le_bytes))?,
        bytes_of(py, statuses.map(|status| [status_code(status)]))?,
        bytes_of(py, presences.map(|presence| [presence_code(presence)]))?,
    ))
}

/// Returns the bytes of items of one size, written directly into the result.
fn bytes_of<const N: usize>(
    py: Python<'_>,
    items: impl ExactSizeIterator<Item = [u8; N]>,
) -> PyResult<Bound<'_, PyBytes>> {
    PyBytes::new_with(py, items.len() * N, |bytes| {
        bytes.chunks_exact_mut(N).zip(items).for_each(|(place, item)| place.copy_from_slice(&item));
        Ok(())
    })
}

/// Returns the dict of a document: absent fields are missing, null fields are None.
pub(crate) fn document_object<'py>(
    py: Python<'py>,
    reader: &Reader,
    document: &Document,
) -> Result<Bound<'py, PyAny>, CallError> {
    // The definition is read after the document, so that it is not older; a field dropped in
    // between is absent.
    document_of(py, &reader.definition(), document)
}

/// Returns the dict of a document whose fields a definition names.
pub(crate) fn document_of<'py>(
    py: Python<'py>,
    definition: &Definition,
    document: &Document,
) -> Result<Bound<'py, PyAny>, CallError> {
    let fields = PyDict::new(py);
    for cell in document.cells() {
        let Some(field) = definition.field_by_id(cell.field) else { continue };
        let value = cell.value.as_ref().map(|value| object_of(py, value)).transpose()?;
        fields.set_item(&field.name, value)?;
    }
    Ok(fields.into_any())
}
