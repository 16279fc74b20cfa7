//! Where the rows of one partition lie: a lock-free map, keyed by generation and key.
//!
//! The generation in the key is what makes "all documents go, these come" one store: the writer
//! fills the next generation, which nobody looks up yet, and then publishes its number. All maps of
//! an index share one reclaim domain, so one guard protects whatever a call finds in any of them.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use forebay_core::id::PartitionRef;
use papaya::{Equivalent, HashMap};
use seize::{Collector, LocalGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::header::{Header, Held};
use crate::writer::WriterState;

/// What a document costs beyond key and row: its slot in a table that is half full (9 B, twice),
/// the map's entry (40 B) and three allocations (16 B each).
const DOCUMENT_OVERHEAD_BYTES: u64 = 2 * 9 + 40 + 3 * 16;

/// A stored key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) identity: Box<[u8]>,
}

/// A key that is looked up.
#[derive(Debug)]
struct Wanted<'k> {
    generation: u32,
    identity: &'k [u8],
}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Wanted { generation: self.generation, identity: &self.identity }.hash(state);
    }
}

impl Hash for Wanted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.generation);
        state.write(self.identity);
    }
}

impl Equivalent<Slot> for Wanted<'_> {
    fn equivalent(&self, slot: &Slot) -> bool {
        self.generation == slot.generation && *self.identity == *slot.identity
    }
}

/// A seeded hash of the index's own: inside a partition the partition hash has little left to tell
/// keys apart, and an unknown seed keeps a sender of keys from choosing collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededHash(u64);

impl SeededHash {
    pub(crate) fn new(seed: u64) -> Self {
        // Never the partition hash, which is the same function with seed 0.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }
}

impl BuildHasher for SeededHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0)
    }
}

/// The state of one hash.
#[derive(Debug)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = self.0.wrapping_add(u64::from(number));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Keys, one behind another; key `n` ends at `ends[n]`.
#[derive(Debug, Default)]
pub(crate) struct KeyListing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

/// One partition: header, rows, and the state of its writer while nobody holds it.
pub(crate) struct Partition {
    pub(crate) at: PartitionRef,
    pub(crate) header: Header,
    rows: HashMap<Slot, Box<[u8]>, SeededHash>,
    /// Touched when a writer is taken and given back, never by reads.
    pub(crate) writer: Mutex<Option<WriterState>>,
}

impl Partition {
    pub(crate) fn new(at: PartitionRef, collector: &Arc<Collector>, hash: SeededHash) -> Self {
        let rows = HashMap::builder().hasher(hash).shared_collector(collector.clone()).build();
        let writer = Mutex::new(Some(WriterState::new(hash)));
        Self { at, header: Header::new(), rows, writer }
    }

    /// The row that a reader finds under a key, or `None`.
    ///
    /// A generation is swept only after the next one is published, and the sweep's stores release;
    /// so a reader that misses because of a sweep sees the newer number, and looks there.
    pub(crate) fn live_row<'g>(
        &self,
        identity: &[u8],
        guard: &'g LocalGuard<'_>,
    ) -> Option<&'g [u8]> {
        let mut generation = self.header.load_generation_acquire();
        loop {
            let found = self.row(generation, identity, guard);
            if found.is_some() {
                return found;
            }
            fence(Ordering::Acquire);
            let newest = self.header.load_generation_acquire();
            if newest == generation {
                return None;
            }
            generation = newest;
        }
    }

    pub(crate) fn row<'g>(
        &self,
        generation: u32,
        identity: &[u8],
        guard: &'g LocalGuard<'_>,
    ) -> Option<&'g [u8]> {
        self.rows.get(&Wanted { generation, identity }, guard).map(|row| &**row)
    }

    /// Writes a row and accounts for it. Only the partition's writer calls it.
    pub(crate) fn insert(
        &self,
        generation: u32,
        identity: &[u8],
        row: &[u8],
        held: &mut Held,
        guard: &LocalGuard<'_>,
    ) {
        let slot = Slot { generation, identity: identity.into() };
        match self.rows.insert(slot, row.into(), guard) {
            Some(old) => held.row_bytes -= old.len() as u64,
            None => {
                held.documents += 1;
                held.key_bytes += identity.len() as u64;
            }
        }
        held.row_bytes += row.len() as u64;
    }

    /// Removes a row and accounts for it. Only the partition's writer calls it.
    pub(crate) fn remove(
        &self,
        generation: u32,
        identity: &[u8],
        held: &mut Held,
        guard: &LocalGuard<'_>,
    ) {
        if let Some(old) = self.rows.remove(&Wanted { generation, identity }, guard) {
            held.documents -= 1;
            held.key_bytes -= identity.len() as u64;
            held.row_bytes -= old.len() as u64;
        }
    }

    /// Removes every row of a generation that is no longer looked up.
    pub(crate) fn sweep(&self, generation: u32, guard: &LocalGuard<'_>) {
        self.rows.retain(|slot, _| slot.generation != generation, guard);
    }

    /// The keys of all documents that readers may find, expired ones included, in no order.
    ///
    /// As in [`Partition::live_row`], a sweep during the listing means that a newer generation was
    /// published, and that one is listed instead.
    pub(crate) fn list_live(&self, guard: &LocalGuard<'_>) -> KeyListing {
        let mut generation = self.header.load_generation_acquire();
        loop {
            let mut listing = KeyListing::default();
            for (identity, _) in self.rows(generation, guard) {
                listing.bytes.extend_from_slice(identity);
                listing.ends.push(listing.bytes.len());
            }
            fence(Ordering::Acquire);
            let newest = self.header.load_generation_acquire();
            if newest == generation {
                return listing;
            }
            generation = newest;
        }
    }

    /// The keys and rows of one generation, in no order.
    ///
    /// Finishes a growth of the table that is under way before it starts.
    pub(crate) fn rows<'g>(
        &self,
        generation: u32,
        guard: &'g LocalGuard<'_>,
    ) -> impl Iterator<Item = (&'g [u8], &'g [u8])> {
        let of_generation =
            self.rows.iter(guard).filter(move |(slot, _)| slot.generation == generation);
        of_generation.map(|(slot, row)| (&*slot.identity, &**row))
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition").field("at", &self.at).field("header", &self.header).finish()
    }
}

impl Held {
    /// Estimated bytes of memory: keys, rows, and what the map adds to each document.
    pub fn memory_bytes(&self) -> u64 {
        self.key_bytes + self.row_bytes + self.documents * DOCUMENT_OVERHEAD_BYTES
    }
}
