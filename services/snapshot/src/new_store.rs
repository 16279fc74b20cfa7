//! Creation of a complete store: each of its partitions has a snapshot, and a log that begins after
//! the snapshot.
//!
//! The store enters the catalog only once all of its snapshots are published and all of its logs
//! begin after them. Readers therefore never see a partial store, and a repeated creation of the
//! same store resumes from the existing parts.

use forebay_core::change::EntryBody;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
    StoreId,
};
use forebay_core::partition::xxh3_64;
use forebay_core::replica_state::Progress;
use forebay_core::schema::{Definition, check_name};
use forebay_core::versions::StoreVersions;
use forebay_core::{Error, Result};
use forebay_log::Bounds;
use forebay_snapshot::{ImageBuilder, ImageState, Manifest, NewLog, PartitionSnapshots};
use tracing::{debug, warn};

use crate::build::publish_first;
use crate::context::SnapshotParts;
use crate::definitions::{append, define};

/// Number of attempts to create a log that begins after offset 0: the embedded log may lose the
/// trim if its process crashes in between.
const NEW_LOG_ATTEMPTS: usize = 4;
/// Schema version of entries before there is a definition.
const NO_SCHEMA: SchemaVersion = SchemaVersion(0);

/// A store under construction.
pub(crate) struct NewStore<'p> {
    pub parts: &'p SnapshotParts,
    pub id: StoreId,
    pub name: &'p str,
    pub partitions: PartitionCount,
    /// Definitions of the store that serves as the model, by ascending version.
    pub like: &'p [Definition],
}

/// A finished partition of the store.
pub(crate) struct FinishedPartition {
    pub progress: Progress,
    pub documents: u64,
}

impl FinishedPartition {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self { progress: manifest.progress, documents: manifest.base.documents }
    }
}

/// Existing parts of a partition.
pub(crate) enum PartitionParts {
    /// The finished partition.
    Finished(FinishedPartition),
    /// Only the log.
    Log(NewLog),
}

/// Refuses a name that is invalid or taken.
pub(crate) fn check_free(parts: &SnapshotParts, name: &str) -> Result<()> {
    check_name(name)?;
    match parts.context.catalog.catalog().store_by_name(name) {
        Ok(_) => Err(name_taken_error(name)),
        Err(_) => Ok(()),
    }
}

/// Returns the storage id for a creation that `words` identify, next to the store of this
/// definition. The id stays the same until the creation is complete; a version of the store's
/// documents is complete once it is live.
pub(crate) fn id_of(parts: &SnapshotParts, words: &str, definition: &Definition) -> StoreId {
    let catalog = parts.context.catalog.catalog();
    let id = |attempt: u64| StoreId(xxh3_64(format!("{words}\n{attempt}").as_bytes()) | 1 << 63);
    let live = definition.versions.live().number;
    let is_pending = |id: StoreId| {
        definition.versions.by_storage_id(id).is_some_and(|version| version.number > live)
    };
    let mut ids = (0..).map(id);
    let free = ids.find(|id| catalog.store(*id).is_none() || is_pending(*id));
    free.unwrap_or_else(|| id(0))
}

impl NewStore<'_> {
    /// Returns the store's definitions up to a version.
    pub(crate) fn definitions(&self, newest: SchemaVersion) -> Vec<Definition> {
        let convert = |definition: &Definition| Definition {
            store: self.id,
            name: self.name.to_owned(),
            partitions: self.partitions,
            versions: StoreVersions::first(self.id, self.partitions),
            ..definition.clone()
        };
        self.like.iter().filter(|like| like.version <= newest).map(convert).collect()
    }

    /// Creates the logs of all partitions that have none yet.
    pub(crate) async fn create_logs(&self) -> Result<()> {
        self.parts.context.log.create(self.id, self.partitions).await
    }

    /// Returns the existing parts of a partition; creates its log if necessary.
    pub(crate) async fn begin(&self, partition: PartitionId) -> Result<PartitionParts> {
        let log = self.new_log(PartitionRef { store: self.id, partition }).await?;
        let before = self.snapshots(log.at).newest(Some(log.log_id)).await?;
        let is_it = |found: &Manifest| found.progress.offset_applied == log.offset_applied;
        let Some(manifest) = before.filter(is_it) else { return Ok(PartitionParts::Log(log)) };
        self.parts.context.log.trim(log.at, log.offset_applied).await?;
        Ok(PartitionParts::Finished(FinishedPartition::of(&manifest)))
    }

    /// Creates an image builder for a partition, within the memory limit of one image.
    pub(crate) fn image(&self, log: NewLog) -> Result<ImageBuilder> {
        let (seed, memory) =
            (self.parts.context.entropy.next_u64()?, self.parts.options.memory_bytes);
        let all = self.definitions(SchemaVersion(u32::MAX));
        ImageBuilder::new(&all, log.at, self.partitions, seed, memory)
    }

    /// Publishes an image as the first snapshot of a partition.
    pub(crate) async fn publish(
        &self,
        log: NewLog,
        builder: ImageBuilder,
        state: &ImageState,
    ) -> Result<FinishedPartition> {
        let definitions = self.definitions(state.state.schema_version);
        let manifest = publish_first(self.parts, builder, state, self.name, definitions).await?;
        self.parts.context.log.trim(log.at, log.offset_applied).await?;
        Ok(FinishedPartition::of(&manifest))
    }

    /// Removes all parts of the store, unless the catalog has the store: another process may have
    /// completed it in the meantime.
    pub(crate) async fn abandon(&self) {
        let caught_up = self.parts.catch_up().await;
        if caught_up.is_err() || self.parts.context.catalog.catalog().store(self.id).is_some() {
            warn!(store = self.name, "parts of abandoned store not removed");
            return;
        }
        for partition in self.partitions.partitions() {
            let to = self.snapshots(PartitionRef { store: self.id, partition });
            if let Err(error) = to.remove_all().await {
                warn!(store = self.name, %error, "snapshot of abandoned store not removed");
            }
        }
        if let Err(error) = self.parts.context.log.delete(self.id).await {
            debug!(store = self.name, %error, "abandoned store had no logs");
        }
    }

    fn snapshots(&self, at: PartitionRef) -> PartitionSnapshots {
        self.parts.snapshots.partition(at)
    }

    /// Returns the log of a new partition, which no other process knows yet. The log's start is
    /// trimmed, so every reader bootstraps from the snapshot. The log's id is derived from the
    /// partition, since an interrupted attempt leaves a log that does not contain its id.
    async fn new_log(&self, at: PartitionRef) -> Result<NewLog> {
        let (log, log_id) = (&*self.parts.context.log, log_id_of(at));
        for _ in 0..NEW_LOG_ATTEMPTS {
            let Bounds { start, end, .. } = log.bounds(at).await?;
            if start > Offset(0) && start < end {
                let offset = Offset(start.0 - 1);
                let position = Position { epoch: Epoch(0), offset, index_in_entry: 0 };
                return Ok(NewLog { at, log_id, position, offset_applied: start });
            }
            if end == Offset(0) {
                append(self.parts, at, log_id, NO_SCHEMA, EntryBody::LogHeader).await?;
                continue;
            }
            log.trim(at, end).await?;
            let first = append(self.parts, at, log_id, NO_SCHEMA, EntryBody::Heartbeat).await?;
            log.trim(at, first).await?;
        }
        let message = "the log does not release its start; try again";
        Err(Error::unavailable(message).with_partition(at.partition))
    }

    /// Publishes the store, all of whose partitions are finished, in the catalog.
    pub(crate) async fn define(&self, newest: SchemaVersion) -> Result<()> {
        for partition in self.partitions.partitions() {
            let at = PartitionRef { store: self.id, partition };
            append(self.parts, at, log_id_of(at), newest, EntryBody::Definition).await?;
        }
        for definition in self.definitions(newest) {
            if !define(self.parts, &definition).await? {
                return Err(match self.parts.context.catalog.catalog().store_by_name(self.name) {
                    Ok(_) => name_taken_error(self.name),
                    Err(_) => Error::unavailable("the store is not defined yet; try again"),
                });
            }
        }
        Ok(())
    }
}

fn log_id_of(at: PartitionRef) -> LogId {
    LogId(xxh3_64(at.to_string().as_bytes()) | 1)
}

fn name_taken_error(name: &str) -> Error {
    let message = "a store with this name exists already; choose another name";
    Error::conflict(message).with_store(name)
}
