//! A store that is made whole: of its partitions each has a snapshot, and a log that begins behind
//! it.
//!
//! Nobody knows of the store before all of its snapshots count and all of its logs begin behind
//! them; only then it comes into the catalog. So nothing partial is ever read, and whoever makes
//! the same store again goes on with what is there.

use forebay_core::change::EntryBody;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
    StoreId,
};
use forebay_core::partition::xxh3_64;
use forebay_core::schema::{Definition, check_name};
use forebay_core::versions::StoreVersions;
use forebay_core::{Error, Result};
use forebay_log::Bounds;
use forebay_snapshot::{ImageBuilder, ImageState, Manifest, NewLog, PartitionSnapshots, Progress};
use tracing::{debug, warn};

use crate::build::publish_first;
use crate::define::{append, define};
use crate::keeper::SnapshotParts;

/// Attempts to make a log that begins behind its beginning: the embedded one may forget to, when
/// its process dies in between.
const NEW_LOG_ATTEMPTS: usize = 4;
/// Of entries before there is a definition.
const NO_SCHEMA: SchemaVersion = SchemaVersion(0);

/// A store on its way.
pub(crate) struct NewStore<'p> {
    pub parts: &'p SnapshotParts,
    pub id: StoreId,
    pub name: &'p str,
    pub partitions: PartitionCount,
    /// Those of the store that it is made after, by ascending version.
    pub like: &'p [Definition],
}

/// A partition of it that is there.
pub(crate) struct Made {
    pub progress: Progress,
    pub documents: u64,
}

impl Made {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self { progress: manifest.progress, documents: manifest.base.documents }
    }
}

/// What there is of a partition.
pub(crate) enum Begun {
    /// All of it.
    Made(Made),
    /// Its log alone.
    Log(NewLog),
}

/// Refuses a name that cannot be given to a store.
pub(crate) fn check_free(parts: &SnapshotParts, name: &str) -> Result<()> {
    check_name(name)?;
    match parts.catalog.catalog().by_name(name) {
        Ok(_) => Err(taken(name)),
        Err(_) => Ok(()),
    }
}

/// The id of what is made that these words tell of, beside the store of this definition: always the
/// same one, until it was made and, of a version of that store's documents, live.
pub(crate) fn id_of(parts: &SnapshotParts, words: &str, beside: &Definition) -> StoreId {
    let catalog = parts.catalog.catalog();
    let id = |attempt: u64| StoreId(xxh3_64(format!("{words}\n{attempt}").as_bytes()) | 1 << 63);
    let live = beside.versions.live().number;
    let is_on_its_way =
        |id: StoreId| beside.versions.kept_as(id).is_some_and(|version| version.number > live);
    let mut ids = (0..).map(id);
    let free = ids.find(|id| catalog.store(*id).is_none() || is_on_its_way(*id));
    free.unwrap_or_else(|| id(0))
}

impl NewStore<'_> {
    /// Its definitions up to a version.
    pub(crate) fn definitions(&self, newest: SchemaVersion) -> Vec<Definition> {
        let own = |definition: &Definition| Definition {
            store: self.id,
            name: self.name.to_owned(),
            partitions: self.partitions,
            versions: StoreVersions::first(self.id, self.partitions),
            ..definition.clone()
        };
        self.like.iter().filter(|like| like.version <= newest).map(own).collect()
    }

    /// Makes the logs of all partitions, or of those that have none yet.
    pub(crate) async fn create_logs(&self) -> Result<()> {
        self.parts.log.create(self.id, self.partitions).await
    }

    /// What there is of a partition; its log, at least.
    pub(crate) async fn begin(&self, partition: PartitionId) -> Result<Begun> {
        let log = self.new_log(PartitionRef { store: self.id, partition }).await?;
        let before = self.snapshots(log.at).newest(Some(log.log_id)).await?;
        let is_it = |found: &Manifest| found.progress.offset_applied == log.offset_applied;
        let Some(made) = before.filter(is_it) else { return Ok(Begun::Log(log)) };
        self.parts.log.trim(log.at, log.offset_applied).await?;
        Ok(Begun::Made(Made::of(&made)))
    }

    /// An image of its own, in as much memory as one may take.
    pub(crate) fn image(&self, log: NewLog) -> Result<ImageBuilder> {
        let (seed, memory) = (self.parts.entropy.next_u64()?, self.parts.options.memory_bytes);
        let all = self.definitions(SchemaVersion(u32::MAX));
        ImageBuilder::new(&all, log.at, self.partitions, seed, memory)
    }

    /// Makes an image the snapshot that a partition begins with.
    pub(crate) async fn publish(
        &self,
        log: NewLog,
        builder: ImageBuilder,
        state: &ImageState,
    ) -> Result<Made> {
        let definitions = self.definitions(state.state.schema_version);
        let manifest = publish_first(self.parts, builder, state, self.name, definitions).await?;
        self.parts.log.trim(log.at, log.offset_applied).await?;
        Ok(Made::of(&manifest))
    }

    /// Lets go of all that there is of it, as long as nobody knows of the store: another process
    /// may have made the same one meanwhile.
    pub(crate) async fn give_up(&self) {
        let caught_up = self.parts.catch_up().await;
        if caught_up.is_err() || self.parts.catalog.catalog().store(self.id).is_some() {
            warn!(store = self.name, "what was made of a store that is given up stays");
            return;
        }
        for partition in self.partitions.partitions() {
            let to = self.snapshots(PartitionRef { store: self.id, partition });
            if let Err(error) = to.remove_all().await {
                warn!(store = self.name, %error, "a snapshot of a store that is given up stays");
            }
        }
        if let Err(error) = self.parts.log.delete(self.id).await {
            debug!(store = self.name, %error, "a store that is given up had no logs");
        }
    }

    fn snapshots(&self, at: PartitionRef) -> PartitionSnapshots {
        self.parts.snapshots.partition(at)
    }

    /// The log of a new partition, of which nobody knows: its beginning is trimmed, so whoever
    /// reads it begins with the snapshot. Its id follows from the partition's, since an attempt
    /// that breaks off here leaves a log that does not tell it.
    async fn new_log(&self, at: PartitionRef) -> Result<NewLog> {
        let (log, log_id) = (&*self.parts.log, log_id_of(at));
        for _ in 0..NEW_LOG_ATTEMPTS {
            let Bounds { start, end, .. } = log.bounds(at).await?;
            if start > Offset(0) && start < end {
                let offset = Offset(start.0 - 1);
                let position = Position { epoch: Epoch(0), offset, place: 0 };
                return Ok(NewLog { at, log_id, position, offset_applied: start });
            }
            if end == Offset(0) {
                append(self.parts, at, log_id, NO_SCHEMA, EntryBody::Opening).await?;
                continue;
            }
            log.trim(at, end).await?;
            let first = append(self.parts, at, log_id, NO_SCHEMA, EntryBody::Heartbeat).await?;
            log.trim(at, first).await?;
        }
        let message = "the log does not let go of its beginning; try it again";
        Err(Error::unavailable(message).with_partition(at.partition))
    }

    /// Lets everybody know of the store, all of whose partitions are there.
    pub(crate) async fn define(&self, newest: SchemaVersion) -> Result<()> {
        for partition in self.partitions.partitions() {
            let at = PartitionRef { store: self.id, partition };
            append(self.parts, at, log_id_of(at), newest, EntryBody::Definition).await?;
        }
        for definition in self.definitions(newest) {
            if !define(self.parts, &definition).await? {
                return Err(match self.parts.catalog.catalog().by_name(self.name) {
                    Ok(_) => taken(self.name),
                    Err(_) => Error::unavailable("the store is not defined yet; try it again"),
                });
            }
        }
        Ok(())
    }
}

fn log_id_of(at: PartitionRef) -> LogId {
    LogId(xxh3_64(at.to_string().as_bytes()) | 1)
}

fn taken(name: &str) -> Error {
    let message = "a store with this name exists already; take another name";
    Error::conflict(message).with_store(name)
}
