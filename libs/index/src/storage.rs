//! One partition: its header, which readers see, and the state of its writer while nobody holds it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use forebay_core::id::PartitionRef;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::header::Header;
use crate::live::Beginning;
use crate::memory::Memory;
use crate::table::Root;
use crate::writer::WriterState;

/// A seeded hash of the index's own: inside a partition the partition hash has little left to tell
/// keys apart, and an unknown seed keeps a sender of keys from choosing collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededHash(u64);

impl SeededHash {
    pub(crate) fn new(seed: u64) -> Self {
        // Never the partition hash, which is the same function with seed 0.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The hash that an image was written with.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// What makes it this hash and no other.
    pub(crate) fn seed(self) -> u64 {
        self.0
    }

    /// The hash of a key's identity bytes.
    #[inline]
    pub(crate) fn of(self, identity: &[u8]) -> u64 {
        xxh3_64_with_seed(identity, self.0)
    }
}

/// One generation's memory and where its table begins. A generation that is built beside the one
/// that readers see has a space of its own; they come to it through the partition's header.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) memory: Arc<Memory>,
    pub(crate) hash: SeededHash,
    /// Number of a live space; 0 of one in the process's own memory.
    pub(crate) generation: u64,
}

impl Space {
    /// A space whose table begins here.
    pub(crate) fn new(memory: Arc<Memory>, hash: SeededHash, root: Root) -> Arc<Self> {
        root.store_release(&memory.words().root);
        Arc::new(Self { memory, hash, generation: 0 })
    }

    /// Where its table begins.
    #[inline]
    pub(crate) fn root(&self) -> &AtomicU64 {
        &self.memory.words().root
    }
}

/// Keys, one behind another; key `n` ends at `ends[n]`.
#[derive(Debug, Default)]
pub(crate) struct KeyListing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

impl KeyListing {
    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// One partition of an index.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) at: PartitionRef,
    pub(crate) header: Header,
    /// Touched when a writer is taken and given back, never by reads. Of a live copy there is none
    /// until this process holds it.
    pub(crate) writer: Mutex<Option<WriterState>>,
    /// By which a live copy that is begun here finds keys, if that is not the index's own: as the
    /// image does that readers have until then, so that a scan goes on from one to the other.
    pub(crate) hash: Option<SeededHash>,
}

impl Partition {
    /// One in the process's own memory.
    pub(crate) fn private(at: PartitionRef, writer: WriterState) -> Self {
        let header = Header::new(writer.published().clone(), writer.space(), None);
        Self { at, header, writer: Mutex::new(Some(writer)), hash: None }
    }

    /// One that is read from a live copy, or from an image until there is one.
    pub(crate) fn beginning(at: PartitionRef, beginning: Beginning) -> Self {
        let Beginning { published, space, attach } = beginning;
        let hash = attach.is_none().then_some(space.hash);
        let header = Header::new(published, space, attach);
        Self { at, header, writer: Mutex::new(None), hash }
    }
}
