//! A bidirectional stream of write requests, opened on demand and reopened after it broke.
//!
//! The writer answers in the order of the requests, so each answer belongs to the oldest waiting
//! request. If the stream breaks, every waiting caller receives an error that leaves its outcome
//! unknown, and sends its request again over the next stream.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::status::write_error_of_status;
use forebay_wire::v1;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use crate::connection::{Connection, WriteAnswer};

/// The stream that a request went into, and the channel that receives the answer.
type SentRequest = (Arc<Mutex<StreamState>>, oneshot::Receiver<WriteAnswer>);

/// The stream that is open now, if any.
#[derive(Default)]
pub(crate) struct RequestStream {
    open: Mutex<Option<OpenStream>>,
}

struct OpenStream {
    shared: Arc<Mutex<StreamState>>,
    driver: JoinHandle<()>,
}

struct StreamState {
    /// `None` once the stream is broken. Unbounded, but each lane has one request in flight.
    requests: Option<mpsc::UnboundedSender<v1::WriteChangesRequest>>,
    waiting: VecDeque<oneshot::Sender<WriteAnswer>>,
}

impl StreamState {
    /// Ends the stream: nothing more is sent, and every waiting caller receives the error.
    fn fail(&mut self, error: &Error) {
        self.requests = None;
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(Err(error.clone()));
        }
    }

    /// Sends a request; returns `None` if the stream is broken.
    fn send(&mut self, request: v1::WriteChangesRequest) -> Option<oneshot::Receiver<WriteAnswer>> {
        self.requests.as_ref()?.send(request).ok()?;
        let (reply, answer) = oneshot::channel();
        self.waiting.push_back(reply);
        Some(answer)
    }
}

impl RequestStream {
    /// Sends one request and waits for its answer, as long as an attempt may take.
    ///
    /// # Errors
    /// Errors of [`Connection::write`].
    pub(crate) async fn write(
        &self,
        connection: &Arc<Connection>,
        request: v1::WriteChangesRequest,
    ) -> WriteAnswer {
        let (stream, answer) = self.send(connection, request)?;
        match connection.within_attempt(answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(broken_stream()),
            Err(error) => {
                // Answers come in order, so later requests would wait in vain, too.
                stream.lock().fail(&error);
                Err(error)
            }
        }
    }

    fn send(
        &self,
        connection: &Arc<Connection>,
        request: v1::WriteChangesRequest,
    ) -> Result<SentRequest> {
        let mut open = self.open.lock();
        if open.as_ref().is_none_or(OpenStream::is_broken) {
            *open = None;
        }
        let shared = &open.get_or_insert_with(|| OpenStream::start(connection)).shared;
        let answer = shared.lock().send(request).ok_or_else(broken_stream)?;
        Ok((Arc::clone(shared), answer))
    }
}

impl OpenStream {
    fn start(connection: &Arc<Connection>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let shared = StreamState { requests: Some(sender), waiting: VecDeque::new() };
        let shared = Arc::new(Mutex::new(shared));
        let driver = tokio::spawn(drive(Arc::clone(connection), receiver, Arc::clone(&shared)));
        Self { shared, driver }
    }

    fn is_broken(&self) -> bool {
        self.shared.lock().requests.is_none()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.driver.abort();
        self.shared.lock().fail(&broken_stream());
    }
}

/// Passes answers to the waiting callers, until the stream ends.
async fn drive(
    connection: Arc<Connection>,
    requests: mpsc::UnboundedReceiver<v1::WriteChangesRequest>,
    shared: Arc<Mutex<StreamState>>,
) {
    let error = match answers(&connection, requests, &shared).await {
        Ok(()) => broken_stream(),
        Err(status) => match write_error_of_status(&status) {
            // The writer ended the stream because of one of its requests. The status does not say
            // which request, or whether earlier requests were appended.
            error if error.code() != ErrorCode::Unavailable => {
                Error::unknown_outcome(error.message()).with_context(error.context().clone())
            }
            error => error,
        },
    };
    shared.lock().fail(&error);
}

async fn answers(
    connection: &Connection,
    requests: mpsc::UnboundedReceiver<v1::WriteChangesRequest>,
    shared: &Mutex<StreamState>,
) -> Result<(), Status> {
    let response = connection.rpc().stream_writes(UnboundedReceiverStream::new(requests)).await?;
    let mut answers = response.into_inner();
    while let Some(answer) = answers.message().await? {
        let Some(reply) = shared.lock().waiting.pop_front() else { return Ok(()) };
        let _ = reply.send(Ok(answer));
    }
    Ok(())
}

fn broken_stream() -> Error {
    Error::unknown_outcome("the stream of writes ended before the answer")
}
