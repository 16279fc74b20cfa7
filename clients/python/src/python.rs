//! Objects of Python that the native side creates, and results that become such objects.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A result that becomes an object once its thread has the interpreter.
pub(crate) trait IntoPython: Send + 'static {
    /// Converts the result.
    ///
    /// # Errors
    /// The exception of a failed conversion.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

impl IntoPython for () {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(py.None().into_bound(py))
    }
}

impl<T: IntoPython> IntoPython for Vec<T> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let objects = self.into_iter().map(|item| Box::new(item).into_python(py));
        Ok(PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }
}

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
