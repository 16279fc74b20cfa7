//! Context of the snapshot service: its options, and the dependencies that all of its parts share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::{
    ROLLBACK_WINDOW_S, SNAPSHOT_COLLECT_MS, SNAPSHOT_GRACE_MS, SNAPSHOT_MEMORY_MIB,
};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_log::KafkaOwners;
use forebay_runtime::{ServiceContext, SnapshotSchedule, process_address};
use forebay_snapshot::SnapshotStore;

/// Longest wait for the catalog to fold the records of the control log.
const CATALOG_WAIT: Duration = Duration::from_secs(10);

/// Options of the snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// Time between two snapshots of a partition.
    pub interval: Duration,
    /// Number of retained snapshots of a partition; older ones expire.
    pub retention: usize,
    /// Time for which an expired snapshot stays readable for replicas that are bootstrapping from
    /// it; twice the longest duration of a build.
    pub grace: Duration,
    /// Time between two garbage collections of a partition.
    pub collect_interval: Duration,
    /// Maximum number of concurrent builds.
    pub builds_max: usize,
    /// Maximum memory of one build for its image, in bytes.
    pub memory_bytes: u64,
    /// Maximum number of bytes per second that a build requests from its replicator; 0: no limit.
    pub bytes_per_second: u64,
    /// Minimum time for which the previous live version of a store is retained.
    pub rollback_window: Duration,
}

impl SnapshotOptions {
    /// Creates options with this interval and this number of retained snapshots. The other defaults
    /// are:
    /// - a single concurrent build, with 4 GiB of memory at most and without a rate limit,
    /// - a day of grace for expired snapshots, and a collection once an hour,
    /// - a day of retention for the previous live version.
    ///
    /// # Errors
    /// `InvalidArgument` if the interval or the number is 0.
    pub fn new(interval: Duration, retention: usize) -> Result<Self> {
        if interval.is_zero() || retention == 0 {
            let message =
                "the snapshot interval or the number of retained snapshots is 0; set both above 0";
            return Err(Error::invalid_argument(message));
        }
        Ok(Self {
            interval,
            retention,
            grace: Duration::from_millis(SNAPSHOT_GRACE_MS),
            collect_interval: Duration::from_millis(SNAPSHOT_COLLECT_MS),
            builds_max: 1,
            memory_bytes: SNAPSHOT_MEMORY_MIB << 20,
            bytes_per_second: 0,
            rollback_window: Duration::from_secs(ROLLBACK_WINDOW_S),
        })
    }

    /// Creates options with this schedule; the other defaults are those of [`Self::new`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_schedule(schedule: &SnapshotSchedule) -> Result<Self> {
        let options = Self::new(*schedule.snapshot_interval, schedule.snapshot_retention)?;
        Ok(Self { rollback_window: *schedule.rollback_window, ..options })
    }
}

/// Locator of the replicators whose shards snapshots are built from.
#[async_trait]
pub trait ReplicatorLocator: Send + Sync + 'static {
    /// Returns `host:port` of the replicator that has the shard of this partition now.
    ///
    /// # Errors
    /// `Unavailable` if no replicator has it, or the owner is unknown.
    async fn address(&self, at: PartitionRef) -> Result<String>;
}

/// The address of the only replicator, which has all shards.
#[async_trait]
impl ReplicatorLocator for String {
    async fn address(&self, _at: PartitionRef) -> Result<String> {
        Ok(self.clone())
    }
}

/// The owners in the replicators' consumer group.
#[async_trait]
impl ReplicatorLocator for KafkaOwners {
    async fn address(&self, at: PartitionRef) -> Result<String> {
        let owner = self.owner(at).await?.ok_or_else(|| {
            let message = "no replicator owns the partition at the moment; try again";
            Error::unavailable(message).with_partition(at.partition)
        })?;
        Ok(process_address(&owner).to_owned())
    }
}

/// Dependencies of the snapshot service.
#[derive(Clone)]
pub struct SnapshotParts {
    /// Dependencies that all services share.
    pub context: ServiceContext,
    /// Lookup of the replicators that have the shards.
    pub replicators: Arc<dyn ReplicatorLocator>,
    /// Storage of the snapshots, which this service requires.
    pub snapshots: SnapshotStore,
    /// Options of the snapshots.
    pub options: SnapshotOptions,
}

impl SnapshotParts {
    /// Waits until the catalog has folded all records that the control log holds at the call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.context.catch_up(CATALOG_WAIT).await
    }

    /// Returns all known definitions of a store, by ascending version.
    pub(crate) fn definitions(&self, store: StoreId) -> Vec<Definition> {
        let versions = self.context.versions(store).into_iter();
        versions.map(|schema| (*schema.definition).clone()).collect()
    }
}

/// Dependencies of backups and restores.
#[derive(Clone)]
pub struct BackupParts {
    /// Dependencies of the service: the replicators, and the folder of the snapshots of restored
    /// stores.
    pub service: SnapshotParts,
    /// Folder of the backups, separate from the snapshots.
    pub backups: SnapshotStore,
    /// Folder for images during a restore.
    pub scratch: PathBuf,
}

/// Dependencies of pushes.
#[derive(Clone)]
pub struct PushParts {
    /// Dependencies of the service.
    pub service: SnapshotParts,
    /// Folder for spilled rows.
    pub scratch: PathBuf,
}
