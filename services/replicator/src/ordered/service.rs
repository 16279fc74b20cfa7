//! The gRPC face of ordered reads.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::limits::{BATCH_KEYS_MAX, MESSAGE_BYTES_MAX};
use forebay_core::{Error, Result};
use forebay_reader::{Read, Storage, StoreFollower};
use forebay_shard::{OwnedView, View};
use forebay_wire::document::ScanCursor;
use forebay_wire::status::status_of_error;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::shards_server::{Shards, ShardsServer};
use futures::future::join_all;
use futures::stream::{self, Stream};
use tonic::{Request, Response, Status};

use super::asked::{Asked, Fields, partition_of_key, read_of, wait_of};
use super::pages::{Page, read_documents, read_page};
use crate::replicas::{Replicas, ReplicatorParts};
use crate::shards::StoreShards;

/// Ordered reads as a gRPC service.
#[derive(Clone)]
pub struct ShardService {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
}

/// A store whose shards are here.
#[derive(Clone)]
struct Here {
    schema: Arc<SchemaAt>,
    follower: StoreFollower,
    shards: StoreShards,
}

impl Here {
    /// The documents of a partition, as fresh as asked for.
    async fn view(&self, read: &Read, partition: PartitionId) -> Result<OwnedView> {
        self.follower.admit(read, &[partition]).await?;
        let shard = self.shards.shard(partition).ok_or_else(elsewhere)?;
        OwnedView::open(shard)
    }

    fn token(&self, partition: PartitionId, view: &View<'_>) -> Result<Token> {
        let mut token = Token::new(self.schema.definition.store);
        if let Some(log_id) = view.log_id() {
            token.advance(partition, log_id, view.position())?;
        }
        Ok(token)
    }
}

impl ShardService {
    /// The service over these replicas and what they are made of.
    pub fn new(parts: ReplicatorParts, replicas: Arc<Replicas>) -> Self {
        Self { parts, replicas }
    }

    /// The service for a server, with our message limits.
    pub fn into_server(self) -> ShardsServer<Self> {
        ShardsServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn store(&self, name: &str, read: Option<&v1::ReadOptions>) -> Result<Here> {
        let schema = Arc::clone(self.parts.catalog.catalog().by_name(name)?);
        let opening = self.replicas.ordered(schema.definition.store, wait_of(read));
        let (follower, shards) = opening.await.ok_or_else(elsewhere)?;
        Ok(Here { schema, follower, shards })
    }

    async fn answer_get(&self, request: v1::GetRequest) -> Result<v1::GetResponse> {
        let here = self.store(&request.store, request.read.as_ref()).await?;
        let definition = &here.schema.definition;
        if request.keys.len() > BATCH_KEYS_MAX {
            let (limit, actual) = (BATCH_KEYS_MAX as u64, request.keys.len() as u64);
            return Err(Error::limit_exceeded("ask for fewer keys at once", limit, actual));
        }
        let read = read_of(request.read)?;
        let mut found = vec![v1::Found { answer: None }; request.keys.len()];
        let mut places = BTreeMap::<PartitionId, Vec<usize>>::new();
        for (place, key) in request.keys.iter().enumerate() {
            match partition_of_key(key, definition) {
                Ok(partition) => places.entry(partition).or_default().push(place),
                Err(error) => found[place] = refused(&error),
            }
        }
        let views = places.into_iter().map(|(partition, places)| {
            let (here, read) = (&here, &read);
            async move { (partition, places, here.view(read, partition).await) }
        });
        let mut opened = Vec::new();
        for (partition, places, view) in join_all(views).await {
            match view {
                Ok(view) => opened.push((partition, places, view)),
                Err(error) => {
                    let error = error.with_partition(partition);
                    places.into_iter().for_each(|place| found[place] = refused(&error));
                }
            }
        }
        let (clock, fields) = (self.parts.clock.now(), Fields::new(&request.fields));
        let keys = request.keys;
        let reading = move || {
            let reached = opened.iter().map(|(_, _, view)| view.view().schema_version()).max();
            let reached = reached.unwrap_or(here.schema.definition.version);
            let (schemas, mut token) =
                (here.shards.schemas(), Token::new(here.schema.definition.store));
            for (partition, places, view) in &opened {
                let view = view.view();
                token.merge(&here.token(*partition, view)?)?;
                let keys: Vec<&[u8]> = places.iter().map(|place| &keys[*place][..]).collect();
                let documents = read_documents(view, schemas, &fields, reached, &keys, clock);
                let error = match documents {
                    Ok(documents) => {
                        let told = places.iter().zip(documents);
                        told.for_each(|(place, document)| found[*place] = answer(document));
                        continue;
                    }
                    Err(error) => error.with_partition(*partition),
                };
                places.iter().for_each(|place| found[*place] = refused(&error));
            }
            Ok(v1::GetResponse { found, token: token.encode(), schema_version: reached.0 })
        };
        blocking(reading).await
    }

    /// Begins a scan, or goes on with one.
    async fn begin(&self, request: v1::ScanRequest) -> Result<Scanning> {
        let here = self.store(&request.store, request.read.as_ref()).await?;
        let definition = &here.schema.definition;
        let partition = PartitionId(request.partition);
        if partition.0 >= definition.partitions.0 {
            let message = format!("the store has {} partitions, from 0", definition.partitions);
            return Err(Error::invalid_argument(message));
        }
        let asked = Arc::new(Asked::of(&request, definition)?);
        let digest = ScanCursor::digest(&request);
        let left = match request.documents_max {
            0 => u64::MAX,
            documents => documents,
        };
        let cursor = match request.cursor.is_empty() {
            true => None,
            false => Some(ScanCursor::decode(&request.cursor)?),
        };
        if cursor.as_ref().is_some_and(|cursor| cursor.asked != digest) {
            let message = "the cursor is of a scan that asked for something else; pass it on with \
                           the same request, or begin without it";
            return Err(Error::invalid_argument(message));
        }
        let held = cursor.as_ref().map(|cursor| cursor.view);
        let held = held.filter(|number| here.shards.views().get(*number).is_some());
        let view = match (held, &cursor) {
            (Some(number), _) => number,
            (None, Some(_)) if !request.may_move => return Err(moved()),
            (None, _) => {
                let view = Arc::new(here.view(&read_of(request.read)?, partition).await?);
                let number = self.parts.entropy.next_u64()?;
                here.shards.views().hold(number, view)?;
                number
            }
        };
        let behind = cursor.map(|cursor| cursor.key);
        Ok(Scanning { here, partition, asked, digest, view, behind, left })
    }
}

/// A scan between two of its pages.
struct Scanning {
    here: Here,
    partition: PartitionId,
    asked: Arc<Asked>,
    digest: u64,
    view: u64,
    behind: Option<Key>,
    /// Documents that may still be told.
    left: u64,
}

impl Scanning {
    /// The next page; what is left behind it, unless the scan ends there.
    async fn next(mut self, service: &ShardService) -> Result<(v1::ScanResponse, Option<Self>)> {
        let view = self.here.shards.views().get(self.view).ok_or_else(moved)?;
        let (clock, asked) = (service.parts.clock.now(), Arc::clone(&self.asked));
        let (shards, behind, left) = (self.here.shards.clone(), self.behind.take(), self.left);
        let reading = {
            let view = Arc::clone(&view);
            move || {
                let (view, behind) = (view.view(), behind.as_ref());
                read_page(view, shards.schemas(), &asked, behind, left, clock)
            }
        };
        let Page { documents, last } = blocking(reading).await?;
        self.left -= documents.len() as u64;
        let cursor = last
            .clone()
            .map(|key| ScanCursor { view: self.view, asked: self.digest, key }.encode());
        if cursor.is_none() {
            self.here.shards.views().end(self.view);
        }
        let view = view.view();
        let SchemaVersion(schema_version) = view.schema_version();
        let answer = v1::ScanResponse {
            documents,
            cursor: cursor.unwrap_or_default(),
            token: self.here.token(self.partition, view)?.encode(),
            schema_version,
        };
        self.behind = last;
        let goes_on = self.behind.is_some() && self.left > 0;
        Ok((answer, goes_on.then_some(self)))
    }
}

#[tonic::async_trait]
impl Shards for ShardService {
    type ScanStream = Pin<Box<dyn Stream<Item = Result<v1::ScanResponse, Status>> + Send>>;

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let request = request.into_inner();
        let store = request.store.clone();
        let answer = self.answer_get(request).await;
        answer.map(Response::new).map_err(|error| status_of_error(&error.with_store(store)))
    }

    async fn scan(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        let request = request.into_inner();
        let partition = PartitionId(request.partition);
        let store = request.store.clone();
        let refused = move |error: Error| {
            status_of_error(&error.with_store(store.clone()).with_partition(partition))
        };
        let scanning = self.begin(request).await.map_err(&refused)?;
        let service = self.clone();
        let pages = stream::try_unfold(Some(scanning), move |scanning| {
            let (service, refused) = (service.clone(), refused.clone());
            async move {
                let Some(scanning) = scanning else { return Ok(None) };
                scanning.next(&service).await.map(Some).map_err(refused)
            }
        });
        Ok(Response::new(Box::pin(pages)))
    }
}

/// Reads where it may wait for the disk.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err(Error::internal("an ordered read broke off; see the log")))
}

fn answer(document: Option<v1::Document>) -> v1::Found {
    use v1::found::{Absent, Answer};
    let answer = document.map_or(Answer::Absent(Absent {}), Answer::Document);
    v1::Found { answer: Some(answer) }
}

fn refused(error: &Error) -> v1::Found {
    v1::Found { answer: Some(v1::found::Answer::Error(error.into())) }
}

fn elsewhere() -> Error {
    Error::unavailable("its shard is not open in this process; try again, or ask another one")
}

fn moved() -> Error {
    let message = "the scan's position is no longer held; go on with `may_move` at a later one, or \
                   begin anew";
    Error::token_lost(message)
}
