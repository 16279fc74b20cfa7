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

use forebay_core::limits::{
    CLIENT_REQUESTS_UNDER_WAY_MAX, CLIENT_TOGETHER_BYTES_AIM, CLIENT_TOGETHER_ONE_BYTES_MAX,
    CLIENT_TOGETHER_WAIT_MS,
};
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::v1;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::client::ClientInner;

/// Longest time that writes wait for the answer to another request before they are sent.
const WAIT_MAX: Duration = Duration::from_millis(CLIENT_TOGETHER_WAIT_MS);

type Answer = Result<v1::WriteResponse>;

/// The result that a waiting write receives.
enum Told {
    Answered(Answer),
    /// The coalesced requests were refused together.
    GoAlone,
}

/// Requests of one client that wait to be coalesced.
pub(crate) struct Together {
    /// Runtime that sends the requests; without a runtime, no request waits.
    runtime: Option<Handle>,
    lanes: Mutex<HashMap<Destination, Lane>>,
}

/// Attributes that requests must share to be coalesced.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Destination {
    store: u64,
    schema_version: u32,
    moves: u32,
}

/// Requests to one destination, while some are in flight.
#[derive(Default)]
struct Lane {
    /// In-flight requests whose answers others wait for.
    under_way: usize,
    /// In-flight requests whose answers no request waits for any more.
    overdue: usize,
    /// At most as many requests as the windows of its partitions have sequences: each request holds
    /// at least one.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    request: v1::WriteRequest,
    bytes: usize,
    reply: oneshot::Sender<Told>,
}

/// Whether a new request is sent or waits.
enum Entered {
    Goes(v1::WriteRequest),
    Waits(oneshot::Receiver<Told>),
}

impl Destination {
    /// Returns the destination of a request that may wait: a small request whose answer is its
    /// append.
    fn of(request: &v1::WriteRequest, bytes: usize) -> Option<Self> {
        let mut changes = request.batch.as_ref()?.changes.iter();
        if bytes > CLIENT_TOGETHER_ONE_BYTES_MAX || changes.any(|change| change.condition.is_some())
        {
            return None;
        }
        let v1::WriteRequest { store_id: store, schema_version, moves, .. } = *request;
        Some(Self { store, schema_version, moves })
    }
}

impl Together {
    /// Creates the queues; requests are sent on the current runtime.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::try_current().ok(), lanes: Mutex::default() }
    }

    fn enter(&self, to: Destination, request: v1::WriteRequest, bytes: usize) -> Entered {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(to).or_default();
        if lane.under_way < CLIENT_REQUESTS_UNDER_WAY_MAX {
            lane.under_way += 1;
            return Entered::Goes(request);
        }
        let (reply, told) = oneshot::channel();
        lane.waiting.push_back(Waiting { request, bytes, reply });
        Entered::Waits(told)
    }

    /// Returns the next requests to send, when the queue no longer waits for a request: because it
    /// was answered, or because its answer is slow.
    fn next(&self, to: Destination, is_overdue: bool) -> Vec<Vec<Waiting>> {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&to) else { return Vec::new() };
        lane.overdue += usize::from(is_overdue);
        let groups = lane.groups();
        lane.under_way = lane.under_way - 1 + groups.len();
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
        if lanes.get(&to).is_some_and(|lane| lane.under_way + lane.overdue == 0) {
            lanes.remove(&to);
        }
    }
}

impl Lane {
    /// Takes all waiting requests as one group, up to the limits of one request. While an answer is
    /// overdue, takes one group per set of partitions, because the slow partition may be among
    /// them.
    fn groups(&mut self) -> Vec<Vec<Waiting>> {
        let (mut groups, mut bytes) = (BTreeMap::<_, Vec<_>>::new(), 0);
        while bytes < CLIENT_TOGETHER_BYTES_AIM
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
struct UnderWay {
    client: Arc<ClientInner>,
    to: Destination,
    is_overdue: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.is_overdue {
            self.client.together().end_overdue(self.to);
        } else {
            self.let_go();
        }
    }
}

impl UnderWay {
    fn new(client: &Arc<ClientInner>, to: Destination) -> Self {
        Self { client: Arc::clone(client), to, is_overdue: false }
    }

    async fn send(mut self, request: v1::WriteRequest) -> Answer {
        let client = Arc::clone(&self.client);
        let mut answer = pin!(client.write(request));
        if let Ok(answer) = tokio::time::timeout(WAIT_MAX, &mut answer).await {
            return answer;
        }
        self.is_overdue = true;
        self.let_go();
        answer.await
    }

    /// Sends the requests that wait for this one.
    fn let_go(&self) {
        let together = self.client.together();
        let groups = together.next(self.to, self.is_overdue);
        let Some(runtime) = &together.runtime else { return };
        for group in groups {
            runtime.spawn(Self::new(&self.client, self.to).send_all(group));
        }
    }

    /// Sends these requests as one, and passes the result to each caller.
    async fn send_all(self, group: Vec<Waiting>) {
        let (mut requests, mut members) = (Vec::new(), Vec::new());
        for Waiting { request, reply, .. } in group {
            members.push((request.partitions.len(), reply));
            requests.push(request);
        }
        let Some(request) = as_one(requests) else { return };
        let mut answer = self.send(request).await;
        let is_refused = answer.as_ref().is_err_and(is_refusal) && members.len() > 1;
        let results = answer.as_mut().map(|response| std::mem::take(&mut response.results));
        let mut results = results.unwrap_or_default().into_iter();
        for (changes, reply) in members {
            let answer = answer.clone().map(|response| v1::WriteResponse {
                results: results.by_ref().take(changes).collect(),
                ..response
            });
            // The writer refused one of the requests, or all: each must go alone to find out.
            let told = if is_refused { Told::GoAlone } else { Told::Answered(answer) };
            drop(reply.send(told));
        }
    }
}

impl ClientInner {
    /// Sends the request that `make` creates, with `bytes` bytes of changes, as
    /// [`ClientInner::write`] does, but coalesced with concurrent requests to the same store. The
    /// token then covers those requests, too.
    ///
    /// # Errors
    /// Errors of [`ClientInner::write`].
    pub(crate) async fn write_together(
        self: &Arc<Self>,
        make: impl Fn() -> v1::WriteRequest,
        bytes: usize,
    ) -> Answer {
        let request = make();
        let runtime = self.together().runtime.as_ref();
        let Some(to) = runtime.and_then(|_| Destination::of(&request, bytes)) else {
            return self.write(request).await;
        };
        match self.together().enter(to, request, bytes) {
            Entered::Goes(request) => UnderWay::new(self, to).send(request).await,
            Entered::Waits(told) => match self.within_attempt(told).await? {
                Ok(Told::Answered(answer)) => answer,
                Ok(Told::GoAlone) => self.write(make()).await,
                Err(_) => {
                    let message = "the client's runtime ended before the answer";
                    Err(Error::unknown_outcome(message))
                }
            },
        }
    }
}

/// Returns whether no change of a request is in the log, and a retry would be refused in the same
/// way.
fn is_refusal(error: &Error) -> bool {
    use ErrorCode::{Conflict, Unavailable, UnknownOutcome};
    !matches!(error.code(), Conflict | Unavailable | UnknownOutcome)
}

/// Merges the changes of requests to one destination, in their order; returns `None` if there are
/// no requests.
fn as_one(requests: Vec<v1::WriteRequest>) -> Option<v1::WriteRequest> {
    requests.into_iter().reduce(|mut one, request| {
        if let (Some(batch), Some(more)) = (&mut one.batch, request.batch) {
            batch.changes.extend(more.changes);
            one.partitions.extend(request.partitions);
        }
        one
    })
}
