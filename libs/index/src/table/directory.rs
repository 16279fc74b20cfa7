//! Directories: the map from a hash's top bits to its bucket group.
//!
//! A directory of depth d has 2^d entries; several of them may name one group, until it is split.
//! Readers find the directory through one word, the root: depth and address, so that both change in
//! one step. At depth 0 there is no directory: the root names the only group. The root 0 is a table
//! without any group.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Result;

use super::group::Group;
use super::group_layout::GroupRef;
use crate::image::damaged;
use crate::memory::{BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Memory};
use crate::schedule;

/// Depth of a directory that fills one chunk: more groups than an index has addresses, and few
/// enough that a hash has bits left for buckets and tags.
pub(super) const DEPTH_MAX: u32 = 26;
/// Bytes of an entry: a group's address in units of the smallest chunk, and its form.
pub(super) const ENTRY_BYTES: u64 = 4;

const DEPTH_SHIFT: u32 = 58;

const _: () = assert!(ENTRY_BYTES << DEPTH_MAX <= CHUNK_BYTES_MAX, "a directory is one chunk");

/// The root of a table: the first word that a reader loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root(u64);

impl Root {
    /// The root of a table without any group.
    pub(crate) const NONE: Self = Self(0);

    /// Creates the root of a directory.
    pub(super) fn new(depth: u32, address: u64) -> Self {
        Self(u64::from(depth) << DEPTH_SHIFT | address)
    }

    /// Creates the root of a table with one group.
    pub(super) fn of_group(group: GroupRef) -> Self {
        Self(group.word())
    }

    /// The only group of a table without directory.
    pub(super) fn only_group(self) -> GroupRef {
        GroupRef::of_word(self.0)
    }

    /// Decodes the root of an image's table.
    ///
    /// # Errors
    /// `Corrupt` for an impossible root.
    pub(super) fn from_image(word: u64) -> Result<Self> {
        let root = Self(word);
        let address = if root.depth() == 0 { root.only_group().address() } else { root.address() };
        let is_sound = root.depth() <= DEPTH_MAX
            && (BLOCK_BYTES..1 << DEPTH_SHIFT).contains(&address)
            && address.is_multiple_of(CHUNK_BYTES_MIN);
        if is_sound || root == Self::NONE { Ok(root) } else { Err(damaged("the root is invalid")) }
    }

    /// The root as an image stores it.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn depth(self) -> u32 {
        (self.0 >> DEPTH_SHIFT) as u32
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0 & ((1 << DEPTH_SHIFT) - 1)
    }

    /// Loads the root that a partition's readers see.
    #[inline]
    pub(crate) fn load(cell: &AtomicU64) -> Self {
        schedule::load();
        // This is sequentially consistent, as all loads on the path to a record: see
        // `Group::load_to_follow`.
        Self(cell.load(Ordering::SeqCst))
    }

    /// Publishes this root, and everything written before that it leads to.
    pub(crate) fn store_release(self, cell: &AtomicU64) {
        schedule::store();
        cell.store(self.0, Ordering::Release);
    }

    /// Returns the address of the entry for a hash; `None` without a directory.
    #[inline]
    fn entry(self, hash: u64) -> Option<u64> {
        let depth = self.depth();
        (depth > 0).then(|| self.address() + (hash >> (64 - depth)) * ENTRY_BYTES)
    }

    /// Returns the first hash of an entry.
    pub(super) fn first_hash(self, entry: usize) -> u64 {
        (entry as u64).checked_shl(64 - self.depth()).unwrap_or(0)
    }

    /// Returns the last hash that has the same entry as this one.
    pub(super) fn last_hash_with(self, hash: u64) -> u64 {
        let width = 1_u64.checked_shl(64 - self.depth());
        width.map_or(u64::MAX, |width| hash | (width - 1))
    }

    /// Prefetches the directory's cache line for a hash.
    #[inline]
    pub(crate) fn prefetch(self, memory: &Memory, hash: u64) {
        if let Some(entry) = self.entry(hash) {
            memory.prefetch(entry);
        }
    }

    /// Returns the group of a hash; `None` in a table without any.
    ///
    /// # Errors
    /// `Corrupt` if an image is damaged.
    ///
    /// # Safety
    /// The root was loaded under the caller's guard, which has been held since, or belongs to the
    /// caller's own table.
    #[inline(always)]
    pub(super) unsafe fn group(self, memory: &Memory, hash: u64) -> Result<Option<Group<'_>>> {
        if self == Self::NONE {
            return Ok(None);
        }
        let group_ref = match self.entry(hash) {
            Some(entry) => {
                memory.verify(entry, ENTRY_BYTES)?;
                // SAFETY: an entry of a directory in use; entries are only accessed as atomics.
                GroupRef::of_entry(unsafe { memory.half_word(entry) }.load(Ordering::SeqCst))
            }
            None => self.only_group(),
        };
        memory.verify(group_ref.address(), group_ref.bytes())?;
        // SAFETY: the directory names groups in use.
        Ok(Some(unsafe { Group::at(memory, group_ref) }))
    }
}
