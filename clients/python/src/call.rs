//! Calls over the network: started once, then a thread waits for the result or an event loop awaits
//! it.
//!
//! No code on the runtime's threads ever touches the interpreter. A call that an event loop awaits
//! ends in [`Completions`]: the runtime appends the result to a list, and a byte on a socket wakes
//! the loop, which takes the results on its own thread.

use std::future::Future;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;

use forebay::{
    Acknowledgement, BatchOutcome, Client, Definition, Error, PendingWrite, Selected, Store,
    StreamSummary, WriteOutcome, WriteResult,
};
use forebay_wire::token::Token;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::attached::Opened;
use crate::client::{NativeClient, NativeStore};
use crate::fault::{Fault, entry, exception};
use crate::opening::OpenedReader;
use crate::ordered::{FoundDocuments, ScannedDocuments};
use crate::process::{self, ProcessOwned};
use crate::python::model;
use crate::schema::definition_object;
use crate::select::selected_object;
use crate::stream::NativeAcknowledgement;
use crate::verified::FoundVerified;

/// The result of a call.
pub(crate) enum Answer {
    Nothing,
    /// A client and the address that it is connected to.
    Client(Client, String),
    Store(Store),
    Definition(Arc<Definition>),
    Definitions(Vec<Definition>),
    Write(WriteOutcome),
    Batch(BatchOutcome),
    Acknowledgement(Acknowledgement),
    Summary(StreamSummary),
    Reader(Box<Opened>),
    Documents(FoundDocuments),
    Scanned(ScannedDocuments),
    Selected(Box<Selected>),
    Verified(Box<FoundVerified>),
}

impl Answer {
    fn into_object(self, py: Python<'_>) -> Result<Bound<'_, PyAny>, Fault> {
        Ok(match self {
            Self::Nothing => py.None().into_bound(py),
            Self::Client(client, endpoint) => {
                Bound::new(py, NativeClient::new(client, endpoint))?.into_any()
            }
            Self::Store(store) => Bound::new(py, NativeStore::new(store))?.into_any(),
            Self::Definition(definition) => definition_object(py, &definition)?,
            Self::Definitions(all) => {
                let all = all.iter().map(|definition| definition_object(py, definition));
                PyList::new(py, all.collect::<Result<Vec<_>, _>>()?)?.into_any()
            }
            Self::Write(outcome) => write_object(py, &outcome.token, outcome.result)?,
            Self::Batch(outcome) => batch_object(py, &outcome)?,
            Self::Acknowledgement(acknowledgement) => {
                Bound::new(py, NativeAcknowledgement::new(acknowledgement))?.into_any()
            }
            Self::Summary(summary) => summary_object(py, &summary)?,
            Self::Documents(found) => found.into_object(py)?,
            Self::Scanned(found) => found.into_object(py)?,
            Self::Selected(selected) => selected_object(py, &selected)?,
            Self::Verified(found) => found.into_object(py)?,
            Self::Reader(opened) => Bound::new(py, OpenedReader::new(*opened))?.into_any(),
        })
    }
}

/// Returns a `forebay.WriteOutcome`.
pub(crate) fn write_object<'py>(
    py: Python<'py>,
    token: &Token,
    result: WriteResult,
) -> PyResult<Bound<'py, PyAny>> {
    let (result, version) = match result {
        WriteResult::Appended => ("appended", None),
        WriteResult::Applied => ("applied", None),
        WriteResult::NotMet(version) => ("not_met", version),
    };
    let parts = PyDict::new(py);
    parts.set_item("token", PyBytes::new(py, &token.encode()))?;
    parts.set_item("result", result)?;
    parts.set_item("version", version.map(|version| version.0))?;
    model(py, "WriteOutcome", &parts)
}

fn batch_object<'py>(py: Python<'py>, outcome: &BatchOutcome) -> PyResult<Bound<'py, PyAny>> {
    let result = |result: &Result<WriteResult, Error>| match result {
        Ok(result) => write_object(py, &outcome.token, *result),
        Err(error) => exception(py, error, None),
    };
    let results = outcome.results.iter().map(result).collect::<PyResult<Vec<_>>>()?;
    let parts = PyDict::new(py);
    parts.set_item("token", PyBytes::new(py, &outcome.token.encode()))?;
    parts.set_item("results", PyList::new(py, results)?)?;
    model(py, "BatchOutcome", &parts)
}

fn summary_object<'py>(py: Python<'py>, summary: &StreamSummary) -> PyResult<Bound<'py, PyAny>> {
    let first_error = summary.first_error.as_ref();
    let first_error = first_error.map(|error| exception(py, error, None)).transpose()?;
    let parts = PyDict::new(py);
    parts.set_item("token", PyBytes::new(py, &summary.token.encode()))?;
    parts.set_item("settled", summary.settled)?;
    parts.set_item("not_met", summary.not_met)?;
    parts.set_item("failed", summary.failed)?;
    parts.set_item("first_error", first_error)?;
    model(py, "StreamSummary", &parts)
}

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// A call that is not started yet.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Call {
    answering: ProcessOwned<Mutex<Option<Answering>>>,
    /// Whether the call ends without this process's threads.
    is_local: bool,
}

impl Call {
    pub(crate) fn new<E: Into<Fault>>(
        future: impl Future<Output = Result<Answer, E>> + Send + 'static,
    ) -> Self {
        let answering: Answering = Box::pin(async { future.await.map_err(Into::into) });
        let answering = ProcessOwned::new("call", Mutex::new(Some(answering)));
        Self { answering, is_local: false }
    }

    /// Returns the same call, marked as local if it is of a store in memory.
    pub(crate) fn local(mut self, is_local: bool) -> Self {
        self.is_local = is_local;
        self
    }

    fn take(&self) -> Result<Answering, Fault> {
        let taken = self.answering.get()?.lock().take();
        taken.ok_or_else(|| {
            Error::invalid_argument("the call was already made; make another call").into()
        })
    }
}

#[pymethods]
impl Call {
    /// Starts the call and waits for its result; Ctrl-C ends the wait.
    fn wait<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| {
            let answering = self.take()?;
            let answer = match self.is_local {
                true => process::wait_here(py, answering)?,
                false => process::wait(py, answering)?,
            };
            answer?.into_object(py)
        })
    }

    /// Starts the call; its result goes to `completions` under the ticket.
    fn start(&self, completions: &Completions, ticket: u64) -> Result<Started, Fault> {
        entry(|| {
            let answering = self.take()?;
            let inbox = Arc::clone(&completions.inbox);
            let abort = process::spawn(async move { inbox.put(ticket, answering.await) })?;
            Ok(Started { abort })
        })
    }
}

/// A call that an event loop awaits.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Started {
    abort: tokio::task::AbortHandle,
}

#[pymethods]
impl Started {
    /// Gives the call up; its outcome stays unknown.
    fn cancel(&self) {
        self.abort.abort();
    }
}

/// Ticket, result, error; the result or the error is None.
type Taken<'py> = (u64, Option<Bound<'py, PyAny>>, Option<PyErr>);

/// The results for one event loop.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Completions {
    inbox: Arc<Inbox>,
    woken: UnixStream,
}

struct Inbox {
    answers: Mutex<Vec<(u64, Result<Answer, Fault>)>>,
    waker: UnixStream,
}

impl Inbox {
    fn put(&self, ticket: u64, answer: Result<Answer, Fault>) {
        let mut answers = self.answers.lock();
        answers.push((ticket, answer));
        if answers.len() == 1 {
            // A full socket wakes the loop as well, and a closed one has no loop any more.
            let _ = (&self.waker).write(&[1]);
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self { inbox: Arc::new(Inbox { answers: Mutex::default(), waker }), woken })
    }

    /// Returns the file descriptor that is readable while results are available.
    fn fileno(&self) -> i32 {
        self.woken.as_raw_fd()
    }

    /// Takes the results so far.
    fn take<'py>(&self, py: Python<'py>) -> Result<Vec<Taken<'py>>, Fault> {
        entry(|| {
            let mut wakes = [0; 64];
            while match (&self.woken).read(&mut wakes) {
                Ok(read) => read == wakes.len(),
                Err(error) => error.kind() == ErrorKind::Interrupted,
            } {}
            let answers = std::mem::take(&mut *self.inbox.answers.lock());
            let object = |(ticket, answer): (u64, Result<Answer, Fault>)| match answer
                .and_then(|answer| answer.into_object(py))
            {
                Ok(object) => (ticket, Some(object), None),
                Err(fault) => (ticket, None, Some(fault.into())),
            };
            Ok(answers.into_iter().map(object).collect())
        })
    }
}

/// A write that was sent and is unsettled, from `Error.pending`.
#[pyclass(frozen, name = "PendingWrite", module = "forebay._native")]
pub(crate) struct Pending {
    write: ProcessOwned<Mutex<Option<PendingWrite>>>,
}

impl Pending {
    pub(crate) fn new(write: PendingWrite) -> Self {
        Self { write: ProcessOwned::new("write", Mutex::new(Some(write))) }
    }
}

#[pymethods]
impl Pending {
    /// Returns the call that sends the same write again under the same sequence; can be used once.
    fn retry(&self) -> Result<Call, Fault> {
        entry(|| {
            let write = self.write.get()?.lock().take().ok_or_else(|| {
                let message = "the write was already retried; retry the write of its newest error";
                Error::invalid_argument(message)
            })?;
            Ok(Call::new(async { write.retry().await.map(Answer::Batch) }))
        })
    }
}
