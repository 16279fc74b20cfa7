//! Write streams: many writes in flight, each partition in order.
//!
//! A write that fits is queued at once, on the caller's thread and without a wait; only a write
//! that has to wait for space becomes a call.

use std::time::Duration;

use forebay::writes::{Acknowledgement, StreamOptions, WriteOutcome, WriteStream};
use forebay::{Error, ErrorCode, Store};
use futures::FutureExt;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::call::Call;
use crate::change::Change;
use crate::error::{CallError, native_call};
use crate::process::{self, ProcessOwned};
use crate::python::IntoPython;
use crate::schema::duration_of;

/// A stream of writes to one store.
#[pyclass(frozen, name = "WriteStream", module = "forebay._native")]
pub(crate) struct NativeStream {
    store_stream: ProcessOwned<StoreStream>,
    room: usize,
}

struct StoreStream {
    store: Store,
    stream: Mutex<WriteStream>,
}

impl NativeStream {
    pub(crate) fn new(
        store: &Store,
        changes_max: Option<usize>,
        bytes_max: Option<usize>,
        deadline: Option<Duration>,
    ) -> Result<Self, CallError> {
        let mut options = StreamOptions::default();
        options.changes_max = changes_max.unwrap_or(options.changes_max);
        options.bytes_max = bytes_max.unwrap_or(options.bytes_max);
        let room = options.changes_max;
        let mut stream = store.write_stream(options)?;
        if let Some(deadline) = deadline {
            stream = stream.deadline(deadline);
        }
        let store_stream = StoreStream { store: store.clone(), stream: Mutex::new(stream) };
        Ok(Self { store_stream: ProcessOwned::new("stream", store_stream), room })
    }
}

#[pymethods]
impl NativeStream {
    /// Most unresolved changes.
    #[getter]
    fn room(&self) -> usize {
        self.room
    }

    /// Queues a change if that needs no wait; otherwise returns None, and the change is not queued.
    fn try_send(&self, change: &Change) -> Result<Option<NativeAcknowledgement>, CallError> {
        native_call(|| {
            let store_stream = self.store_stream.get()?;
            let Ok(mut stream) = store_stream.stream.try_lock() else { return Ok(None) };
            let write = change.write(&store_stream.store);
            let sent = process::run_within(|| stream.send(write).now_or_never())?;
            Ok(sent.transpose()?.map(NativeAcknowledgement::new))
        })
    }

    /// Returns the call that queues a change once there is space.
    fn send(&self, change: &Change) -> Result<Call, CallError> {
        native_call(|| {
            let store_stream = self.store_stream.get()?.to_arc();
            let write = change.write(&store_stream.store);
            Ok(Call::new(async move {
                let sent = store_stream.stream.lock().await.send(write).await;
                sent.map(NativeAcknowledgement::new)
            }))
        })
    }

    /// Returns the call that waits until every write that was sent is resolved.
    fn flush(&self) -> Result<Call, CallError> {
        native_call(|| {
            let store_stream = self.store_stream.get()?.to_arc();
            Ok(Call::new(async move { store_stream.stream.lock().await.flush().await }))
        })
    }

    /// Returns the call for the outcome of the writes so far.
    fn summary(&self) -> Result<Call, CallError> {
        native_call(|| {
            let store_stream = self.store_stream.get()?.to_arc();
            Ok(Call::new(async move { Ok::<_, Error>(store_stream.stream.lock().await.summary()) }))
        })
    }

    /// Ends the stream; unresolved writes are given up.
    fn close(&self) {
        drop(self.store_stream.take());
    }
}

/// The outcome of one write, as soon as it is known.
#[pyclass(frozen, name = "Acknowledgement", module = "forebay._native")]
pub(crate) struct NativeAcknowledgement {
    state: ProcessOwned<Mutex<OutcomeState>>,
}

enum OutcomeState {
    Waiting(Acknowledgement),
    Known(Result<WriteOutcome, Error>),
}

impl OutcomeState {
    /// Returns the outcome; a wait that was given up can be repeated.
    async fn outcome(&mut self) -> Result<WriteOutcome, Error> {
        let outcome = match self {
            Self::Known(outcome) => return outcome.clone(),
            Self::Waiting(acknowledgement) => acknowledgement.await,
        };
        *self = Self::Known(outcome.clone());
        outcome
    }
}

impl NativeAcknowledgement {
    pub(crate) fn new(acknowledgement: Acknowledgement) -> Self {
        let state = Mutex::new(OutcomeState::Waiting(acknowledgement));
        Self { state: ProcessOwned::new("acknowledgement", state) }
    }
}

impl IntoPython for NativeAcknowledgement {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, *self)?.into_any())
    }
}

#[pymethods]
impl NativeAcknowledgement {
    /// Returns whether the outcome is known; does not wait.
    #[getter]
    fn is_known(&self) -> Result<bool, CallError> {
        native_call(|| {
            let shared_state = self.state.get()?;
            let Ok(mut state) = shared_state.try_lock() else { return Ok(false) };
            Ok(state.outcome().now_or_never().is_some())
        })
    }

    /// Returns the outcome if it is known, else None.
    fn known<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, CallError> {
        native_call(|| {
            let shared_state = self.state.get()?;
            let Ok(mut state) = shared_state.try_lock() else { return Ok(None) };
            let Some(outcome) = state.outcome().now_or_never() else { return Ok(None) };
            Ok(Some(Box::new(outcome?).into_python(py)?))
        })
    }

    /// Returns the call that waits for the outcome, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn outcome(&self, timeout: Option<f64>) -> Result<Call, CallError> {
        native_call(|| {
            let shared_state = self.state.get()?.to_arc();
            let timeout = timeout.map(duration_of).transpose()?;
            Ok(Call::new(async move {
                let outcome = async { shared_state.lock().await.outcome().await };
                match timeout {
                    None => outcome.await,
                    Some(timeout) => tokio::time::timeout(timeout, outcome)
                        .await
                        .unwrap_or_else(|_| Err(not_resolved())),
                }
            }))
        })
    }
}

fn not_resolved() -> Error {
    let message = "the write is not resolved yet, and the stream continues with it; wait again";
    Error::new(ErrorCode::DeadlineExceeded, message)
}
