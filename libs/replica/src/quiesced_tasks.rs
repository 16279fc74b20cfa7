//! Work on a quiescent replica. The tail runs the work between two records, so the fold's state and
//! the documents are at exactly one position. Reads continue during the work, and the tail applies
//! nothing.

use std::time::Duration;

use forebay_core::fold::PartitionState;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::partition_replica::PartitionReplica;
use crate::storage::ReplicaWriter;

/// Longest wait for a quiescent replica: the tail may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A quiescent replica, or the error that explains why there is none.
type QuiescedReplica<'c> = Result<(&'c PartitionState, &'c dyn ReplicaWriter)>;
type Work = Box<dyn FnOnce(QuiescedReplica<'_>) + Send>;

/// The queue of work for the next moment at which a partition's replica is quiescent.
#[derive(Default)]
pub struct QuiescedTasks {
    waiting: Mutex<Vec<Work>>,
    work_queued: Notify,
}

impl QuiescedTasks {
    /// Lets the tail run `work`, and returns the result.
    ///
    /// # Errors
    /// Returns the error of `work`; `Unavailable` if the replica is being rebuilt or is not
    /// quiescent in time; `Unsupported` if another reader owns the replica.
    pub async fn run_when_quiesced<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PartitionState, &dyn ReplicaWriter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let work = |quiesced: QuiescedReplica<'_>| {
            let result = quiesced.and_then(|(state, writer)| work(state, writer));
            // The caller may have stopped waiting.
            drop(sender.send(result));
        };
        self.waiting.lock().push(Box::new(work));
        self.work_queued.notify_one();
        match tokio::time::timeout(WAIT_MAX, receiver).await {
            Ok(Ok(result)) => result,
            _ => Err(Error::unavailable(
                "the replica did not pause in time, or has closed; try again",
            )),
        }
    }

    /// Returns when the queue may hold work.
    pub async fn asked(&self) {
        self.work_queued.notified().await;
    }

    /// Runs all queued work.
    pub(crate) fn run(&self, replica: &PartitionReplica) {
        let quiesced = replica.is_quiesced().then(|| (replica.state(), replica.writer()));
        let rebuilding = || {
            Error::unavailable("the replica is being rebuilt; try again once the replica serves")
        };
        self.end_all(|| quiesced.ok_or_else(rebuilding));
    }

    /// Refuses all queued work, because another reader owns the replica.
    pub fn refuse(&self) {
        let message = "another reader of the directory owns this replica; ask that reader, or \
            compare the newest checkpoint";
        self.end_all(|| Err(Error::unsupported(message)));
    }

    fn end_all<'c>(&self, quiesced: impl Fn() -> QuiescedReplica<'c>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|work| work(quiesced()));
    }
}
