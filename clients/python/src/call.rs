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

use forebay::Error;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::{CallError, native_call};
use crate::process::{self, ProcessOwned};
use crate::python::IntoPython;

/// The result of a call, for the thread that converts it.
type Answer = Result<Box<dyn IntoPython>, CallError>;

type AnswerFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A call that is not started yet.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Call {
    future: ProcessOwned<Mutex<Option<AnswerFuture>>>,
    /// Whether the call ends without this process's threads.
    is_local: bool,
}

impl Call {
    pub(crate) fn new<T: IntoPython, E: Into<CallError>>(
        future: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Self {
        let future: AnswerFuture = Box::pin(async {
            match future.await {
                Ok(result) => Ok(Box::new(result) as Box<dyn IntoPython>),
                Err(error) => Err(error.into()),
            }
        });
        let future = ProcessOwned::new("call", Mutex::new(Some(future)));
        Self { future, is_local: false }
    }

    /// Returns the same call, marked as local if it is of a store in memory.
    pub(crate) fn local(mut self, is_local: bool) -> Self {
        self.is_local = is_local;
        self
    }

    fn take(&self) -> Result<AnswerFuture, CallError> {
        let future = self.future.get()?.lock().take();
        future.ok_or_else(|| {
            Error::invalid_argument("the call was already made; make another call").into()
        })
    }
}

#[pymethods]
impl Call {
    /// Starts the call and waits for its result; Ctrl-C ends the wait.
    fn wait<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let future = self.take()?;
            let answer = match self.is_local {
                true => process::wait_here(py, future)?,
                false => process::wait(py, future)?,
            };
            Ok(answer?.into_python(py)?)
        })
    }

    /// Starts the call; its result goes to `completions` under the ticket.
    fn start(&self, completions: &Completions, ticket: u64) -> Result<StartedCall, CallError> {
        native_call(|| {
            let future = self.take()?;
            let queue = Arc::clone(&completions.queue);
            let abort = process::spawn(async move { queue.put(ticket, future.await) })?;
            Ok(StartedCall { abort })
        })
    }
}

/// A call that an event loop awaits.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct StartedCall {
    abort: tokio::task::AbortHandle,
}

#[pymethods]
impl StartedCall {
    /// Gives the call up; its outcome stays unknown.
    fn cancel(&self) {
        self.abort.abort();
    }
}

/// Ticket, result, error; the result or the error is None.
type Completion<'py> = (u64, Option<Bound<'py, PyAny>>, Option<PyErr>);

/// The results for one event loop.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Completions {
    queue: Arc<CompletionQueue>,
    wake_socket: UnixStream,
}

struct CompletionQueue {
    answers: Mutex<Vec<(u64, Answer)>>,
    waker: UnixStream,
}

impl CompletionQueue {
    fn put(&self, ticket: u64, answer: Answer) {
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
        let (waker, wake_socket) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        wake_socket.set_nonblocking(true)?;
        Ok(Self {
            queue: Arc::new(CompletionQueue { answers: Mutex::default(), waker }),
            wake_socket,
        })
    }

    /// Returns the file descriptor that is readable while results are available.
    fn fileno(&self) -> i32 {
        self.wake_socket.as_raw_fd()
    }

    /// Takes the results so far.
    fn take<'py>(&self, py: Python<'py>) -> Result<Vec<Completion<'py>>, CallError> {
        native_call(|| {
            let mut wakes = [0; 64];
            while match (&self.wake_socket).read(&mut wakes) {
                Ok(read) => read == wakes.len(),
                Err(error) => error.kind() == ErrorKind::Interrupted,
            } {}
            let answers = std::mem::take(&mut *self.queue.answers.lock());
            let completion = |(ticket, answer): (u64, Answer)| match answer
                .map_err(PyErr::from)
                .and_then(|result| result.into_python(py))
            {
                Ok(object) => (ticket, Some(object), None),
                Err(error) => (ticket, None, Some(error)),
            };
            Ok(answers.into_iter().map(completion).collect())
        })
    }
}
