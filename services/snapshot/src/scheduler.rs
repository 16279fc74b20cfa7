//! Schedules the maintenance of the snapshots of all partitions of this process: builds, and the
//! cleanup after each build. Once per store, the scheduler also completes repartitions and closes
//! rollback windows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::backoff::Backoff;
use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::schema::Definition;
use forebay_snapshot::PartitionSnapshots;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::build::{Build, BuildOutcome};
use crate::context::SnapshotParts;
use crate::counts::SnapshotCounts;
use crate::repartition::RepartitionTasks;
use crate::retention::{Retention, log_of};
use crate::rollback::RollbackWindows;

/// First and longest wait after a build that failed.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Number of consecutive failed builds of a partition before a warning; the next warning follows
/// after twice as many.
const FAILURES_TOLD: u32 = 4;
/// Interval between two checks of this process's partitions.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait for the end of the maintenance. A build ends only after its current blocking step.
const END_WAIT: Duration = Duration::from_secs(60);

/// Maintenance of the snapshots of this process's partitions. Dropping it ends the maintenance,
/// without waiting for the end.
pub struct Snapshots {
    counts: Arc<Mutex<SnapshotCounts>>,
    /// The scheduler; `None` once the maintenance is stopped.
    scheduler: Mutex<Option<RunningScheduler>>,
}

/// A scheduler on a task of its own.
struct RunningScheduler {
    /// Ends the scheduler and its tasks when it is dropped.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Snapshots {
    /// Starts the maintenance on the current runtime, which must have several threads.
    pub fn maintain(parts: SnapshotParts) -> Self {
        let counts = Arc::new(Mutex::default());
        let builds = Arc::new(Semaphore::new(parts.options.builds_max.max(1)));
        let scheduler = SnapshotScheduler { parts, counts: Arc::clone(&counts), builds };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(scheduler.run(stopped));
        Self { counts, scheduler: Mutex::new(Some(RunningScheduler { stop, task })) }
    }

    /// Returns the counters.
    pub fn counts(&self) -> SnapshotCounts {
        *self.counts.lock()
    }

    /// Ends the maintenance. All of its tasks have ended on return; tasks that do not end in time
    /// are logged.
    pub async fn stop(&self) {
        let running = self.scheduler.lock().take();
        let Some(RunningScheduler { stop, task }) = running else { return };
        drop(stop);
        if tokio::time::timeout(END_WAIT, task).await.is_err() {
            warn!("timed out stopping the maintenance of snapshots");
        }
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.scheduler.lock().iter().for_each(|running| running.task.abort());
    }
}

/// The tasks that the scheduler has started. Dropping them aborts them.
#[derive(Default)]
struct MaintenanceTasks {
    partitions: JoinSet<PartitionRef>,
    /// The partitions that have a task.
    maintained: BTreeSet<PartitionRef>,
    repartitions: RepartitionTasks,
}

impl MaintenanceTasks {
    /// Aborts all tasks, and waits until they have ended.
    async fn shut_down(mut self) {
        tokio::join!(self.partitions.shutdown(), self.repartitions.shut_down());
    }
}

/// Starts and ends the maintenance of partitions as they are assigned to this process.
#[derive(Clone)]
struct SnapshotScheduler {
    parts: SnapshotParts,
    counts: Arc<Mutex<SnapshotCounts>>,
    /// Permits of concurrent builds.
    builds: Arc<Semaphore>,
}

impl SnapshotScheduler {
    /// Schedules until `stopped` completes, then ends all tasks.
    async fn run(self, stopped: oneshot::Receiver<()>) {
        let mut tasks = MaintenanceTasks::default();
        tokio::select! {
            _ = stopped => {}
            () = self.schedule(&mut tasks) => {}
        }
        tasks.shut_down().await;
    }

    /// Schedules without end.
    async fn schedule(&self, tasks: &mut MaintenanceTasks) {
        let mut windows = RollbackWindows::default();
        loop {
            let active: BTreeSet<_> = self.partitions();
            let catalog = self.parts.context.catalog.catalog();
            let stores: BTreeSet<StoreId> = catalog.logs().into_keys().collect();
            if let Err(error) = self.parts.context.membership.subscribe(&stores) {
                debug!(%error, "consumer group of stores not joined yet");
            }
            let assigned = self.parts.context.membership.assignment().borrow().clone();
            for at in active.into_iter().filter(|at| assigned.has(log_of(&catalog, *at))) {
                if tasks.maintained.insert(at) {
                    tasks.partitions.spawn(self.clone().maintain_partition(at));
                }
            }
            while let Some(ended) = tasks.partitions.try_join_next() {
                if let Ok(at) = ended {
                    tasks.maintained.remove(&at);
                }
            }
            self.parts.context.membership.acknowledge_assignment(&assigned);
            let own_stores = self.first_of_ours();
            tasks.repartitions.reconcile(&self.parts, &own_stores);
            windows.close(&self.parts, &own_stores).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns all partitions of active stores, for each version of their documents.
    fn partitions(&self) -> BTreeSet<PartitionRef> {
        let catalog = self.parts.context.catalog.catalog();
        let partitions_of = |definition: &Definition| {
            let store = definition.store;
            definition
                .partitions
                .partitions()
                .map(move |partition| PartitionRef { store, partition })
        };
        catalog.active_versions().flat_map(|schema| partitions_of(&schema.definition)).collect()
    }

    /// Returns the active stores whose first partition is assigned to this process, which does the
    /// once-per-store work for them.
    fn first_of_ours(&self) -> Vec<Definition> {
        let catalog = self.parts.context.catalog.catalog();
        let assigned = self.parts.context.membership.assignment().borrow().clone();
        let stores = catalog.document_stores().map(|schema| (*schema.definition).clone());
        // A repartition stays with the process of the new version's first partition from beginning
        // to end.
        let first_partition =
            |definition: &Definition| definition.versions.newest().logs.at(PartitionId(0));
        stores.filter(|definition| assigned.has(first_partition(definition))).collect()
    }

    /// Returns whether a version of a store's documents was dropped, so that its snapshots are
    /// removed.
    fn is_dropped_version(&self, at: PartitionRef) -> bool {
        let catalog = self.parts.context.catalog.catalog();
        let home =
            catalog.store(catalog.home_by_storage_id(at.store)).filter(|home| !home.is_deleted());
        let newest = home.and_then(|home| home.newest());
        newest.is_some_and(|schema| schema.definition.versions.by_storage_id(at.store).is_none())
    }

    fn is_ours(&self, at: PartitionRef) -> bool {
        let (is_active, catalog) =
            (self.partitions().contains(&at), self.parts.context.catalog.catalog());
        is_active && self.parts.context.membership.assignment().borrow().has(log_of(&catalog, at))
    }

    /// Maintains one partition for as long as it is assigned to this process.
    async fn maintain_partition(self, at: PartitionRef) -> PartitionRef {
        let to = self.parts.snapshots.partition(at);
        let mut backoff = Backoff::new(RETRY_WAIT.0, RETRY_WAIT.1);
        let mut retention = Retention::new(&self.parts, &to, &self.counts);
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
                        self.parts.options.interval
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
                        backoff.next_wait(&*self.parts.context.entropy)
                    }
                };
            if let Err(error) = retention.enforce().await {
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
        let permit = self.builds.acquire().await;
        let definitions = self.parts.definitions(to.partition().store);
        let build = Build { parts: &self.parts, to: to.clone(), definitions, at_least: Offset(0) };
        let built = build.run().await;
        drop(permit);
        Ok(matches!(built?, BuildOutcome::New(_)))
    }
}
