//! Writes of many callers to one store go together where they come while others are under way.
//!
//! A request costs client and writer more than a change does, and entries of several partitions are
//! made durable together when they come together. So while two requests are under way, others wait
//! for an answer, and go as one. Whoever writes alone waits for nobody. An answer that takes long,
//! as that of a partition without a leader, holds nobody up for more than [`WAIT_MAX`]; until it
//! comes, each partition's writes go by themselves.

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

/// Longest that others wait for the answer to a request before they go, too.
const WAIT_MAX: Duration = Duration::from_millis(CLIENT_TOGETHER_WAIT_MS);

type Answer = Result<v1::WriteResponse>;

/// What one that waited is told.
enum Told {
    Answered(Answer),
    /// Those that went together were refused together.
    GoAlone,
}

/// Those of one client that wait for others.
pub(crate) struct Together {
    /// Where they are sent; without one, none waits.
    runtime: Option<Handle>,
    lanes: Mutex<HashMap<Destination, Lane>>,
}

/// What requests have in common that can be one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Destination {
    store: u64,
    schema_version: u32,
    moves: u32,
}

/// Those to one destination, while some are under way.
#[derive(Default)]
struct Lane {
    /// Requests whose answers others wait for.
    under_way: usize,
    /// Requests whose answers nobody waits for any more.
    overdue: usize,
    /// No more than the sequences of its partitions' windows: each of them holds one.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    request: v1::WriteRequest,
    bytes: usize,
    reply: oneshot::Sender<Told>,
}

/// What becomes of a request when it comes.
enum Entered {
    Goes(v1::WriteRequest),
    Waits(oneshot::Receiver<Told>),
}

impl Destination {
    /// That of a request that may wait: a small one whose answer is its append.
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
    /// Sends on the runtime that it is made in.
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

    /// What goes next, request by request, when others do not wait for one any more: because it
    /// was answered, or because its answer takes long.
    fn next(&self, to: Destination, is_overdue: bool) -> Vec<Vec<Waiting>> {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&to) else { return Vec::new() };
        lane.overdue += usize::from(is_overdue);
        let groups = lane.groups();
        lane.under_way = lane.under_way - 1 + groups.len();
        Self::end_idle(&mut lanes, to);
        groups
    }

    /// Notes that one whose answer took long is under way no more.
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
    /// All that waits as one request, as far as it holds it; by partition while one's answer takes
    /// long: it may be for one of them.
    fn groups(&mut self) -> Vec<Vec<Waiting>> {
        let (mut groups, mut bytes) = (BTreeMap::<_, Vec<_>>::new(), 0);
        while bytes < CLIENT_TOGETHER_BYTES_AIM
            && let Some(waiting) = self.waiting.pop_front()
        {
            // Whoever has gone sends it again by itself, or not at all.
            if !waiting.reply.is_closed() {
                bytes += waiting.bytes;
                let by = (self.overdue > 0).then(|| waiting.request.partitions.clone());
                groups.entry(by).or_default().push(waiting);
            }
        }
        groups.into_values().collect()
    }
}

/// A request that is under way. Those that wait for it go when it is answered, when it has taken
/// long, or when nobody wants its answer any more.
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

    /// Lets those go that wait for it.
    fn let_go(&self) {
        let together = self.client.together();
        let groups = together.next(self.to, self.is_overdue);
        let Some(runtime) = &together.runtime else { return };
        for group in groups {
            runtime.spawn(Self::new(&self.client, self.to).send_all(group));
        }
    }

    /// Sends these as one request, and tells each what became of it.
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
            // One of them is refused, or all: only each by itself can tell.
            let told = if is_refused { Told::GoAlone } else { Told::Answered(answer) };
            drop(reply.send(told));
        }
    }
}

impl ClientInner {
    /// As [`ClientInner::write`] of the request that is made, of so many bytes of changes, but
    /// together with what others write to the same store meanwhile; then the token is theirs, too.
    ///
    /// # Errors
    /// Those of [`ClientInner::write`].
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

/// Whether nothing of a request is in the log, and sending it again would say the same.
fn is_refusal(error: &Error) -> bool {
    use ErrorCode::{Conflict, Unavailable, UnknownOutcome};
    !matches!(error.code(), Conflict | Unavailable | UnknownOutcome)
}

/// All changes of requests to one destination, in their order; of none, none.
fn as_one(requests: Vec<v1::WriteRequest>) -> Option<v1::WriteRequest> {
    requests.into_iter().reduce(|mut one, request| {
        if let (Some(batch), Some(more)) = (&mut one.batch, request.batch) {
            batch.changes.extend(more.changes);
            one.partitions.extend(request.partitions);
        }
        one
    })
}
