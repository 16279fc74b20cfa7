//! gRPC interface of the replicator: translates requests, queries the replicas or the log,
//! translates the answers.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{ClientId, PartitionId, PartitionRef, Position, Sequence, StoreId};
use forebay_core::limits::{DEAD_LETTERS_PAGE_MAX, MESSAGE_BYTES_MAX};
use forebay_core::{Error, Result};
use forebay_replica::PartitionStatus;
use forebay_runtime::{Owner, ServiceContext, forwarded};
use forebay_wire::dead_letter::Cursor;
use forebay_wire::outcome::ChangeResult;
use forebay_wire::status::{error_of_status, status_of_error};
use forebay_wire::v1;
use forebay_wire::v1::replicator_client::ReplicatorClient;
use forebay_wire::v1::replicator_server::{Replicator, ReplicatorServer};
use tonic::{Request, Response, Status};

use crate::dead_letters;
use crate::parts::ReplicatorParts;
use crate::replicas::{Replicas, StoreMetrics};

/// Longest wait for an outcome that a request may ask for.
const OUTCOME_WAIT_MAX: Duration = Duration::from_secs(60);
/// Letters of a page if the request does not set a number.
const PAGE_DEFAULT: usize = 100;
/// Longest wait for the catalog to fold the records of the control log.
const FOLD_WAIT: Duration = Duration::from_secs(5);

/// The replicator as a gRPC service.
#[derive(Clone)]
pub struct ReplicatorService {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
}

impl ReplicatorService {
    /// Creates the service over these replicas and their dependencies.
    pub fn new(parts: ReplicatorParts, replicas: Arc<Replicas>) -> Self {
        Self { parts, replicas }
    }

    /// Returns the service for a server, with Forebay's message limits.
    pub fn into_server(self) -> ReplicatorServer<Self> {
        ReplicatorServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn answer_outcome(
        &self,
        request: Request<v1::GetOutcomeRequest>,
    ) -> Result<v1::GetOutcomeResponse> {
        let (came_with, _, request) = request.into_parts();
        let at = PartitionRef {
            store: StoreId(request.store_id),
            partition: PartitionId(request.partition),
        };
        if let Owner::Peer(peer) = self.replicas.peers().owner(at, &came_with).await? {
            let answer = ReplicatorClient::new(peer).get_outcome(forwarded(request)).await;
            return Ok(answer.map_err(|status| error_of_status(&status))?.into_inner());
        }
        let position = request.position.ok_or_else(|| {
            Error::invalid_argument(
                "the request names no position; name the position of the change in the log",
            )
        })?;
        let position = Position::try_from(position)?;
        let client = request.client_id.as_ref().try_into().map_err(|_| {
            Error::invalid_argument(
                "the client id does not have 16 bytes; send the client id of the change",
            )
        })?;
        let change = (ClientId(u128::from_le_bytes(client)), Sequence(request.sequence));
        let wait_max = Duration::from_millis(request.wait_ms.into()).min(OUTCOME_WAIT_MAX);
        let condition = self.replicas.condition_outcome(at, position, change, wait_max).await;
        let result =
            condition.map(|condition| (&ChangeResult::conditional(position, condition)).into());
        Ok(v1::GetOutcomeResponse { result })
    }

    async fn answer_list(
        &self,
        request: v1::ListDeadLettersRequest,
    ) -> Result<v1::ListDeadLettersResponse> {
        let ServiceContext { log, catalog, .. } = &self.parts.context;
        self.parts.context.catch_up(FOLD_WAIT).await?;
        let schema = Arc::clone(catalog.catalog().store_by_name(&request.store)?);
        let definition = &schema.definition;
        let partition = PartitionId(request.partition);
        let refuse = |error: Error| error.with_store(&request.store).with_partition(partition);
        let logs = definition.write_logs();
        if partition.0 >= logs.partitions.0 {
            let message =
                format!("the store has {} partitions, from 0; name one of these", logs.partitions);
            return Err(refuse(Error::invalid_argument(message)));
        }
        let letters = logs.store.dead_letters().ok_or_else(|| {
            refuse(Error::unsupported(
                "a store with a reserved id has no dead letters; name another store",
            ))
        })?;
        let cursor = match request.cursor.is_empty() {
            true => None,
            false => Some(Cursor::decode(&request.cursor).map_err(refuse)?),
        };
        let letters_max = match request.letters_max {
            0 => PAGE_DEFAULT,
            letters_requested => (letters_requested as usize).min(DEAD_LETTERS_PAGE_MAX),
        };
        let at = PartitionRef { store: letters, partition };
        let listed = dead_letters::list(&**log, at, cursor, letters_max).await.map_err(refuse)?;
        let (letters, cursor) = listed;
        Ok(v1::ListDeadLettersResponse {
            letters: letters.iter().map(Into::into).collect(),
            cursor: cursor.map(|cursor| cursor.encode()).unwrap_or_default(),
        })
    }
}

fn status(metrics: StoreMetrics) -> v1::GetStatusResponse {
    let StoreMetrics { replica, dead_letters } = metrics;
    let dead_letters = dead_letters.map(|counts| v1::DeadLetterStatus {
        letters_copied: counts.letters_copied,
        records_waiting: counts.records_waiting,
    });
    let replicas = replica.partitions.into_iter().map(replica_status).collect();
    v1::GetStatusResponse { is_ready: replica.is_ready, replicas, dead_letters }
}

fn replica_status(status: PartitionStatus) -> v1::ReplicaStatus {
    v1::ReplicaStatus {
        partition: status.partition.0,
        phase: status.phase.name().to_owned(),
        log_id: status.log_id.map(|log_id| log_id.0),
        position: status.position.map(Into::into),
        offset_applied: status.offset_applied.0,
        end_offset: status.end_offset.0,
        lag_records: status.lag_records,
        age_ms: status.age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        documents: status.documents,
        document_bytes: status.document_bytes,
        records_skipped: status.counts.records_skipped,
        last_error: status.fatal_error.or(status.last_error).map(|error| (&error).into()),
    }
}

#[tonic::async_trait]
impl Replicator for ReplicatorService {
    async fn get_outcome(
        &self,
        request: Request<v1::GetOutcomeRequest>,
    ) -> Result<Response<v1::GetOutcomeResponse>, Status> {
        let answer = self.answer_outcome(request).await;
        answer.map(Response::new).map_err(|error| status_of_error(&error))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        let store = request.into_inner().store;
        let schema = self.parts.context.catalog.catalog().store_by_name(&store).map(Arc::clone);
        let schema = schema.map_err(|error| status_of_error(&error.with_store(&store)))?;
        // Before the replica is open, the status is empty.
        let metrics = self.replicas.metrics(schema.definition.store);
        Ok(Response::new(metrics.map(status).unwrap_or_default()))
    }

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        let answer = self.answer_list(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status_of_error(&error))
    }
}
