//! Outcomes of writes, as the package's data classes, and the write whose outcome is unknown, which
//! an error carries to its handler.

use forebay::Error;
use forebay::writes::{
    BatchOutcome, PendingWrite, StreamSummary, WriteError, WriteOutcome, WriteResult,
};
use forebay_wire::token::Token;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::call::Call;
use crate::error::{CallError, exception, native_call};
use crate::process::ProcessOwned;
use crate::python::{IntoPython, model};

impl IntoPython for WriteOutcome {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        write_object(py, &self.token, self.result)
    }
}

/// Returns a `forebay.WriteOutcome`.
fn write_object<'py>(
    py: Python<'py>,
    token: &Token,
    result: WriteResult,
) -> PyResult<Bound<'py, PyAny>> {
    let (result, version) = match result {
        WriteResult::Appended => ("appended", None),
        WriteResult::Applied => ("applied", None),
        WriteResult::ConditionFailed(version) => ("condition_failed", version),
    };
    let parts = PyDict::new(py);
    parts.set_item("token", PyBytes::new(py, &token.encode()))?;
    parts.set_item("result", result)?;
    parts.set_item("version", version.map(|version| version.0))?;
    model(py, "WriteOutcome", &parts)
}

impl IntoPython for BatchOutcome {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let result = |result: &Result<WriteResult, Error>| match result {
            Ok(result) => write_object(py, &self.token, *result),
            Err(error) => exception(py, error, None),
        };
        let results = self.results.iter().map(result).collect::<PyResult<Vec<_>>>()?;
        let parts = PyDict::new(py);
        parts.set_item("token", PyBytes::new(py, &self.token.encode()))?;
        parts.set_item("results", PyList::new(py, results)?)?;
        model(py, "BatchOutcome", &parts)
    }
}

impl IntoPython for StreamSummary {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let first_error = self.first_error.as_ref();
        let first_error = first_error.map(|error| exception(py, error, None)).transpose()?;
        let parts = PyDict::new(py);
        parts.set_item("token", PyBytes::new(py, &self.token.encode()))?;
        parts.set_item("resolved", self.resolved)?;
        parts.set_item("condition_failed", self.condition_failed)?;
        parts.set_item("failed", self.failed)?;
        parts.set_item("first_error", first_error)?;
        model(py, "StreamSummary", &parts)
    }
}

/// A write that was sent and is unresolved, from `ForebayError.pending`.
#[pyclass(frozen, name = "PendingWrite", module = "forebay._native")]
pub(crate) struct NativePendingWrite {
    write: ProcessOwned<Mutex<Option<PendingWrite>>>,
}

#[pymethods]
impl NativePendingWrite {
    /// Returns the call that sends the same write again under the same sequence; can be used once.
    fn retry(&self) -> Result<Call, CallError> {
        native_call(|| {
            let write = self.write.get()?.lock().take().ok_or_else(|| {
                let message = "the write was already retried; retry the write of its newest error";
                Error::invalid_argument(message)
            })?;
            Ok(Call::new(async { write.retry().await }))
        })
    }
}

impl IntoPython for PendingWrite {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let write = ProcessOwned::new("write", Mutex::new(Some(*self)));
        Ok(Bound::new(py, NativePendingWrite { write })?.into_any())
    }
}

impl From<WriteError> for CallError {
    fn from(write_error: WriteError) -> Self {
        let error = write_error.error().clone();
        let pending =
            write_error.into_pending().map(|write| Box::new(write) as Box<dyn IntoPython>);
        Self::Forebay(error, pending)
    }
}
