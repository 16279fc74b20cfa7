//! The open views of this process: each is followed, folded, derived and materialized.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_replica::{PartitionFilter, ReplicaOptions, StoreReplica};
use forebay_runtime::StoreResource;
use forebay_shard_replica::replica_parts;
use forebay_tasks::block_in_place;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::derive::derive;
use crate::events::DerivedOffsets;
use crate::fold::ViewShards;
use crate::materialize::materialize;
use crate::parts::FeatureParts;
use crate::view_stats::Counters;

/// Longest wait until the fold of a view has shut down.
const END_WAIT: Duration = Duration::from_secs(60);

/// The partitions of a view's own logs that are folded here, and the partitions of its source from
/// which events are derived here.
pub(crate) type Assignment = (BTreeSet<PartitionId>, BTreeSet<PartitionId>);

/// A view that is open in this process.
pub(crate) struct OpenView {
    version: SchemaVersion,
    assigned: Assignment,
    pub(crate) schema: Arc<SchemaAt>,
    pub(crate) follower: StoreReplica,
    pub(crate) shards: ViewShards,
    pub(crate) counters: Arc<Counters>,
    /// Tasks that end with the view.
    tasks: JoinSet<()>,
}

impl OpenView {
    /// Opens a view: derives, folds and materializes its events.
    ///
    /// # Errors
    /// `InvalidArgument` for a definition that is not a view; else as the disk.
    pub(crate) fn open(
        parts: &FeatureParts,
        schema: &Arc<SchemaAt>,
        assigned: Assignment,
        (derived, reopen): (DerivedOffsets, Arc<Notify>),
    ) -> Result<Self> {
        let (definition, counters) = (&schema.definition, Arc::<Counters>::default());
        let versions = parts.context.versions(definition.store);
        let directory = parts.shards.tiles();
        let shards = ViewShards::new(versions, directory, Arc::clone(&counters), reopen)?;
        let mut options = ReplicaOptions::new(&definition.name);
        options.partitions = PartitionFilter::Only(assigned.0.clone());
        let (replica, storage) =
            (replica_parts(&parts.context), Arc::new(shards.replicas().clone()));
        // The start opens all shards and flushes some files for each.
        let follower = block_in_place(|| StoreReplica::start(options, replica, schema, storage))?;
        let derives =
            derive(parts.clone(), (**definition).clone(), (Arc::clone(&counters), derived));
        let (version, schema) = (definition.version, Arc::clone(schema));
        let materializes = materialize(
            parts.clone(),
            Arc::clone(&schema),
            follower.clone(),
            shards.clone(),
            Arc::clone(&counters),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(derives);
        tasks.spawn(materializes);
        tasks.spawn(shards.replicas().clone().flush_periodically());
        Ok(Self { version, assigned, schema, follower, shards, counters, tasks })
    }

    /// Returns whether the view is open with this definition and assignment.
    pub(crate) fn matches(&self, schema: &SchemaAt, assigned: &Assignment) -> bool {
        self.version == schema.definition.version
            && self.assigned == *assigned
            && !self.shards.replicas().have_failed()
    }
}

impl StoreResource for OpenView {
    async fn shut_down(mut self) {
        info!(view = %self.schema.definition.name, "view closed");
        // The checkpoints are closed with the last of the tasks.
        self.tasks.shutdown().await;
        self.follower.close();
        if let Err(error) = self.follower.shut_down(END_WAIT).await {
            warn!(view = %self.schema.definition.name, %error, "fold of a view did not end");
        }
        block_in_place(|| drop((self.follower, self.shards)));
    }
}
