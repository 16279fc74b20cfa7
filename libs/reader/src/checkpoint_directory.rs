//! The directory of a reader's checkpoints and of its shared copies.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::id::{PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use forebay_index::{Image, SharedCopyDirectory};
use forebay_log::disk::{Disk, RealDisk};
use forebay_replica::{CheckpointFolder, Checkpoints};
use forebay_snapshot::ImageState;

use crate::options::{CheckpointOptions, ReaderOptions};
use crate::store_note::NamedStore;

/// The directory of a reader's checkpoints and of its shared copies.
pub(crate) struct CheckpointDirectory {
    folder: Arc<CheckpointFolder>,
    is_shared: bool,
    memory_dir: Option<PathBuf>,
    is_swept: AtomicBool,
}

impl fmt::Debug for CheckpointDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckpointDirectory").field(&self.folder.dir).finish()
    }
}

impl CheckpointDirectory {
    /// Opens the directory, if the options request checkpoints.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for invalid options, and `Unavailable` if the directory cannot be
    /// used.
    pub(crate) fn open(
        options: &ReaderOptions,
        disk: Option<&Arc<dyn Disk>>,
    ) -> Result<Option<Arc<Self>>> {
        let Some(options) = options.checkpoint.clone() else { return Ok(None) };
        if options.interval.is_zero() {
            let message = "the interval of checkpoints is 0 s; raise `interval`";
            return Err(Error::invalid_argument(message));
        }
        let disk = disk.cloned().ok_or_else(|| {
            Error::invalid_argument("checkpoints need a disk; pass one in the reader's parts")
        })?;
        let directory = Self::of(options, disk);
        directory.folder.create()?;
        Ok(Some(Arc::new(directory)))
    }

    fn of(options: CheckpointOptions, disk: Arc<dyn Disk>) -> Self {
        let CheckpointOptions { dir, is_shared, memory_dir, interval, bytes_max } = options;
        let folder = Arc::new(CheckpointFolder { dir, disk, interval, bytes_max });
        Self { folder, is_shared, memory_dir, is_swept: AtomicBool::new(false) }
    }

    /// Returns the folder of the checkpoints.
    pub(crate) fn folder(&self) -> &Arc<CheckpointFolder> {
        &self.folder
    }

    /// Returns the directory and its note about the store's name, before the control log is
    /// queried; `None` if there is no note. Creates nothing.
    pub(crate) fn named_store(
        options: &ReaderOptions,
        disk: Option<&Arc<dyn Disk>>,
    ) -> Option<(Arc<Self>, NamedStore)> {
        let checkpoint = options.checkpoint.as_ref();
        let is_one =
            |candidate: &&CheckpointOptions| candidate.is_shared && !candidate.interval.is_zero();
        let checkpoint = checkpoint.filter(is_one)?;
        let disk = disk.filter(|disk| disk.is_of_host())?;
        let named = NamedStore::read(&**disk, &checkpoint.dir, &options.store)?;
        Some((Arc::new(Self::of(checkpoint.clone(), Arc::clone(disk))), named))
    }

    /// Writes the note of the store that a name stands for.
    pub(crate) fn note_store(&self, name: &str, named: NamedStore) {
        if let Err(error) = named.write(&*self.folder.disk, &self.folder.dir, name) {
            tracing::debug!(store = %name, %error, "store id of a name not written");
        }
    }

    /// Returns the location of the shared copies.
    pub(crate) fn live(&self) -> SharedCopyDirectory {
        SharedCopyDirectory { dir: self.folder.dir.clone(), memory_dir: self.memory_dir.clone() }
    }

    /// Returns whether other readers may answer from the copies of this directory.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared && self.is_of_host()
    }

    /// Returns whether other processes see the directory.
    pub(crate) fn is_of_host(&self) -> bool {
        self.folder.disk.is_of_host()
    }

    /// Returns the storage ids of the store versions that have a copy or a checkpoint here.
    pub(crate) fn stores(&self) -> BTreeSet<StoreId> {
        let names = self.folder.disk.list(&self.folder.dir).unwrap_or_default();
        let store = |name: &String| {
            let (store, _) = name.strip_prefix("live-").unwrap_or(name).split_once('-')?;
            let id = u64::from_str_radix(store, 16).ok().filter(|_| store.len() == 16)?;
            Some(StoreId(id))
        };
        names.iter().filter(|name| !Checkpoints::is_lock(name)).filter_map(store).collect()
    }

    /// Removes the files of a store version that nothing follows any more. If another reader still
    /// owns them, that reader removes them when it releases them.
    pub(crate) fn forget(&self, at: PartitionRef) {
        match Checkpoints::try_lock(&self.folder, at) {
            Ok(Some(checkpoints)) => {
                if self.is_of_host() {
                    self.live().remove(at.store, [at.partition]);
                }
                checkpoints.remove_all();
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%at, %error, "replica of a dropped version not removed"),
        }
    }

    /// Opens the newest checkpoint of a partition in a folder, regardless of its owner.
    ///
    /// # Errors
    /// Returns the errors of [`CheckpointFolder::open_file`], and `NotFound` if there is no
    /// checkpoint.
    pub(crate) fn newest_in(
        dir: &Path,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Image, ImageState)> {
        let Self { folder, .. } = Self::of(CheckpointOptions::new(dir), Arc::new(RealDisk));
        let newest = folder.newest(at.store)?.remove(&at.partition).ok_or_else(|| {
            let message = format!("there is no checkpoint of the partition in {}", dir.display());
            Error::not_found(message).with_partition(at.partition)
        })?;
        folder.open_file(&newest, at, partitions)
    }

    /// Removes unreachable files of shared copies; only the first call does.
    pub(crate) fn sweep(&self) {
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            self.live().sweep();
        }
    }
}
