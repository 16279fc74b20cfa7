//! The driver of a write: it sends the changes again and again, under the same sequences, until the
//! outcome of each change is known.
//!
//! A change is *resolved* once the writer says that the change is in the log or never will be.
//! Until then the client must remember whether an earlier attempt may have appended the change. If
//! so, a later refusal says nothing about the change, and the change stays unresolved.
//!
//! The [`WriteDriver`] itself holds all that the client has learned, so that a deadline may cancel
//! the driver at any await and the next call continues from there.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use forebay_core::backoff::Backoff;
use forebay_core::clock::Timestamp;
use forebay_core::id::SchemaVersion;
use forebay_core::limits::{CLIENT_RETRY_AGE_US, WRITE_QUEUE_BYTES_MAX, WRITE_QUEUE_REQUESTS_MAX};
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::outcome::{ChangeOutcome, ChangeResult};
use forebay_wire::token::Token;
use forebay_wire::v1;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;

use crate::connection::is_write_retried;
use crate::outcome::WriteResult;
use crate::plan::{Item, Round, requests, rounds};
use crate::request_stream::RequestStream;
use crate::sequence::Ticket;
use crate::store_state::StoreState;

/// The last failure of an attempt; for messages.
pub(crate) type LastError = Arc<Mutex<Option<Error>>>;

/// The transport of requests to the writer.
#[derive(Clone)]
pub(crate) enum Route {
    /// A call per request, for a caller that waits: the caller handles back-pressure and
    /// refusals.
    Calls,
    /// A bidirectional stream, for bulk: the client waits out back-pressure, and does not send a
    /// change in the log again only to learn its outcome.
    Stream(Arc<RequestStream>),
}

impl Route {
    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }
}

/// A change that has its sequence and no result yet.
struct NumberedChange {
    item: Item,
    ticket: Ticket,
    /// Whether an attempt may have appended the change.
    maybe_in_log: bool,
}

/// The result of one attempt for one change.
struct AttemptResult {
    /// Whether an earlier attempt may have appended the change.
    was_sent: bool,
    result: Result<ChangeResult>,
}

/// Changes on their way into the log.
pub(crate) struct WriteDriver {
    store: Arc<StoreState>,
    schema_version: SchemaVersion,
    /// Logs that the changes are numbered for.
    logs: StoreLogs,
    route: Route,
    waiting: VecDeque<Round>,
    unresolved: Vec<NumberedChange>,
    results: Vec<Option<Result<WriteResult>>>,
    token: Token,
    last_error: LastError,
    /// Time at which the oldest unresolved change got its sequence.
    unresolved_since: Option<Timestamp>,
}

impl WriteDriver {
    pub(crate) fn new(
        store: Arc<StoreState>,
        (schema_version, logs): (SchemaVersion, StoreLogs),
        route: Route,
        items: Vec<Item>,
        last_error: LastError,
    ) -> Self {
        let token = Token::new(store.id());
        let results = items.iter().map(|_| None).collect();
        Self {
            store,
            schema_version,
            logs,
            route,
            waiting: rounds(items),
            unresolved: Vec::new(),
            results,
            token,
            last_error,
            unresolved_since: None,
        }
    }

    /// Sends until everything is resolved. Ends early only if the changes are too old to be sent
    /// again; those changes end as `UnknownOutcome`.
    pub(crate) fn run(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut backoff = self.store.connection().backoff();
            loop {
                if self.store.logs() != self.logs {
                    self.reroute();
                }
                if self.unresolved.is_empty() {
                    if self.waiting.is_empty() {
                        return;
                    }
                    self.number_round().await;
                }
                if self.is_too_old() {
                    self.abandon();
                    return;
                }
                if self.attempt().await {
                    backoff.reset();
                } else {
                    self.pause(&mut backoff).await;
                    self.refresh_if_repartitioned().await;
                }
            }
        })
    }

    /// Fetches the definition if the writer has said that these logs no longer take writes.
    async fn refresh_if_repartitioned(&self) {
        let is_repartitioned = |error: &Error| error.code() == ErrorCode::Conflict;
        if self.last_error.lock().as_ref().is_some_and(is_repartitioned) {
            // On failure, the next attempt is refused in the same way, and fetches again.
            drop(self.store.refresh().await);
        }
    }

    /// Moves the unresolved changes to the logs that take writes now. Changes that may be in the
    /// old logs end as `UnknownOutcome`: the new logs do not know their sequences, so a repeat
    /// would happen a second time.
    fn reroute(&mut self) {
        let definition = self.store.definition();
        let mut items = Vec::new();
        for sent in std::mem::take(&mut self.unresolved) {
            if sent.maybe_in_log {
                let message = "the store was repartitioned during the write; read the document";
                self.record_outcome(sent, Err(Error::unknown_outcome(message)));
            } else {
                items.push(sent.item);
            }
        }
        items.extend(std::mem::take(&mut self.waiting).into_iter().flatten().flatten());
        items.sort_by_key(|item| item.place);
        self.waiting = rounds(
            items.into_iter().map(|queued_item| queued_item.routed_by(&definition)).collect(),
        );
        self.token = Token::new(self.store.id());
        (self.logs, self.unresolved_since) = (definition.write_logs(), None);
    }

    async fn pause(&self, backoff: &mut Backoff) {
        let wait = backoff.next_wait(self.store.connection().entropy());
        tokio::time::sleep(wait).await;
    }

    /// Assigns sequences to the next round. Windows are entered by ascending partition, so that two
    /// batches never wait for each other.
    async fn number_round(&mut self) {
        self.unresolved_since = None;
        while let Some(chunk) = self.waiting.front().and_then(|round| round.front()) {
            let Some(first) = chunk.first() else { break };
            let Some(window) = self.store.window(self.logs, first.partition) else { return };
            let tickets = window.reserve(chunk.len()).await;
            let chunk = self.waiting.front_mut().and_then(|round| round.pop_front());
            self.unresolved_since.get_or_insert_with(|| self.store.connection().now());
            for (mut item, ticket) in chunk.into_iter().flatten().zip(tickets) {
                item.change.sequence = ticket.sequence().0;
                self.unresolved.push(NumberedChange { item, ticket, maybe_in_log: false });
            }
        }
        self.waiting.pop_front();
    }

    /// Sends the unresolved changes once; returns whether any change was resolved.
    async fn attempt(&mut self) -> bool {
        let sizes = |sent: &NumberedChange| (sent.item.partition, sent.item.bytes);
        let ranges = requests(self.unresolved.iter().map(sizes));
        let mark = |sent: &mut NumberedChange| std::mem::replace(&mut sent.maybe_in_log, true);
        let sent_before: Vec<_> = self.unresolved.iter_mut().map(mark).collect();
        let calls: Vec<_> = ranges
            .iter()
            .map(|range| async {
                match &self.route {
                    Route::Calls => {
                        let bytes =
                            self.unresolved[range.clone()].iter().map(|change| change.item.bytes);
                        self.store.coalescer().coalesce(|| self.request(range), bytes.sum()).await
                    }
                    Route::Stream(stream) => {
                        stream.write(self.store.connection(), self.request(range)).await
                    }
                }
            })
            .collect();
        let answers = join_all(calls).await;
        let mut results = Vec::with_capacity(sent_before.len());
        for (range, answer) in ranges.into_iter().zip(answers) {
            match answer.and_then(|response| self.read(&range, response)) {
                Ok(read) => results.extend(read),
                Err(error) => results.extend(range.map(|_| Err(error.clone()))),
            }
        }
        let results = sent_before.into_iter().zip(results);
        let before = self.unresolved.len();
        self.record_results(
            results.map(|(sent_before, result)| AttemptResult { was_sent: sent_before, result }),
        );
        self.unresolved.len() < before
    }

    fn request(&self, range: &Range<usize>) -> v1::WriteChangesRequest {
        let changes = &self.unresolved[range.clone()];
        let mut batch = self.store.connection().empty_batch();
        batch.changes = changes.iter().map(|sent| sent.item.change.clone()).collect();
        v1::WriteChangesRequest {
            store_id: self.store.id().0,
            schema_version: self.schema_version.0,
            batch: Some(batch),
            partitions: changes.iter().map(|sent| sent.item.partition.0).collect(),
            outcome_wait_ms: self.store.connection().outcome_wait_ms(),
            repartition_count: self.logs.repartition_count.into(),
        }
    }

    /// Returns the results in a response, one per change, and stores its token.
    ///
    /// # Errors
    /// The refusal of the whole request, or `UnknownOutcome` for an answer that cannot be read.
    fn read(
        &mut self,
        range: &Range<usize>,
        response: v1::WriteChangesResponse,
    ) -> Result<Vec<Result<ChangeResult>>> {
        self.store.notice_version(response.schema_version);
        if let Some(error) = response.error {
            return Err(error.into());
        }
        if response.results.len() != range.len() {
            let (expected, found) = (range.len(), response.results.len());
            let message = format!("the writer returned {found} results for {expected} changes");
            return Err(Error::unknown_outcome(message));
        }
        if !response.token.is_empty() {
            let mut token = Token::decode(&response.token).map_err(unreadable)?;
            let sent_partitions: BTreeSet<_> =
                self.unresolved[range.clone()].iter().map(|sent| sent.item.partition).collect();
            token.positions.retain(|partition, _| sent_partitions.contains(partition));
            self.keep_token(&token);
        }
        let read = |result| ChangeResult::try_from(result).map_err(unreadable);
        Ok(response.results.into_iter().map(read).collect())
    }

    /// Merges a token. If the log was replaced, the positions of the new log replace the old ones.
    fn keep_token(&mut self, token: &Token) {
        if token.store == self.token.store && self.token.merge(token).is_err() {
            self.token.positions.extend(&token.positions);
        }
    }

    /// Records what an attempt said about each unresolved change.
    fn record_results(&mut self, results: impl Iterator<Item = AttemptResult>) {
        let unresolved = std::mem::take(&mut self.unresolved);
        for (mut sent, AttemptResult { was_sent: sent_before, result }) in
            unresolved.into_iter().zip(results)
        {
            let (is_in_log, error) = match result {
                Ok(ChangeResult { outcome: ChangeOutcome::Failed(error), position }) => {
                    (position.is_some(), error)
                }
                Ok(ChangeResult { outcome, .. }) => {
                    self.record_outcome(sent, outcome.try_into());
                    continue;
                }
                Err(error) => (false, error),
            };
            let is_known_absent = error.code() != ErrorCode::UnknownOutcome && !is_in_log;
            sent.maybe_in_log = sent_before || !is_known_absent;
            let is_final = match error.code() {
                // A change in the log keeps its order; only a replica knows its outcome.
                ErrorCode::UnknownOutcome => is_in_log && self.route.is_stream(),
                // The change is in the log and a replica has refused it: the document would be too
                // large.
                ErrorCode::LimitExceeded if is_in_log => true,
                _ if sent_before || is_write_retried(&error) => false,
                _ if self.route.is_stream() && is_back_pressure(&error) => false,
                _ => true,
            };
            if is_final {
                self.record_outcome(sent, Err(error));
            } else {
                *self.last_error.lock() = Some(error);
                self.unresolved.push(sent);
            }
        }
    }

    fn record_outcome(&mut self, sent: NumberedChange, result: Result<WriteResult>) {
        let result = result.map_err(|error| {
            let error = error.with_store(self.store.name());
            error.with_partition(sent.item.partition)
        });
        self.results[sent.item.place] = Some(result);
        drop(sent.ticket);
    }

    fn is_too_old(&self) -> bool {
        let age = |oldest| self.store.connection().now().micros_since(oldest);
        self.unresolved_since.is_some_and(|oldest| age(oldest) > CLIENT_RETRY_AGE_US)
    }

    /// Ends all unresolved changes. The partition may have forgotten this client, so that it would
    /// not recognize a repeat.
    fn abandon(&mut self) {
        for sent in std::mem::take(&mut self.unresolved) {
            let message = "the write is too old for a safe retry; read the document";
            self.record_outcome(sent, Err(Error::unknown_outcome(message)));
        }
        for item in std::mem::take(&mut self.waiting).into_iter().flatten().flatten() {
            let message =
                "the outcome of an earlier part of the batch is unknown; send this part again";
            let error = Error::unavailable(message).with_store(self.store.name());
            self.results[item.place] = Some(Err(error));
        }
    }

    /// Returns the error for a caller whose deadline has passed: never "failed" for a change that
    /// may have happened.
    pub(crate) fn at_deadline(&self) -> Error {
        let last = self.last_error.lock().clone();
        let cause = last.as_ref().map_or("no answer yet".to_owned(), ToString::to_string);
        let is_in_log = self.results.iter().flatten().any(Result::is_ok);
        let error = if is_in_log || self.unresolved.iter().any(|sent| sent.maybe_in_log) {
            let part = if is_in_log { "a part of the batch is" } else { "the write may be" };
            Error::unknown_outcome(format!("{part} in the log; retry the same write ({cause})"))
        } else if let Some(error) = last.filter(|error| error.code() == ErrorCode::Unavailable) {
            error
        } else {
            let message = format!(
                "nothing was sent before the deadline: the outcomes of earlier writes of this \
                 client are unknown; resolve those writes, or allow more time ({cause})"
            );
            Error::deadline_exceeded(message)
        };
        error.with_store(self.store.name())
    }

    /// Returns the logs that the token refers to.
    pub(crate) fn logs(&self) -> StoreLogs {
        self.logs
    }

    /// Returns the token of everything that is in the log so far.
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// Returns the result of each change. Call it only after [`WriteDriver::run`] has returned.
    pub(crate) fn into_results(self) -> (Token, Vec<Result<WriteResult>>) {
        let missing_result = || Err(Error::internal("a change has no result"));
        let results = self.results.into_iter().map(|result| result.unwrap_or_else(missing_result));
        (self.token, results.collect())
    }
}

/// Returns whether the writer applied back-pressure because a partition's queue is full.
fn is_back_pressure(error: &Error) -> bool {
    let queue_limits = [WRITE_QUEUE_BYTES_MAX as u64, WRITE_QUEUE_REQUESTS_MAX as u64];
    error.code() == ErrorCode::LimitExceeded
        && error.context().limit.is_some_and(|limit| queue_limits.contains(&limit))
}

fn unreadable(error: Error) -> Error {
    let message = format!("the writer's response cannot be read: {}", error.message());
    Error::unknown_outcome(message)
}
