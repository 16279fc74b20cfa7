//! Reads of documents by their keys, at one position for each partition.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::{BATCH_KEYS_MAX, MESSAGE_BYTES_MAX, ORDERED_GET_KEYS};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_replica::{ReadOptions, Storage};
use forebay_runtime::forwarded;
use forebay_shard::OwnedView;
use forebay_wire::status::error_of_status;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::document_result::{Absent, Answer};
use forebay_wire::v1::shards_client::ShardsClient;
use futures::future::join_all;
use tonic::transport::Channel;

use super::documents::{FieldSelection, RowDecoder, read_documents};
use super::local_store::LocalStore;

/// Indexes of each partition's keys in the request.
pub(super) type Places = BTreeMap<PartitionId, Vec<usize>>;

/// A get in progress: the request, and the documents found so far.
pub(super) struct PartitionedGet {
    request: v1::GetDocumentsRequest,
    fields: FieldSelection,
    found: Vec<v1::DocumentResult>,
    /// Bytes of the found rows.
    bytes: usize,
    token: Token,
    schema_version: SchemaVersion,
}

/// The documents of one partition, opened for reading.
pub(super) struct OpenPartition {
    partition: PartitionId,
    places: Vec<usize>,
    view: OwnedView,
}

impl PartitionedGet {
    /// # Errors
    /// `LimitExceeded` for too many keys.
    pub fn new(request: v1::GetDocumentsRequest, definition: &Definition) -> Result<Self> {
        if request.keys.len() > BATCH_KEYS_MAX {
            let (limit, actual) = (BATCH_KEYS_MAX as u64, request.keys.len() as u64);
            return Err(Error::limit_exceeded(
                "the request has too many keys; ask for fewer keys at once",
                limit,
                actual,
            ));
        }
        let found = vec![v1::DocumentResult { answer: None }; request.keys.len()];
        let (fields, token) =
            (FieldSelection::new(&request.fields), Token::new(definition.versions.home()));
        let schema_version = definition.version;
        Ok(Self { request, fields, found, bytes: 0, token, schema_version })
    }

    /// Groups the indexes of valid keys by partition; refuses the other keys.
    pub fn places(&mut self, definition: &Definition) -> Places {
        let mut places = Places::new();
        for place in 0..self.request.keys.len() {
            match partition_of_key(&self.request.keys[place], definition) {
                Ok(partition) => places.entry(partition).or_default().push(place),
                Err(error) => self.refuse(&[place], &error),
            }
        }
        places
    }

    /// Forwards the keys of one partition to another process.
    pub async fn forward(
        request: &v1::GetDocumentsRequest,
        places: &[usize],
        peer: Channel,
    ) -> Result<v1::GetDocumentsResponse> {
        let keys = places.iter().map(|place| request.keys[*place].clone()).collect();
        let (store, fields) = (request.store.clone(), request.fields.clone());
        let message = v1::GetDocumentsRequest { store, keys, fields, read: request.read.clone() };
        let mut peer = ShardsClient::new(peer)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let answer = peer.get_documents(forwarded(message)).await;
        Ok(answer.map_err(|status| error_of_status(&status))?.into_inner())
    }

    /// Merges the answer of another process.
    ///
    /// # Errors
    /// `Internal` if the answer does not match the request.
    pub fn take(&mut self, places: &[usize], answer: v1::GetDocumentsResponse) -> Result<()> {
        if answer.found.len() != places.len() {
            return Err(Error::internal(
                "another replicator answered for other keys than requested",
            ));
        }
        self.token.merge(&Token::decode(&answer.token)?)?;
        self.schema_version = self.schema_version.max(SchemaVersion(answer.schema_version));
        places.iter().zip(answer.found).for_each(|(place, found)| self.found[*place] = found);
        Ok(())
    }

    /// Opens local partitions, as fresh as requested; refuses the keys of partitions that cannot be
    /// opened.
    pub async fn open(
        &mut self,
        store: &LocalStore,
        read: &ReadOptions,
        places: Places,
    ) -> Vec<OpenPartition> {
        let views = places.into_iter().map(|(partition, places)| async move {
            (partition, places, store.view(read, partition).await)
        });
        let mut opened = Vec::new();
        for (partition, places, view) in join_all(views).await {
            match view {
                Ok(view) => opened.push(OpenPartition { partition, places, view }),
                Err(error) => self.refuse(&places, &error.with_partition(partition)),
            }
        }
        opened
    }

    /// Reads the opened partitions. Blocks on the disk.
    ///
    /// # Errors
    /// `LimitExceeded` if the documents exceed the size of an answer.
    pub fn read(
        mut self,
        store: &LocalStore,
        opened: &[OpenPartition],
        clock: Timestamp,
    ) -> Result<Self> {
        let versions = opened.iter().map(|opened| opened.view.view().schema_version());
        self.schema_version = versions.fold(self.schema_version, SchemaVersion::max);
        for OpenPartition { partition, places, view } in opened {
            let view = view.view();
            self.token.merge(&store.token(*partition, view)?)?;
            let (reached, now) = (self.schema_version, view.read_time(clock));
            let decoder = RowDecoder { schemas: store.shards.schemas(), reached, now };
            for places in places.chunks(ORDERED_GET_KEYS) {
                let keys = places.iter().map(|place| &self.request.keys[*place][..]);
                let keys: Vec<&[u8]> = keys.collect();
                match read_documents(view, &decoder, &self.fields, &keys) {
                    Ok(documents) => self.keep(places, documents)?,
                    Err(error) => self.refuse(places, &error.with_partition(*partition)),
                }
            }
        }
        Ok(self)
    }

    /// Returns the answer.
    pub fn finish(self) -> v1::GetDocumentsResponse {
        let (found, token) = (self.found, self.token.encode());
        v1::GetDocumentsResponse { found, token, schema_version: self.schema_version.0 }
    }

    /// Returns the request.
    pub fn request(&self) -> &v1::GetDocumentsRequest {
        &self.request
    }

    fn keep(
        &mut self,
        places: &[usize],
        documents: Vec<Option<(v1::Document, usize)>>,
    ) -> Result<()> {
        for (place, document) in places.iter().zip(documents) {
            let answer = match document {
                None => Answer::Absent(Absent {}),
                Some((document, bytes)) => {
                    self.bytes += bytes;
                    Answer::Document(document)
                }
            };
            self.found[*place] = v1::DocumentResult { answer: Some(answer) };
        }
        if self.bytes > MESSAGE_BYTES_MAX {
            let (limit, actual) = (MESSAGE_BYTES_MAX as u64, self.bytes as u64);
            let advice = "the documents exceed the size of a response; ask for fewer keys at once";
            return Err(Error::limit_exceeded(advice, limit, actual));
        }
        Ok(())
    }

    pub fn refuse(&mut self, places: &[usize], error: &Error) {
        for place in places {
            self.found[*place] = v1::DocumentResult { answer: Some(Answer::Error(error.into())) };
        }
    }
}

/// Returns the partition of a document.
///
/// # Errors
/// `InvalidArgument` for bytes that are not a key of the store.
fn partition_of_key(key: &[u8], definition: &Definition) -> Result<PartitionId> {
    let refused = |error: Error| {
        let message = format!("the key is not a key of the store: {}", error.message());
        Error::invalid_argument(message)
    };
    KeyOrder::of(definition).stored(key).map_err(refused)?;
    let split = Key::split(key, definition.partition_key.is_some()).map_err(refused)?;
    let (partition_key, primary) = split;
    Ok(partition_of(partition_key.unwrap_or(primary), definition.partitions))
}
