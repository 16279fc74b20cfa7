//! The resources that the partitions of an index share: the reclaim of memory, its account, and the
//! directory for spilled documents.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::memory::SpillPlace;
use crate::memory_account::MemoryAccount;
use crate::reclaim::Reclaim;

/// The resources of one index; a generation needs no other part of the index.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) reclaim: Reclaim,
    /// The memory of all writers together, and its limit.
    pub(crate) account: Arc<MemoryAccount>,
    /// The directory that documents in the process's own memory are spilled to.
    pub(crate) spill_dir: OnceLock<PathBuf>,
}

impl Resources {
    /// The spill location of a space in the process's own memory.
    pub(crate) fn spill_place(&self) -> Option<SpillPlace> {
        self.spill_dir.get().map(|dir| SpillPlace::Unnamed(dir.clone()))
    }
}
