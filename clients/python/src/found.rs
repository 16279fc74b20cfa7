//! What reads find, on its way to Python.

use std::time::Duration;

use forebay::{
    Document, DocumentKey, FieldHandle, FieldRead, FieldType, KeyAnswer, KeyList, KeyStatus,
    PackedValues, Reader, RowRef, ScalarType, Value, View,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::buffer::OutArray;
use crate::fault::Fault;
use crate::gather::{presence_code, status_code};
use crate::key::GivenKeys;
use crate::value::object_of;

/// A value that was found: text and bytes become objects in place, without a copy in between.
pub(crate) enum Got<'py> {
    Object(Bound<'py, PyAny>),
    Value(Value),
}

/// One field of one document.
pub(crate) fn read_field<'py>(
    py: Python<'py>,
    view: &View<'_>,
    handle: &FieldHandle,
    key: DocumentKey<'_>,
) -> forebay::Result<FieldRead<Got<'py>>> {
    let Some(row) = view.get(key)? else { return Ok(FieldRead::Absent) };
    match handle.asked() {
        FieldType::Scalar(ScalarType::String) => {
            row.str(handle)?.try_map(|text| Ok(Got::Object(PyString::new(py, text).into_any())))
        }
        FieldType::Scalar(ScalarType::Bytes) => {
            row.bytes(handle)?.try_map(|bytes| Ok(Got::Object(PyBytes::new(py, bytes).into_any())))
        }
        _ => row.value(handle)?.try_map(|value| Ok(Got::Value(value))),
    }
}

/// The array that takes a status per key, checked.
pub(crate) fn check_statuses(
    statuses: Option<&Bound<'_, PyAny>>,
    keys: &GivenKeys,
) -> Result<Option<OutArray<u8>>, Fault> {
    let check = |all| OutArray::check(all, "statuses", "uint8", keys.count(), None);
    statuses.map(check).transpose()
}

/// Reads many documents with the interpreter released. Without statuses a key whose partition does
/// not answer is an error, for it would pass for an absent one.
pub(crate) fn read_many<T: Send>(
    py: Python<'_>,
    reader: &Reader,
    keys: &GivenKeys,
    max_age: Option<Duration>,
    with_statuses: bool,
    read: impl Fn(&RowRef<'_>) -> forebay::Result<T> + Sync,
) -> Result<(Vec<Option<T>>, Vec<u8>), Fault> {
    let answers = py.detach(|| {
        reader.read_local(max_age, |view| {
            let (mut found, mut codes) = (Vec::new(), Vec::new());
            view.multi_get(keys, |place, answer| {
                codes.push(status_code(answer.status()));
                found.push(match answer {
                    KeyAnswer::Found(row) => Some(read(&row)?),
                    KeyAnswer::None(KeyStatus::Absent) => None,
                    KeyAnswer::None(_) if with_statuses => None,
                    // The single read says why.
                    KeyAnswer::None(_) => {
                        view.get(keys.key(place))?.map(|row| read(&row)).transpose()?
                    }
                });
                Ok(())
            })?;
            Ok((found, codes))
        })
    });
    Ok(answers?)
}

/// Bytes of all values, the end of each (u64), a status and a presence (u8) per key.
pub(crate) type Packed<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Reads a string or bytes field of many documents, with the interpreter released and without an
/// object per value.
pub(crate) fn read_packed<'py>(
    py: Python<'py>,
    reader: &Reader,
    keys: &GivenKeys,
    max_age: Option<Duration>,
    handle: &FieldHandle,
) -> Result<Packed<'py>, Fault> {
    let packed = py.detach(|| {
        let mut packed = PackedValues::default();
        let read =
            reader.read_local(max_age, |view| view.multi_get_packed(keys, handle, &mut packed));
        read.map(|()| {
            let ends: Vec<u8> = packed.ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            let statuses: Vec<u8> = packed.statuses.iter().copied().map(status_code).collect();
            let cells: Vec<u8> = packed.presences.iter().copied().map(presence_code).collect();
            (packed.bytes, ends, statuses, cells)
        })
    });
    let (values, ends, statuses, cells) = packed?;
    let bytes = |all: &[u8]| PyBytes::new(py, all);
    Ok((bytes(&values), bytes(&ends), bytes(&statuses), bytes(&cells)))
}

/// The dict of a document: absent fields are missing, null ones None.
pub(crate) fn document_object<'py>(
    py: Python<'py>,
    reader: &Reader,
    document: &Document,
) -> Result<Bound<'py, PyAny>, Fault> {
    // Taken after the document, so that it is no older; a field dropped in between is absent.
    let schema = reader.schema();
    let fields = PyDict::new(py);
    for cell in document.cells() {
        let Some(field) = schema.definition.field_by_id(cell.field) else { continue };
        let value = cell.value.as_ref().map(|value| object_of(py, value)).transpose()?;
        fields.set_item(&field.name, value)?;
    }
    Ok(fields.into_any())
}
