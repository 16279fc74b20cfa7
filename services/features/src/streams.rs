//! The open streams of this process: their events are stored, selected, and deleted by the
//! retention.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{Offset, PartitionId, SchemaVersion, StoreId};
use forebay_core::{Error, Result};
use forebay_reader::{PartitionFilter, Read, ReaderOptions, StoreFollower};
use forebay_shard::{OwnedView, Shard};
use forebay_snapshot::in_place;
use forebay_wire::token::Token;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use crate::events::{DerivedUpTo, EventShards, Selected, Selection, retain};
use crate::parts::FeatureParts;
use crate::shards::keep_on_disk;

/// Longest wait until the follower of a stream has shut down.
const END_WAIT: Duration = Duration::from_secs(60);

/// A stream for selects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) schema: Arc<SchemaAt>,
    pub(crate) follower: StoreFollower,
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

/// All streams by their ids.
pub(crate) type OpenStreams = Arc<Mutex<BTreeMap<StoreId, OpenStream>>>;

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
        read: &Read,
        partitions: &[PartitionId],
    ) -> Result<(Vec<Selected>, Token)> {
        let mut token = Token::new(self.schema.definition.versions.home());
        self.admit(read, partitions).await?;
        if !self.knows(self.shards.known().newest().definition.version) {
            let message = "the stream was altered, and the service reopens it; ask again";
            return Err(Error::unavailable(message));
        }
        let mut events = Vec::new();
        for partition in partitions {
            let shard = self.shards.shard(*partition)?;
            let found = in_place(|| {
                let view = OwnedView::open(Arc::clone(&shard))?;
                let (log_id, position) = (view.view().log_id(), view.view().position());
                let found = selection.run(&shard, view.view(), self.shards.known())?;
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
    pub(crate) async fn read(&self, read: &Read, partition: PartitionId) -> Result<Arc<Shard>> {
        self.admit(read, &[partition]).await?;
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
        take: impl FnMut(Vec<Selected>) -> Result<bool>,
    ) -> Result<()> {
        let view = OwnedView::open(Arc::clone(shard))?;
        selection.scan((shard, view.view(), self.shards.known()), first, take)
    }

    async fn admit(&self, read: &Read, partitions: &[PartitionId]) -> Result<()> {
        if let Some(elsewhere) = partitions.iter().find(|it| !self.follower.follows(**it)) {
            let message =
                "this process does not store the partition's events at the moment; ask again";
            return Err(Error::unavailable(message).with_partition(*elsewhere));
        }
        if !partitions.is_empty() {
            self.follower.admit(read, partitions).await?;
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
        (derived, reopen): (DerivedUpTo, Arc<Notify>),
    ) -> Result<Self> {
        let definition = &schema.definition;
        let versions = parts.versions(definition.store);
        let shards = EventShards::of_stream(versions, parts.shards.events(), reopen)?;
        let mut options = ReaderOptions::new(&definition.name);
        options.partitions = PartitionFilter::Only(assigned.clone());
        let storage = Arc::new(shards.clone());
        let follower =
            in_place(|| StoreFollower::start(options, parts.reader_parts(), schema, storage))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(retain(parts.clone(), definition.clone(), shards.clone(), derived));
        tasks.spawn(keep_on_disk(shards.clone()));
        let (version, schema) = (definition.version, Arc::clone(schema));
        Ok(Self { version, assigned, stream: Stream { schema, follower, shards }, tasks })
    }

    /// Returns whether the stream is open with this definition and assignment.
    pub(crate) fn stays(&self, schema: &SchemaAt, assigned: &BTreeSet<PartitionId>) -> bool {
        self.version == schema.definition.version
            && self.assigned == *assigned
            && !self.stream.shards.have_failed()
    }

    /// Shuts the stream down, and waits until its shards are closed, so that others may open them.
    pub(crate) async fn ended(mut self) {
        self.tasks.shutdown().await;
        let Stream { schema, follower, shards } = self.stream;
        follower.close();
        if let Err(error) = follower.shut_down(END_WAIT).await {
            let name = &schema.definition.name;
            warn!(stream = %name, %error, "stream follower did not end");
        }
        in_place(|| drop((follower, shards)));
    }
}
