//! A stream of writes: many on their way, each partition in order.
//!
//! A write that has room is taken in at once, on the caller's thread and without a wait; only one
//! that has to wait for room becomes a call.

use std::time::Duration;

use forebay::{Acknowledgement, Error, ErrorCode, Store, StreamOptions, WriteOutcome, WriteStream};
use futures::FutureExt;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::call::{Answer, Call, write_object};
use crate::change::Change;
use crate::fault::{Fault, entry};
use crate::process::{self, ProcessOwned};
use crate::schema::duration_of;

/// A stream of writes to one store.
#[pyclass(frozen, name = "WriteStream", module = "forebay._native")]
pub(crate) struct NativeStream {
    held: ProcessOwned<Held>,
    room: usize,
}

struct Held {
    store: Store,
    stream: Mutex<WriteStream>,
}

impl NativeStream {
    pub(crate) fn new(
        store: &Store,
        changes_max: Option<usize>,
        bytes_max: Option<usize>,
        deadline: Option<Duration>,
    ) -> Result<Self, Fault> {
        let mut options = StreamOptions::default();
        options.changes_max = changes_max.unwrap_or(options.changes_max);
        options.bytes_max = bytes_max.unwrap_or(options.bytes_max);
        let room = options.changes_max;
        let mut stream = store.write_stream(options)?;
        if let Some(deadline) = deadline {
            stream = stream.with_deadline(deadline);
        }
        let held = Held { store: store.clone(), stream: Mutex::new(stream) };
        Ok(Self { held: ProcessOwned::new("stream", held), room })
    }
}

#[pymethods]
impl NativeStream {
    /// Most changes that are not settled yet.
    #[getter]
    fn room(&self) -> usize {
        self.room
    }

    /// Takes a change in if that needs no wait; else None, and nothing was taken in.
    fn try_send(&self, change: &Change) -> Result<Option<NativeAcknowledgement>, Fault> {
        entry(|| {
            let held = self.held.get()?;
            let Ok(mut stream) = held.stream.try_lock() else { return Ok(None) };
            let write = change.write(&held.store);
            let sent = process::within(|| stream.send(write).now_or_never())?;
            Ok(sent.transpose()?.map(NativeAcknowledgement::new))
        })
    }

    /// Takes a change in, once there is room.
    fn send(&self, change: &Change) -> Result<Call, Fault> {
        entry(|| {
            let held = self.held.get()?.to_arc();
            let write = change.write(&held.store);
            Ok(Call::new(async move {
                let sent = held.stream.lock().await.send(write).await;
                sent.map(Answer::Acknowledgement)
            }))
        })
    }

    /// Waits until every write that was sent is settled.
    fn flush(&self) -> Result<Call, Fault> {
        entry(|| {
            let held = self.held.get()?.to_arc();
            Ok(Call::new(
                async move { held.stream.lock().await.flush().await.map(Answer::Summary) },
            ))
        })
    }

    /// What became of the writes so far.
    fn summary(&self) -> Result<Call, Fault> {
        entry(|| {
            let held = self.held.get()?.to_arc();
            Ok(Call::new(async move {
                Ok::<_, Error>(Answer::Summary(held.stream.lock().await.summary()))
            }))
        })
    }

    /// Ends the stream; what is not settled is given up.
    fn close(&self) {
        drop(self.held.take());
    }
}

/// One write's outcome, as soon as it is known.
#[pyclass(frozen, name = "Acknowledgement", module = "forebay._native")]
pub(crate) struct NativeAcknowledgement {
    state: ProcessOwned<Mutex<State>>,
}

enum State {
    Waiting(Acknowledgement),
    Known(Result<WriteOutcome, Error>),
}

impl State {
    /// The outcome; a wait that is given up can be begun again.
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
        let state = Mutex::new(State::Waiting(acknowledgement));
        Self { state: ProcessOwned::new("acknowledgement", state) }
    }
}

#[pymethods]
impl NativeAcknowledgement {
    /// Whether the outcome is known; does not wait.
    #[getter]
    fn is_known(&self) -> Result<bool, Fault> {
        entry(|| {
            let held = self.state.get()?;
            let Ok(mut state) = held.try_lock() else { return Ok(false) };
            Ok(state.outcome().now_or_never().is_some())
        })
    }

    /// The outcome if it is known, else None.
    fn known<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Fault> {
        entry(|| {
            let held = self.state.get()?;
            let Ok(mut state) = held.try_lock() else { return Ok(None) };
            let Some(outcome) = state.outcome().now_or_never() else { return Ok(None) };
            let outcome = outcome?;
            Ok(Some(write_object(py, &outcome.token, outcome.result)?))
        })
    }

    /// Waits for the outcome, at most so many seconds.
    #[pyo3(signature = (timeout=None))]
    fn outcome(&self, timeout: Option<f64>) -> Result<Call, Fault> {
        entry(|| {
            let held = self.state.get()?.to_arc();
            let timeout = timeout.map(duration_of).transpose()?;
            Ok(Call::new(async move {
                let outcome = async { held.lock().await.outcome().await };
                let outcome = match timeout {
                    None => outcome.await,
                    Some(timeout) => tokio::time::timeout(timeout, outcome)
                        .await
                        .unwrap_or_else(|_| Err(not_settled())),
                };
                outcome.map(Answer::Write)
            }))
        })
    }
}

fn not_settled() -> Error {
    let message = "the write is not settled yet; wait again, for the stream goes on with it";
    Error::new(ErrorCode::DeadlineExceeded, message)
}
