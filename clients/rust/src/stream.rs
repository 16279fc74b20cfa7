//! Write streams, for bulk: many writes in flight, each partition in order.
//!
//! Each partition has a lane, and each lane one request in flight. During that request later writes
//! queue, and the next request takes all that fit a de-duplication window. A retry can therefore
//! never overtake an earlier write, and a slow writer causes larger requests instead of more
//! requests.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::limits::CLIENT_REQUEST_BYTES_TARGET;
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, Result};
use forebay_wire::token::Token;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::options::StreamOptions;
use crate::outcome::{WriteOutcome, WriteResult};
use crate::plan::Item;
use crate::request_stream::RequestStream;
use crate::sequence::WINDOW_SEQUENCES_MAX;
use crate::store_state::StoreState;
use crate::write_builder::Write;
use crate::write_driver::{LastError, Route, WriteDriver};

/// Upper bound of a stream's limits of changes and bytes.
const ROOM_MAX: usize = u32::MAX as usize >> 1;

/// A stream of writes to one store.
///
/// Writes of one partition reach the log in the order in which they were sent, even over failures
/// and restarts of the writer. Nothing is given up while the stream lives: a deadline ends a call,
/// and the next call continues to wait for the same writes. Dropping the stream gives up the
/// unresolved writes; their outcome stays unknown.
///
/// ```no_run
/// use forebay::writes::StreamOptions;
/// # async fn example(users: forebay::Store) -> forebay::Result<()> {
/// let mut stream = users.write_stream(StreamOptions::default())?;
/// for number in 0..1_000_000 {
///     stream.send(users.upsert(&format!("u{number}")).increment("visits", 1)).await?;
/// }
/// let written = stream.close().await?;
/// assert_eq!(written.resolved, 1_000_000);
/// # Ok(())
/// # }
/// ```
pub struct WriteStream {
    state: Arc<StoreState>,
    deadline: Duration,
    options: StreamOptions,
    changes: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    requests: Arc<RequestStream>,
    shared: Arc<Mutex<StreamProgress>>,
    last_error: LastError,
    /// Logs that the lanes belong to.
    logs: StoreLogs,
    lanes: BTreeMap<PartitionId, mpsc::UnboundedSender<QueuedWrite>>,
    tasks: JoinSet<()>,
}

/// Counts and token of a stream's writes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    /// Positions in the log of every write that is in the log.
    pub token: Token,
    /// Writes whose outcome is known: all but those in flight.
    pub resolved: u64,
    /// Resolved writes whose condition did not hold.
    pub condition_failed: u64,
    /// Resolved writes that were refused, or whose outcome stays unknown.
    pub failed: u64,
    /// The first error since the last flush.
    pub first_error: Option<Error>,
}

/// The outcome of a write, as soon as known. Dropping it is safe: the stream still counts the
/// write.
#[derive(Debug)]
pub struct Acknowledgement(oneshot::Receiver<Result<WriteOutcome>>);

impl Future for Acknowledgement {
    type Output = Result<WriteOutcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|received| {
            received.unwrap_or_else(|_| {
                Err(Error::unknown_outcome(
                    "the stream was dropped before the write was resolved; read the document",
                ))
            })
        })
    }
}

struct QueuedWrite {
    item: Item,
    version: SchemaVersion,
    reply: oneshot::Sender<Result<WriteOutcome>>,
    /// Space in the stream; released when the write is resolved.
    _room: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl WriteStream {
    pub(crate) fn new(state: Arc<StoreState>, options: StreamOptions) -> Result<Self> {
        if options.changes_max == 0 || options.bytes_max == 0 {
            let message =
                "the stream's limits allow no change or no byte; raise the limits in its options";
            return Err(Error::invalid_argument(message));
        }
        let (changes, bytes) = (options.changes_max.min(ROOM_MAX), options.bytes_max.min(ROOM_MAX));
        let summary = StreamSummary {
            token: Token::new(state.id()),
            resolved: 0,
            condition_failed: 0,
            failed: 0,
            first_error: None,
        };
        let logs = state.logs();
        Ok(Self {
            deadline: state.connection().deadline(),
            logs,
            state,
            options: StreamOptions::default().changes_max(changes).bytes_max(bytes),
            changes: Arc::new(Semaphore::new(changes)),
            bytes: Arc::new(Semaphore::new(bytes)),
            requests: Arc::default(),
            shared: Arc::new(Mutex::new(StreamProgress { logs, summary })),
            last_error: LastError::default(),
            lanes: BTreeMap::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Returns the same stream with this deadline for each call instead of the client's.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Queues a write once there is space; returns before the write is sent.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` or `LimitExceeded` for an invalid write. `Unavailable` if
    /// there is no space before the deadline. In each case the stream has not taken this write, and
    /// earlier writes are unaffected.
    pub async fn send(&mut self, write: Write) -> Result<Acknowledgement> {
        let state = Arc::clone(&self.state);
        if write.backend().id() != state.id() {
            let message =
                "the write is of another store than the stream; open another stream for that store";
            return Err(Error::invalid_argument(message).with_store(state.name()));
        }
        let spec = write.into_spec();
        let logs = self.logs;
        let prepare = async {
            let (definition, routed) = state.resolve(std::slice::from_ref(&spec)).await?;
            if definition.write_logs() != logs {
                // Earlier writes are resolved first, in whichever logs take them now.
                let all = self.options.changes_max as u32;
                drop(self.changes.acquire_many(all).await);
            }
            let no_change = || Error::internal("a spec has no change");
            let item = Item::new(routed.first().ok_or_else(no_change)?, 0)
                .map_err(|error| error.with_store(state.name()))?;
            let room = self.room(item.bytes).await?;
            Ok::<_, Error>((definition, item, room))
        };
        let prepared = tokio::time::timeout(self.deadline, prepare).await;
        let (definition, item, room) = prepared.map_err(|_| self.no_room())??;
        if definition.write_logs() != logs {
            self.logs = definition.write_logs();
            self.lanes.clear();
        }
        let version = definition.version;
        let (reply, answer) = oneshot::channel();
        let partition = item.partition;
        let queued = QueuedWrite { item, version, reply, _room: room };
        self.lane(partition)
            .send(queued)
            .map_err(|_| Error::internal("a lane of the stream ended; open another stream"))?;
        Ok(Acknowledgement(answer))
    }

    /// Waits until every write that was sent is resolved.
    ///
    /// # Errors
    /// The first error of a write since the last flush; the [`WriteStream::summary`] counts later
    /// errors. `UnknownOutcome` if writes are still in flight at the deadline: flush again, and the
    /// same writes are resolved.
    pub async fn flush(&mut self) -> Result<StreamSummary> {
        let all = self.options.changes_max as u32;
        if tokio::time::timeout(self.deadline, self.changes.acquire_many(all)).await.is_err() {
            let in_flight = self.options.changes_max - self.changes.available_permits();
            let message = format!(
                "{in_flight} writes may be in the log; flush again to resolve these writes ({})",
                self.last_cause()
            );
            return Err(Error::unknown_outcome(message).with_store(self.state.name()));
        }
        let summary = &mut self.shared.lock().summary;
        match summary.first_error.take() {
            Some(error) => Err(error),
            None => Ok(summary.clone()),
        }
    }

    /// Flushes, then ends the stream.
    ///
    /// # Errors
    /// Errors of [`WriteStream::flush`]. Writes in flight at the deadline are given up; to be able
    /// to wait again, flush first.
    pub async fn close(mut self) -> Result<StreamSummary> {
        self.flush().await
    }

    /// Returns the outcome of the writes so far; does not wait.
    pub fn summary(&self) -> StreamSummary {
        self.shared.lock().summary.clone()
    }

    async fn room(&self, bytes: usize) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let closed_error = |_| Error::internal("the stream was closed; open another stream");
        let bytes = bytes.clamp(1, self.options.bytes_max) as u32;
        let change = Arc::clone(&self.changes).acquire_owned().await.map_err(closed_error)?;
        let bytes =
            Arc::clone(&self.bytes).acquire_many_owned(bytes).await.map_err(closed_error)?;
        Ok((change, bytes))
    }

    fn no_room(&self) -> Error {
        let message = format!(
            "the stream is full and no write was resolved before the deadline; send this write \
             again later ({})",
            self.last_cause()
        );
        Error::unavailable(message).with_store(self.state.name())
    }

    fn last_cause(&self) -> String {
        let last = self.last_error.lock();
        last.as_ref().map_or("no answer yet".to_owned(), ToString::to_string)
    }

    fn lane(&mut self, partition: PartitionId) -> &mpsc::UnboundedSender<QueuedWrite> {
        self.lanes.entry(partition).or_insert_with(|| {
            // Unbounded, but each queued write holds space in the stream.
            let (sender, receiver) = mpsc::unbounded_channel();
            let lane = PartitionLane {
                state: Arc::clone(&self.state),
                logs: self.logs,
                requests: Arc::clone(&self.requests),
                shared: Arc::clone(&self.shared),
                last_error: Arc::clone(&self.last_error),
                receiver,
                next: None,
            };
            self.tasks.spawn(lane.run());
            sender
        })
    }
}

impl fmt::Debug for WriteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteStream")
            .field("store", &self.state.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A partition of a stream.
struct PartitionLane {
    state: Arc<StoreState>,
    logs: StoreLogs,
    requests: Arc<RequestStream>,
    shared: Arc<Mutex<StreamProgress>>,
    last_error: LastError,
    receiver: mpsc::UnboundedReceiver<QueuedWrite>,
    /// A write that did not fit into the previous request.
    next: Option<QueuedWrite>,
}

impl PartitionLane {
    async fn run(mut self) {
        while let Some(group) = self.next_group().await {
            self.resolve(group).await;
        }
    }

    /// Returns the next writes that are sent together: of one schema version, within a request's
    /// limits.
    async fn next_group(&mut self) -> Option<Vec<QueuedWrite>> {
        let first = match self.next.take() {
            Some(queued) => queued,
            None => self.receiver.recv().await?,
        };
        let (version, mut bytes) = (first.version, first.item.bytes);
        let mut group = vec![first];
        while group.len() < WINDOW_SEQUENCES_MAX
            && let Ok(queued) = self.receiver.try_recv()
        {
            bytes += queued.item.bytes;
            if queued.version != version || bytes > CLIENT_REQUEST_BYTES_TARGET {
                self.next = Some(queued);
                break;
            }
            group.push(queued);
        }
        Some(group)
    }

    async fn resolve(&self, group: Vec<QueuedWrite>) {
        let Some(version) = group.first().map(|queued| queued.version) else { return };
        let (mut items, mut waiting) = (Vec::new(), Vec::new());
        for (place, QueuedWrite { mut item, reply, _room, .. }) in group.into_iter().enumerate() {
            item.place = place;
            items.push(item);
            waiting.push((reply, _room));
        }
        let mut driver = WriteDriver::new(
            Arc::clone(&self.state),
            (version, self.logs),
            Route::Stream(Arc::clone(&self.requests)),
            items,
            Arc::clone(&self.last_error),
        );
        driver.run().await;
        let logs = driver.logs();
        let (token, results) = driver.into_results();
        self.shared.lock().count(logs, &token, &results);
        for (result, (reply, room)) in results.into_iter().zip(waiting) {
            // A caller that does not need the outcome has dropped the acknowledgement.
            let token = || token.clone();
            let _ = reply.send(result.map(|result| WriteOutcome { token: token(), result }));
            drop(room);
        }
    }
}

/// The state that a stream reports.
struct StreamProgress {
    /// Logs that the token refers to.
    logs: StoreLogs,
    summary: StreamSummary,
}

impl StreamProgress {
    fn count(&mut self, logs: StoreLogs, token: &Token, results: &[Result<WriteResult>]) {
        let summary = &mut self.summary;
        if logs.repartition_count > self.logs.repartition_count {
            // The new logs contain everything that was in the old logs.
            self.logs = logs;
            summary.token = token.clone();
        } else if logs == self.logs && summary.token.merge(token).is_err() {
            summary.token.positions.extend(&token.positions);
        }
        for result in results {
            summary.resolved += 1;
            match result {
                Ok(WriteResult::ConditionFailed(_)) => summary.condition_failed += 1,
                Ok(_) => {}
                Err(error) => {
                    summary.failed += 1;
                    summary.first_error.get_or_insert_with(|| error.clone());
                }
            }
        }
    }
}
