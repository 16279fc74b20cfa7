//! Handles of fields: resolved once by name, or for one read that is given a name.

use forebay::reads::FieldHandle;
use forebay::schema::StoreId;
use forebay::{Error, Reader};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::CallError;
use crate::schema::field_type_of;
use crate::value::text_of;

/// A field of a reader: resolved once by name, then bound to its id and type.
///
/// A handle survives renames and, while values fit, a wider type; after a drop, reads return
/// absent.
#[pyclass(frozen, name = "FieldHandle", module = "forebay")]
pub(crate) struct NativeFieldHandle {
    pub(crate) handle: FieldHandle,
    store: StoreId,
}

#[pymethods]
impl NativeFieldHandle {
    /// Name that the handle was resolved by.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name()
    }

    /// Type that the field is read as.
    #[getter]
    fn r#type(&self) -> String {
        self.handle.asked().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<forebay.FieldHandle {}: {}>", self.handle.name(), self.handle.asked())
    }
}

impl NativeFieldHandle {
    /// Resolves a name, to be read as a type; its own type unless given.
    ///
    /// # Errors
    /// `NotFound` and `InvalidArgument`.
    pub(crate) fn resolve(
        reader: &Reader,
        store: StoreId,
        name: &str,
        field_type: Option<&str>,
    ) -> Result<Self, CallError> {
        let handle = match field_type {
            Some(type_name) => reader.field_as(name, field_type_of(type_name)?)?,
            None => reader.field(name)?,
        };
        Ok(Self { handle, store })
    }

    /// Returns the handle that a read is given, or resolves the name that it is given. Called after
    /// the read's wait, because the wait may be for the field itself.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, and `InvalidArgument` for a handle of another store.
    pub(crate) fn of<'py>(
        reader: &Reader,
        store: StoreId,
        field: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, Self>, CallError> {
        if let Ok(name) = field.cast::<PyString>() {
            let resolved = Self::resolve(reader, store, text_of(name)?, None)?;
            return Ok(Bound::new(field.py(), resolved)?);
        }
        let handle = field.cast::<Self>().map_err(PyErr::from)?;
        if handle.get().store != store {
            let message = "the handle is of another store; resolve one on this reader";
            return Err(Error::invalid_argument(message).with_field(handle.get().name()).into());
        }
        Ok(handle.clone())
    }
}
