//! Where a group lies, and which of two forms it has.
//!
//! A *plain* group is 128 buckets of one line: eight slots each. An *inline* group is 256 buckets
//! of two lines: three slots, room for the records of the keys that begin their search there, and a
//! byte that says how much of that is used. Both lines are asked for at once, so a small record is
//! there as soon as its slot. It takes more memory for each document, so only small records are
//! worth it.

use std::ops::Range;

use crate::memory::{CHUNK_BYTES_MIN, Chunk};

/// Bytes of a plain group: the smallest chunk.
const PLAIN_BYTES: u64 = CHUNK_BYTES_MIN;
/// Bytes of an inline group.
const INLINE_BYTES: u64 = 4 * CHUNK_BYTES_MIN;
/// The bit of a group's word that says that it is inline.
const INLINE: u64 = 1;
/// The bit of a directory's entry that says so.
const INLINE_ENTRY: u32 = 1 << 31;
/// The part of its slots, in per cent, beyond which a group is full.
const FULL_PERCENT: u64 = 85;
const PLAIN_BUCKETS: u64 = 128;
const PLAIN_SLOTS: u64 = 8;
const INLINE_BUCKETS: u64 = 256;
const INLINE_SLOTS: u64 = 3;
const BUCKET_SHIFT: u32 = 16;

/// The most bytes of a record that may lie in a bucket: two of them fit, or three of 34 bytes.
pub(super) const INLINE_RECORD_BYTES_MAX: u64 = 36;
/// Where in a bucket of an inline group its room begins and ends: behind it stands how much of it
/// is used.
pub(super) const ROOM: Range<u64> = 8 * INLINE_SLOTS..127;

/// The address of a group, with its form. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupAt(u64);

impl GroupAt {
    /// No group.
    pub(super) const NONE: Self = Self(0);

    /// The group that a chunk is.
    pub(super) fn of(chunk: &Chunk) -> Self {
        Self(chunk.address() | if chunk.bytes() == INLINE_BYTES { INLINE } else { 0 })
    }

    /// As a root without directory has it.
    pub(super) fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// See [`GroupAt::of_word`].
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// As a directory's entry has it.
    #[inline]
    pub(super) fn of_entry(entry: u32) -> Self {
        let address = u64::from(entry & !INLINE_ENTRY) * CHUNK_BYTES_MIN;
        Self(address | u64::from(entry >> 31))
    }

    /// See [`GroupAt::of_entry`].
    pub(super) fn entry(self) -> u32 {
        let inline = if self.is_inline() { INLINE_ENTRY } else { 0 };
        // Addresses have 43 bits, so this is a number of 30.
        (self.address() / CHUNK_BYTES_MIN) as u32 | inline
    }

    /// The chunk that it is; `None` where no such one can be.
    pub(super) fn chunk(self) -> Option<Chunk> {
        Chunk::of_image(self.address(), self.bytes())
    }

    #[inline]
    pub(super) fn is_inline(self) -> bool {
        self.0 & INLINE != 0
    }

    /// Where it begins.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0 & !INLINE
    }

    /// How long it is.
    #[inline]
    pub(super) fn bytes(self) -> u64 {
        bytes(self.is_inline())
    }

    /// Whether an address lies in it.
    pub(super) fn holds(self, address: u64) -> bool {
        (self.address()..self.address() + self.bytes()).contains(&address)
    }

    /// How many buckets it has.
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

    /// Where the bucket lies at which a search for this hash is after so many steps.
    #[inline]
    pub(super) fn bucket(self, hash: u64, step: u64) -> u64 {
        let number = (hash >> BUCKET_SHIFT).wrapping_add(step) & (self.buckets() - 1);
        self.address() + (number << (6 + (self.0 & INLINE)))
    }

    /// Slots in use, deleted ones included, beyond which it is split or written anew.
    pub(super) fn filled_max(self) -> u32 {
        filled_max(self.is_inline())
    }
}

/// Slots in use beyond which a group of a form is full.
pub(super) fn filled_max(is_inline: bool) -> u32 {
    let slots = match is_inline {
        true => INLINE_BUCKETS * INLINE_SLOTS,
        false => PLAIN_BUCKETS * PLAIN_SLOTS,
    };
    (slots * FULL_PERCENT / 100) as u32
}

/// Bytes of a group.
pub(super) fn bytes(is_inline: bool) -> u64 {
    if is_inline { INLINE_BYTES } else { PLAIN_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_the_same_as_a_word_an_entry_and_a_chunk() {
        for (address, is_inline) in [(1 << 21, false), (1 << 21, true), ((1 << 42) - 32_768, true)]
        {
            let chunk = Chunk::of_image(address, bytes(is_inline)).unwrap();
            let at = GroupAt::of(&chunk);
            assert_eq!((at.address(), at.is_inline()), (address, is_inline));
            assert_eq!(GroupAt::of_word(at.word()), at);
            assert_eq!(GroupAt::of_entry(at.entry()), at);
            assert_eq!(at.chunk(), Some(chunk));
            assert_eq!(at.buckets() * at.bucket_bytes(), at.bytes());
            assert!(at.holds(address) && !at.holds(address + at.bytes()));
        }
        // An inline group begins at a multiple of its own length.
        let crooked = GroupAt::of_word(((1 << 21) + CHUNK_BYTES_MIN) | INLINE);
        assert_eq!(crooked.chunk(), None);
    }
}
