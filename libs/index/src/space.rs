//! A space: the memory of one generation of a partition, with the root of its table.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::key::SeededHash;
use crate::memory::Memory;
use crate::table::Root;

/// The memory of one generation and the root of its table. A generation that is built while readers
/// use another one has a space of its own; readers reach a space through the partition's header.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) memory: Arc<Memory>,
    pub(crate) hash: SeededHash,
    /// Number of a shared space; 0 for a space in the process's own memory.
    pub(crate) generation: u64,
}

impl Space {
    /// Creates a space whose table has this root.
    pub(crate) fn new(memory: Arc<Memory>, hash: SeededHash, root: Root) -> Arc<Self> {
        root.store_release(&memory.header().root);
        Arc::new(Self { memory, hash, generation: 0 })
    }

    /// The root of the space's table.
    #[inline]
    pub(crate) fn root(&self) -> &AtomicU64 {
        &self.memory.header().root
    }
}
