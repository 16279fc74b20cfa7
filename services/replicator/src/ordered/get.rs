//! Documents by their keys, each partition's at one position.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::limits::{BATCH_KEYS_MAX, MESSAGE_BYTES_MAX, ORDERED_GET_KEYS};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_reader::{Read, Storage};
use forebay_shard::OwnedView;
use forebay_wire::status::error_of_status;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::found::{Absent, Answer};
use forebay_wire::v1::shards_client::ShardsClient;
use futures::future::join_all;
use tonic::transport::Channel;

use super::asked::{Fields, partition_of_key};
use super::here::Here;
use super::pages::{Seen, read_documents};
use forebay_serve::forwarded;

/// Where the keys of each partition stand in the request.
pub(super) type Places = BTreeMap<PartitionId, Vec<usize>>;

/// What is asked for, and what was found of it.
pub(super) struct Getting {
    request: v1::GetRequest,
    fields: Fields,
    found: Vec<v1::Found>,
    /// Bytes of the rows that were found.
    bytes: usize,
    token: Token,
    schema_version: SchemaVersion,
}

/// The documents of one partition, opened to be read.
pub(super) struct Opened {
    partition: PartitionId,
    places: Vec<usize>,
    view: OwnedView,
}

impl Getting {
    /// # Errors
    /// `LimitExceeded` for too many keys.
    pub fn new(request: v1::GetRequest, definition: &Definition) -> Result<Self> {
        if request.keys.len() > BATCH_KEYS_MAX {
            let (limit, actual) = (BATCH_KEYS_MAX as u64, request.keys.len() as u64);
            return Err(Error::limit_exceeded("ask for fewer keys at once", limit, actual));
        }
        let found = vec![v1::Found { answer: None }; request.keys.len()];
        let (fields, token) =
            (Fields::new(&request.fields), Token::new(definition.versions.home()));
        let schema_version = definition.version;
        Ok(Self { request, fields, found, bytes: 0, token, schema_version })
    }

    /// The places of the keys that the store can have; the others are refused.
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

    /// Has another process read the keys of one partition.
    pub async fn forward(
        request: &v1::GetRequest,
        places: &[usize],
        peer: Channel,
    ) -> Result<v1::GetResponse> {
        let keys = places.iter().map(|place| request.keys[*place].clone()).collect();
        let (store, fields) = (request.store.clone(), request.fields.clone());
        let message = v1::GetRequest { store, keys, fields, read: request.read.clone() };
        let mut peer = ShardsClient::new(peer)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let answer = peer.get(forwarded(message)).await;
        Ok(answer.map_err(|status| error_of_status(&status))?.into_inner())
    }

    /// Takes in what another process has answered.
    ///
    /// # Errors
    /// `Internal` for an answer to something else.
    pub fn take(&mut self, places: &[usize], answer: v1::GetResponse) -> Result<()> {
        if answer.found.len() != places.len() {
            return Err(Error::internal("another replicator answered other keys than were asked"));
        }
        self.token.merge(&Token::decode(&answer.token)?)?;
        self.schema_version = self.schema_version.max(SchemaVersion(answer.schema_version));
        places.iter().zip(answer.found).for_each(|(place, found)| self.found[*place] = found);
        Ok(())
    }

    /// Opens partitions that are here, as fresh as asked for; refuses the keys of those that cannot
    /// be.
    pub async fn open(&mut self, here: &Here, read: &Read, places: Places) -> Vec<Opened> {
        let views = places.into_iter().map(|(partition, places)| async move {
            (partition, places, here.view(read, partition).await)
        });
        let mut opened = Vec::new();
        for (partition, places, view) in join_all(views).await {
            match view {
                Ok(view) => opened.push(Opened { partition, places, view }),
                Err(error) => self.refuse(&places, &error.with_partition(partition)),
            }
        }
        opened
    }

    /// Reads what was opened. Blocks on the disk.
    ///
    /// # Errors
    /// `LimitExceeded` for more than one answer may hold.
    pub fn read(mut self, here: &Here, opened: &[Opened], clock: Timestamp) -> Result<Self> {
        let versions = opened.iter().map(|opened| opened.view.view().schema_version());
        self.schema_version = versions.fold(self.schema_version, SchemaVersion::max);
        for Opened { partition, places, view } in opened {
            let view = view.view();
            self.token.merge(&here.token(*partition, view)?)?;
            let (reached, now) = (self.schema_version, view.read_time(clock));
            let seen = Seen { schemas: here.shards.schemas(), reached, now };
            for places in places.chunks(ORDERED_GET_KEYS) {
                let keys = places.iter().map(|place| &self.request.keys[*place][..]);
                let keys: Vec<&[u8]> = keys.collect();
                match read_documents(view, &seen, &self.fields, &keys) {
                    Ok(documents) => self.keep(places, documents)?,
                    Err(error) => self.refuse(places, &error.with_partition(*partition)),
                }
            }
        }
        Ok(self)
    }

    /// The answer.
    pub fn finish(self) -> v1::GetResponse {
        let (found, token) = (self.found, self.token.encode());
        v1::GetResponse { found, token, schema_version: self.schema_version.0 }
    }

    /// What is asked for.
    pub fn request(&self) -> &v1::GetRequest {
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
            self.found[*place] = v1::Found { answer: Some(answer) };
        }
        if self.bytes > MESSAGE_BYTES_MAX {
            let (limit, actual) = (MESSAGE_BYTES_MAX as u64, self.bytes as u64);
            let advice = "the documents are larger than one answer; ask for fewer keys at once";
            return Err(Error::limit_exceeded(advice, limit, actual));
        }
        Ok(())
    }

    pub fn refuse(&mut self, places: &[usize], error: &Error) {
        for place in places {
            self.found[*place] = v1::Found { answer: Some(Answer::Error(error.into())) };
        }
    }
}
