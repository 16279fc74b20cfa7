//! Coalesces writes of many callers to one store while other requests are in flight.
//!
//! A request costs client and writer more than a change does, and the writer makes entries of
//! several partitions durable together if they arrive together. While two requests are in flight,
//! further writes therefore wait for an answer, and are sent as one request. A lone writer never
//! waits. A slow answer, for example of a partition without a leader, delays other writes by at
//! most [`WAIT_MAX`]; until the answer comes, the writes of each set of partitions go in requests
//! of their own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Error;
use forebay_core::limits::{
    CLIENT_COALESCE_BYTES_TARGET, CLIENT_COALESCE_ONE_BYTES_MAX, CLIENT_COALESCE_WAIT_MS,
    CLIENT_REQUESTS_IN_FLIGHT_MAX,
};
use forebay_wire::v1;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::{Connection, WriteAnswer, is_write_retried};

/// Longest time that writes wait for the answer to another request before they are sent.
const WAIT_MAX: Duration = Duration::from_millis(CLIENT_COALESCE_WAIT_MS);

/// The result that a waiting write receives.
enum CoalescedReply {
    Answered(WriteAnswer),
    /// The coalesced requests were refused together.
    SendAlone,
}

/// Requests of one client that wait to be coalesced.
pub(crate) struct WriteCoalescer {
    connection: Arc<Connection>,
    /// Runtime that sends the requests; without a runtime, no request waits.
    runtime: Option<Handle>,
    lanes: Mutex<HashMap<Destination, Lane>>,
}

/// Attributes that requests must share to be coalesced.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Destination {
    store: u64,
    schema_version: u32,
    repartition_count: u32,
}

/// Requests to one destination, while some are in flight.
#[derive(Default)]
struct Lane {
    /// In-flight requests whose answers others wait for.
    in_flight: usize,
    /// In-flight requests whose answers no request waits for any more.
    overdue: usize,
    /// At most as many requests as the windows of its partitions have sequences: each request holds
    /// at least one.
    waiting: VecDeque<WaitingWrite>,
}

struct WaitingWrite {
    request: v1::WriteChangesRequest,
    bytes: usize,
    reply: oneshot::Sender<CoalescedReply>,
}

/// Whether a new request is sent or waits.
enum Dispatch {
    Send(v1::WriteChangesRequest),
    Wait(oneshot::Receiver<CoalescedReply>),
}

impl Destination {
    /// Returns the destination of a request that may wait: a small request whose answer is its
    /// append.
    fn of(request: &v1::WriteChangesRequest, bytes: usize) -> Option<Self> {
        let mut changes = request.batch.as_ref()?.changes.iter();
        if bytes > CLIENT_COALESCE_ONE_BYTES_MAX || changes.any(|change| change.condition.is_some())
        {
            return None;
        }
        let v1::WriteChangesRequest { store_id: store, schema_version, repartition_count, .. } =
            *request;
        Some(Self { store, schema_version, repartition_count })
    }
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
        let Some(to) = self.runtime.as_ref().and_then(|_| Destination::of(&request, bytes)) else {
            return self.connection.write(request).await;
        };
        match self.dispatch(to, request, bytes) {
            Dispatch::Send(request) => InFlight::new(self, to).send(request).await,
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
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(to).or_default();
        if lane.in_flight < CLIENT_REQUESTS_IN_FLIGHT_MAX {
            lane.in_flight += 1;
            return Dispatch::Send(request);
        }
        let (reply, receiver) = oneshot::channel();
        lane.waiting.push_back(WaitingWrite { request, bytes, reply });
        Dispatch::Wait(receiver)
    }

    /// Returns the next requests to send, when the queue no longer waits for a request: because it
    /// was answered, or because its answer is slow.
    fn next(&self, to: Destination, is_overdue: bool) -> Vec<Vec<WaitingWrite>> {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&to) else { return Vec::new() };
        lane.overdue += usize::from(is_overdue);
        let groups = lane.groups();
        lane.in_flight = lane.in_flight - 1 + groups.len();
        Self::end_idle(&mut lanes, to);
        groups
    }

    /// Notes that a request with a slow answer is no longer in flight.
    fn end_overdue(&self, to: Destination) {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get_mut(&to) {
            lane.overdue -= 1;
        }
        Self::end_idle(&mut lanes, to);
    }

    fn end_idle(lanes: &mut HashMap<Destination, Lane>, to: Destination) {
        if lanes.get(&to).is_some_and(|lane| lane.in_flight + lane.overdue == 0) {
            lanes.remove(&to);
        }
    }
}

impl Lane {
    /// Takes all waiting requests as one group, up to the limits of one request. While an answer is
    /// overdue, takes one group per set of partitions, because the slow partition may be among
    /// them.
    fn groups(&mut self) -> Vec<Vec<WaitingWrite>> {
        let (mut groups, mut bytes) = (BTreeMap::<_, Vec<_>>::new(), 0);
        while bytes < CLIENT_COALESCE_BYTES_TARGET
            && let Some(waiting) = self.waiting.pop_front()
        {
            // A caller that has dropped its wait sends the request again by itself, or not at all.
            if !waiting.reply.is_closed() {
                bytes += waiting.bytes;
                let by = (self.overdue > 0).then(|| waiting.request.partitions.clone());
                groups.entry(by).or_default().push(waiting);
            }
        }
        groups.into_values().collect()
    }
}

/// A request in flight. The requests that wait for it are sent once it is answered, once it is
/// slow, or once no caller wants its answer any more.
struct InFlight {
    coalescer: Arc<WriteCoalescer>,
    to: Destination,
    is_overdue: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_overdue {
            self.coalescer.end_overdue(self.to);
        } else {
            self.release();
        }
    }
}

impl InFlight {
    fn new(coalescer: &Arc<WriteCoalescer>, to: Destination) -> Self {
        Self { coalescer: Arc::clone(coalescer), to, is_overdue: false }
    }

    async fn send(mut self, request: v1::WriteChangesRequest) -> WriteAnswer {
        let connection = Arc::clone(&self.coalescer.connection);
        let mut answer = pin!(connection.write(request));
        if let Ok(answer) = tokio::time::timeout(WAIT_MAX, &mut answer).await {
            return answer;
        }
        self.is_overdue = true;
        self.release();
        answer.await
    }

    /// Sends the requests that wait for this one.
    fn release(&self) {
        let groups = self.coalescer.next(self.to, self.is_overdue);
        let Some(runtime) = &self.coalescer.runtime else { return };
        for group in groups {
            runtime.spawn(Self::new(&self.coalescer, self.to).send_all(group));
        }
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
        // No change of a refused request is in the log, and a retry would be refused, too.
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
                // The writer refused one of the requests, or all: each must go alone to find out.
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
    requests.into_iter().reduce(|mut one, request| {
        if let (Some(batch), Some(more)) = (&mut one.batch, request.batch) {
            batch.changes.extend(more.changes);
            one.partitions.extend(request.partitions);
        }
        one
    })
}
