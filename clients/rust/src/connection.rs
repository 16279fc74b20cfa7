//! The connection of a client to its node: the channel, the client's id, its clock, its back-off,
//! and calls that are retried until the deadline.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::change::ClientBatch;
use forebay_core::clock::Timestamp;
use forebay_core::entropy::Entropy;
use forebay_core::id::ClientId;
use forebay_core::limits::{CLIENT_BACKOFF_MS_MAX, CLIENT_BACKOFF_MS_MIN, MESSAGE_BYTES_MAX};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::remote::with_windows;
use forebay_wire::endpoint::endpoint_of;
use forebay_wire::status::{error_of_status, write_error_of_status};
use forebay_wire::v1;
use forebay_wire::v1::writer_client::WriterClient;
use futures::future::BoxFuture;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::options::{ClientOptions, ClientParts};

/// The generated client of the writer service.
pub(crate) type Rpc = WriterClient<Channel>;

/// The writer's answer to a request.
pub(crate) type WriteAnswer = Result<v1::WriteChangesResponse>;

/// A client's connection, which all handles of the client share.
pub(crate) struct Connection {
    rpc: Rpc,
    channel: Channel,
    id: ClientId,
    options: ClientOptions,
    parts: ClientParts,
}

impl Connection {
    /// Creates the connection of one client, with a random id, over a channel.
    ///
    /// # Errors
    /// `Internal` if there is no randomness for the client's id.
    pub(crate) fn new(
        channel: Channel,
        options: ClientOptions,
        parts: ClientParts,
    ) -> Result<Arc<Self>> {
        let rpc = WriterClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let id = parts.entropy.client_id()?;
        Ok(Arc::new(Self { rpc, channel, id, options, parts }))
    }

    /// Returns the client's random id, which each of its changes carries.
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    pub(crate) fn parts(&self) -> &ClientParts {
        &self.parts
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.options.deadline
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        self.parts.entropy.as_ref()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(crate) fn backoff(&self) -> Backoff {
        new_backoff()
    }

    /// Returns an empty batch with this client's id.
    pub(crate) fn empty_batch(&self) -> v1::ClientBatch {
        (&ClientBatch { client: self.id, changes: Vec::new() }).into()
    }

    /// Returns the longest time that the writer may wait for outcomes, so that the writer answers
    /// before the attempt ends.
    pub(crate) fn outcome_wait_ms(&self) -> u32 {
        let wait_ms = (self.options.attempt * 4 / 5).as_millis();
        u32::try_from(wait_ms).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the connection, for another service.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns the connection, for one more call.
    pub(crate) fn rpc(&self) -> Rpc {
        self.rpc.clone()
    }

    /// Makes one attempt of a write.
    ///
    /// # Errors
    /// `Unavailable` if the attempt surely appended nothing, `UnknownOutcome` if the outcome is
    /// unknown, or the writer's refusal.
    pub(crate) async fn write(
        &self,
        request: v1::WriteChangesRequest,
    ) -> Result<v1::WriteChangesResponse> {
        let mut rpc = self.rpc();
        let answer =
            self.within_attempt(async { rpc.write_changes(self.request(request)).await }).await?;
        answer.map(Response::into_inner).map_err(|status| write_error_of_status(&status))
    }

    /// Waits for an answer as long as one attempt may take.
    ///
    /// # Errors
    /// `UnknownOutcome` if no answer comes.
    pub(crate) async fn within_attempt<T>(&self, answer: impl Future<Output = T>) -> Result<T> {
        let attempt = self.options.attempt;
        tokio::time::timeout(attempt, answer).await.map_err(|_| no_answer_in(attempt))
    }

    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.options.attempt);
        request
    }

    /// Returns the definition of a store; version 0 is the newest.
    pub(crate) fn describe<'a>(
        &'a self,
        name: &'a str,
        version: u32,
    ) -> BoxFuture<'a, Result<Definition>> {
        Box::pin(async move {
            let message = v1::DescribeStoreRequest { name: name.to_owned(), version };
            let call = async |mut rpc: Rpc, message| rpc.describe_store(message).await;
            let response: v1::DescribeStoreResponse = self.read(message, call).await?;
            definition_of(response.definition)
        })
    }

    /// Returns the newest definition of each store, sorted by name.
    pub(crate) fn list(&self) -> BoxFuture<'_, Result<Vec<Definition>>> {
        Box::pin(async move {
            let call = async |mut rpc: Rpc, message| rpc.list_stores(message).await;
            let listed: v1::ListStoresResponse = self.read(v1::ListStoresRequest {}, call).await?;
            listed.definitions.into_iter().map(TryInto::try_into).collect()
        })
    }

    /// Makes a call that changes nothing; retries until the deadline.
    pub(crate) async fn read<Q: Clone, A>(
        &self,
        message: Q,
        call: impl AsyncFn(Rpc, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A> {
        self.read_within(Duration::ZERO, message, call).await
    }

    /// Works like [`Connection::read`], for a call whose handler may wait up to `wait_max`. The
    /// answer to a wait that ends in vain is returned, not retried.
    pub(crate) async fn read_within<Q: Clone, A>(
        &self,
        wait_max: Duration,
        message: Q,
        call: impl AsyncFn(Rpc, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A> {
        let mut backoff = self.backoff();
        let mut last = None;
        let attempt = self.options.attempt.saturating_add(wait_max);
        let attempts = async {
            loop {
                let mut request = Request::new(message.clone());
                request.set_timeout(attempt);
                let answer = tokio::time::timeout(attempt, call(self.rpc(), request)).await;
                let error = match answer.map_err(|_| no_answer_in(attempt)) {
                    Ok(Ok(response)) => return Ok(response.into_inner()),
                    Ok(Err(status)) => error_of_status(&status),
                    Err(error) => error,
                };
                let is_overdue = error.code() == ErrorCode::DeadlineExceeded;
                if !is_passing(&error) || is_overdue && !wait_max.is_zero() {
                    return Err(error);
                }
                last = Some(error);
                tokio::time::sleep(backoff.next_wait(self.entropy())).await;
            }
        };
        let deadline = self.options.deadline.saturating_add(wait_max);
        let read = tokio::time::timeout(deadline, attempts).await;
        read.unwrap_or_else(|_| Err(self.no_answer(last)))
    }

    pub(crate) fn no_answer(&self, last: Option<Error>) -> Error {
        let deadline = self.options.deadline;
        match last {
            Some(error) => Error::unavailable(format!(
                "the writer did not answer in {deadline:?}: {}",
                error.message()
            )),
            None => Error::unavailable(format!("the writer did not answer in {deadline:?}")),
        }
    }
}

fn no_answer_in(attempt: Duration) -> Error {
    Error::unknown_outcome(format!("the writer gave no answer in {attempt:?}"))
}

/// Returns whether a call that changes nothing is simply retried after this error.
fn is_passing(error: &Error) -> bool {
    use ErrorCode::{DeadlineExceeded, Unavailable, UnknownOutcome};
    matches!(error.code(), Unavailable | DeadlineExceeded | UnknownOutcome)
}

/// Returns whether the same write may be sent again after this error without consulting the caller.
pub(crate) fn is_write_retried(error: &Error) -> bool {
    use ErrorCode::{Conflict, Unavailable, UnknownOutcome};
    matches!(error.code(), Conflict | Unavailable | UnknownOutcome)
}

/// Returns the definition of a response.
///
/// # Errors
/// `Corrupt` if the response has no definition, or an invalid one.
pub(crate) fn definition_of(definition: Option<v1::Definition>) -> Result<Definition> {
    let definition = definition.ok_or_else(|| {
        Error::corrupt(
            "the writer returned no definition; check that the versions of writer and client match",
        )
    })?;
    definition.try_into()
}

/// Returns the back-off between the attempts of one call.
pub(crate) fn new_backoff() -> Backoff {
    let (first, longest) = (CLIENT_BACKOFF_MS_MIN, CLIENT_BACKOFF_MS_MAX);
    Backoff::new(Duration::from_millis(first), Duration::from_millis(longest))
}

/// Connects to `host:port`, with or without `http://`; retries until the deadline.
///
/// # Errors
/// `InvalidArgument` for an invalid address, `Unavailable` if no service answers there.
pub(crate) fn connect<'a>(
    address: &'a str,
    options: &'a ClientOptions,
    entropy: &'a dyn Entropy,
) -> BoxFuture<'a, Result<Channel>> {
    Box::pin(async move {
        let endpoint = endpoint_of(address).ok_or_else(|| {
            Error::invalid_argument(
                "the address is not valid; give the address of a service as host:port",
            )
        })?;
        let endpoint = with_windows(endpoint)
            .connect_timeout(options.attempt)
            .http2_keep_alive_interval(options.attempt)
            .keep_alive_timeout(options.attempt)
            .keep_alive_while_idle(true);
        let mut backoff = new_backoff();
        let mut last = None;
        let attempts = async {
            loop {
                match endpoint.connect().await {
                    Ok(channel) => return channel,
                    Err(error) => last = Some(error),
                }
                tokio::time::sleep(backoff.next_wait(entropy)).await;
            }
        };
        tokio::time::timeout(options.deadline, attempts).await.map_err(|_| {
            let cause = last.as_ref().map_or("no answer".to_owned(), root_cause);
            Error::unavailable(format!(
                "no service answers at {address} ({cause}); start `forebayd dev`, or correct the \
                 address"
            ))
        })
    })
}

fn root_cause(error: &tonic::transport::Error) -> String {
    let first: &dyn std::error::Error = error;
    let chain = std::iter::successors(Some(first), |error| error.source());
    chain.last().map_or_else(|| error.to_string(), ToString::to_string)
}
