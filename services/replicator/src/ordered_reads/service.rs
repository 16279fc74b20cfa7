//! gRPC interface of ordered reads.

use std::pin::Pin;
use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::PartitionId;
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_replica::ReadOptions;
use forebay_runtime::{Owner, forwarded};
use forebay_tasks::run_blocking;
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::shards_client::ShardsClient;
use forebay_wire::v1::shards_server::{Shards, ShardsServer};
use futures::future::join_all;
use futures::stream::{self, Stream};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::get::{PartitionedGet, Places};
use super::local_store::{LocalStore, not_local_error};
use super::scan::PagedScan;
use crate::parts::ReplicatorParts;
use crate::replicas::Replicas;

/// Ordered reads as a gRPC service.
#[derive(Clone)]
pub struct ShardService {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
}

/// Stream of the pages of a scan.
type Pages = Pin<Box<dyn Stream<Item = Result<v1::ScanDocumentsResponse, Status>> + Send>>;

impl ShardService {
    /// Creates the service over these replicas and their dependencies.
    pub fn new(parts: ReplicatorParts, replicas: Arc<Replicas>) -> Self {
        Self { parts, replicas }
    }

    /// Returns the service for a server, with Forebay's message limits.
    pub fn into_server(self) -> ShardsServer<Self> {
        ShardsServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Returns the newest definition of a store, for the version of its documents that answers
    /// here.
    fn schema(&self, name: &str) -> Result<Arc<SchemaAt>> {
        let catalog = self.parts.context.catalog.catalog();
        let schema = catalog.document_store_by_name(name)?;
        let serving = self.replicas.serving_version(schema.definition.store);
        let serving_schema = catalog.store(serving).and_then(|history| history.newest());
        Ok(Arc::clone(serving_schema.unwrap_or(schema)))
    }

    async fn local_store(&self, schema: &Arc<SchemaAt>, read: &ReadOptions) -> Result<LocalStore> {
        let opening = self.replicas.version(schema.definition.store, read.timeout());
        let (follower, shards) = opening.await.ok_or_else(not_local_error)?;
        Ok(LocalStore { schema: Arc::clone(schema), follower, shards })
    }

    async fn answer_get(
        &self,
        request: Request<v1::GetDocumentsRequest>,
    ) -> Result<v1::GetDocumentsResponse> {
        let (came_with, _, request) = request.into_parts();
        let read = ReadOptions::asked(request.read.clone())?;
        let schema = self.schema(&request.store)?;
        let mut get = PartitionedGet::new(request, &schema.definition)?;
        let places = get.places(&schema.definition);
        let own_places = self.forward(&mut get, &schema, places, &came_with).await?;
        if !own_places.is_empty() {
            let store = self.local_store(&schema, &read).await?;
            let opened = get.open(&store, &read, own_places).await;
            let clock = self.parts.context.clock.now();
            get = run_blocking(move || get.read(&store, &opened, clock)).await?;
        }
        Ok(get.finish())
    }

    /// Forwards the keys of other processes' partitions; returns the indexes of local keys.
    async fn forward(
        &self,
        get: &mut PartitionedGet,
        schema: &SchemaAt,
        places: Places,
        came_with: &MetadataMap,
    ) -> Result<Places> {
        let mut own_places = Places::new();
        let mut peer_places = Vec::new();
        for (partition, places) in places {
            let at = schema.definition.logs().at(partition);
            match self.replicas.peers().owner(at, came_with).await {
                Ok(Owner::Here) => drop(own_places.insert(partition, places)),
                Ok(Owner::Peer(peer)) => peer_places.push((places, peer)),
                Err(error) => get.refuse(&places, &error),
            }
        }
        let request = get.request();
        let forwards = peer_places.into_iter().map(|(places, peer)| async move {
            let answer = PartitionedGet::forward(request, &places, peer).await;
            (places, answer)
        });
        for (places, answer) in join_all(forwards).await {
            match answer {
                Ok(answer) => get.take(&places, answer)?,
                Err(error) => get.refuse(&places, &error),
            }
        }
        Ok(own_places)
    }

    async fn answer_scan(
        &self,
        request: Request<v1::ScanDocumentsRequest>,
    ) -> Result<Pages, Status> {
        let (came_with, _, request) = request.into_parts();
        let partition = PartitionId(request.partition);
        let store = request.store.clone();
        let refused = move |error: Error| {
            status_of_error(&error.with_store(store.clone()).with_partition(partition))
        };
        let schema = self.schema(&request.store).map_err(&refused)?;
        let at = schema.definition.logs().at(partition);
        let owner = match partition.0 < schema.definition.partitions.0 {
            true => self.replicas.peers().owner(at, &came_with).await.map_err(&refused)?,
            // The local scan refuses the partition.
            false => Owner::Here,
        };
        if let Owner::Peer(peer) = owner {
            let mut peer = ShardsClient::new(peer).max_decoding_message_size(MESSAGE_BYTES_MAX);
            return Ok(Box::pin(peer.scan_documents(forwarded(request)).await?.into_inner()));
        }
        let scan = self.begin(&schema, request).await.map_err(&refused)?;
        let service = self.clone();
        let pages = stream::try_unfold(Some(scan), move |scan| {
            let (service, refused) = (service.clone(), refused.clone());
            async move {
                let Some(scan) = scan else { return Ok(None) };
                scan.next(service.parts.context.clock.now()).await.map(Some).map_err(refused)
            }
        });
        Ok(Box::pin(pages))
    }

    async fn begin(
        &self,
        schema: &Arc<SchemaAt>,
        request: v1::ScanDocumentsRequest,
    ) -> Result<PagedScan> {
        let read = ReadOptions::asked(request.read.clone())?;
        let store = self.local_store(schema, &read).await?;
        PagedScan::begin(store, &request, &read, &*self.parts.context.entropy).await
    }
}

#[tonic::async_trait]
impl Shards for ShardService {
    type ScanDocumentsStream = Pages;

    async fn get_documents(
        &self,
        request: Request<v1::GetDocumentsRequest>,
    ) -> Result<Response<v1::GetDocumentsResponse>, Status> {
        let store = request.get_ref().store.clone();
        let answer = self.answer_get(request).await;
        answer.map(Response::new).map_err(|error| status_of_error(&error.with_store(store)))
    }

    async fn scan_documents(
        &self,
        request: Request<v1::ScanDocumentsRequest>,
    ) -> Result<Response<Self::ScanDocumentsStream>, Status> {
        self.answer_scan(request).await.map(Response::new)
    }
}
