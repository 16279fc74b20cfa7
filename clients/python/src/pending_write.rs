//! Writes that were sent and whose outcome is unknown: an error carries one to its handler.

use forebay::Error;
use forebay::writes::{PendingWrite, WriteError};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::call::Call;
use crate::error::{CallError, native_call};
use crate::process::ProcessOwned;
use crate::python::IntoPython;

/// A write that was sent and is unsettled, from `ForebayError.pending`.
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
    fn from(failed: WriteError) -> Self {
        let error = failed.error().clone();
        let pending = failed.into_pending().map(|write| Box::new(write) as Box<dyn IntoPython>);
        Self::Forebay(error, pending)
    }
}
