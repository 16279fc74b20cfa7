//! gRPC service of pushes.

use std::sync::Arc;

use forebay_core::outcome::ConditionOutcome;
use forebay_core::versions::{StoreVersions, VersionNumber};
use forebay_core::{Error, Result};
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::pushes_server::{Pushes, PushesServer};
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use super::changed_outcomes::ChangedOutcome;
use super::columns::ColumnNames;
use super::format::Format;
use super::limits::PushLimits;
use super::request::{Push, PushProgress};
use crate::context::PushParts;
use crate::service::{ProgressStream, answers};

/// Service that pushes files. Loopback only.
#[derive(Clone)]
pub struct PushService(Arc<PushParts>);

impl PushService {
    /// Creates the service with these dependencies.
    pub fn new(parts: PushParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> PushesServer<Self> {
        PushesServer::new(self)
    }
}

#[tonic::async_trait]
impl Pushes for PushService {
    type PushFilesStream = ProgressStream<v1::PushFilesResponse>;

    async fn push_files(
        &self,
        request: Request<v1::PushFilesRequest>,
    ) -> Result<Response<Self::PushFilesStream>, Status> {
        let push = push_of(request.into_inner()).map_err(|error| status_of_error(&error))?;
        let parts = Arc::clone(&self.0);
        Ok(answers(|sender| async move {
            let last = Mutex::new(PushProgress::default());
            let tell = |progress| {
                *last.lock() = progress;
                drop(sender.send(Ok(to_wire(progress))));
            };
            let pushed = parts.push(&push, tell).await?;
            let pushed = v1::PushResult {
                store_id: pushed.store.0,
                documents: pushed.documents,
                version: pushed.version.0,
                changed_outcomes: pushed.changed_outcomes.iter().map(changed_outcome).collect(),
            };
            Ok(v1::PushFilesResponse { pushed: Some(pushed), ..to_wire(last.into_inner()) })
        }))
    }

    async fn list_versions(
        &self,
        request: Request<v1::ListVersionsRequest>,
    ) -> Result<Response<v1::ListVersionsResponse>, Status> {
        let v1::ListVersionsRequest { store } = request.into_inner();
        let versions = versions_message(&store, self.0.versions(&store).await)?;
        Ok(Response::new(v1::ListVersionsResponse { versions }))
    }

    async fn activate_version(
        &self,
        request: Request<v1::ActivateVersionRequest>,
    ) -> Result<Response<v1::ActivateVersionResponse>, Status> {
        let v1::ActivateVersionRequest { store, version } = request.into_inner();
        let activated = self.0.activate_version(&store, VersionNumber(version)).await;
        let versions = versions_message(&store, activated)?;
        Ok(Response::new(v1::ActivateVersionResponse { versions }))
    }

    async fn rollback_version(
        &self,
        request: Request<v1::RollbackVersionRequest>,
    ) -> Result<Response<v1::RollbackVersionResponse>, Status> {
        let v1::RollbackVersionRequest { store } = request.into_inner();
        let versions = versions_message(&store, self.0.rollback_version(&store).await)?;
        Ok(Response::new(v1::RollbackVersionResponse { versions }))
    }

    async fn drop_version(
        &self,
        request: Request<v1::DropVersionRequest>,
    ) -> Result<Response<v1::DropVersionResponse>, Status> {
        let v1::DropVersionRequest { store, version } = request.into_inner();
        let versions = self.0.drop_version(&store, VersionNumber(version)).await;
        let versions = versions_message(&store, versions)?;
        Ok(Response::new(v1::DropVersionResponse { versions }))
    }
}

fn versions_message(
    store: &str,
    versions: Result<StoreVersions>,
) -> Result<Option<v1::StoreVersions>, Status> {
    let versions = versions.map_err(|error| status_of_error(&error.with_store(store)))?;
    Ok(Some((&versions).into()))
}

fn changed_outcome(change: &ChangedOutcome) -> v1::ChangedOutcome {
    let ChangedOutcome { partition, outcome } = change;
    v1::ChangedOutcome {
        partition: partition.0,
        position: Some(outcome.position.into()),
        client_id: outcome.client.0.to_le_bytes().to_vec().into(),
        sequence: outcome.sequence.0,
        is_applied: outcome.condition == ConditionOutcome::Applied,
    }
}

fn push_of(wire: v1::PushFilesRequest) -> Result<Push> {
    let format = match v1::PushFormat::try_from(wire.format) {
        Ok(v1::PushFormat::Unspecified) => None,
        Ok(v1::PushFormat::Parquet) => Some(Format::Parquet),
        Ok(v1::PushFormat::Arrow) => Some(Format::Arrow),
        Ok(v1::PushFormat::Csv) => Some(Format::Csv),
        Ok(v1::PushFormat::JsonLines) => Some(Format::JsonLines),
        Err(_) => {
            let message = "this build does not know the format of the files; upgrade this build";
            return Err(Error::unsupported(message));
        }
    };
    let ignored = wire.ignored_columns.into_iter().collect();
    let null_rates_max = wire.null_rates_max.into_iter().collect();
    Ok(Push {
        store: wire.store,
        push_as: wire.push_as,
        partitions: wire.partitions,
        inputs: wire.inputs,
        format,
        columns: ColumnNames { key: wire.key_column, ignored },
        limits: PushLimits { rows_min: wire.rows_min, rows_max: wire.rows_max, null_rates_max },
    })
}

fn to_wire(progress: PushProgress) -> v1::PushFilesResponse {
    let PushProgress { rows, bytes, bytes_in_all, partitions_done, partitions } = progress;
    let (bytes_done, bytes) = (bytes, bytes_in_all);
    v1::PushFilesResponse { rows, bytes_done, bytes, partitions_done, partitions, pushed: None }
}
