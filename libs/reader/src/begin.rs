//! Where the partitions begin of a reader that shares its copies, before anything is followed.
//!
//! Readers answer from the live copy of a partition, if one serves. Where none does, as after a
//! restart of the machine, they begin with the newest checkpoint, mapped, and the live copy is made
//! of it behind the opening (`follow`, `tail`). Where there is no checkpoint that can be served as
//! it is, they begin with what there is of a live copy; where there is none, one is begun here, and
//! is empty.
//!
//! All of it needs the store's id and little more, which the directory remembers. So it is done
//! *ahead*, while the control log is asked what the name stands for, and is used if that is the
//! same store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion};
use forebay_core::limits::READER_COPY_LOOK_SOON_MS;
use forebay_core::{Error, Result};
use forebay_index::{Beginning, LiveDirectory};
use forebay_log::disk::Disk;
use forebay_snapshot::in_place;

use crate::budget::MemoryBudget;
use crate::checkpoint::{CheckpointDirectory, Checkpoints, NamedStore};
use crate::closing::closed;
use crate::options::ReaderOptions;

/// Where the partitions of a reader begin.
#[derive(Default)]
pub(crate) struct Begun {
    pub beginnings: BTreeMap<PartitionId, Beginning>,
    /// The partitions for which this reader has the lock already.
    pub kept: BTreeMap<PartitionId, Checkpoints>,
}

/// What was found ahead of the control log's answer.
pub(crate) struct Ahead {
    pub directory: Arc<CheckpointDirectory>,
    /// What the name stood for.
    pub named: NamedStore,
    pub budget: Option<MemoryBudget>,
    begun: Begun,
    /// The definitions that checkpoints need.
    needed: Vec<(PartitionId, SchemaVersion)>,
}

impl Ahead {
    /// Looks once where the partitions begin of the store that the name last stood for. Makes
    /// nothing, and `None` is no error: what is the matter is told when it is looked for again.
    pub(crate) fn look(options: &ReaderOptions, disk: Option<&Arc<dyn Disk>>) -> Option<Self> {
        let (directory, named) = CheckpointDirectory::named_store(options, disk)?;
        options.partitions.check(named.partitions).ok()?;
        let mut places = Places::of(&directory, named, None);
        let mut begun = Begun::default();
        for partition in named.partitions.partitions() {
            if !options.partitions.follows(partition) {
                continue;
            }
            let found = places.look(places.at(partition), &mut begun.kept).ok()?;
            if let Found::Beginning(beginning) = found {
                begun.beginnings.insert(partition, beginning);
            }
        }
        let (needed, budget) = (places.needed, MemoryBudget::new(options.memory_budget));
        Some(Self { directory, named, budget, begun, needed })
    }

    /// What of it holds for the store that the name stands for.
    fn for_store(self, named: NamedStore, versions: &[Arc<SchemaAt>]) -> Begun {
        if self.named != named {
            return Begun::default();
        }
        let mut begun = self.begun;
        for (partition, version) in self.needed {
            if !is_known(versions, version) {
                begun.beginnings.remove(&partition);
            }
        }
        begun
    }
}

/// What the newest of these definitions says that never changes.
pub(crate) fn named_by(versions: &[Arc<SchemaAt>]) -> Result<NamedStore> {
    let definition = &versions.last().ok_or_else(closed)?.definition;
    Ok(NamedStore { store: definition.store, partitions: definition.partitions })
}

fn is_known(versions: &[Arc<SchemaAt>], version: SchemaVersion) -> bool {
    let is_it = |at: &Arc<SchemaAt>| at.definition.version == version;
    version == SchemaVersion(0) || versions.iter().any(is_it)
}

/// Finds where these partitions begin that were not found ahead; waits where another reader is just
/// about to make a copy.
///
/// # Errors
/// Those of [`LiveDirectory::make`]; `Unavailable` when the directory cannot be used.
pub(crate) async fn begin(
    directory: &Arc<CheckpointDirectory>,
    versions: &[Arc<SchemaAt>],
    mut partitions: Vec<PartitionId>,
    seed: u64,
    ahead: Option<Ahead>,
) -> Result<Begun> {
    let named = named_by(versions)?;
    let mut begun = ahead.map(|ahead| ahead.for_store(named, versions)).unwrap_or_default();
    partitions.retain(|partition| !begun.beginnings.contains_key(partition));
    if partitions.is_empty() {
        return Ok(begun);
    }
    let mut places = Places::of(directory, named, Some(versions));
    loop {
        let mut to_make = Vec::new();
        for partition in &partitions {
            let at = places.at(*partition);
            match places.look(at, &mut begun.kept)? {
                Found::Beginning(beginning) => drop(begun.beginnings.insert(*partition, beginning)),
                Found::ToMake => to_make.push(*partition),
                Found::Nothing => {}
            }
        }
        if !to_make.is_empty() {
            in_place(|| places.live.make(named.store, to_make.iter().copied(), seed))?;
        }
        for partition in to_make {
            let beginning = Beginning::live(&places.live, places.at(partition))?;
            begun.beginnings.insert(partition, beginning);
        }
        partitions.retain(|partition| !begun.beginnings.contains_key(partition));
        if partitions.is_empty() {
            return Ok(begun);
        }
        tokio::time::sleep(Duration::from_millis(READER_COPY_LOOK_SOON_MS)).await;
    }
}

/// What there is of one partition.
enum Found {
    Beginning(Beginning),
    /// Nothing, and this reader has the lock.
    ToMake,
    /// Nothing yet, and another reader has the lock.
    Nothing,
}

/// Where the partitions of one store may begin.
struct Places<'o> {
    directory: &'o Arc<CheckpointDirectory>,
    live: LiveDirectory,
    named: NamedStore,
    /// The definitions that are known; `None` ahead of the control log's answer.
    versions: Option<&'o [Arc<SchemaAt>]>,
    /// Those that checkpoints need.
    needed: Vec<(PartitionId, SchemaVersion)>,
    /// The newest of each partition, once somebody asked.
    checkpoints: Option<BTreeMap<PartitionId, PathBuf>>,
}

impl<'o> Places<'o> {
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
    ) -> Result<Found> {
        let live = match Beginning::live(&self.live, at) {
            Ok(live) if live.has_begun() && !live.is_bootstrapping() => {
                return Ok(Found::Beginning(live));
            }
            live => live,
        };
        if !locks.contains_key(&at.partition) {
            let lock = self.directory.try_keep(at)?;
            locks.extend(lock.map(|lock| (at.partition, lock)));
        }
        let is_kept_here = locks.contains_key(&at.partition);
        // A reader that shares nothing has the lock as well, but makes no live copy.
        if (is_kept_here || live.is_ok())
            && let Some(image) = self.image(at)
        {
            return Ok(Found::Beginning(image));
        }
        Ok(match live {
            Ok(live) if live.has_begun() || !is_kept_here => Found::Beginning(live),
            _ if is_kept_here => Found::ToMake,
            _ => Found::Nothing,
        })
    }

    /// The newest checkpoint, if it can be served as it is. What is wrong with one is told, and
    /// counted, when the copy is to be made of it.
    fn image(&mut self, at: PartitionRef) -> Option<Beginning> {
        let image = self.try_image(at);
        let image = image.inspect_err(|error| {
            tracing::debug!(%at, %error, "a checkpoint is not served before it is copied");
        });
        image.ok().flatten()
    }

    fn try_image(&mut self, at: PartitionRef) -> Result<Option<Beginning>> {
        let checkpoints = match self.checkpoints.take() {
            Some(checkpoints) => checkpoints,
            None => self.directory.newest(at.store)?,
        };
        let Some(path) = self.checkpoints.insert(checkpoints).get(&at.partition) else {
            return Ok(None);
        };
        let (image, head) = self.directory.open_file(path, at, self.named.partitions)?;
        let version = head.state.schema_version;
        match self.versions {
            Some(versions) if !is_known(versions, version) => {
                let message = format!("schema version {version} is not known yet");
                return Err(Error::unavailable(message));
            }
            Some(_) => {}
            None => self.needed.push((at.partition, version)),
        }
        if !head.has_caught_up() {
            return Err(Error::unavailable("it has not caught up once"));
        }
        Beginning::of_image(&image, head.following()).map(Some)
    }
}
