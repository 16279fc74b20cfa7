//! The initial source of each partition of a reader that shares its replicas, chosen before the
//! reader follows any log.
//!
//! The reader chooses, for each partition, the first of these sources that exists:
//!
//! 1. A shared copy that serves.
//! 2. The newest checkpoint, mapped, if it can be served as it is. After a restart of the machine
//!    this is the usual case; `standby` then builds the shared copy from it after the reader has
//!    opened.
//! 3. A shared copy that does not serve yet.
//! 4. A new, empty shared copy, which this reader creates.
//!
//! The choice needs only the store's id and partition count, which the directory remembers. The
//! reader therefore opens the sources *ahead*, while it queries the control log for the store's
//! name, and uses them only if the control log returns the same store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion};
use forebay_core::limits::READER_COPY_POLL_INTERVAL_ACTIVE_MS;
use forebay_core::{Error, Result};
use forebay_index::{InitialSource, SharedCopyDirectory};
use forebay_log::disk::Disk;
use forebay_replica::{Checkpoints, closed};
use forebay_tasks::block_in_place;

use crate::checkpoint_directory::CheckpointDirectory;
use crate::memory_limit::MemoryLimit;
use crate::options::ReaderOptions;
use crate::store_note::NamedStore;

/// The initial sources of a reader's partitions.
#[derive(Default)]
pub(crate) struct OpenedPartitions {
    pub sources: BTreeMap<PartitionId, InitialSource>,
    /// The partitions whose lock this reader already holds.
    pub locks: BTreeMap<PartitionId, Checkpoints>,
}

/// The result of the speculative open ahead of the control log's answer.
pub(crate) struct SpeculativeOpen {
    pub directory: Arc<CheckpointDirectory>,
    /// The store that last had the name.
    pub named: NamedStore,
    pub memory_limit: Option<MemoryLimit>,
    opened: OpenedPartitions,
    /// The schema versions that checkpoints need.
    needed: Vec<(PartitionId, SchemaVersion)>,
}

impl SpeculativeOpen {
    /// Looks once for the initial sources of the store that last had the name. Creates
    /// nothing. `None` is no error: a later search finds the problem again and reports it.
    pub(crate) fn look(options: &ReaderOptions, disk: Option<&Arc<dyn Disk>>) -> Option<Self> {
        let (directory, named) = CheckpointDirectory::named_store(options, disk)?;
        options.partitions.check(named.partitions).ok()?;
        let mut search = SourceSearch::of(&directory, named, None);
        let mut opened = OpenedPartitions::default();
        for partition in named.partitions.partitions() {
            if !options.partitions.follows(partition) {
                continue;
            }
            let found = search.look(search.at(partition), &mut opened.locks).ok()?;
            if let FoundSource::Initial(source) = found {
                opened.sources.insert(partition, source);
            }
        }
        let (needed, memory_limit) = (search.needed, MemoryLimit::new(options.memory_limit));
        Some(Self { directory, named, memory_limit, opened, needed })
    }

    /// Returns the sources that are valid for the store that the name stands for.
    fn for_store(self, named: NamedStore, versions: &[Arc<SchemaAt>]) -> OpenedPartitions {
        if self.named != named {
            return OpenedPartitions::default();
        }
        let mut opened = self.opened;
        for (partition, version) in self.needed {
            if !is_known(versions, version) {
                opened.sources.remove(&partition);
            }
        }
        opened
    }
}

/// Returns the immutable part of the newest of these definitions.
pub(crate) fn named_by(versions: &[Arc<SchemaAt>]) -> Result<NamedStore> {
    let definition = &versions.last().ok_or_else(closed)?.definition;
    Ok(NamedStore { store: definition.store, partitions: definition.partitions })
}

fn is_known(versions: &[Arc<SchemaAt>], version: SchemaVersion) -> bool {
    let is_it = |schema: &Arc<SchemaAt>| schema.definition.version == version;
    version == SchemaVersion(0) || versions.iter().any(is_it)
}

/// Finds the initial sources of the partitions that were not found ahead. Waits while another
/// reader is about to create a shared copy.
///
/// # Errors
/// Returns the errors of [`SharedCopyDirectory::make`], and `Unavailable` if the directory cannot
/// be used.
pub(crate) async fn choose_sources(
    directory: &Arc<CheckpointDirectory>,
    versions: &[Arc<SchemaAt>],
    mut partitions: Vec<PartitionId>,
    seed: u64,
    speculative: Option<SpeculativeOpen>,
) -> Result<OpenedPartitions> {
    let named = named_by(versions)?;
    let mut opened =
        speculative.map(|speculative| speculative.for_store(named, versions)).unwrap_or_default();
    partitions.retain(|partition| !opened.sources.contains_key(partition));
    if partitions.is_empty() {
        return Ok(opened);
    }
    let mut search = SourceSearch::of(directory, named, Some(versions));
    loop {
        let mut to_make = Vec::new();
        for partition in &partitions {
            let at = search.at(*partition);
            match search.look(at, &mut opened.locks)? {
                FoundSource::Initial(source) => drop(opened.sources.insert(*partition, source)),
                FoundSource::ToMake => to_make.push(*partition),
                FoundSource::Nothing => {}
            }
        }
        if !to_make.is_empty() {
            block_in_place(|| search.live.make(named.store, to_make.iter().copied(), seed))?;
        }
        for partition in to_make {
            let source = InitialSource::shared_copy(&search.live, search.at(partition))?;
            opened.sources.insert(partition, source);
        }
        partitions.retain(|partition| !opened.sources.contains_key(partition));
        if partitions.is_empty() {
            return Ok(opened);
        }
        tokio::time::sleep(Duration::from_millis(READER_COPY_POLL_INTERVAL_ACTIVE_MS)).await;
    }
}

/// The search result for one partition.
enum FoundSource {
    Initial(InitialSource),
    /// No source exists, and this reader holds the lock.
    ToMake,
    /// No source exists yet, and another reader holds the lock.
    Nothing,
}

/// The search for the initial sources of one store.
struct SourceSearch<'o> {
    directory: &'o Arc<CheckpointDirectory>,
    live: SharedCopyDirectory,
    named: NamedStore,
    /// The known definitions; `None` ahead of the control log's answer.
    versions: Option<&'o [Arc<SchemaAt>]>,
    /// The schema versions that checkpoints need.
    needed: Vec<(PartitionId, SchemaVersion)>,
    /// The newest checkpoint of each partition, once listed.
    checkpoints: Option<BTreeMap<PartitionId, PathBuf>>,
}

impl<'o> SourceSearch<'o> {
    fn of(
        directory: &'o Arc<CheckpointDirectory>,
        named: NamedStore,
        versions: Option<&'o [Arc<SchemaAt>]>,
    ) -> Self {
        let (live, needed, checkpoints) = (directory.live(), Vec::new(), None);
        Self { directory, live, named, versions, needed, checkpoints }
    }

    fn at(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.named.store, partition }
    }

    fn look(
        &mut self,
        at: PartitionRef,
        locks: &mut BTreeMap<PartitionId, Checkpoints>,
    ) -> Result<FoundSource> {
        let live = match InitialSource::shared_copy(&self.live, at) {
            Ok(live) if live.has_begun() && !live.is_bootstrapping() => {
                return Ok(FoundSource::Initial(live));
            }
            live => live,
        };
        if !locks.contains_key(&at.partition) {
            let lock = Checkpoints::try_lock(self.directory.folder(), at)?;
            locks.extend(lock.map(|lock| (at.partition, lock)));
        }
        let is_kept_here = locks.contains_key(&at.partition);
        // A reader that shares nothing holds the lock as well, but creates no shared copy.
        if (is_kept_here || live.is_ok())
            && let Some(image) = self.image(at)
        {
            return Ok(FoundSource::Initial(image));
        }
        Ok(match live {
            Ok(live) if live.has_begun() || !is_kept_here => FoundSource::Initial(live),
            _ if is_kept_here => FoundSource::ToMake,
            _ => FoundSource::Nothing,
        })
    }

    /// Returns the newest checkpoint, if it can be served as it is. The step that builds the shared
    /// copy reports and counts a checkpoint that cannot.
    fn image(&mut self, at: PartitionRef) -> Option<InitialSource> {
        let image = self.try_image(at);
        let image = image.inspect_err(|error| {
            tracing::debug!(%at, %error, "checkpoint cannot serve before it is copied");
        });
        image.ok().flatten()
    }

    fn try_image(&mut self, at: PartitionRef) -> Result<Option<InitialSource>> {
        let checkpoints = match self.checkpoints.take() {
            Some(checkpoints) => checkpoints,
            None => self.directory.folder().newest(at.store)?,
        };
        let Some(path) = self.checkpoints.insert(checkpoints).get(&at.partition) else {
            return Ok(None);
        };
        let (image, head) = self.directory.folder().open_file(path, at, self.named.partitions)?;
        let version = head.state.schema_version;
        match self.versions {
            Some(versions) if !is_known(versions, version) => {
                let message =
                    format!("the schema version {version} of the checkpoint is not known yet");
                return Err(Error::unavailable(message));
            }
            Some(_) => {}
            None => self.needed.push((at.partition, version)),
        }
        if !head.has_caught_up() {
            return Err(Error::unavailable("the checkpoint has never caught up with the log"));
        }
        InitialSource::from_image(&image, head.log_cursor()).map(Some)
    }
}
