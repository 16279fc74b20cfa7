//! The gRPC services of the snapshot service, next to the maintenance of the snapshots.

use std::path::PathBuf;

use forebay_runtime::RoleServices;
use forebay_snapshot::SnapshotStore;
use tonic::service::Routes;

use crate::context::{BackupParts, PushParts, SnapshotParts};
use crate::push::PushService;
use crate::scheduler::Snapshots;
use crate::service::BackupService;

/// The services of a running snapshot service. Dropping them ends the maintenance.
pub struct SnapshotServices {
    snapshots: Snapshots,
    pushes: PushService,
    /// Backups and restores; `None` without a folder of backups.
    backups: Option<BackupService>,
}

impl SnapshotServices {
    /// Starts the maintenance of the snapshots on the current runtime, which must have several
    /// threads. Restores and pushes store files in `scratch`.
    pub fn start(parts: SnapshotParts, backups: Option<SnapshotStore>, scratch: PathBuf) -> Self {
        let snapshots = Snapshots::maintain(parts.clone());
        let pushes = PushParts { service: parts.clone(), scratch: scratch.clone() };
        let backups = backups
            .map(|backups| BackupService::new(BackupParts { service: parts, backups, scratch }));
        Self { snapshots, pushes: PushService::new(pushes), backups }
    }
}

impl RoleServices for SnapshotServices {
    fn add_to(&self, routes: Routes) -> Routes {
        let routes = routes.add_service(self.pushes.clone().into_server());
        match &self.backups {
            Some(backups) => routes.add_service(backups.clone().into_server()),
            None => routes,
        }
    }

    async fn stop(&self) {
        self.snapshots.stop().await;
    }
}
