//! The location of shared copies, and the names of their headers.

use std::path::{Path, PathBuf};

use forebay_core::id::{PartitionId, StoreId};

use crate::memory::is_of_memory;

/// The location of the shared copies of one reader's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCopyDirectory {
    /// Directory of the headers, on a local file system: the same one for all processes.
    pub dir: PathBuf,
    /// Directory of a memory file system, used while it has room; `None` puts all files into `dir`.
    pub memory_dir: Option<PathBuf>,
}

impl SharedCopyDirectory {
    /// Places copies in this directory, and their documents in the host's shared memory while it
    /// has room.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let memory_dir = Some(PathBuf::from("/dev/shm")).filter(|dir| is_memory(dir));
        Self { dir: dir.into(), memory_dir }
    }

    /// The name of a partition's header.
    pub(crate) fn header(&self, store: StoreId, partition: PartitionId) -> PathBuf {
        self.dir.join(format!("live-{:016x}-{:04}", store.0, partition.0))
    }
}

/// Whether a directory is in a memory file system.
fn is_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|stat| is_of_memory(&stat))
}
