//! Maintains the snapshots of all partitions of this process: builds them on schedule, expires old
//! ones, collects garbage, and trims the logs up to the snapshots.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::catalog::Catalog;
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::limits::{
    ROLLBACK_WINDOW_S, SNAPSHOT_COLLECT_MS, SNAPSHOT_GRACE_MS, SNAPSHOT_MEMORY_MIB,
};
use forebay_core::schema::Definition;
use forebay_core::versions::StoreVersion;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{Bounds, CatalogFollower, ChangeLog, Membership, find_log_id};
use forebay_snapshot::{Listed, PartitionSnapshots, SnapshotName, SnapshotStore};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::build::{Build, Built, definitions_of, is_lost};
use crate::counts::SnapshotCounts;
use crate::moves::Moves;
use crate::rollback::RollbackWindows;
use crate::source::FindReplicator;

/// First and longest wait after a build that failed.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Number of consecutive failed builds of a partition before a warning; the next warning follows
/// after twice as many.
const FAILURES_TOLD: u32 = 4;
/// Longest wait for the catalog to fold the records of the control log.
const CATALOG_WAIT: Duration = Duration::from_secs(10);
/// Interval between two checks of this process's partitions.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Options of the snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// Time between two snapshots of a partition.
    pub every: Duration,
    /// Number of retained snapshots of a partition; older ones expire.
    pub keep: usize,
    /// Time for which an expired snapshot stays readable for replicas that are bootstrapping from
    /// it; twice the longest duration of a build.
    pub grace: Duration,
    /// Time between two garbage collections of a partition.
    pub collect_every: Duration,
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
    pub fn new(every: Duration, keep: usize) -> Result<Self> {
        if every.is_zero() || keep == 0 {
            let message =
                "the snapshot interval or the number of retained snapshots is 0; set both above 0";
            return Err(Error::invalid_argument(message));
        }
        Ok(Self {
            every,
            keep,
            grace: Duration::from_millis(SNAPSHOT_GRACE_MS),
            collect_every: Duration::from_millis(SNAPSHOT_COLLECT_MS),
            builds_max: 1,
            memory_bytes: SNAPSHOT_MEMORY_MIB << 20,
            bytes_per_second: 0,
            rollback_window: Duration::from_secs(ROLLBACK_WINDOW_S),
        })
    }
}

/// Dependencies of the snapshot service.
#[derive(Clone)]
pub struct SnapshotParts {
    /// The change log, to read changes and to be trimmed.
    pub log: Arc<dyn ChangeLog>,
    /// Follower of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// Source of ids and of the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Assignment of partitions to this process.
    pub membership: Arc<dyn Membership>,
    /// Lookup of the replicators that have the shards.
    pub replicators: Arc<dyn FindReplicator>,
    /// Storage of the snapshots.
    pub snapshots: SnapshotStore,
    /// Options of the snapshots.
    pub options: SnapshotOptions,
}

impl SnapshotParts {
    /// Waits until the catalog has folded all records that the control log holds at the call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let end = self.log.bounds(PartitionRef::CONTROL).await?.end;
        self.catalog.wait_applied(end, CATALOG_WAIT).await
    }
}

/// Maintenance of the snapshots of this process's partitions. Dropping it ends the maintenance.
pub struct Snapshots {
    counts: Arc<Mutex<SnapshotCounts>>,
    keeper: tokio::task::JoinHandle<()>,
}

impl Snapshots {
    /// Starts the maintenance on the current runtime, which must have several threads.
    pub fn keep(parts: SnapshotParts) -> Self {
        let counts = Arc::new(Mutex::default());
        let room = Arc::new(Semaphore::new(parts.options.builds_max.max(1)));
        let keeper = Keeper { parts, counts: Arc::clone(&counts), room };
        Self { counts, keeper: tokio::spawn(keeper.run()) }
    }

    /// Returns the counters.
    pub fn counts(&self) -> SnapshotCounts {
        *self.counts.lock()
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[derive(Clone)]
struct Keeper {
    parts: SnapshotParts,
    counts: Arc<Mutex<SnapshotCounts>>,
    /// Permits of concurrent builds.
    room: Arc<Semaphore>,
}

/// State of a partition between two cleanups of its older snapshots.
struct Tidying {
    next_collection: Instant,
    /// Snapshots that any listing has shown as counting: the next listing may miss some.
    seen: HashSet<SnapshotName>,
}

impl Keeper {
    async fn run(self) {
        let mut kept: BTreeSet<PartitionRef> = BTreeSet::new();
        let mut tasks: JoinSet<PartitionRef> = JoinSet::new();
        let (mut windows, mut moves) = (RollbackWindows::default(), Moves::default());
        loop {
            let living: BTreeSet<_> = self.partitions();
            let catalog = self.parts.catalog.catalog();
            let stores: BTreeSet<StoreId> = catalog.logs().into_keys().collect();
            if let Err(error) = self.parts.membership.take_part(&stores) {
                debug!(%error, "consumer group of stores not joined yet");
            }
            let assigned = self.parts.membership.assigned().borrow().clone();
            for at in living.into_iter().filter(|at| assigned.has(log_of(&catalog, *at))) {
                if kept.insert(at) {
                    tasks.spawn(self.clone().keep_partition(at));
                }
            }
            while let Some(ended) = tasks.try_join_next() {
                if let Ok(at) = ended {
                    kept.remove(&at);
                }
            }
            self.parts.membership.note_held(&assigned);
            let ours = self.first_of_ours();
            moves.see_to(&self.parts, &ours);
            windows.close(&self.parts, &ours).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns all partitions of living stores, for each version of their documents.
    fn partitions(&self) -> BTreeSet<PartitionRef> {
        let catalog = self.parts.catalog.catalog();
        let of = |definition: &Definition| {
            let store = definition.store;
            definition
                .partitions
                .partitions()
                .map(move |partition| PartitionRef { store, partition })
        };
        catalog.kept().flat_map(|schema| of(&schema.definition)).collect()
    }

    /// Returns the living stores whose first partition is assigned to this process, which does the
    /// once-per-store work for them.
    fn first_of_ours(&self) -> Vec<Definition> {
        let catalog = self.parts.catalog.catalog();
        let assigned = self.parts.membership.assigned().borrow().clone();
        let stores = catalog.stores().map(|schema| schema.definition.clone());
        // A repartition stays with the process of the new version's first partition from beginning
        // to end.
        let first = |definition: &Definition| definition.versions.newest().logs.at(PartitionId(0));
        stores.filter(|definition| assigned.has(first(definition))).collect()
    }

    /// Returns whether a version of a store's documents was dropped, so that its snapshots are
    /// removed.
    fn is_dropped_version(&self, at: PartitionRef) -> bool {
        let catalog = self.parts.catalog.catalog();
        let home = catalog.store(catalog.home_of(at.store)).filter(|home| !home.is_deleted());
        let newest = home.and_then(|home| home.newest());
        newest.is_some_and(|schema| schema.definition.versions.kept_as(at.store).is_none())
    }

    fn is_ours(&self, at: PartitionRef) -> bool {
        let (is_living, catalog) = (self.partitions().contains(&at), self.parts.catalog.catalog());
        is_living && self.parts.membership.assigned().borrow().has(log_of(&catalog, at))
    }

    /// Maintains one partition for as long as it is assigned to this process.
    async fn keep_partition(self, at: PartitionRef) -> PartitionRef {
        let to = self.parts.snapshots.partition(at);
        let mut backoff = Backoff::new(RETRY_WAIT.0, RETRY_WAIT.1);
        let mut tidying = Tidying { next_collection: Instant::now(), seen: HashSet::new() };
        let (mut next_build, mut failures) = (Instant::now(), 0);
        while self.is_ours(at) {
            if Instant::now() < next_build {
                tokio::time::sleep(LOOK_EVERY.min(next_build - Instant::now())).await;
                continue;
            }
            let built = self.build(&to).await;
            self.counts.lock().note_build(&built);
            next_build = Instant::now()
                + match built {
                    Ok(_) => {
                        backoff.reset();
                        failures = 0;
                        self.parts.options.every
                    }
                    Err(error) => {
                        failures += 1;
                        // A store or a version that was just created has no shards yet.
                        match failures >= FAILURES_TOLD && failures.is_power_of_two() {
                            true => {
                                warn!(%at, %error, "snapshot build failed; the previous one stays");
                            }
                            false => debug!(%at, %error, "snapshot not built"),
                        }
                        backoff.next_wait(&*self.parts.entropy)
                    }
                };
            if let Err(error) = self.tidy(&to, &mut tidying).await {
                warn!(%at, %error, "older snapshots not removed yet");
            }
        }
        if self.is_dropped_version(at)
            && let Err(error) = to.remove_all().await
        {
            // A snapshot may have been built while the others were removed.
            warn!(%at, %error, "snapshot of dropped version not removed");
        }
        at
    }

    /// Builds one snapshot, if there are changes.
    async fn build(&self, to: &PartitionSnapshots) -> Result<bool> {
        let room = self.room.acquire().await;
        let definitions = definitions_of(&self.parts, to.partition().store);
        let build = Build { parts: &self.parts, to: to.clone(), definitions, at_least: Offset(0) };
        let built = build.run().await;
        drop(room);
        Ok(matches!(built?, Built::New(_)))
    }

    /// Expires old snapshots, trims the log and collects garbage.
    async fn tidy(&self, to: &PartitionSnapshots, tidying: &mut Tidying) -> Result<()> {
        let options = &self.parts.options;
        let mut counting = to.list().await?;
        Listed::remember(&counting, &mut tidying.seen);
        counting.retain(Listed::counts);
        Listed::sort_oldest_first(&mut counting);
        let surplus = counting.len().saturating_sub(options.keep.max(1));
        if surplus > 0 {
            // The newest readable snapshot is retained, even if the listing names newer ones.
            let newest = to.newest(None).await?.map(|newest| newest.name());
            let old = counting[..surplus].iter().filter(|listed| Some(listed.name) != newest);
            for listed in old {
                to.expire(listed.name).await?;
                tidying.seen.remove(&listed.name);
                self.counts.lock().expired += 1;
            }
        }
        self.trim(to).await?;
        if Instant::now() >= tidying.next_collection {
            let collected = to.collect_beside(options.grace, &mut tidying.seen, []).await?;
            self.counts.lock().note_collected(&collected);
            tidying.next_collection = Instant::now() + options.collect_every;
        }
        Ok(())
    }

    /// Trims the log up to the newest snapshots of all versions of the documents, as far as the
    /// store's retention permits.
    async fn trim(&self, to: &PartitionSnapshots) -> Result<()> {
        let catalog = self.parts.catalog.catalog();
        let at = log_of(&catalog, to.partition());
        let Some(newest) = catalog.of_logs(at.store) else { return Ok(()) };
        let definition = newest.definition.clone();
        let is_needed = |version: &StoreVersion| {
            // A restarted forwarder reads the source and target logs from their start.
            let is_end = version.logs.store == at.store;
            let carried = version.carried.as_ref();
            carried.is_some_and(|carried| is_end || carried.from.store == at.store)
        };
        if definition.versions.all().iter().any(is_needed) {
            return Ok(());
        }
        let Some(window_us) = definition.options.log_window_us else { return Ok(()) };
        let bounds = self.parts.log.bounds(at).await?;
        let mut all = Vec::new();
        let follows = |version: &&StoreVersion| version.logs.store == at.store;
        for version in definition.versions.all().iter().filter(follows) {
            let kept_as = PartitionRef { store: version.kept_as, ..at };
            let of_version = self.parts.snapshots.partition(kept_as);
            let Some(until) = self.trims_until(&of_version, bounds, window_us).await? else {
                return Ok(());
            };
            all.push(until);
        }
        let Some((before, log_id)) = all.into_iter().min() else { return Ok(()) };
        if before <= bounds.start {
            return Ok(());
        }
        let kept = Bounds { start: before, ..bounds };
        if find_log_id(&*self.parts.log, at, kept).await? != Some(log_id) {
            return Ok(());
        }
        match self.parts.log.trim(at, before).await {
            Err(error) if error.code() == ErrorCode::Unsupported => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                info!(%at, %before, "log trimmed up to its snapshots");
                self.counts.lock().trimmed += 1;
                Ok(())
            }
        }
    }

    /// Returns the offset up to which these snapshots permit a trim, and the id of their log.
    async fn trims_until(
        &self,
        of: &PartitionSnapshots,
        bounds: Bounds,
        window_us: i64,
    ) -> Result<Option<(Offset, LogId)>> {
        let Some(newest) = of.newest(None).await? else { return Ok(None) };
        if newest.progress.offset_applied > bounds.end {
            return Ok(None);
        }
        // The retained window starts at a snapshot, so this snapshot and the log reproduce every
        // later state.
        let from = newest.progress.partition_time.as_micros().saturating_sub(window_us);
        let mut before = None;
        for listed in of.list().await?.into_iter().filter(Listed::counts) {
            if listed.name.log_id != newest.log_id {
                continue;
            }
            let manifest = match of.read(listed.name).await {
                // An unreadable snapshot retains the log; another snapshot may be readable.
                Err(error) if is_lost(&error) => continue,
                read => read?,
            };
            if manifest.progress.partition_time.as_micros() <= from {
                before = before.max(Some(manifest.progress.offset_applied));
            }
        }
        // The entry before the snapshot's end stays, because it identifies the log.
        Ok(before.map(|before| (Offset(before.0.saturating_sub(1)), newest.log_id)))
    }
}

/// Returns the partition's log that a version of a store's documents follows.
fn log_of(catalog: &Catalog, at: PartitionRef) -> PartitionRef {
    let newest = catalog.store(at.store).and_then(|history| history.newest());
    newest.map_or(at, |schema| schema.definition.logs().at(at.partition))
}
