//! gRPC interface of the writer: translates requests, calls the writer, translates the answers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::change::ClientBatch;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::schema::{Alteration, StoreSpec};
use forebay_core::{Error, Result};
use forebay_wire::entry::decode_entry;
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::apply_view_response::Result as ViewResult;
use forebay_wire::v1::writer_server::{self, WriterServer};
use futures::stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::admit::ClientRouting;
use crate::views::ApplyEffect;
use crate::writer::Writer;

/// Wait for outcomes if the request names none.
const OUTCOME_WAIT_DEFAULT: Duration = Duration::from_secs(5);
/// Longest wait for outcomes that a request may ask for.
const OUTCOME_WAIT_MAX: Duration = Duration::from_secs(60);
/// Number of requests of one stream that are in flight at a time; answers keep the order of
/// requests.
const STREAM_REQUESTS_MAX: usize = 256;

/// The writer as a gRPC service.
#[derive(Clone)]
pub struct WriterService {
    writer: Arc<Writer>,
    /// Cancelled when the write streams end.
    ended: CancellationToken,
}

impl WriterService {
    /// Creates the service over this writer.
    pub fn new(writer: Arc<Writer>) -> Self {
        Self { writer, ended: CancellationToken::new() }
    }

    /// Returns the gRPC server.
    pub fn into_server(self) -> WriterServer<Self> {
        WriterServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Stops accepting requests from write streams, present and future. Each stream ends once its
    /// accepted requests are answered, so that a server can drain.
    pub fn end_streams(&self) {
        self.ended.cancel();
    }

    async fn answer(&self, request: v1::WriteChangesRequest) -> Result<v1::WriteChangesResponse> {
        let batch = request.batch.ok_or_else(|| {
            Error::invalid_argument("the write has no batch; name the client and its changes")
        })?;
        let batch = ClientBatch::try_from(batch)?;
        let wait = match request.outcome_wait_ms {
            0 => OUTCOME_WAIT_DEFAULT,
            ms => Duration::from_millis(ms.into()).min(OUTCOME_WAIT_MAX),
        };
        let version = SchemaVersion(request.schema_version);
        let routing = ClientRouting {
            partitions: &request.partitions,
            repartition_count: request.repartition_count,
        };
        let store = StoreId(request.store_id);
        let (token, results) = self.writer.write(store, version, batch, routing, wait).await?;
        Ok(v1::WriteChangesResponse {
            token: token.encode(),
            results: results.iter().map(Into::into).collect(),
            error: None,
            schema_version: self.writer.newest_version(store).0,
        })
    }

    /// Answers a request of a stream. A refused request is an answer, too; the stream continues
    /// with the next request.
    async fn answer_in_stream(
        self,
        request: Result<v1::WriteChangesRequest, Status>,
    ) -> StreamAnswer {
        match self.answer(request?).await {
            Ok(response) => Ok(response),
            Err(error) => {
                Ok(v1::WriteChangesResponse { error: Some((&error).into()), ..Default::default() })
            }
        }
    }
}

type StreamAnswer = Result<v1::WriteChangesResponse, Status>;

#[tonic::async_trait]
impl writer_server::Writer for WriterService {
    async fn write_changes(
        &self,
        request: Request<v1::WriteChangesRequest>,
    ) -> Result<Response<v1::WriteChangesResponse>, Status> {
        let answer = self.answer(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status_of_error(&error))
    }

    type StreamWritesStream = Pin<Box<dyn Stream<Item = StreamAnswer> + Send>>;

    async fn stream_writes(
        &self,
        request: Request<Streaming<v1::WriteChangesRequest>>,
    ) -> Result<Response<Self::StreamWritesStream>, Status> {
        let service = self.clone();
        let end = self.ended.clone().cancelled_owned();
        // A request enters its queues when its answer is first polled, and `buffered` polls in
        // order; so the changes of one partition keep the order of their requests.
        let answers = request
            .into_inner()
            .take_until(Box::pin(end))
            .map(move |request| service.clone().answer_in_stream(request))
            .buffered(STREAM_REQUESTS_MAX);
        let answers = answers.scan(false, |failed, answer| {
            let ended = std::mem::replace(failed, answer.is_err());
            std::future::ready((!ended).then_some(answer))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn append_entry(
        &self,
        request: Request<v1::AppendEntryRequest>,
    ) -> Result<Response<v1::AppendEntryResponse>, Status> {
        let request = request.into_inner();
        let at = PartitionRef {
            store: StoreId(request.store_id),
            partition: PartitionId(request.partition),
        };
        let append = async {
            let entry = decode_entry(&request.entry).map_err(|error| {
                let advice = "encode the entry as proto/spec/entry.md says";
                let message = format!("the entry is invalid: {}; {advice}", error.message());
                Error::invalid_argument(message)
            })?;
            self.writer.append(at, &entry).await
        };
        let appended = append.await.map_err(|error| status_of_error(&error))?;
        Ok(Response::new(v1::AppendEntryResponse {
            offset: appended.offset.0,
            append_time_us: appended.append_time.as_micros(),
        }))
    }

    async fn create_store(
        &self,
        request: Request<v1::CreateStoreRequest>,
    ) -> Result<Response<v1::CreateStoreResponse>, Status> {
        let create = async {
            let spec = request.into_inner().spec;
            let spec = spec.ok_or_else(|| {
                Error::invalid_argument("the request names no store; name a store to create")
            })?;
            self.writer.create_store(&StoreSpec::try_from(spec)?).await
        };
        let created = create.await.map_err(|error| status_of_error(&error))?;
        let definition = Some((&*created.definition).into());
        Ok(Response::new(v1::CreateStoreResponse { definition }))
    }

    async fn alter_store(
        &self,
        request: Request<v1::AlterStoreRequest>,
    ) -> Result<Response<v1::AlterStoreResponse>, Status> {
        let request = request.into_inner();
        let alter = async {
            let alterations: Vec<_> =
                request.alterations.into_iter().map(Alteration::try_from).collect::<Result<_>>()?;
            if alterations.is_empty() {
                return Err(Error::invalid_argument(
                    "the request has no alteration; name at least one",
                ));
            }
            let from = SchemaVersion(request.from_version);
            self.writer.alter_store(&request.name, from, &alterations).await
        };
        let altered = alter.await.map_err(|error| status_of_error(&error))?;
        let definition = Some((&*altered.definition).into());
        Ok(Response::new(v1::AlterStoreResponse { definition }))
    }

    async fn delete_store(
        &self,
        request: Request<v1::DeleteStoreRequest>,
    ) -> Result<Response<v1::DeleteStoreResponse>, Status> {
        let deleted = self.writer.delete_store(&request.get_ref().name).await;
        deleted.map_err(|error| status_of_error(&error))?;
        Ok(Response::new(v1::DeleteStoreResponse {}))
    }

    async fn describe_store(
        &self,
        request: Request<v1::DescribeStoreRequest>,
    ) -> Result<Response<v1::DescribeStoreResponse>, Status> {
        let request = request.get_ref();
        let described =
            self.writer.describe_store(&request.name, SchemaVersion(request.version)).await;
        let described = described.map_err(|error| status_of_error(&error))?;
        let definition = Some((&*described.definition).into());
        Ok(Response::new(v1::DescribeStoreResponse { definition }))
    }

    async fn list_stores(
        &self,
        _request: Request<v1::ListStoresRequest>,
    ) -> Result<Response<v1::ListStoresResponse>, Status> {
        let stores = self.writer.list_stores().await.map_err(|error| status_of_error(&error))?;
        let definitions = stores.iter().map(|schema| (&*schema.definition).into()).collect();
        Ok(Response::new(v1::ListStoresResponse { definitions }))
    }

    async fn apply_view(
        &self,
        request: Request<v1::ApplyViewRequest>,
    ) -> Result<Response<v1::ApplyViewResponse>, Status> {
        let v1::ApplyViewRequest { declaration, dry_run, first_line } = request.get_ref();
        let applied = self.writer.apply_view(declaration, *first_line, *dry_run).await;
        let (applied, definition) = applied.map_err(|error| status_of_error(&error))?;
        let result = match applied {
            ApplyEffect::Created => ViewResult::Created,
            ApplyEffect::Altered => ViewResult::Altered,
            ApplyEffect::Unchanged => ViewResult::Unchanged,
        };
        Ok(Response::new(v1::ApplyViewResponse {
            definition: Some((&definition).into()),
            result: result.into(),
        }))
    }
}
