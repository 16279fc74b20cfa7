//! Ordered reads: documents by key, and scans in the order of the keys, from the shards of the node
//! that a client is connected to.

mod partition;
mod scan;

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::change::Verb;
use forebay_core::id::PartitionId;
use forebay_core::key::Key;
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::row::Document;
use forebay_core::{Error, Result};
use forebay_index::{DocumentKey, KeyList};
use forebay_reader::ReadOptions;
use forebay_wire::document::document_of;
use forebay_wire::v1;
use forebay_wire::v1::document_result::Answer;
use forebay_wire::v1::shards_client::ShardsClient;

use crate::change_spec::ChangeSpec;
use crate::store::Store;
use crate::store_backend::StoreBackend;
use crate::store_state::StoreState;

use futures::future::BoxFuture;
use partition::Shards;
pub use scan::{OrderedDocument, OrderedScan, OrderedStream};

/// Ordered reads of one store, over the client's connection. Cheap to clone.
///
/// Each read costs a round trip, while a [`Reader`](crate::Reader) answers from this process's
/// memory. In return, this process stores nothing, and documents come in the order of their keys:
/// bytes and text by their bytes, numbers by their value.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::Client;
/// use forebay::reads::ReadOptions;
/// # async fn example(client: Client) -> forebay::Result<()> {
/// let users = client.store("users").await?;
/// let written = users.upsert("u1").set("age", 41).send().await?;
/// let ordered = users.ordered()?;
/// let after = ReadOptions::after(written.token, Duration::from_secs(1));
/// println!("{:?}", ordered.get(&after, "u1").await?);
///
/// let mut found = ordered.scan().prefix("u").limit(100).open().await?;
/// while let Some(document) = found.next().await? {
///     println!("{:?} {:?}", document.key()?, document.document);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OrderedReads {
    state: Arc<StoreState>,
    shards: Shards,
}

impl Store {
    /// Returns ordered reads of this store.
    ///
    /// # Errors
    /// `Unsupported` if the store is the store of an in-memory reader.
    pub fn ordered(&self) -> Result<OrderedReads> {
        match self.backend() {
            StoreBackend::Node(state) => {
                let shards = ShardsClient::new(state.connection().channel())
                    .max_decoding_message_size(MESSAGE_BYTES_MAX)
                    .max_encoding_message_size(MESSAGE_BYTES_MAX);
                Ok(OrderedReads { state: Arc::clone(state), shards })
            }
            StoreBackend::Memory(memory) => {
                let message = "a store in memory has no shards; read the store with its reader";
                Err(Error::unsupported(message).with_store(memory.name()))
            }
        }
    }
}

impl OrderedReads {
    /// Returns a document, or `None`.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is invalid in the store and a token of another store;
    /// `NotFound` if the store was deleted; `TokenLost`, `Stale`; `DeadlineExceeded` or
    /// `Unavailable` if no answer comes in time.
    pub async fn get<'k>(
        &self,
        read: &ReadOptions,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<Option<Document>> {
        let (key, _) = self.route(key.into())?;
        let found = self.get_all(read, vec![Bytes::copy_from_slice(key.as_bytes())]).await?;
        found.into_iter().next().unwrap_or_else(|| Err(fewer()))
    }

    /// Returns documents by their keys, in the order of the given keys, each with its own outcome.
    /// The documents of one partition are read at one position.
    ///
    /// # Errors
    /// Errors of [`OrderedReads::get`] that concern all keys; `LimitExceeded` for more than one
    /// answer may hold.
    pub async fn get_many<K: KeyList + ?Sized>(
        &self,
        read: &ReadOptions,
        keys: &K,
    ) -> Result<Vec<Result<Option<Document>>>> {
        let routed = (0..keys.count()).map(|place| {
            let (key, _) = self.route(keys.key(place))?;
            Ok(Bytes::copy_from_slice(key.as_bytes()))
        });
        self.get_all(read, routed.collect::<Result<_>>()?).await
    }

    fn get_all<'a>(
        &'a self,
        read: &'a ReadOptions,
        keys: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<Vec<Result<Option<Document>>>>> {
        Box::pin(async move {
            let key_count = keys.len();
            let message = v1::GetDocumentsRequest {
                store: self.state.name().to_owned(),
                keys,
                fields: Vec::new(),
                read: Some(read.into()),
            };
            let shards = self.shards.clone();
            let call = async move |_, message| shards.clone().get_documents(message).await;
            let client = self.state.connection();
            let answer: v1::GetDocumentsResponse =
                client.read_within(read.timeout(), message, call).await?;
            if answer.found.len() != key_count {
                return Err(fewer());
            }
            self.state.notice_version(answer.schema_version);
            Ok(answer.found.into_iter().map(|found| self.outcome(found)).collect())
        })
    }

    fn outcome(&self, found: v1::DocumentResult) -> Result<Option<Document>> {
        match found.answer {
            Some(Answer::Document(document)) => Ok(Some(document_of(document)?.1)),
            Some(Answer::Absent(_)) => Ok(None),
            Some(Answer::Error(error)) => Err(Error::from(error).with_store(self.state.name())),
            None => Err(Error::corrupt(
                "the node returned a document of an unknown kind; upgrade this client",
            )),
        }
    }

    /// Creates a scan of the whole store in the order of the keys, to be narrowed before it is
    /// opened.
    pub fn scan(&self) -> OrderedScan {
        OrderedScan::new(Arc::clone(&self.state), self.shards.clone())
    }

    fn route(&self, key: DocumentKey<'_>) -> Result<(Key, PartitionId)> {
        let routed = ChangeSpec::new(Verb::Upsert, key).route(&self.state.definition());
        routed.map_err(|error| error.with_store(self.state.name()))
    }
}

fn fewer() -> Error {
    Error::corrupt("the node returned another number of documents than requested")
}
