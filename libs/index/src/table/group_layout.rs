//! The address of a group, and its form: plain or inline.
//!
//! A *plain* group is 128 buckets of one cache line: eight slots each. An *inline* group is 256
//! buckets of two cache lines: three slots, room for the records of the keys whose search begins
//! there, and a byte with the number of used bytes of the room. Both lines are prefetched together,
//! so a small record arrives together with its slot. An inline group takes more memory per
//! document, so it is worth its cost only for small records.

use std::ops::Range;

use crate::memory::{CHUNK_BYTES_MIN, Chunk};

/// Bytes of a plain group: the smallest chunk.
const PLAIN_BYTES: u64 = CHUNK_BYTES_MIN;
/// Bytes of an inline group.
const INLINE_BYTES: u64 = 4 * CHUNK_BYTES_MIN;
/// The bit of a group's word that marks an inline group.
const INLINE: u64 = 1;
/// The bit of a directory entry that marks an inline group.
const INLINE_ENTRY: u32 = 1 << 31;
/// The percentage of used slots beyond which a group is full.
const FULL_PERCENT: u64 = 85;
const PLAIN_BUCKETS: u64 = 128;
const PLAIN_SLOTS: u64 = 8;
const INLINE_BUCKETS: u64 = 256;
const INLINE_SLOTS: u64 = 3;
const BUCKET_SHIFT: u32 = 16;

/// Maximum bytes of a record in a bucket: two of them fit, or three of 34 bytes.
pub(super) const INLINE_RECORD_BYTES_MAX: u64 = 36;
/// The room of an inline group's bucket, as offsets; the byte after the room counts its used bytes.
pub(super) const ROOM: Range<u64> = 8 * INLINE_SLOTS..127;

/// The address of a group, with its form; 0 is no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupRef(u64);

impl GroupRef {
    /// No group.
    pub(super) const NONE: Self = Self(0);

    /// The group that occupies a chunk.
    pub(super) fn of(chunk: &Chunk) -> Self {
        Self(chunk.address() | if chunk.bytes() == INLINE_BYTES { INLINE } else { 0 })
    }

    /// Decodes the word of a root without directory.
    pub(super) fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// Encodes what [`GroupRef::of_word`] decodes.
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Decodes a directory entry.
    #[inline]
    pub(super) fn of_entry(entry: u32) -> Self {
        let address = u64::from(entry & !INLINE_ENTRY) * CHUNK_BYTES_MIN;
        Self(address | u64::from(entry >> 31))
    }

    /// Encodes what [`GroupRef::of_entry`] decodes.
    pub(super) fn entry(self) -> u32 {
        let inline = if self.is_inline() { INLINE_ENTRY } else { 0 };
        // An address has 43 bits, so the quotient has 30.
        (self.address() / CHUNK_BYTES_MIN) as u32 | inline
    }

    /// Returns the group's chunk; `None` if no such chunk can exist.
    pub(super) fn chunk(self) -> Option<Chunk> {
        Chunk::from_image(self.address(), self.bytes())
    }

    #[inline]
    pub(super) fn is_inline(self) -> bool {
        self.0 & INLINE != 0
    }

    /// The group's first address.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0 & !INLINE
    }

    /// The group's length.
    #[inline]
    pub(super) fn bytes(self) -> u64 {
        bytes(self.is_inline())
    }

    /// Whether an address is inside the group.
    pub(super) fn holds(self, address: u64) -> bool {
        (self.address()..self.address() + self.bytes()).contains(&address)
    }

    /// The number of buckets.
    #[inline]
    pub(super) fn buckets(self) -> u64 {
        if self.is_inline() { INLINE_BUCKETS } else { PLAIN_BUCKETS }
    }

    /// Bytes of a bucket.
    #[inline]
    pub(super) fn bucket_bytes(self) -> u64 {
        64 << (self.0 & INLINE)
    }

    /// Slots of a bucket.
    #[inline]
    pub(super) fn slots(self) -> u64 {
        if self.is_inline() { INLINE_SLOTS } else { PLAIN_SLOTS }
    }

    /// Returns the address of the bucket that a search for this hash reaches after this many steps.
    #[inline]
    pub(super) fn bucket(self, hash: u64, step: u64) -> u64 {
        let number = (hash >> BUCKET_SHIFT).wrapping_add(step) & (self.buckets() - 1);
        self.address() + (number << (6 + (self.0 & INLINE)))
    }

    /// Slots in use, deleted slots included, beyond which the group is split or rewritten.
    pub(super) fn filled_max(self) -> u32 {
        filled_max(self.is_inline())
    }
}

/// Returns the slots in use beyond which a group of a form is full.
pub(super) fn filled_max(is_inline: bool) -> u32 {
    let slots = match is_inline {
        true => INLINE_BUCKETS * INLINE_SLOTS,
        false => PLAIN_BUCKETS * PLAIN_SLOTS,
    };
    (slots * FULL_PERCENT / 100) as u32
}

/// Returns the bytes of a group.
pub(super) fn bytes(is_inline: bool) -> u64 {
    if is_inline { INLINE_BYTES } else { PLAIN_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_reference_converts_to_word_entry_and_chunk() {
        for (address, is_inline) in [(1 << 21, false), (1 << 21, true), ((1 << 42) - 32_768, true)]
        {
            let chunk = Chunk::from_image(address, bytes(is_inline)).unwrap();
            let group = GroupRef::of(&chunk);
            assert_eq!((group.address(), group.is_inline()), (address, is_inline));
            assert_eq!(GroupRef::of_word(group.word()), group);
            assert_eq!(GroupRef::of_entry(group.entry()), group);
            assert_eq!(group.chunk(), Some(chunk));
            assert_eq!(group.buckets() * group.bucket_bytes(), group.bytes());
            assert!(group.holds(address) && !group.holds(address + group.bytes()));
        }
        // An inline group begins at a multiple of its own length.
        let crooked = GroupRef::of_word(((1 << 21) + CHUNK_BYTES_MIN) | INLINE);
        assert_eq!(crooked.chunk(), None);
    }
}
