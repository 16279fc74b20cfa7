//! Coalesces writes of many callers to one store while a request is in flight.
//!
//! A request costs client and writer more than a change does, and the writer makes entries of
//! several partitions durable together if they arrive together. While a request is in flight,
//! further writes therefore wait for its answer, and are sent as one request. A lone writer never
//! waits. A slow answer, for example of a partition without a leader, delays other writes by at
//! most [`WAIT_MAX`]; until the answer comes, each write is sent alone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Error;
use forebay_core::limits::{
    CLIENT_COALESCE_BYTES_TARGET, CLIENT_COALESCE_ONE_BYTES_MAX, CLIENT_COALESCE_WAIT_MS,
};
use forebay_wire::v1;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::{Connection, WriteAnswer, is_write_retried};

/// Longest time that writes wait for the answer to another request before they are sent.
const WAIT_MAX: Duration = Duration::from_millis(CLIENT_COALESCE_WAIT_MS);

/// Store, schema version and number of repartitions: requests must share them to be coalesced.
type Destination = (u64, u32, u32);

/// The result that a waiting write receives.
enum CoalescedReply {
    Answered(WriteAnswer),
    /// The coalesced requests were refused together, or the answer before them is slow.
    SendAlone,
}

/// Requests of one client that wait to be coalesced.
pub(crate) struct WriteCoalescer {
    connection: Arc<Connection>,
    /// Runtime that sends the requests; without a runtime, no request waits.
    runtime: Option<Handle>,
    /// The destinations that have a request in flight.
    lanes: Mutex<HashMap<Destination, Lane>>,
}

/// The requests to one destination that wait for the answer to the one in flight.
#[derive(Default)]
struct Lane {
    /// Whether that answer is slow, so that no request waits for it.
    is_overdue: bool,
    /// At most as many requests as the windows of its partitions have sequences: each request holds
    /// at least one.
    waiting: VecDeque<WaitingWrite>,
}

struct WaitingWrite {
    request: v1::WriteChangesRequest,
    bytes: usize,
    reply: oneshot::Sender<CoalescedReply>,
}

/// How a new request goes: now, so that others wait for its answer; after an answer; or alone.
enum Dispatch {
    Send(v1::WriteChangesRequest),
    Wait(oneshot::Receiver<CoalescedReply>),
    SendAlone(v1::WriteChangesRequest),
}

/// Returns the destination of a request that may wait: a small request whose answer is its append.
fn destination(request: &v1::WriteChangesRequest, bytes: usize) -> Option<Destination> {
    let mut changes = request.batch.as_ref()?.changes.iter();
    let may_wait =
        bytes <= CLIENT_COALESCE_ONE_BYTES_MAX && changes.all(|change| change.condition.is_none());
    may_wait.then_some((request.store_id, request.schema_version, request.repartition_count))
}

impl WriteCoalescer {
    /// Creates the queues; requests are sent on the current runtime.
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, runtime: Handle::try_current().ok(), lanes: Mutex::default() }
    }

    /// Sends the request that `make` creates, with `bytes` bytes of changes, as
    /// [`Connection::write`] does, but coalesced with concurrent requests to the same store. The
    /// token then covers those requests, too.
    ///
    /// # Errors
    /// Errors of [`Connection::write`].
    pub(crate) async fn coalesce(
        self: &Arc<Self>,
        make: impl Fn() -> v1::WriteChangesRequest,
        bytes: usize,
    ) -> WriteAnswer {
        let request = make();
        let Some(to) = self.runtime.as_ref().and_then(|_| destination(&request, bytes)) else {
            return self.connection.write(request).await;
        };
        match self.dispatch(to, request, bytes) {
            Dispatch::Send(request) => {
                InFlight { coalescer: Arc::clone(self), to }.send(request).await
            }
            Dispatch::SendAlone(request) => self.connection.write(request).await,
            Dispatch::Wait(reply) => match self.connection.within_attempt(reply).await? {
                Ok(CoalescedReply::Answered(answer)) => answer,
                Ok(CoalescedReply::SendAlone) => self.connection.write(make()).await,
                Err(_) => {
                    let message = "the client's runtime ended before the answer";
                    Err(Error::unknown_outcome(message))
                }
            },
        }
    }

    fn dispatch(
        &self,
        to: Destination,
        request: v1::WriteChangesRequest,
        bytes: usize,
    ) -> Dispatch {
        match self.lanes.lock().entry(to) {
            Entry::Vacant(lane) => {
                lane.insert(Lane::default());
                Dispatch::Send(request)
            }
            Entry::Occupied(lane) if lane.get().is_overdue => Dispatch::SendAlone(request),
            Entry::Occupied(mut lane) => {
                let (reply, receiver) = oneshot::channel();
                lane.get_mut().waiting.push_back(WaitingWrite { request, bytes, reply });
                Dispatch::Wait(receiver)
            }
        }
    }

    /// Takes the waiting requests, up to the limit of one request; ends the lane if there are none.
    fn next_group(&self, to: Destination) -> Vec<WaitingWrite> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&to) else { return group };
        while bytes < CLIENT_COALESCE_BYTES_TARGET
            && let Some(waiting) = lane.waiting.pop_front()
        {
            // A caller that has dropped its wait sends the request again by itself, or not at all.
            if !waiting.reply.is_closed() {
                bytes += waiting.bytes;
                group.push(waiting);
            }
        }
        if group.is_empty() {
            lanes.remove(&to);
        }
        group
    }

    /// Lets each request go alone until the request in flight, whose answer is slow, has ended.
    fn disband(&self, to: Destination) {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&to) else { return };
        lane.is_overdue = true;
        for waiting in lane.waiting.drain(..) {
            drop(waiting.reply.send(CoalescedReply::SendAlone));
        }
    }
}

/// The request in flight to a destination. The requests that wait for it are sent once it is
/// answered, or once no caller wants its answer any more.
struct InFlight {
    coalescer: Arc<WriteCoalescer>,
    to: Destination,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let group = self.coalescer.next_group(self.to);
        if let Some(runtime) = &self.coalescer.runtime
            && !group.is_empty()
        {
            let next = Self { coalescer: Arc::clone(&self.coalescer), to: self.to };
            runtime.spawn(next.send_all(group));
        }
    }
}

impl InFlight {
    async fn send(self, request: v1::WriteChangesRequest) -> WriteAnswer {
        let mut answer = pin!(self.coalescer.connection.write(request));
        if let Ok(answer) = tokio::time::timeout(WAIT_MAX, &mut answer).await {
            return answer;
        }
        self.coalescer.disband(self.to);
        answer.await
    }

    /// Sends these requests as one, and passes the result to each caller.
    async fn send_all(self, group: Vec<WaitingWrite>) {
        let (mut requests, mut members) = (Vec::new(), Vec::new());
        for WaitingWrite { request, reply, .. } in group {
            members.push((request.partitions.len(), reply));
            requests.push(request);
        }
        let Some(request) = merged(requests) else { return };
        let mut answer = self.send(request).await;
        // No change of a refused request is in the log, and a retry would be refused, too. The
        // writer refused one of the requests, or all: each must go alone to find out.
        let is_refused =
            answer.as_ref().is_err_and(|error| !is_write_retried(error)) && members.len() > 1;
        let results = answer.as_mut().map(|response| std::mem::take(&mut response.results));
        let mut results = results.unwrap_or_default().into_iter();
        for (changes, reply) in members {
            let answer = answer.clone().map(|response| v1::WriteChangesResponse {
                results: results.by_ref().take(changes).collect(),
                ..response
            });
            let result = match is_refused {
                true => CoalescedReply::SendAlone,
                false => CoalescedReply::Answered(answer),
            };
            drop(reply.send(result));
        }
    }
}

/// Merges the changes of requests to one destination, in their order; returns `None` if there are
/// no requests.
fn merged(requests: Vec<v1::WriteChangesRequest>) -> Option<v1::WriteChangesRequest> {
    requests.into_iter().reduce(|mut merged_request, request| {
        if let (Some(batch), Some(next_batch)) = (&mut merged_request.batch, request.batch) {
            batch.changes.extend(next_batch.changes);
            merged_request.partitions.extend(request.partitions);
        }
        merged_request
    })
}
