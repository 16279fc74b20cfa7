//! gRPC service of backups.

use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::{Error, Result};
use forebay_snapshot::Backup;
use forebay_wire::status::status_of_error;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::backups_server::{Backups, BackupsServer};
use forebay_wire::v1::restore_store_request::PointInTime as WirePoint;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status};
use tracing::warn;

use crate::context::BackupParts;
use crate::restore::PointInTime;

/// Service that takes and restores backups. Loopback only.
#[derive(Clone)]
pub struct BackupService(Arc<BackupParts>);

impl BackupService {
    /// Creates the service with these dependencies.
    pub fn new(parts: BackupParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> BackupsServer<Self> {
        BackupsServer::new(self)
    }
}

/// Stream of progress messages, and the final answer last.
pub(crate) type ProgressStream<M> = UnboundedReceiverStream<Result<M, Status>>;

#[tonic::async_trait]
impl Backups for BackupService {
    type TakeBackupStream = ProgressStream<v1::TakeBackupResponse>;
    type RestoreStoreStream = ProgressStream<v1::RestoreStoreResponse>;

    async fn take_backup(
        &self,
        request: Request<v1::TakeBackupRequest>,
    ) -> Result<Response<Self::TakeBackupStream>, Status> {
        let v1::TakeBackupRequest { store, keep } = request.into_inner();
        let parts = Arc::clone(&self.0);
        Ok(answers(|sender| async move {
            let tell = |partitions_done, partitions| {
                let response = v1::TakeBackupResponse { partitions_done, partitions, backup: None };
                drop(sender.send(Ok(response)));
            };
            let backup = parts.take(&store, tell).await?;
            if let Some(keep) = keep {
                // The backup is published even if the expiry of older ones fails.
                if let Err(error) = parts.expire(&backup, keep as usize).await {
                    warn!(store, %error, "older backups not removed yet");
                }
            }
            let partitions = backup.partitions.len() as u32;
            let (partitions_done, backup) = (partitions, Some(to_wire(&backup, None)));
            Ok(v1::TakeBackupResponse { partitions_done, partitions, backup })
        }))
    }

    async fn list_backups(
        &self,
        request: Request<v1::ListBackupsRequest>,
    ) -> Result<Response<v1::ListBackupsResponse>, Status> {
        let backups = self.0.backups.backups(&request.into_inner().store).await;
        let backups = backups.map_err(|error| status_of_error(&error))?;
        let before = std::iter::once(None).chain(backups.iter().map(Some));
        let listed = backups.iter().zip(before).map(|(backup, before)| to_wire(backup, before));
        Ok(Response::new(v1::ListBackupsResponse { backups: listed.collect() }))
    }

    async fn restore_store(
        &self,
        request: Request<v1::RestoreStoreRequest>,
    ) -> Result<Response<Self::RestoreStoreStream>, Status> {
        let v1::RestoreStoreRequest { store, restore_as, point_in_time } = request.into_inner();
        let point = point_of(point_in_time).map_err(|error| status_of_error(&error))?;
        let parts = Arc::clone(&self.0);
        Ok(answers(|sender| async move {
            let tell = |partitions_done, partitions| {
                let response =
                    v1::RestoreStoreResponse { partitions_done, partitions, restored: None };
                drop(sender.send(Ok(response)));
            };
            let restored = parts.restore(&store, &restore_as, &point, tell).await?;
            let (store_id, documents) = (restored.store.0, restored.documents);
            let (partitions, partitions_done) = (restored.partitions, restored.partitions);
            let restored = Some(v1::RestoredStore { store_id, documents });
            Ok(v1::RestoreStoreResponse { partitions_done, partitions, restored })
        }))
    }
}

/// Returns the stream of progress messages and the final answer of some work. The work continues if
/// the client disconnects.
pub(crate) fn answers<M: Send + 'static, W: Future<Output = Result<M>> + Send + 'static>(
    work: impl FnOnce(UnboundedSender<Result<M, Status>>) -> W,
) -> Response<ProgressStream<M>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let work = work(sender.clone());
    tokio::spawn(async move {
        let last = work.await;
        drop(sender.send(last.map_err(|error| status_of_error(&error))));
    });
    Response::new(UnboundedReceiverStream::new(receiver))
}

fn point_of(wire: Option<WirePoint>) -> Result<PointInTime> {
    Ok(match wire {
        None => PointInTime::Newest,
        Some(WirePoint::BackupId(id)) => PointInTime::Backup(id),
        Some(WirePoint::BeforeUs(time)) => PointInTime::Before(Timestamp::from_micros(time)),
        Some(WirePoint::Token(token)) => {
            let token = Token::decode(&token)?;
            if token.positions.is_empty() {
                let message = "the token names no partition, so it names no moment; pass a token \
                    that a write returned";
                return Err(Error::invalid_argument(message));
            }
            PointInTime::Token(token)
        }
    })
}

fn to_wire(backup: &Backup, before: Option<&Backup>) -> v1::Backup {
    v1::Backup {
        backup_id: backup.name.id,
        store_id: backup.store.0,
        taken_at_us: backup.name.taken_at.as_micros(),
        whole_until_us: backup.whole_until().as_micros(),
        leads_here: before.is_some_and(|before| backup.follows(before)),
    }
}
