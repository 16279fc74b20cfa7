//! The views of this process: each followed, folded, derived and emitted for as long as it lives.

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

/// How long what folds a view may take to end.
const END_WAIT: Duration = Duration::from_secs(60);

/// The partitions of a view's own logs that are folded here, and those of its source that are
/// derived of.
pub(crate) type Assignment = (BTreeSet<PartitionId>, BTreeSet<PartitionId>);

/// One view, as this process has it.
pub(crate) struct OpenView {
    version: SchemaVersion,
    assigned: Assignment,
    pub(crate) schema: Arc<SchemaAt>,
    pub(crate) follower: StoreFollower,
    pub(crate) shards: ViewShards,
    pub(crate) counters: Arc<Counters>,
    /// They end with it.
    tasks: JoinSet<()>,
}

impl OpenView {
    /// Opens a view: its events are derived, folded and emitted.
    ///
    /// # Errors
    /// `InvalidArgument` for a definition of no view; those of the disk.
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
        // It opens all shards, each with some files put on the disk.
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

    /// Whether it is as it would be opened now.
    pub(crate) fn stays(&self, schema: &SchemaAt, assigned: &Assignment) -> bool {
        self.version == schema.definition.version
            && self.assigned == *assigned
            && !self.shards.have_failed()
    }

    /// Ends it, and waits until its shards are closed, so that others may open them.
    pub(crate) async fn ended(mut self) {
        // Its checkpoints are closed with the last of them.
        self.tasks.shutdown().await;
        self.follower.close();
        if let Err(error) = self.follower.shut_down(END_WAIT).await {
            warn!(view = %self.schema.definition.name, %error, "the fold of a view has not ended");
        }
        in_place(|| drop((self.follower, self.shards)));
    }
}

/// All views by their ids.
pub(crate) type OpenViews = Arc<Mutex<BTreeMap<StoreId, OpenView>>>;
