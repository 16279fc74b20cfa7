//! The hash by which a table finds keys.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A seeded hash, used only inside the index: keys of one partition differ little in the partition
/// hash, and a secret seed prevents a sender of keys from choosing collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededHash(u64);

impl SeededHash {
    pub(crate) fn new(seed: u64) -> Self {
        // This is never the partition hash, which is the same function with seed 0.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the hash that an image was written with.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed, which identifies the hash.
    pub(crate) fn seed(self) -> u64 {
        self.0
    }

    /// Hashes a key's identity bytes.
    #[inline]
    pub(crate) fn of(self, identity: &[u8]) -> u64 {
        xxh3_64_with_seed(identity, self.0)
    }
}
