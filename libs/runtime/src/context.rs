//! The dependencies that all services share.

use std::sync::Arc;

use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_entries::CatalogFollower;
use forebay_log::{Alone, ChangeLog, Membership};
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
        let (catalog, membership) = (Arc::new(catalog), Arc::new(Alone::default()));
        Self { log, catalog, clock, entropy, membership, snapshots: None }
    }

    /// Sets the assignment of partitions.
    #[must_use]
    pub fn with_membership(self, membership: Arc<dyn Membership>) -> Self {
        Self { membership, ..self }
    }

    /// Sets the snapshots.
    #[must_use]
    pub fn with_snapshots(self, snapshots: Option<SnapshotStore>) -> Self {
        Self { snapshots, ..self }
    }
}
