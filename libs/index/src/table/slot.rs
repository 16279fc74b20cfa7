//! Slots: one word with a record's address, and enough of its key's hash to be wrong only rarely.
//!
//! | bits | content |
//! |---|---|
//! | 0 to 42 | the record's address; bit 42 is set for a spilled record |
//! | 43 to 47 | the cache lines that the record spans, 31 for more |
//! | 48 to 63 | the tag: 16 bits of the hash, never 0 |

use crate::memory::is_spilled;

/// A slot that was never used: a search ends at its bucket.
pub(super) const EMPTY: u64 = 0;
/// A slot whose record was deleted: a search continues.
pub(super) const DELETED: u64 = 31 << LINES_SHIFT;

const LINES_SHIFT: u32 = 43;
const TAG_SHIFT: u32 = 48;
const LINES_MAX: u64 = 31;
const LINE_BYTES: u64 = 64;

/// Packs a slot for a record of `bytes` bytes.
pub(super) fn pack(tag: u16, address: u64, bytes: u64) -> u64 {
    let lines = (address % LINE_BYTES + bytes).div_ceil(LINE_BYTES).min(LINES_MAX);
    u64::from(tag) << TAG_SHIFT | lines << LINES_SHIFT | address
}

#[inline]
pub(super) fn tag(slot: u64) -> u16 {
    (slot >> TAG_SHIFT) as u16
}

#[inline]
pub(super) fn address(slot: u64) -> u64 {
    slot & ((1 << LINES_SHIFT) - 1)
}

/// Whether a slot has this tag and names a record at this address.
#[inline]
pub(super) fn names(slot: u64, tag: u16, address: u64) -> bool {
    slot & !(LINES_MAX << LINES_SHIFT) == u64::from(tag) << TAG_SHIFT | address
}

/// Returns the addresses of the cache lines that a record in memory spans, 31 at most.
#[inline]
pub(super) fn lines(slot: u64) -> impl Iterator<Item = u64> {
    let first = address(slot) / LINE_BYTES;
    let count = if is_spilled(slot) { 0 } else { slot >> LINES_SHIFT & LINES_MAX };
    (first..first + count).map(|line| line * LINE_BYTES)
}

/// Returns the most bytes that a record takes, by its slot; `None` for a long record.
pub(super) fn bytes_max(slot: u64) -> Option<u64> {
    let lines = slot >> LINES_SHIFT & LINES_MAX;
    (lines < LINES_MAX).then_some(lines * LINE_BYTES)
}

/// The tag of a hash.
#[inline]
pub(super) fn tag_of(hash: u64) -> u16 {
    (hash as u16).max(1)
}

/// Whether the slot names a record.
#[inline]
pub(super) fn is_live(slot: u64) -> bool {
    tag(slot) != 0
}
