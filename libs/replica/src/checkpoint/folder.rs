//! The folder of the checkpoints of a replica's partitions: names, and the files behind them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use forebay_index::Image;
use forebay_log::disk::Disk;
use forebay_snapshot::ImageState;

use super::file::{disk_error, open_checkpoint};

pub(super) const SUFFIX: &str = ".checkpoint";

/// The folder of checkpoints, and the rules for writing them.
pub struct CheckpointFolder {
    /// Path of the folder.
    pub dir: PathBuf,
    /// Disk of the folder.
    pub disk: Arc<dyn Disk>,
    /// Shortest time between two checkpoints of a partition.
    pub interval: Duration,
    /// Largest partition, in bytes of its keys and rows, that gets checkpoints.
    pub bytes_max: u64,
}

impl CheckpointFolder {
    /// Creates the folder, unless it exists.
    ///
    /// # Errors
    /// Returns `Unavailable` if the folder cannot be used.
    pub fn create(&self) -> Result<()> {
        make_dir(&*self.disk, &self.dir).map_err(|error| self.unusable(&error))
    }

    /// Returns the error for a folder that cannot be used.
    pub(super) fn unusable(&self, error: &io::Error) -> Error {
        Error::unavailable(format!(
            "could not use {} for checkpoints: {error}; correct the directory",
            self.dir.display()
        ))
    }

    /// Returns the newest checkpoint of each partition of a store that has one, judged by the file
    /// names.
    ///
    /// # Errors
    /// Returns `Unavailable` if the directory cannot be listed.
    pub fn newest(&self, store: StoreId) -> Result<BTreeMap<PartitionId, PathBuf>> {
        let dir = &self.dir;
        let names = self.disk.list(dir).map_err(|error| disk_error("look for", &error))?;
        let prefix = format!("{:016x}-", store.0);
        let partition = |name: &String| {
            let (partition, serial) = name.strip_prefix(&prefix)?.split_once('-')?;
            serial.strip_suffix(SUFFIX)?;
            partition.parse().ok().map(PartitionId)
        };
        // Names are sorted, so the newest checkpoint of a partition is the last.
        let found = names.iter().filter_map(|name| Some((partition(name)?, dir.join(name))));
        Ok(found.collect())
    }

    /// Opens a checkpoint and checks that it belongs to this partition.
    ///
    /// # Errors
    /// Returns the errors of [`Image::open`], and `Unsupported` for a checkpoint of another
    /// partition.
    pub fn open_file(
        &self,
        path: &Path,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Image, ImageState)> {
        let file = self.disk.open(path).map_err(|error| disk_error("open", &error))?;
        let (image, head) = open_checkpoint(file)?;
        image.metadata().check_is_of(at, partitions)?;
        Ok((image, head))
    }
}

/// Creates a directory, and tries to make its name durable: if that fails, a power cut may cost the
/// checkpoints, which costs a bootstrap.
fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let missing = dir.ancestors().take_while(|dir| disk.list(dir).is_err()).count();
    disk.create_dir(dir)?;
    for parent in dir.ancestors().skip(1).take(missing) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if let Err(error) = disk.sync_dir(parent) {
            tracing::debug!(dir = %parent.display(), %error, "checkpoint directory not synced");
        }
    }
    Ok(())
}
