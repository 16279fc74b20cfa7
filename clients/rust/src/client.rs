//! The client: the state behind its handles, which is one connection to a writer, the write
//! coalescer, the subscriptions of its readers, and the sequences of its stores.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use forebay_core::Result;
use forebay_core::id::{ClientId, StoreId};
use forebay_core::schema::Definition;
use forebay_reader::ReaderOptions;
use parking_lot::Mutex;
use tonic::transport::Channel;

use crate::coalescer::WriteCoalescer;
use crate::connection::{Connection, connect};
use crate::definition_change::DefinitionChanges;
use crate::options::{ClientOptions, ClientParts};
use crate::reader::{Reader, SharedSubscriptions};
use crate::store::Store;
use crate::store_state::{KnownStore, StoreState};

/// Writes to stores and administers them. Cheap to clone; clones share everything.
///
/// A client has one random id for its whole life, and numbers its writes per partition, so that a
/// write that is sent twice happens once. Create one client per process and share it: the client
/// coalesces concurrent writes, which costs less than one request for each write.
///
/// ```no_run
/// use forebay::{Client, ClientOptions};
/// # async fn example() -> forebay::Result<()> {
/// let client = Client::connect("http://127.0.0.1:7070", ClientOptions::default()).await?;
/// let users = client.store("users").await?;
/// let written = users.upsert("u1").set("age", 41).increment("visits", 1).send().await?;
/// println!("{:?}", written.result);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    state: Arc<ClientState>,
}

/// The state of a client, which all its clones share. The connection and the coalescer do not know
/// the client: each store shares them, too.
struct ClientState {
    connection: Arc<Connection>,
    coalescer: Arc<WriteCoalescer>,
    /// The subscriptions that the readers of this client share; the first reader starts them.
    subscriptions: OnceLock<SharedSubscriptions>,
    /// Sequences outlive the handles: a store that is opened again continues the numbering.
    stores: Mutex<BTreeMap<StoreId, Arc<KnownStore>>>,
    definition_changes: DefinitionChanges,
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
        let connection = Connection::new(channel, options, parts)?;
        let state = ClientState {
            coalescer: Arc::new(WriteCoalescer::new(Arc::clone(&connection))),
            definition_changes: DefinitionChanges::new(Arc::clone(&connection)),
            connection,
            subscriptions: OnceLock::new(),
            stores: Mutex::new(BTreeMap::new()),
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Opens a store: fetches its definition and caches it.
    ///
    /// # Errors
    /// `NotFound`, with the store's name; `Unavailable` or `DeadlineExceeded` if the writer does
    /// not answer in time.
    pub async fn store(&self, name: &str) -> Result<Store> {
        let definition = self.connection().describe(name, 0).await?;
        Ok(Store::new(self.store_state(definition)))
    }

    /// Opens an embedded reader over this client's connection; see [`Reader::open`].
    ///
    /// # Errors
    /// Errors of [`Reader::open`].
    pub async fn reader(&self, options: ReaderOptions) -> Result<Reader> {
        let connection = self.connection();
        let start = || SharedSubscriptions::start(connection.channel(), connection.parts());
        let subscriptions = self.state.subscriptions.get_or_init(start);
        let parts = subscriptions.reader_parts(connection.parts());
        crate::reader::open(options, Box::pin(async { Ok(parts) })).await
    }

    /// Returns the client's random id, which each of its changes carries.
    pub fn id(&self) -> ClientId {
        self.connection().id()
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.state.connection
    }

    pub(crate) fn definition_changes(&self) -> &DefinitionChanges {
        &self.state.definition_changes
    }

    /// Returns the client's state of a store, updated with this definition if the definition is
    /// newer.
    pub(crate) fn store_state(&self, definition: Definition) -> Arc<StoreState> {
        let mut stores = self.state.stores.lock();
        let known_store = match stores.get(&definition.store) {
            Some(known_store) => {
                known_store.learn(definition);
                Arc::clone(known_store)
            }
            None => {
                let id = definition.store;
                let known_store = Arc::new(KnownStore::new(definition));
                stores.insert(id, Arc::clone(&known_store));
                known_store
            }
        };
        let connection = Arc::clone(self.connection());
        Arc::new(StoreState::new(connection, Arc::clone(&self.state.coalescer), known_store))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).finish_non_exhaustive()
    }
}
