//! The resources that the partitions of an index share: the reclaim of memory, the budget, and the
//! directory for spilled documents.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::budget::Budget;
use crate::memory::SpillPlace;
use crate::reclaim::Reclaim;

/// The resources of one index; a generation needs no other part of the index.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) reclaim: Reclaim,
    /// The memory budget of all writers together.
    pub(crate) budget: Arc<Budget>,
    /// The directory that documents in the process's own memory are spilled to.
    pub(crate) spill_dir: OnceLock<PathBuf>,
}

impl Resources {
    /// The spill location of a space in the process's own memory.
    pub(crate) fn spill_place(&self) -> Option<SpillPlace> {
        self.spill_dir.get().map(|dir| SpillPlace::Unnamed(dir.clone()))
    }
}
