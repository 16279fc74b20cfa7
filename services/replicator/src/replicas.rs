//! The replicator's own replica of every store. A replica follows the logs into shards; it reports
//! outcomes of conditional changes, how long a partition has been silent, and which records were
//! skipped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence, StoreId};
use forebay_core::outcome::ConditionOutcome;
use forebay_entries::CatalogFollower;
use forebay_replica::{ReaderStatus, StoreReplica};
use forebay_runtime::{OpenResources, Peers, Reconciler, StoreResource};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::info;

use crate::dead_letters::DeadLetterCounts;
use crate::document_shards::DocumentShards;
use crate::open_replica::{OpenReplica, ours_of};
use crate::parts::ReplicatorParts;
use crate::resources::ReplicaResources;

/// State of a replicator's replica and duties for one store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreMetrics {
    /// Status of the replica.
    pub replica: ReaderStatus,
    /// Counters of the dead letters; `None` for a store without a dead-letter log.
    pub dead_letters: Option<DeadLetterCounts>,
}

/// The replicas of all active stores, and a replicator's duties for them: heartbeats, outcomes of
/// conditional changes and dead letters. Each partition has one process with these duties.
///
/// Dropping the replicas ends the duties.
pub struct Replicas {
    /// The replicas by storage id: a store has one for each version of its documents.
    replicas: OpenResources<OpenReplica>,
    catalog: Arc<CatalogFollower>,
    /// For each store, the version that answers here.
    served: Mutex<BTreeMap<StoreId, StoreId>>,
    /// Notified of each replica that is opened.
    opened: Arc<watch::Sender<()>>,
    /// Owners of the partitions that are not here.
    peers: Peers,
    reconciler: Mutex<Option<JoinHandle<()>>>,
}

impl Replicas {
    /// Maintains one replica per version of each active store, on the current runtime.
    pub fn follow(parts: ReplicatorParts) -> Self {
        let (replicas, reopen) = (OpenResources::default(), Arc::<Notify>::default());
        let opened = Arc::new(watch::Sender::new(()));
        let (catalog, membership) =
            (Arc::clone(&parts.context.catalog), Arc::clone(&parts.context.membership));
        let peers = Peers::new(Arc::clone(&membership));
        let resources = ReplicaResources {
            parts,
            replicas: replicas.clone(),
            backlogs: Mutex::default(),
            opened: Arc::clone(&opened),
            reopen: Arc::clone(&reopen),
        };
        let served = Mutex::default();
        let reconciler =
            Reconciler { catalog: Arc::clone(&catalog), membership, reopen, resources };
        let reconciler = Mutex::new(Some(tokio::spawn(reconciler.run())));
        Self { replicas, catalog, served, opened, peers, reconciler }
    }

    /// Returns the owners of the partitions that are not here.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the storage id of the version of a store's documents that answers here: the live
    /// version, once its replica is ready. All partitions of a store switch versions at once.
    pub(crate) fn serving_version(&self, store: StoreId) -> StoreId {
        let catalog = self.catalog.catalog();
        let Some(history) = catalog.store(store) else { return store };
        let Some(schema) = history.newest() else { return store };
        let live = schema.definition.versions.live().storage_id;
        let mut served = self.served.lock();
        let before = *served.entry(store).or_insert(live);
        if before == live {
            return live;
        }
        let replicas = self.replicas.lock();
        // Only the version's own log shows whether the replica has all entries from before the
        // version became live.
        let live_since =
            history.live_since().filter(|_| schema.definition.versions.have_repartitions());
        let is_ready = |id| {
            replicas.get(id).is_some_and(|replica: &OpenReplica| {
                let status = replica.follower.status();
                let mut schema_versions =
                    status.partitions.iter().map(|partition| partition.schema_version);
                status.is_ready && schema_versions.all(|version| Some(version) >= live_since)
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
        let Some(schema) = catalog.store_by_logs(logs) else { return logs };
        let versions = &schema.definition.versions;
        let follows =
            |id: StoreId| versions.by_storage_id(id).is_some_and(|it| it.logs.store == logs);
        let serving = self.serving_version(versions.home());
        let of_logs = versions.all().iter().map(|version| version.storage_id);
        [serving].into_iter().chain(of_logs).find(|id| follows(*id)).unwrap_or(serving)
    }

    /// Returns the outcome of this client's conditional change, which a log holds at `position`;
    /// waits until the replica has applied it. `None` if no replica is open in time, or the outcome
    /// is no longer retained.
    pub async fn condition_outcome(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<ConditionOutcome> {
        let deadline = Instant::now() + wait_max;
        loop {
            let storage_id = self.serving_of(at.store);
            let opening = self.await_replica(storage_id, |replica| replica.follower.clone());
            let follower = tokio::time::timeout_at(deadline, opening).await.ok()??;
            let remaining = deadline.saturating_duration_since(Instant::now());
            match follower.wait_applied(at.partition, position, remaining).await {
                Ok(()) => {
                    let outcome = follower.outcome(at.partition, client, sequence).ok()?;
                    return outcome.map(|outcome| outcome.condition);
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
        storage_id: StoreId,
        wait_max: Duration,
    ) -> Option<(StoreReplica, DocumentShards)> {
        let opened = self.await_replica(storage_id, |replica| {
            (replica.follower.clone(), replica.shards.clone())
        });
        let (follower, shards) = tokio::time::timeout(wait_max, opened).await.ok()??;
        Some((follower, shards?))
    }

    /// Returns a part of a store's replica as soon as the replica is open; `None` once no more
    /// replicas are opened.
    async fn await_replica<T>(
        &self,
        store: StoreId,
        take: impl Fn(&OpenReplica) -> T,
    ) -> Option<T> {
        let mut opened = self.opened.subscribe();
        loop {
            let part = self.replicas.lock().get(&store).map(&take);
            if part.is_some() {
                return part;
            }
            opened.changed().await.ok()?;
        }
    }

    /// Returns the metrics of a store; `None` before its replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        let storage_id = self.serving_version(store);
        let (follower, backlog) = {
            let replicas = self.replicas.lock();
            let replica = replicas.get(&storage_id)?;
            (replica.follower.clone(), replica.backlog.clone())
        };
        let dead_letters = backlog.map(|backlog| backlog.counts());
        Some(StoreMetrics { replica: follower.status(), dead_letters })
    }

    /// Returns whether all partitions of this process answer within the readiness bound.
    pub(crate) fn are_ready(&self, parts: &ReplicatorParts) -> bool {
        let catalog = parts.context.catalog.catalog();
        let assignment = parts.context.membership.assignment().borrow().clone();
        let replicas = self.replicas.lock();
        let mut versions = catalog.active_versions().filter_map(|schema| {
            let definition = &schema.definition;
            // A version whose logs receive no more writes has no known freshness.
            let partitions = ours_of(&assignment, definition);
            let is_written = definition.logs() == definition.write_logs();
            (is_written && !partitions.is_empty()).then_some((definition.store, partitions))
        });
        versions.all(|(store, partitions)| {
            let replica = replicas.get(&store).filter(|replica| replica.partitions == partitions);
            replica.is_some_and(|replica| replica.follower.status().is_ready)
        })
    }

    /// Ends the duties and closes every replica. All shards of replicas are closed on return,
    /// unless a read in flight or a flush holds one. A replica that does not end in time is logged.
    pub async fn stop(&self) {
        let reconciler = self.reconciler.lock().take();
        if let Some(reconciler) = reconciler {
            reconciler.abort();
            let _ = reconciler.await;
        }
        join_all(self.replicas.take_all().into_iter().map(StoreResource::shut_down)).await;
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.reconciler.lock().iter().for_each(JoinHandle::abort);
        self.replicas.lock().values().for_each(OpenReplica::close);
    }
}
