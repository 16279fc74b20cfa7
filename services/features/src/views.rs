//! The open views of this process: each is followed, folded, derived and emitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, SchemaVersion, StoreId};
use forebay_reader::{PartitionFilter, ReaderOptions, StoreFollower};
use forebay_snapshot::in_place;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use crate::counts::Counters;
use crate::derive::derive;
use crate::emit::emit;
use crate::events::DerivedUpTo;
use crate::fold::ViewShards;
use crate::parts::FeatureParts;
use crate::shards::keep_on_disk;

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
    pub(crate) follower: StoreFollower,
    pub(crate) shards: ViewShards,
    pub(crate) counters: Arc<Counters>,
    /// Tasks that end with the view.
    tasks: JoinSet<()>,
}

impl OpenView {
    /// Opens a view: derives, folds and emits its events.
    ///
    /// # Errors
    /// `InvalidArgument` for a definition that is not a view; else as the disk.
    pub(crate) fn open(
        parts: &FeatureParts,
        schema: &Arc<SchemaAt>,
        assigned: Assignment,
        (derived, reopen): (DerivedUpTo, Arc<Notify>),
    ) -> Result<Self> {
        let (definition, counters) = (&schema.definition, Arc::<Counters>::default());
        let versions = parts.versions(definition.store);
        let directory = parts.shards.tiles();
        let shards = ViewShards::of_view(versions, directory, Arc::clone(&counters), reopen)?;
        let mut options = ReaderOptions::new(&definition.name);
        options.partitions = PartitionFilter::Only(assigned.0.clone());
        let (reader, storage) = (parts.reader_parts(), Arc::new(shards.clone()));
        // The start opens all shards and flushes some files for each.
        let follower = in_place(|| StoreFollower::start(options, reader, schema, storage))?;
        let told = (Arc::clone(&counters), derived);
        let derives = derive(parts.clone(), definition.clone(), told);
        let (version, schema) = (definition.version, Arc::clone(schema));
        let emits = emit(
            parts.clone(),
            Arc::clone(&schema),
            follower.clone(),
            shards.clone(),
            Arc::clone(&counters),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(derives);
        tasks.spawn(emits);
        tasks.spawn(keep_on_disk(shards.clone()));
        Ok(Self { version, assigned, schema, follower, shards, counters, tasks })
    }

    /// Returns whether the view is open with this definition and assignment.
    pub(crate) fn stays(&self, schema: &SchemaAt, assigned: &Assignment) -> bool {
        self.version == schema.definition.version
            && self.assigned == *assigned
            && !self.shards.have_failed()
    }

    /// Shuts the view down, and waits until its shards are closed, so that others may open them.
    pub(crate) async fn ended(mut self) {
        // The checkpoints are closed with the last of the tasks.
        self.tasks.shutdown().await;
        self.follower.close();
        if let Err(error) = self.follower.shut_down(END_WAIT).await {
            warn!(view = %self.schema.definition.name, %error, "fold of a view did not end");
        }
        in_place(|| drop((self.follower, self.shards)));
    }
}

/// All views by their ids.
pub(crate) type OpenViews = Arc<Mutex<BTreeMap<StoreId, OpenView>>>;
