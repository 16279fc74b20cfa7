//! Live copies: a partition's documents in files that all processes of a host map.
//!
//! One process *holds* a copy: it follows the log and writes. Any number read, the holder's own
//! readers among them, and all in the same way: through a mapping that they cannot write, by copies
//! that they validate (`table::copied`). So a reader announces itself to nobody, and one that is
//! killed at any moment harms nobody. Who holds is for the layer above to see to, by a lock.
//!
//! ```text
//! <directory>/live-<store>-<partition>      the header: what readers ask before they read
//! <memory directory>/forebay-<token>-<store>-<partition>-<generation>      a space
//! ```
//!
//! A space lies in a memory file system where there is room, else beside its header. Of the bytes
//! of both nothing is trusted over a restart of the machine: a header carries the boot's id, and
//! one of another boot is made anew.
//!
//! # When the holder is killed
//!
//! It leaves what it had stored, in the order of its stores. Each step of a write is such that
//! readers are right after any of them; and before the first slot of an entry is stored, the entry
//! as a whole is noted in the space's words ([`Redo`]), as is the swing of several directory
//! entries ([`Swing`]). The next holder finishes what was noted. So the copy is at one position,
//! and at none that a reader has not seen or will not see.

mod beginning;
mod header;
mod spaces;
mod takeover;
mod windows;

use std::path::{Path, PathBuf};

use forebay_core::Result;
use forebay_core::id::{PartitionId, StoreId};

pub(crate) use header::HeaderFile;
pub(crate) use spaces::{Attach, Lender, Spaces, make};
pub(crate) use takeover::hold;
pub(crate) use windows::Windows;

use crate::memory::{is_of_memory, live_addresses_for, refused};
use crate::storage::SeededHash;

pub use beginning::Beginning;
pub use takeover::Resumed;

#[cfg(doc)]
use crate::memory::{Redo, Swing};

/// Where the live copies of one reader's partitions lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDirectory {
    /// Directory of the headers, on a local file system: the same one for all processes.
    pub dir: PathBuf,
    /// Directory of a memory file system, used where it has room; `None` keeps all in `dir`.
    pub memory_dir: Option<PathBuf>,
}

impl LiveDirectory {
    /// Copies in this directory, their documents in the host's shared memory where it has room.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let memory_dir = Some(PathBuf::from("/dev/shm")).filter(|dir| is_memory(dir));
        Self { dir: dir.into(), memory_dir }
    }

    /// Makes sure that there are copies of these partitions: those of this boot are kept as they
    /// are, all else is made anew and empty. Only for who holds them.
    ///
    /// # Errors
    /// `LimitExceeded` without room; `Unsupported` on a file system that cannot hold them;
    /// `Unavailable`.
    pub fn make(
        &self,
        store: StoreId,
        partitions: impl IntoIterator<Item = PartitionId>,
        seed: u64,
    ) -> Result<()> {
        self.sweep();
        let partitions: Vec<_> = partitions.into_iter().collect();
        let (addresses, hash) = (live_addresses_for(partitions.len()), SeededHash::new(seed));
        partitions.into_iter().try_for_each(|id| make(self, store, id, hash, addresses))
    }

    /// Removes what no header leads to any more: of directories that were removed, of an earlier
    /// boot, of holders that were killed.
    pub fn sweep(&self) {
        spaces::sweep(self);
    }

    /// Whether there are copies of all these partitions, for who does not hold them: somebody who
    /// does may be just about to make them.
    pub fn is_made(
        &self,
        store: StoreId,
        partitions: impl IntoIterator<Item = PartitionId>,
    ) -> bool {
        let mut partitions = partitions.into_iter();
        partitions.all(|id| HeaderFile::open(&self.header(store, id), false).is_ok())
    }

    /// Removes the copies of these partitions. Only for who has the lock of each; whoever reads
    /// them still goes on with what was there.
    pub fn remove(&self, store: StoreId, partitions: impl IntoIterator<Item = PartitionId>) {
        partitions.into_iter().for_each(|id| spaces::remove(self, store, id));
    }

    fn header(&self, store: StoreId, partition: PartitionId) -> PathBuf {
        self.dir.join(format!("live-{:016x}-{:04}", store.0, partition.0))
    }
}

/// Whether a directory is one of a memory file system.
fn is_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|at| is_of_memory(&at))
}
