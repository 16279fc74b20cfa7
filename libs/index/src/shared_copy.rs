//! Shared copies: a partition's documents in files that all processes of a host map.
//!
//! A single process *holds* a copy: it follows the log and writes. Any number of processes read,
//! including the owner's own readers, and all read in the same way: through a read-only mapping,
//! by copies that they validate (`table::optimistic_read`). A reader therefore does not
//! announce itself, and a reader that is killed at any moment harms no other process. The layer
//! above decides which process holds the copy, by a lock.
//!
//! ```text
//! <directory>/live-<store>-<partition>      the header: what readers ask before they read
//! <memory directory>/forebay-<token>-<store>-<partition>-<generation>      a space
//! ```
//!
//! A space is in a memory file system if there is room, otherwise next to its header. The bytes of
//! both are not trusted across a restart of the machine: a header carries the boot's id, and a
//! header of another boot is replaced.
//!
//! # Layers
//!
//! [`SharedCopyDirectory`] is in two files, so that no imports form a circle: `directory` has its
//! data and the names of headers, which `spaces` imports; this file has its operations, which
//! import `creation` and `removal`, and through them `spaces` and `generation`.
//!
//! # When the owner is killed
//!
//! A killed owner leaves its stores behind in the order in which it made them. Readers get correct
//! answers after any step of a write. Before the first slot of an entry is stored, the entry as a
//! whole is noted in the space's header ([`Redo`]); an update of several directory entries is noted
//! as well ([`DirectoryUpdate`]). The next owner finishes the noted steps. The copy is therefore
//! at one position, which readers have seen or will see.

mod creation;
mod directory;
mod fold_state_table;
mod header_file;
mod initial_source;
mod removal;
mod spaces;
mod takeover;

use forebay_core::Result;
use forebay_core::id::{PartitionId, StoreId};

pub(crate) use creation::make;
pub(crate) use fold_state_table::FoldStateTable;
pub(crate) use header_file::{HeaderFile, PublishedWords};
pub(crate) use spaces::{Attach, Spaces};
pub(crate) use takeover::acquire_writer;

use crate::key::SeededHash;
use crate::memory::shared_addresses_for;

pub use directory::SharedCopyDirectory;
pub use initial_source::InitialSource;

#[cfg(doc)]
use crate::memory::{DirectoryUpdate, Redo};

impl SharedCopyDirectory {
    /// Ensures that copies of these partitions exist: copies of this boot stay as they are, all
    /// others are created empty. Only the owner may call this.
    ///
    /// # Errors
    /// `LimitExceeded` without room; `Unsupported` on a file system that cannot store them;
    /// `Unavailable`.
    pub fn make(
        &self,
        store: StoreId,
        partitions: impl IntoIterator<Item = PartitionId>,
        seed: u64,
    ) -> Result<()> {
        self.sweep();
        let partitions: Vec<_> = partitions.into_iter().collect();
        let (addresses, hash) = (shared_addresses_for(partitions.len()), SeededHash::new(seed));
        partitions.into_iter().try_for_each(|id| make(self, store, id, hash, addresses))
    }

    /// Removes files that no header leads to any more: those of removed directories, of an earlier
    /// boot, and of killed owners.
    pub fn sweep(&self) {
        removal::sweep(self);
    }

    /// Whether copies of all these partitions exist. For processes that do not hold them: an owner
    /// may be about to create them.
    pub fn is_made(
        &self,
        store: StoreId,
        partitions: impl IntoIterator<Item = PartitionId>,
    ) -> bool {
        let mut partitions = partitions.into_iter();
        partitions.all(|id| HeaderFile::open(&self.header(store, id), false).is_ok())
    }

    /// Removes the copies of these partitions. Only for the owner of the lock of each; existing
    /// readers continue with the content that was there.
    pub fn remove(&self, store: StoreId, partitions: impl IntoIterator<Item = PartitionId>) {
        partitions.into_iter().for_each(|id| removal::remove(self, store, id));
    }
}
