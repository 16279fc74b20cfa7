//! Where the partitions begin of a reader that shares its copies, before anything is followed.
//!
//! Readers answer from the live copy of a partition, if something was applied to one. Where none
//! was, as after a restart of the machine, they begin with the newest checkpoint, mapped, and the
//! live copy is made of it behind the opening (`follow`, `tail`). Where there is no checkpoint that
//! can be served as it is, a live copy is begun here, and is empty.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion};
use forebay_core::limits::READER_COPY_LOOK_SOON_MS;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_index::{Beginning, LiveDirectory};

use crate::checkpoint::{CheckpointDirectory, Checkpoints, blocking};
use crate::closing::closed;

/// Where the partitions of a reader begin.
#[derive(Default)]
pub(crate) struct Begun {
    pub beginnings: BTreeMap<PartitionId, Beginning>,
    /// The partitions for which this reader has the lock already.
    pub kept: BTreeMap<PartitionId, Checkpoints>,
}

/// Finds where these partitions begin; waits where another reader is just about to make a copy.
///
/// # Errors
/// Those of [`LiveDirectory::make`]; `Unavailable` when the directory cannot be used.
pub(crate) async fn begin(
    directory: &Arc<CheckpointDirectory>,
    versions: &[Arc<SchemaAt>],
    mut partitions: Vec<PartitionId>,
    seed: u64,
) -> Result<Begun> {
    let definition = &versions.last().ok_or_else(closed)?.definition;
    let live = directory.live();
    let mut places = Places { directory, live, versions, definition, checkpoints: None };
    let mut begun = Begun::default();
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
            blocking(|| places.live.make(definition.store, to_make.iter().copied(), seed))?;
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
    versions: &'o [Arc<SchemaAt>],
    definition: &'o Definition,
    /// The newest of each partition, once somebody asked.
    checkpoints: Option<BTreeMap<PartitionId, PathBuf>>,
}

impl Places<'_> {
    fn at(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.definition.store, partition }
    }

    fn look(
        &mut self,
        at: PartitionRef,
        locks: &mut BTreeMap<PartitionId, Checkpoints>,
    ) -> Result<Found> {
        let live = match Beginning::live(&self.live, at) {
            Ok(live) if live.has_begun() => return Ok(Found::Beginning(live)),
            live => live,
        };
        let lock = self.directory.try_keep(at)?;
        let is_kept_here = lock.is_some();
        locks.extend(lock.map(|lock| (at.partition, lock)));
        // A reader that shares nothing has the lock as well, but makes no live copy.
        if (is_kept_here || live.is_ok())
            && let Some(image) = self.image(at)
        {
            return Ok(Found::Beginning(image));
        }
        Ok(match live {
            _ if is_kept_here => Found::ToMake,
            Ok(live) => Found::Beginning(live),
            Err(_) => Found::Nothing,
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
        let (image, head) = self.directory.open_file(path, at, self.definition.partitions)?;
        let version = head.state.schema_version;
        let is_known = |at: &Arc<SchemaAt>| at.definition.version == version;
        if version != SchemaVersion(0) && !self.versions.iter().any(is_known) {
            return Err(Error::unavailable(format!("schema version {version} is not known yet")));
        }
        if !head.has_caught_up() {
            return Err(Error::unavailable("it has not caught up once"));
        }
        Beginning::of_image(&image, head.following()).map(Some)
    }
}
