//! Failures on their way to Python: a Forebay error becomes the exception class of its code, a
//! Python exception is passed on, and a panic becomes `Internal`.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::{IntoPython, class};

/// The failure of an entry point.
pub(crate) enum CallError {
    /// A Forebay error, with the write that can still be resolved.
    Forebay(Error, Option<Box<dyn IntoPython>>),
    /// An exception that Python raised.
    Python(PyErr),
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Forebay(error, None)
    }
}

impl From<PyErr> for CallError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Infallible> for CallError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<CallError> for PyErr {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Python(error) => error,
            CallError::Forebay(error, pending) => Python::attach(|py| {
                exception(py, &error, pending)
                    .map_or_else(|exception_raised| exception_raised, PyErr::from_value)
            }),
        }
    }
}

/// Creates the Python exception of an error, without raising it.
pub(crate) fn exception<'py>(
    py: Python<'py>,
    error: &Error,
    pending: Option<Box<dyn IntoPython>>,
) -> PyResult<Bound<'py, PyAny>> {
    let pending = pending.map(|write| write.into_python(py)).transpose()?;
    let context = error.context();
    let details = PyDict::new(py);
    details.set_item("store", context.store.as_deref())?;
    details.set_item("partition", context.partition.map(|partition| partition.0))?;
    details.set_item("field", context.field.as_deref())?;
    details.set_item("key_digest", context.key_digest)?;
    details.set_item("limit", context.limit)?;
    details.set_item("actual", context.actual)?;
    details.set_item("pending", pending)?;
    let text = error.to_string();
    let name = format!("{}Error", error.code().name());
    class(py, "forebay._errors", &name)?.call((text,), Some(&details))
}

/// Runs an entry point; a panic becomes `Internal`, and never unwinds into the interpreter.
pub(crate) fn native_call<T>(run: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(Error::of_panic(&*panic).into()))
}
