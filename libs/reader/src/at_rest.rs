//! What is done with a copy while it rests: its tail does it between two records, so the fold's
//! state and the documents are of exactly one position. Reads go on meanwhile, and nothing is
//! applied.

use std::time::Duration;

use forebay_core::fold::PartitionState;
use forebay_core::{Error, Result};
use forebay_index::PartitionWriter;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::generation::Generation;

/// Longest wait until a copy rests: its tail may be in the middle of something.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A copy at rest, or why there is none.
type Rest<'c> = Result<(&'c PartitionState, &'c PartitionWriter)>;
type Work = Box<dyn FnOnce(Rest<'_>) + Send>;

/// What waits to be done while the copy of a partition rests.
#[derive(Default)]
pub(crate) struct AtRest {
    waiting: Mutex<Vec<Work>>,
    asked: Notify,
}

impl AtRest {
    /// Has it done by the tail.
    ///
    /// # Errors
    /// Its own; `Unavailable` where the copy is built anew, or does not rest in time; `Unsupported`
    /// where another reader keeps it.
    pub(crate) async fn done<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PartitionState, &PartitionWriter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, doing) = oneshot::channel();
        let work = |rest: Rest<'_>| {
            let result = rest.and_then(|(state, writer)| work(state, writer));
            // Nobody may wait for it any more.
            drop(done.send(result));
        };
        self.waiting.lock().push(Box::new(work));
        self.asked.notify_one();
        match tokio::time::timeout(WAIT_MAX, doing).await {
            Ok(Ok(result)) => result,
            _ => Err(Error::unavailable("the copy did not rest in time, or has closed; try again")),
        }
    }

    /// Returns when there may be something to do.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Does all of it.
    pub(crate) fn run(&self, copy: &Generation) {
        let writer = copy.writer().as_index().filter(|_| copy.is_at_rest());
        let rest = writer.map(|writer| (copy.state(), writer));
        let none = || Error::unavailable("the copy is built anew; try again when it is ready");
        self.end_all(|| rest.ok_or_else(none));
    }

    /// Refuses all of it, where another reader keeps the copy.
    pub(crate) fn refuse(&self) {
        let message = "another reader of the directory keeps this copy, and it alone can tell what \
                       is in it; ask there, or compare the newest checkpoint";
        self.end_all(|| Err(Error::unsupported(message)));
    }

    fn end_all<'c>(&self, rest: impl Fn() -> Rest<'c>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|work| work(rest()));
    }
}
