//! The dependencies that all services share.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::{PartitionRef, StoreId};
use forebay_entries::CatalogFollower;
use forebay_log::{ChangeLog, Membership, SingleMember};
use forebay_snapshot::SnapshotStore;

/// Dependencies that all services of a process share; the simulator supplies its own.
#[derive(Clone)]
pub struct ServiceContext {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The fold of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness: ids, and the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Assignment of partitions to this process.
    pub membership: Arc<dyn Membership>,
    /// Snapshots from which replicas bootstrap; without them, replicas bootstrap from the logs.
    pub snapshots: Option<SnapshotStore>,
}

impl ServiceContext {
    /// Starts to follow the control log, on the current runtime. The process has all partitions,
    /// and no snapshots.
    pub fn start(
        log: Arc<dyn ChangeLog>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let catalog = CatalogFollower::start(Arc::clone(&log), Arc::clone(&entropy));
        let (catalog, membership) = (Arc::new(catalog), Arc::new(SingleMember::default()));
        Self { log, catalog, clock, entropy, membership, snapshots: None }
    }

    /// Sets the snapshots.
    #[must_use]
    pub fn with_snapshots(self, snapshots: Option<SnapshotStore>) -> Self {
        Self { snapshots, ..self }
    }

    /// Waits until the catalog has folded all records that the control log holds at the call.
    ///
    /// # Errors
    /// `Unavailable` if that takes longer than `wait_max`; `UpgradeNeeded` if the control log
    /// contains entries that this build does not know; else as the log.
    pub async fn catch_up(&self, wait_max: Duration) -> Result<()> {
        let end = self.log.bounds(PartitionRef::CONTROL).await?.end;
        self.catalog.wait_applied(end, wait_max).await
    }

    /// Returns all definitions of a store that the catalog has, by ascending version.
    pub fn versions(&self, store: StoreId) -> Vec<Arc<SchemaAt>> {
        self.catalog.catalog().definitions(store).cloned().collect()
    }
}
