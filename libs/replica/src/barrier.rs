//! Barriers: entries without content. A replica appends a barrier and waits until it has applied
//! everything that was in the log before the barrier.
//!
//! At most one barrier per partition is in flight. A call joins only a barrier that is not sent
//! yet, because a sent barrier may be in the log before a write that the caller knows of. Calls
//! that arrive while a barrier is in flight share the next one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{LogId, PartitionRef, Position, SchemaVersion};
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::find_log_id;
use forebay_log::{AppendReceipt, ChangeLog};
use forebay_wire::entry::frame_log_id;
use parking_lot::Mutex;

use crate::connect::in_time;

/// A way to append a finished barrier entry if the replica itself may not append: for example,
/// through a writer.
#[async_trait]
pub trait Barriers: Send + Sync + 'static {
    /// Appends the framed entry to a partition's log and returns its position.
    ///
    /// # Errors
    /// Returns `TokenLost` if the log's id differs from the entry's, and the errors of
    /// [`ChangeLog::append`].
    async fn append_barrier(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt>;
}

/// Barriers for a replica that may append to the log itself.
pub struct LogBarriers(pub Arc<dyn ChangeLog>);

#[async_trait]
impl Barriers for LogBarriers {
    async fn append_barrier(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let bounds = self.0.bounds(at).await?;
        let log_id = in_time(Duration::ZERO, find_log_id(&*self.0, at, bounds)).await?;
        if log_id != Some(frame_log_id(&entry)?) {
            let message =
                "the log was replaced, so a barrier in the old log proves nothing; try again";
            return Err(Error::token_lost(message).with_partition(at.partition));
        }
        self.0.append(at, entry).await
    }
}

/// Returns a barrier for the log of this id, position and schema version.
pub(crate) fn barrier_entry(log_id: LogId, last: Position, version: SchemaVersion) -> Entry {
    Entry { epoch: last.epoch, ..Entry::original(log_id, version, EntryBody::Barrier) }
}

/// The position of a barrier, which a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BarrierAt {
    /// Log that the barrier was built for.
    pub log_id: LogId,
    /// Position of the barrier in that log.
    pub position: Position,
}

#[derive(Default)]
struct Round {
    outcome: Mutex<Option<Result<BarrierAt>>>,
}

/// The barriers of one partition.
#[derive(Default)]
pub(crate) struct BarrierQueue {
    /// The round that is not sent yet, if a caller waits for one.
    next: Mutex<Option<Arc<Round>>>,
    /// Lock of the caller that sends.
    turn: tokio::sync::Mutex<()>,
}

impl BarrierQueue {
    /// Joins the next round, and sends its barrier unless another caller of the round already did.
    /// If a caller is dropped while it sends, the next caller of the same round sends.
    pub(crate) async fn join<F>(&self, send: impl FnOnce() -> F) -> Result<BarrierAt>
    where
        F: Future<Output = Result<BarrierAt>>,
    {
        let round = self.next.lock().get_or_insert_default().clone();
        let _turn = self.turn.lock().await;
        if let Some(outcome) = round.outcome.lock().clone() {
            return outcome;
        }
        {
            let mut next = self.next.lock();
            if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, &round)) {
                *next = None;
            }
        }
        let outcome = send().await.map_err(as_read_error);
        *round.outcome.lock() = Some(outcome.clone());
        outcome
    }
}

/// Maps an unknown outcome to `Unavailable`: a barrier that may be in the log changes nothing, so a
/// read has no unknown outcome.
fn as_read_error(error: Error) -> Error {
    let error = error.while_doing("append a barrier");
    if error.code() != ErrorCode::UnknownOutcome {
        return error;
    }
    Error::unavailable(error.message()).with_context(error.context().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay_core::id::{Epoch, Offset};
    use tokio::sync::Semaphore;

    use super::*;

    fn at(offset: u64) -> BarrierAt {
        let position = Position { epoch: Epoch(0), offset: Offset(offset), index_in_entry: 0 };
        BarrierAt { log_id: LogId(1), position }
    }

    /// A test sender that sends a barrier once its gate permits it, and counts barriers.
    #[derive(Default)]
    struct Sender {
        queue: BarrierQueue,
        appends_begun: AtomicU64,
        gate: Option<Semaphore>,
    }

    impl Sender {
        fn gated() -> Arc<Self> {
            Arc::new(Self { gate: Some(Semaphore::new(0)), ..Self::default() })
        }

        async fn join(&self) -> Result<BarrierAt> {
            let send = || async {
                let number = self.appends_begun.fetch_add(1, Ordering::SeqCst);
                if let Some(gate) = &self.gate {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(at(number))
            };
            self.queue.join(send).await
        }
    }

    async fn run_other_tasks() {
        for _ in 0..32 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn calls_during_a_barrier_share_the_next_barrier() {
        let sender = Sender::gated();
        let spawn = || {
            let sender = Arc::clone(&sender);
            tokio::spawn(async move { sender.join().await.unwrap() })
        };
        let first = spawn();
        run_other_tasks().await;
        let later_calls: Vec<_> = (0..5).map(|_| spawn()).collect();
        run_other_tasks().await;
        assert_eq!(sender.appends_begun.load(Ordering::SeqCst), 1);
        sender.gate.as_ref().unwrap().add_permits(8);
        assert_eq!(first.await.unwrap(), at(0));
        for call in later_calls {
            assert_eq!(call.await.unwrap(), at(1));
        }
        assert_eq!(sender.appends_begun.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn cancelled_caller_leaves_its_round_to_the_next_caller() {
        let sender = Sender::gated();
        let spawn = || {
            let sender = Arc::clone(&sender);
            tokio::spawn(async move { sender.join().await.unwrap() })
        };
        let first = spawn();
        let second = spawn();
        run_other_tasks().await;
        first.abort();
        run_other_tasks().await;
        assert_eq!(sender.appends_begun.load(Ordering::SeqCst), 2);
        sender.gate.as_ref().unwrap().add_permits(8);
        assert_eq!(second.await.unwrap(), at(1));
    }

    #[tokio::test]
    async fn unknown_outcome_of_a_barrier_is_unavailable_to_a_read() {
        let queue = BarrierQueue::default();
        let send = || async { Err(Error::unknown_outcome("the connection broke")) };
        assert_eq!(queue.join(send).await.unwrap_err().code(), ErrorCode::Unavailable);
    }
}
