//! A replica of one version of a store's documents, and the duties that it has for the store's
//! partitions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::schema::Definition;
use forebay_log::PartitionAssignment;
use forebay_replica::{
    MemoryStorage, OnSkipped, PartitionFilter, ReplicaOptions, Storage, StoreReplica,
};
use forebay_runtime::StoreResource;
use forebay_shard_replica::{ShardReplicas, replica_parts};
use forebay_tasks::block_in_place;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::dead_letters::{Backlog, Copier};
use crate::document_shards::{DocumentRows, DocumentShards};
use crate::heartbeat;
use crate::parts::ReplicatorParts;

/// Longest wait until a replaced replica has shut down.
const END_WAIT: Duration = Duration::from_secs(60);

/// A replica that is open in this process.
pub(crate) struct OpenReplica {
    /// Storage id of the version.
    store: StoreId,
    pub(crate) partitions: BTreeSet<PartitionId>,
    /// Whether this replica has the duties for the partitions of its store.
    has_duties: bool,
    pub(crate) follower: StoreReplica,
    pub(crate) shards: Option<DocumentShards>,
    tasks: Vec<JoinHandle<()>>,
    pub(crate) backlog: Option<Arc<Backlog>>,
}

/// Reasons to replace a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staleness {
    /// Whether the log must be read again for skipped records that were not copied.
    pub(crate) has_missed_letters: bool,
    /// Whether a disk has refused a write.
    pub(crate) has_failed: bool,
    /// Whether the replica has other partitions or duties than it should have.
    pub(crate) is_reassigned: bool,
}

impl OpenReplica {
    /// Opens the replica of these partitions, with the backlog of dead letters of the replica that
    /// it replaces. `reopen` is notified when the replica must be replaced.
    ///
    /// # Errors
    /// As the log and the disk.
    pub(crate) async fn open(
        parts: &ReplicatorParts,
        schema: &Arc<SchemaAt>,
        partitions: BTreeSet<PartitionId>,
        backlog: Option<Arc<Backlog>>,
        reopen: &Arc<Notify>,
    ) -> Result<Self> {
        let definition = &schema.definition;
        let directory = parts.shards.clone();
        let versions = || parts.context.versions(definition.store);
        let shards = directory
            .map(|directory| DocumentRows::shards(versions(), directory, Arc::clone(reopen)))
            .transpose()?;
        let storage: Arc<dyn Storage> = match &shards {
            Some(shards) => Arc::new(shards.clone()),
            None => Arc::new(MemoryStorage::new(versions())?),
        };
        let copier = copier(parts, definition, (backlog, Arc::clone(reopen)), shards.clone());
        let copier = match copier {
            Some(mut copier) => {
                copier.read_back(&partitions).await?;
                Some(copier)
            }
            None => None,
        };
        let backlog = copier.as_ref().map(|copier| Arc::clone(copier.backlog()));
        let follower = start_follower(parts, schema, &partitions, storage, backlog.clone())?;
        let has_duties = has_duties(definition);
        let (heartbeats, catalog) =
            (Arc::clone(&parts.heartbeats), Arc::clone(&parts.context.catalog));
        let beats =
            heartbeat::append_heartbeats(follower.clone(), heartbeats, catalog, Arc::clone(schema));
        let mut tasks = Vec::new();
        tasks.extend(has_duties.then(|| tokio::spawn(beats)));
        tasks.extend(copier.map(|copier| tokio::spawn(copier.run())));
        tasks.extend(shards.clone().map(ShardReplicas::flush_periodically).map(tokio::spawn));
        let store = definition.store;
        Ok(Self { store, partitions, has_duties, follower, shards, tasks, backlog })
    }

    /// Returns why the replica must be replaced by one with these partitions, and duties by this
    /// definition; `None` if it stays.
    pub(crate) fn staleness(
        &self,
        definition: &Definition,
        partitions: &BTreeSet<PartitionId>,
    ) -> Option<Staleness> {
        let staleness = Staleness {
            has_missed_letters: self.backlog.as_ref().is_some_and(|it| it.must_reopen()),
            has_failed: self.shards.as_ref().is_some_and(DocumentShards::have_failed),
            is_reassigned: self.partitions != *partitions
                || self.has_duties != has_duties(definition),
        };
        let Staleness { has_missed_letters, has_failed, is_reassigned } = staleness;
        (has_missed_letters || has_failed || is_reassigned).then_some(staleness)
    }

    /// Ends the duties, and closes the replica without waiting for its end.
    pub(crate) fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.follower.close();
    }
}

impl StoreResource for OpenReplica {
    async fn shut_down(mut self) {
        self.close();
        for task in std::mem::take(&mut self.tasks) {
            // An aborted task holds its shards until it has ended.
            let _ = task.await;
        }
        if let Err(error) = self.follower.shut_down(END_WAIT).await {
            warn!(store = %self.store, %error, "timed out stopping a reassigned replica");
        }
        // The drop closes shards that nobody else has open, which may block on the disk.
        block_in_place(|| drop(self));
    }
}

/// Returns whether the replica of this version has the duties for the store's partitions. The
/// oldest version that follows the logs has them, so that each duty is done once.
fn has_duties(definition: &Definition) -> bool {
    let logs = definition.logs();
    let oldest = definition.versions.all().iter().find(|version| version.logs == logs);
    oldest.is_none_or(|oldest| oldest.storage_id == definition.store)
}

/// Returns the partitions of a version's logs that are assigned to this process.
pub(crate) fn ours_of(
    assignment: &PartitionAssignment,
    definition: &Definition,
) -> BTreeSet<PartitionId> {
    let logs = definition.logs();
    assignment.of(logs.store, logs.partitions)
}

/// Creates the copier of a store's dead letters; `None` if the replica does not have this duty.
fn copier(
    parts: &ReplicatorParts,
    definition: &Definition,
    (backlog, reopen): (Option<Arc<Backlog>>, Arc<Notify>),
    shards: Option<DocumentShards>,
) -> Option<Copier> {
    let letters = definition.logs().store.dead_letters().filter(|_| has_duties(definition))?;
    let backlog = backlog.unwrap_or_default();
    Some(Copier::new(parts, definition, letters, backlog, reopen, shards))
}

/// Starts to follow the logs of these partitions; skipped records go to the backlog.
fn start_follower(
    parts: &ReplicatorParts,
    schema: &Arc<SchemaAt>,
    partitions: &BTreeSet<PartitionId>,
    storage: Arc<dyn Storage>,
    backlog: Option<Arc<Backlog>>,
) -> Result<StoreReplica> {
    let on_skipped = backlog.map(|backlog| {
        let on_skipped: OnSkipped = Arc::new(move |skipped| backlog.push(skipped));
        on_skipped
    });
    let mut options = ReplicaOptions::new(&schema.definition.name);
    options.keep_outcomes = true;
    options.on_skipped = on_skipped;
    options.snapshots = parts.context.snapshots.clone();
    options.partitions = PartitionFilter::Only(partitions.clone());
    let replica = replica_parts(&parts.context);
    // The start opens all shards and flushes some files for each.
    block_in_place(|| StoreReplica::start(options, replica, schema, storage))
}
