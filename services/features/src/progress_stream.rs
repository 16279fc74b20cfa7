//! Answers that stream the progress of long work to its caller.

use forebay_core::Result;
use forebay_wire::status::status_of_error;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

/// The sender of a stream's messages.
pub(crate) type ProgressSender<T> = mpsc::Sender<Result<T, Status>>;

/// Starts work that holds its turn until its end, and streams the messages that the work sends,
/// and its error. The work is aborted if the client disconnects.
pub(crate) fn stream_progress<T, W>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce(ProgressSender<T>) -> W,
) -> Response<ReceiverStream<Result<T, Status>>>
where
    T: Send + 'static,
    W: Future<Output = Result<()>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(16);
    let work = work(sender.clone());
    tokio::spawn(async move {
        let _turn = turn;
        let ended = tokio::select! {
            ended = work => ended,
            () = sender.closed() => return,
        };
        if let Err(error) = ended {
            drop(sender.send(Err(status_of_error(&error))).await);
        }
    });
    Response::new(ReceiverStream::new(receiver))
}
