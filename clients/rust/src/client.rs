//! The client: one connection to a writer, one random id, and the sequences of all its writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::change::ClientBatch;
use forebay_core::clock::Timestamp;
use forebay_core::entropy::Entropy;
use forebay_core::id::{ClientId, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::status::{error_of_status, write_error_of_status};
use forebay_wire::v1;
use forebay_wire::v1::writer_client::WriterClient;
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::Rpc;
use crate::administer::Unsettled;
use crate::connect::{connect, new_backoff};
use crate::options::{ClientOptions, ClientParts};
use crate::reader::{Following, Reader, ReaderOptions};
use crate::store::{KnownStore, Store, StoreState};
use crate::together::Together;

/// Writes to stores and administers them. Cheap to clone; clones share everything.
///
/// A client has one random id for its whole life, and numbers its writes per partition, so that a
/// write that is sent twice happens once. Create one client per process and share it: the client
/// coalesces concurrent writes, which costs less than one request for each write.
///
/// ```no_run
/// use forebay::{Client, ClientOptions};
/// # async fn example() -> forebay::Result<()> {
/// let client = Client::connect("http://127.0.0.1:4400", ClientOptions::default()).await?;
/// let users = client.store("users").await?;
/// let written = users.upsert("u1").set("age", 41).increment("visits", 1).send().await?;
/// println!("{:?}", written.result);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

/// The state that all handles of a client share.
pub(crate) struct ClientInner {
    rpc: Rpc,
    channel: Channel,
    id: ClientId,
    options: ClientOptions,
    parts: ClientParts,
    /// The state that the readers of this client share; the first reader starts it.
    following: OnceLock<Following>,
    /// Sequences outlive the handles: a store that is opened again continues the numbering.
    stores: Mutex<BTreeMap<StoreId, Arc<KnownStore>>>,
    unsettled: Unsettled,
    together: Together,
}

impl Client {
    /// Connects to a writer, for example `forebayd dev`; retries until the deadline.
    ///
    /// The address is `host:port`, with or without `http://`.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid address, `Unavailable` if no writer answers there.
    pub async fn connect(endpoint: &str, options: ClientOptions) -> Result<Self> {
        let parts = ClientParts::default();
        let channel = connect(endpoint, &options, parts.entropy.as_ref()).await?;
        Self::from_channel(channel, options, parts)
    }

    /// Creates a client over an existing channel, with the caller's clock and randomness.
    ///
    /// # Errors
    /// `Internal` if there is no randomness for the client's id.
    pub fn from_channel(
        channel: Channel,
        options: ClientOptions,
        parts: ClientParts,
    ) -> Result<Self> {
        let rpc = WriterClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let id = parts.entropy.client_id()?;
        let (following, stores) = (OnceLock::new(), Mutex::new(BTreeMap::new()));
        let (unsettled, together) = (Unsettled::default(), Together::new());
        let inner = ClientInner {
            rpc,
            channel,
            id,
            options,
            parts,
            following,
            stores,
            unsettled,
            together,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens a store: fetches its definition and caches it.
    ///
    /// # Errors
    /// `NotFound`, with the store's name; `Unavailable` or `DeadlineExceeded` if the writer does
    /// not answer in time.
    pub async fn store(&self, name: &str) -> Result<Store> {
        let definition = self.inner.describe(name, 0).await?;
        Ok(Store::new(self.inner.state(definition)))
    }

    /// Opens an embedded reader over this client's connection; see [`Reader::open`].
    ///
    /// # Errors
    /// Errors of [`Reader::open`].
    pub async fn reader(&self, options: ReaderOptions) -> Result<Reader> {
        let ClientInner { channel, parts, following, .. } = &*self.inner;
        let start = || Following::start(channel.clone(), parts);
        let following = following.get_or_init(start).parts(parts);
        crate::reader::open(options, async { Ok(following) }).await
    }

    /// Returns the client's random id, which each of its changes carries.
    pub fn id(&self) -> ClientId {
        self.inner.id
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl ClientInner {
    /// Returns the client's state of a store, updated with this definition if the definition is
    /// newer.
    pub(crate) fn state(self: &Arc<Self>, definition: Definition) -> Arc<StoreState> {
        let mut stores = self.stores.lock();
        let known = match stores.get(&definition.store) {
            Some(known) => {
                known.learn(definition);
                Arc::clone(known)
            }
            None => {
                let id = definition.store;
                let known = Arc::new(KnownStore::new(definition));
                stores.insert(id, Arc::clone(&known));
                known
            }
        };
        Arc::new(StoreState::new(Arc::clone(self), known))
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

    /// Returns the changes of definitions that may have happened.
    pub(crate) fn unsettled(&self) -> &Unsettled {
        &self.unsettled
    }

    /// Returns the queues in which writes wait to be coalesced.
    pub(crate) fn together(&self) -> &Together {
        &self.together
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
    pub(crate) async fn write(&self, request: v1::WriteRequest) -> Result<v1::WriteResponse> {
        let mut rpc = self.rpc();
        let answer = self.within_attempt(async { rpc.write(self.request(request)).await }).await?;
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
    pub(crate) async fn describe(&self, name: &str, version: u32) -> Result<Definition> {
        let message = v1::DescribeStoreRequest { name: name.to_owned(), version };
        let call = async |mut rpc: Rpc, message| rpc.describe_store(message).await;
        definition_of(self.read(message, call).await?)
    }

    /// Makes a call that changes nothing; retries until the deadline.
    pub(crate) async fn read<Q: Clone, A>(
        &self,
        message: Q,
        call: impl AsyncFn(Rpc, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A> {
        self.read_within(Duration::ZERO, message, call).await
    }

    /// Works like [`ClientInner::read`], for a call whose handler may wait up to `wait_max`. The
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

/// Returns the definition in a response.
///
/// # Errors
/// `Corrupt` if the response has no definition, or an invalid one.
pub(crate) fn definition_of(response: v1::DefinitionResponse) -> Result<Definition> {
    let definition = response.definition.ok_or_else(|| {
        Error::corrupt(
            "the writer returned no definition; check that the versions of writer and client match",
        )
    })?;
    definition.try_into()
}
