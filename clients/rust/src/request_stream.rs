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

use crate::client::ClientInner;

type Answer = Result<v1::WriteResponse>;
/// The stream that a request went into, and the channel that receives the answer.
type Sent = (Arc<Mutex<Shared>>, oneshot::Receiver<Answer>);

/// The stream that is open now, if any.
#[derive(Default)]
pub(crate) struct RequestStream {
    open: Mutex<Option<Open>>,
}

struct Open {
    shared: Arc<Mutex<Shared>>,
    driver: JoinHandle<()>,
}

struct Shared {
    /// `None` once the stream is broken. Unbounded, but each lane has one request in flight.
    requests: Option<mpsc::UnboundedSender<v1::WriteRequest>>,
    waiting: VecDeque<oneshot::Sender<Answer>>,
}

impl Shared {
    /// Ends the stream: nothing more is sent, and every waiting caller receives the error.
    fn fail(&mut self, error: &Error) {
        self.requests = None;
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(Err(error.clone()));
        }
    }

    /// Sends a request; returns `None` if the stream is broken.
    fn send(&mut self, request: v1::WriteRequest) -> Option<oneshot::Receiver<Answer>> {
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
    /// Errors of [`ClientInner::write`].
    pub(crate) async fn write(
        &self,
        client: &Arc<ClientInner>,
        request: v1::WriteRequest,
    ) -> Answer {
        let (stream, answer) = self.send(client, request)?;
        match client.within_attempt(answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(broken()),
            Err(error) => {
                // Answers come in order, so later requests would wait in vain, too.
                stream.lock().fail(&error);
                Err(error)
            }
        }
    }

    fn send(&self, client: &Arc<ClientInner>, request: v1::WriteRequest) -> Result<Sent> {
        let mut open = self.open.lock();
        if open.as_ref().is_none_or(Open::is_broken) {
            *open = None;
        }
        let shared = &open.get_or_insert_with(|| Open::start(client)).shared;
        let answer = shared.lock().send(request).ok_or_else(broken)?;
        Ok((Arc::clone(shared), answer))
    }
}

impl Open {
    fn start(client: &Arc<ClientInner>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let shared = Shared { requests: Some(sender), waiting: VecDeque::new() };
        let shared = Arc::new(Mutex::new(shared));
        let driver = tokio::spawn(drive(Arc::clone(client), receiver, Arc::clone(&shared)));
        Self { shared, driver }
    }

    fn is_broken(&self) -> bool {
        self.shared.lock().requests.is_none()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
        self.shared.lock().fail(&broken());
    }
}

/// Passes answers to the waiting callers, until the stream ends.
async fn drive(
    client: Arc<ClientInner>,
    requests: mpsc::UnboundedReceiver<v1::WriteRequest>,
    shared: Arc<Mutex<Shared>>,
) {
    let error = match answers(&client, requests, &shared).await {
        Ok(()) => broken(),
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
    client: &ClientInner,
    requests: mpsc::UnboundedReceiver<v1::WriteRequest>,
    shared: &Mutex<Shared>,
) -> Result<(), Status> {
    let opened = client.rpc().write_stream(UnboundedReceiverStream::new(requests)).await?;
    let mut answers = opened.into_inner();
    while let Some(answer) = answers.message().await? {
        let Some(reply) = shared.lock().waiting.pop_front() else { return Ok(()) };
        let _ = reply.send(Ok(answer));
    }
    Ok(())
}

fn broken() -> Error {
    Error::unknown_outcome("the stream of writes ended before the answer")
}
