//! Classes of Python modules whose objects the native side creates.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns a class or another name of a module; the import is Python's own look-up once the module
/// is loaded.
pub(crate) fn class<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(module)?.getattr(name)
}

/// Creates an object of one of the package's data classes.
pub(crate) fn model<'py>(
    py: Python<'py>,
    name: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    class(py, "forebay._answers", name)?.call((), Some(fields))
}
