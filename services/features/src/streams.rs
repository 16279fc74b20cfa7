//! The open streams of this process: their events are stored, selected, and deleted by the
//! retention.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{Offset, PartitionId, SchemaVersion};
use forebay_core::{Error, Result};
use forebay_replica::{PartitionFilter, ReadOptions, ReplicaOptions, Storage, StoreReplica};
use forebay_runtime::StoreResource;
use forebay_shard::{OwnedView, Shard};
use forebay_shard_replica::replica_parts;
use forebay_tasks::block_in_place;
use forebay_wire::token::Token;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use crate::events::{
    DerivedOffsets, EventRows, EventShards, SelectedEvent, Selection, run_retention,
};
use crate::parts::FeatureParts;

/// Longest wait until the follower of a stream has shut down.
const END_WAIT: Duration = Duration::from_secs(60);

/// A stream for selects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) schema: Arc<SchemaAt>,
    pub(crate) follower: StoreReplica,
    shards: EventShards,
}

/// A stream that is open in this process.
pub(crate) struct OpenStream {
    version: SchemaVersion,
    /// The partitions that are stored here.
    assigned: BTreeSet<PartitionId>,
    pub(crate) stream: Stream,
    /// Tasks that end with the stream.
    tasks: JoinSet<()>,
}

impl Stream {
    /// Returns whether the stream is open with this definition, or with a later one.
    pub(crate) fn knows(&self, version: SchemaVersion) -> bool {
        version <= self.schema.definition.version
    }

    /// Returns the events of these partitions in the requested order, and the positions that were
    /// read.
    ///
    /// # Errors
    /// `Unavailable` if a partition is not here, or the awaited entry has a later definition; else
    /// as the read's wait and the selection.
    pub(crate) async fn select(
        &self,
        selection: &Selection,
        read: &ReadOptions,
        partitions: &[PartitionId],
    ) -> Result<(Vec<SelectedEvent>, Token)> {
        let mut token = Token::new(self.schema.definition.versions.home());
        self.await_readable(read, partitions).await?;
        if !self.knows(self.shards.schemas().newest().definition.version) {
            let message = "the stream was altered, and the service reopens it; ask again";
            return Err(Error::unavailable(message));
        }
        let mut events = Vec::new();
        for partition in partitions {
            let shard = self.shards.shard(*partition)?;
            let found = block_in_place(|| {
                let view = OwnedView::open(Arc::clone(&shard))?;
                let (log_id, position) = (view.view().log_id(), view.view().position());
                let found = selection.run(&shard, view.view(), self.shards.schemas())?;
                Ok::<_, Error>((found, log_id, position))
            });
            let (mut found, log_id, position) = found?;
            if let Some(log_id) = log_id {
                token.advance(*partition, log_id, position)?;
            }
            events.append(&mut found);
            events = selection.merge(events)?;
        }
        Ok((events, token))
    }

    /// Returns the shard of a partition, once it has reached the read's bound.
    ///
    /// # Errors
    /// `Unavailable` if the partition is not here; else as the read's wait.
    pub(crate) async fn read(
        &self,
        read: &ReadOptions,
        partition: PartitionId,
    ) -> Result<Arc<Shard>> {
        self.await_readable(read, &[partition]).await?;
        self.shards.shard(partition)
    }

    /// Passes the current events of a shard to `take` in batches, until `take` returns false; a
    /// scan of all events starts at offset `first`. Blocks on the disk.
    ///
    /// # Errors
    /// As the shard and `take`.
    pub(crate) fn scan(
        &self,
        shard: &Arc<Shard>,
        selection: &Selection,
        first: Offset,
        take: impl FnMut(Vec<SelectedEvent>) -> Result<bool>,
    ) -> Result<()> {
        let view = OwnedView::open(Arc::clone(shard))?;
        selection.scan((shard, view.view(), self.shards.schemas()), first, take)
    }

    async fn await_readable(&self, read: &ReadOptions, partitions: &[PartitionId]) -> Result<()> {
        if let Some(missing_partition) = partitions.iter().find(|it| !self.follower.follows(**it)) {
            let message =
                "this process does not store the partition's events at the moment; ask again";
            return Err(Error::unavailable(message).with_partition(*missing_partition));
        }
        if !partitions.is_empty() {
            self.follower.await_readable(read, partitions).await?;
        }
        Ok(())
    }
}

impl OpenStream {
    /// Opens a stream: stores its events and enforces their retention.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn open(
        parts: &FeatureParts,
        schema: &Arc<SchemaAt>,
        assigned: BTreeSet<PartitionId>,
        (derived, reopen): (DerivedOffsets, Arc<Notify>),
    ) -> Result<Self> {
        let definition = &schema.definition;
        let versions = parts.context.versions(definition.store);
        let shards = EventRows::shards(versions, parts.shards.events(), reopen)?;
        let mut options = ReplicaOptions::new(&definition.name);
        options.partitions = PartitionFilter::Only(assigned.clone());
        let storage = Arc::new(shards.clone());
        let follower = block_in_place(|| {
            StoreReplica::start(options, replica_parts(&parts.context), schema, storage)
        })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(run_retention(parts.clone(), (**definition).clone(), shards.clone(), derived));
        tasks.spawn(shards.clone().flush_periodically());
        let (version, schema) = (definition.version, Arc::clone(schema));
        Ok(Self { version, assigned, stream: Stream { schema, follower, shards }, tasks })
    }

    /// Returns whether the stream is open with this definition and assignment.
    pub(crate) fn matches(&self, schema: &SchemaAt, assigned: &BTreeSet<PartitionId>) -> bool {
        self.version == schema.definition.version
            && self.assigned == *assigned
            && !self.stream.shards.have_failed()
    }
}

impl StoreResource for OpenStream {
    async fn shut_down(mut self) {
        self.tasks.shutdown().await;
        let Stream { schema, follower, shards } = self.stream;
        follower.close();
        if let Err(error) = follower.shut_down(END_WAIT).await {
            let name = &schema.definition.name;
            warn!(stream = %name, %error, "stream follower did not end");
        }
        block_in_place(|| drop((follower, shards)));
    }
}
