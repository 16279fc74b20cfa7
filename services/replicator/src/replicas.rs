//! The replicator's own replica of every store. A replica follows the logs into shards; it reports
//! outcomes of conditional changes, how long a partition has been silent, and which records were
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_core::catalog::{Catalog, SchemaAt};
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::{ClientId, PartitionId, PartitionRef, Position, Sequence, StoreId};
use forebay_core::outcome::Verdict;
use forebay_core::schema::Definition;
use forebay_core::{ErrorCode, Result};
use forebay_index::Index;
use forebay_log::{Assigned, CatalogFollower, ChangeLog, Membership};
use forebay_reader::{
    LogBarriers, OnSkipped, PartitionFilter, ReaderOptions, ReaderParts, ReaderStatus, Storage,
    StoreFollower,
};
use forebay_shard::ShardDirectory;
use forebay_snapshot::{SnapshotStore, in_place};
use futures::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::dead_letters::{Copier, DeadLetterCounts, Waiting};
use crate::heartbeat::{self, Heartbeats};
use crate::shards::StoreShards;
use forebay_serve::Peers;

/// Longest wait until a replaced replica has shut down.
const END_WAIT: Duration = Duration::from_secs(60);
/// Interval between two flushes of the shards. After a crash, unflushed entries are replayed from
/// the log.
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// Wait before a replica that could not be opened is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

/// Dependencies of the replicas; the simulator supplies its own.
#[derive(Clone)]
pub struct ReplicatorParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The fold of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness: log ids, and the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Appender of heartbeats.
    pub heartbeats: Arc<dyn Heartbeats>,
    /// Assignment of partitions to this process.
    pub membership: Arc<dyn Membership>,
    /// Directory of the shards; `None` holds documents in memory, and the next process folds the
    /// logs again.
    pub shards: Option<ShardDirectory>,
    /// Snapshots from which shards bootstrap; without them, shards bootstrap from their logs.
    pub snapshots: Option<SnapshotStore>,
}

/// State of a replicator's replica and duties for one store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreMetrics {
    /// Status of the replica.
    pub replica: ReaderStatus,
    /// Counters of the dead letters; `None` for a store without a dead-letter log.
    pub dead_letters: Option<DeadLetterCounts>,
}

struct Replica {
    partitions: BTreeSet<PartitionId>,
    /// Whether this replica has the duties for the partitions of its store.
    has_duties: bool,
    follower: StoreFollower,
    shards: Option<StoreShards>,
    tasks: Vec<JoinHandle<()>>,
    waiting: Option<Arc<Waiting>>,
}

impl Replica {
    fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.follower.close();
    }

    /// Shuts the replica down, and waits until its shards are closed, so that others may open them.
    async fn ended(mut self, store: StoreId) {
        self.end();
        for task in std::mem::take(&mut self.tasks) {
            // An aborted task holds its shards until it has ended.
            let _ = task.await;
        }
        if let Err(error) = self.follower.shut_down(END_WAIT).await {
            warn!(%store, %error, "timed out stopping a reassigned replica");
        }
        // The drop closes shards that nobody else has open, which may block on the disk.
        in_place(|| drop(self));
    }
}

/// The replicas of all living stores, and a replicator's duties for them: heartbeats, outcomes of
/// conditional changes and dead letters. Each partition has one process with these duties.
///
/// Dropping the replicas ends the duties.
pub struct Replicas {
    /// The replicas by storage id: a store has one for each version of its documents.
    replicas: Arc<Mutex<BTreeMap<StoreId, Replica>>>,
    catalog: Arc<CatalogFollower>,
    /// For each store, the version that answers here.
    served: Mutex<BTreeMap<StoreId, StoreId>>,
    /// Notified of each replica that is opened.
    opened: Arc<watch::Sender<()>>,
    /// Owners of the partitions that are not here.
    peers: Peers,
    follower: Mutex<Option<JoinHandle<()>>>,
}

impl Replicas {
    /// Maintains one replica per version of each living store, on the current runtime.
    pub fn follow(parts: ReplicatorParts) -> Self {
        let replicas = Arc::new(Mutex::new(BTreeMap::new()));
        let opened = Arc::new(watch::Sender::new(()));
        let peers = Peers::new(Arc::clone(&parts.membership));
        let (catalog, served) = (Arc::clone(&parts.catalog), Mutex::default());
        let keeper = Keeper {
            replicas: Arc::clone(&replicas),
            opened: Arc::clone(&opened),
            parts,
            reopen: Arc::default(),
        };
        let follower = Mutex::new(Some(tokio::spawn(keeper.run())));
        Self { replicas, catalog, served, opened, peers, follower }
    }

    /// Returns the owners of the partitions that are not here.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the storage id of the version of a store's documents that answers here: the live
    /// version, once its replica is ready. All partitions of a store switch versions at once.
    pub(crate) fn serving(&self, store: StoreId) -> StoreId {
        let catalog = self.catalog.catalog();
        let Some(history) = catalog.store(store) else { return store };
        let Some(schema) = history.newest() else { return store };
        let live = schema.definition.versions.live().kept_as;
        let mut served = lock(&self.served);
        let before = *served.entry(store).or_insert(live);
        if before == live {
            return live;
        }
        let replicas = lock(&self.replicas);
        // Only the version's own log shows whether the replica has all entries from before the
        // version became live.
        let since = history.live_since().filter(|_| schema.definition.versions.have_moved());
        let is_ready = |id| {
            replicas.get(id).is_some_and(|replica: &Replica| {
                let status = replica.follower.status();
                let mut seen = status.partitions.iter().map(|partition| partition.schema_version);
                status.is_ready && seen.all(|seen| Some(seen) >= since)
            })
        };
        if !is_ready(&live) && replicas.contains_key(&before) {
            return before;
        }
        info!(%store, %live, "live version changed");
        served.insert(store, live);
        live
    }

    /// Returns the version that answers here among the versions that follow these logs.
    fn serving_of(&self, logs: StoreId) -> StoreId {
        let catalog = self.catalog.catalog();
        let Some(schema) = catalog.of_logs(logs) else { return logs };
        let versions = &schema.definition.versions;
        let follows = |id: StoreId| versions.kept_as(id).is_some_and(|it| it.logs.store == logs);
        let serving = self.serving(versions.home());
        let of_logs = versions.all().iter().map(|version| version.kept_as);
        [serving].into_iter().chain(of_logs).find(|id| follows(*id)).unwrap_or(serving)
    }

    /// Returns the verdict on this client's change, which a log holds at `position`; waits until
    /// the replica has applied it. `None` if no replica is open in time, or the outcome is no
    /// longer retained.
    pub async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict> {
        let deadline = Instant::now() + wait_max;
        loop {
            let kept_as = self.serving_of(at.store);
            let opening = self.await_replica(kept_as, |replica| replica.follower.clone());
            let follower = tokio::time::timeout_at(deadline, opening).await.ok()??;
            let left = deadline.saturating_duration_since(Instant::now());
            match follower.wait_applied(at.partition, position, left).await {
                Ok(()) => {
                    let outcome = follower.outcome(at.partition, client, sequence).ok()?;
                    return outcome.map(|outcome| outcome.verdict);
                }
                // Another replica has replaced this one.
                Err(error) if error.code() == ErrorCode::Closed => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns the sources of ordered reads of a version of a store's documents, named by its
    /// storage id, as soon as the replica is open here; `None` if the wait takes too long, or the
    /// replica has no shards.
    pub(crate) async fn version(
        &self,
        kept_as: StoreId,
        wait_max: Duration,
    ) -> Option<(StoreFollower, StoreShards)> {
        let opened = self
            .await_replica(kept_as, |replica| (replica.follower.clone(), replica.shards.clone()));
        let (follower, shards) = tokio::time::timeout(wait_max, opened).await.ok()??;
        Some((follower, shards?))
    }

    /// Returns a part of a store's replica as soon as the replica is open; `None` once no more
    /// replicas are opened.
    async fn await_replica<T>(&self, store: StoreId, take: impl Fn(&Replica) -> T) -> Option<T> {
        let mut opened = self.opened.subscribe();
        loop {
            let taken = lock(&self.replicas).get(&store).map(&take);
            if taken.is_some() {
                return taken;
            }
            opened.changed().await.ok()?;
        }
    }

    /// Returns the metrics of a store; `None` before its replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        let kept_as = self.serving(store);
        let (follower, waiting) = {
            let replicas = lock(&self.replicas);
            let replica = replicas.get(&kept_as)?;
            (replica.follower.clone(), replica.waiting.clone())
        };
        let dead_letters = waiting.map(|waiting| waiting.counts());
        Some(StoreMetrics { replica: follower.status(), dead_letters })
    }

    /// Returns whether all partitions of this process answer within the readiness bound.
    pub(crate) fn are_ready(&self, parts: &ReplicatorParts) -> bool {
        let catalog = parts.catalog.catalog();
        let ours = parts.membership.assigned().borrow().clone();
        let replicas = lock(&self.replicas);
        let mut wanted = catalog.kept().filter_map(|schema| {
            let definition = &schema.definition;
            // A version whose logs receive no more writes has no known freshness.
            let partitions = ours_of(&ours, definition);
            let is_written = definition.logs() == definition.written();
            (is_written && !partitions.is_empty()).then_some((definition.store, partitions))
        });
        wanted.all(|(store, partitions)| {
            let replica = replicas.get(&store).filter(|replica| replica.partitions == partitions);
            replica.is_some_and(|replica| replica.follower.status().is_ready)
        })
    }

    /// Ends the duties and closes every replica. All shards of replicas are closed on return,
    /// unless a read in flight holds one; a replica that does not end in time is logged.
    pub async fn stop(&self) {
        let follower = lock(&self.follower).take();
        if let Some(follower) = follower {
            follower.abort();
            let _ = follower.await;
        }
        let replicas = std::mem::take(&mut *lock(&self.replicas)).into_iter();
        join_all(replicas.map(|(store, replica)| replica.ended(store))).await;
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        lock(&self.follower).iter().for_each(JoinHandle::abort);
        lock(&self.replicas).values().for_each(Replica::end);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that opens and closes replicas.
struct Keeper {
    replicas: Arc<Mutex<BTreeMap<StoreId, Replica>>>,
    opened: Arc<watch::Sender<()>>,
    parts: ReplicatorParts,
    /// Notified when a replica must be reopened.
    reopen: Arc<Notify>,
}

impl Keeper {
    async fn run(self) {
        let mut assigned = self.parts.membership.assigned();
        loop {
            let changed = self.parts.catalog.changes();
            let ours = assigned.borrow_and_update().clone();
            if !self.refresh(&ours).await {
                tokio::time::sleep(REOPEN_WAIT).await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.reopen.notified() => {}
                Ok(()) = assigned.changed() => {}
                is_alive = changed => if !is_alive { return },
            }
        }
    }

    /// Opens new replicas and closes those that are gone; returns whether everything succeeded.
    async fn refresh(&self, ours: &Assigned) -> bool {
        let now = self.parts.catalog.catalog();
        let living: BTreeMap<_, _> =
            now.kept().map(|schema| (schema.definition.store, Arc::clone(schema))).collect();
        let stores = now.logs().into_keys().collect();
        let mut complete = true;
        if let Err(error) = self.parts.membership.take_part(&stores) {
            warn!(%error, "consumer group of stores not joined yet");
            complete = false;
        }
        self.close_dropped(&now, |store| living.contains_key(&store)).await;
        let mut to_open = Vec::new();
        for (store, schema) in living {
            let definition = &schema.definition;
            let partitions = ours_of(ours, definition);
            let wanted = (&partitions, has_duties(definition));
            if let Some(before) = self.make_way(store, wanted).await {
                to_open.push((schema, partitions, before));
            }
        }
        self.parts.membership.note_held(ours);
        to_open.retain(|(_, partitions, _)| !partitions.is_empty());
        for (schema, partitions, before) in to_open {
            let name = &schema.definition.name;
            match self.open(&schema, partitions, before).await {
                Ok(replica) => {
                    lock(&self.replicas).insert(schema.definition.store, replica);
                    self.opened.send_replace(());
                }
                Err(error) => {
                    warn!(store = %name, %error, "replica not opened yet");
                    complete = false;
                }
            }
        }
        complete
    }

    /// Closes the replicas of stores that were dropped, and removes their shards.
    async fn close_dropped(&self, catalog: &Catalog, is_living: impl Fn(StoreId) -> bool) {
        let dropped: Vec<_> = {
            let mut replicas = lock(&self.replicas);
            let stores = replicas.keys().copied().filter(|store| !is_living(*store));
            let stores: Vec<_> = stores.collect();
            stores.into_iter().filter_map(|store| replicas.remove_entry(&store)).collect()
        };
        for (store, replica) in dropped {
            replica.ended(store).await;
        }
        let Some(directory) = self.parts.shards.clone() else { return };
        let shards = directory.stores().unwrap_or_default().into_iter();
        // A store that the catalog does not know yet may be living.
        let gone = shards.filter(|store| !is_living(*store) && catalog.store(*store).is_some());
        let gone: Vec<_> = gone.collect();
        let removal = tokio::task::spawn_blocking(move || {
            for store in gone {
                match directory.remove_store(store) {
                    Ok(()) => info!(%store, "shards of dropped store deleted"),
                    Err(error) => warn!(%store, %error, "shards of dropped store not deleted"),
                }
            }
        });
        drop(removal.await);
    }

    /// Closes the replica of a store if it must be replaced: if it has failed, must be reopened, or
    /// has other partitions or duties. Returns `None` if the replica stays; otherwise the store
    /// needs a new replica, and the inner value is the queue of the closed one, if there was one.
    async fn make_way(
        &self,
        store: StoreId,
        (partitions, has_duties): (&BTreeSet<PartitionId>, bool),
    ) -> Option<Option<Arc<Waiting>>> {
        let (replica, waiting) = {
            let mut replicas = lock(&self.replicas);
            let Some(replica) = replicas.get(&store) else { return Some(None) };
            let must_look_again = replica.waiting.as_ref().is_some_and(|it| it.must_reopen());
            let have_failed = replica.shards.as_ref().is_some_and(StoreShards::have_failed);
            let is_divided_anew =
                replica.partitions != *partitions || replica.has_duties != has_duties;
            if !must_look_again && !have_failed && !is_divided_anew {
                return None;
            }
            info!(%store, must_look_again, have_failed, is_divided_anew, "replica reassigned");
            let replica = replicas.remove(&store)?;
            let waiting = replica.waiting.clone();
            (replica, waiting)
        };
        replica.ended(store).await;
        waiting.iter().for_each(|waiting| waiting.restart());
        Some(waiting)
    }

    async fn open(
        &self,
        schema: &Arc<SchemaAt>,
        partitions: BTreeSet<PartitionId>,
        before: Option<Arc<Waiting>>,
    ) -> Result<Replica> {
        let definition = &schema.definition;
        let versions = self.versions(definition.store);
        let shards = self.parts.shards.clone();
        let reopen = Arc::clone(&self.reopen);
        let shards = shards.map(|directory| StoreShards::new(versions.clone(), directory, reopen));
        let shards = shards.transpose()?;
        let storage: Arc<dyn Storage> = match &shards {
            Some(shards) => Arc::new(shards.clone()),
            None => {
                let seed = self.parts.entropy.next_u64()?;
                Arc::new(Index::new(versions, definition.partitions.partitions(), seed)?)
            }
        };
        let copier = self.copier(schema, &partitions, before, shards.clone()).await?;
        let waiting = copier.as_ref().map(|copier| Arc::clone(copier.waiting()));
        let on_skipped = waiting.clone().map(|waiting| {
            let on_skipped: OnSkipped = Arc::new(move |skipped| waiting.push(skipped));
            on_skipped
        });
        let mut options = ReaderOptions::new(&definition.name);
        options.keep_outcomes = true;
        options.snapshots = self.parts.snapshots.clone();
        options.partitions = PartitionFilter::Only(partitions.clone());
        let ReplicatorParts { log, catalog, clock, entropy, heartbeats, .. } = self.parts.clone();
        let barriers = Arc::new(LogBarriers(Arc::clone(&log)));
        let (disk, replicator) = (None, None);
        let parts =
            ReaderParts { log, catalog, clock, entropy, barriers, on_skipped, disk, replicator };
        // The start opens all shards and flushes some files for each.
        let follower = in_place(|| StoreFollower::start(options, parts, schema, storage))?;
        let has_duties = has_duties(definition);
        let of_beats = Arc::clone(&self.parts.catalog);
        let beats = heartbeat::beat(follower.clone(), heartbeats, of_beats, Arc::clone(schema));
        let mut tasks = Vec::new();
        tasks.extend(has_duties.then(|| tokio::spawn(beats)));
        tasks.extend(copier.map(|copier| tokio::spawn(copier.run())));
        tasks.extend(shards.clone().map(|shards| tokio::spawn(keep_on_disk(shards))));
        Ok(Replica { partitions, has_duties, follower, shards, tasks, waiting })
    }

    /// Returns all definitions of a store that the catalog knows.
    fn versions(&self, store: StoreId) -> Vec<Arc<SchemaAt>> {
        let catalog = self.parts.catalog.catalog();
        catalog.store(store).into_iter().flat_map(|history| history.versions().cloned()).collect()
    }

    /// Creates the copier of a store's dead letters, and reads how far an earlier copier got.
    async fn copier(
        &self,
        schema: &SchemaAt,
        partitions: &BTreeSet<PartitionId>,
        before: Option<Arc<Waiting>>,
        shards: Option<StoreShards>,
    ) -> Result<Option<Copier>> {
        let definition = &schema.definition;
        let letters = definition.logs().store.dead_letters();
        let Some(letters) = letters.filter(|_| has_duties(definition)) else { return Ok(None) };
        let (waiting, reopen) = (before.unwrap_or_default(), Arc::clone(&self.reopen));
        let mut copier = Copier::new(&self.parts, definition, letters, waiting, reopen, shards);
        copier.read_back(partitions).await?;
        Ok(Some(copier))
    }
}

/// Returns whether the replica of this version has the duties for the store's partitions. The
/// oldest version that follows the logs has them, so that each duty is done once.
fn has_duties(definition: &Definition) -> bool {
    let logs = definition.logs();
    let oldest = definition.versions.all().iter().find(|version| version.logs == logs);
    oldest.is_none_or(|oldest| oldest.kept_as == definition.store)
}

/// Returns the partitions of a version's logs that are assigned to this process.
fn ours_of(ours: &Assigned, definition: &Definition) -> BTreeSet<PartitionId> {
    let logs = definition.logs();
    ours.of(logs.store, logs.partitions)
}

/// Flushes shards periodically, and drops views that nobody reads any more.
async fn keep_on_disk(shards: StoreShards) {
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        shards.views().sweep();
        let flushed = shards.clone();
        if tokio::task::spawn_blocking(move || flushed.flush()).await.is_err() {
            return;
        }
    }
}
