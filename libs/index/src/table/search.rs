//! The search for a key's record: root, directory, group, slot, record.

use forebay_core::Result;

use super::directory::Root;
use super::group::Group;
use super::group_layout::GroupRef;
use super::record::Record;
use super::scratch::Scratch;
use super::{record, slot};
use crate::key::SeededHash;
use crate::memory::{Memory, is_spilled};

/// A search for a key's record, in the table that begins at a root. The search is split into calls,
/// so that many searches take each step together and their cache lines arrive at the same time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Search {
    pub(super) root: Root,
    pub(super) hash: u64,
    /// The hash's group; none until its bucket was prefetched.
    pub(super) group: GroupRef,
    /// The slot that is most likely the key's; 0 if none is known.
    pub(super) likely: u64,
}

impl Search {
    /// Starts a search; prefetches the directory entry.
    #[inline]
    pub(crate) fn begin(memory: &Memory, root: Root, hash: u64) -> Self {
        root.prefetch(memory, hash);
        Self { root, hash, group: GroupRef::NONE, likely: slot::EMPTY }
    }

    /// Prefetches the bucket. Damage is reported at the end of the search.
    ///
    /// # Safety
    /// The search began in this memory, and one of these holds:
    /// - the root was loaded from its cell while a guard has been held since;
    /// - the memory is live, and the result is used only if no memory was reused since before the
    ///   root was loaded;
    /// - the memory is the writer's own.
    #[inline(always)]
    pub(crate) unsafe fn prefetch_bucket(&mut self, memory: &Memory) {
        // SAFETY: the caller's promise.
        if let Ok(Some(group)) = unsafe { self.root.group(memory, self.hash) } {
            group.prefetch(self.hash);
            self.group = group.place();
        }
    }

    /// Prefetches the record that is most likely the key's.
    ///
    /// # Safety
    /// As [`Search::prefetch_bucket`].
    #[inline(always)]
    pub(crate) unsafe fn prefetch_record(&mut self, memory: &Memory) {
        if self.group != GroupRef::NONE {
            // SAFETY: the caller's promise; the group was verified.
            let group = unsafe { Group::at(memory, self.group) };
            // A spilled record is never the likely one: only [`Search::end`] reads it, if it may
            // wait for disk.
            if let Some(word) = group.likely(self.hash).filter(|word| !is_spilled(*word)) {
                group.prefetch_record(word);
                self.likely = word;
            }
        }
    }

    /// Returns the key's row if its record is the likely one; otherwise only [`Search::end`] can
    /// find it.
    ///
    /// # Safety
    /// As [`Search::end`].
    #[inline(always)]
    pub(crate) unsafe fn likely_row<'g>(&self, memory: &'g Memory, key: &[u8]) -> Option<&'g [u8]> {
        if self.likely == slot::EMPTY {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { record::row_of(memory, slot::address(self.likely), key) }
    }

    /// Returns the key's record; a copy if it is spilled.
    ///
    /// # Errors
    /// `Corrupt` if the table is from an image, or the record is spilled, and the bytes are
    /// damaged; `Unavailable` if the disk cannot be read.
    ///
    /// # Safety
    /// As [`Search::prefetch_bucket`], with a guard that outlives `'g`; not for shared memory.
    #[inline(never)]
    pub(crate) unsafe fn end<'g>(
        &self,
        memory: &'g Memory,
        key: &[u8],
        scratch: &'g Scratch,
    ) -> Result<Option<Record<'g>>> {
        // SAFETY: the caller's promise.
        unsafe { self.end_by(memory, |group, word| group.record_of(word, key, scratch)) }
    }

    /// Returns the result of `take` for the first slot with the key's tag that `take` accepts.
    ///
    /// # Safety
    /// As [`Search::prefetch_bucket`].
    #[inline]
    pub(super) unsafe fn end_by<'g, T>(
        &self,
        memory: &'g Memory,
        take: impl Fn(&Group<'g>, u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let group = match self.group {
            // SAFETY: the caller's promise.
            GroupRef::NONE => unsafe { self.root.group(memory, self.hash) }?,
            // SAFETY: as above; the group was verified.
            group_ref => Some(unsafe { Group::at(memory, group_ref) }),
        };
        let Some(group) = group else { return Ok(None) };
        group.find_by(self.hash, |word| take(&group, word))
    }
}

/// Visits the keys of all records whose hash is in the directory entry of `from`, but not below
/// `from`. Returns the first hash after that entry; `None` is the end.
///
/// # Safety
/// As [`Search::prefetch_bucket`].
pub(crate) unsafe fn keys_from(
    memory: &Memory,
    root: Root,
    hash: SeededHash,
    from: u64,
    mut visit: impl FnMut(&[u8]),
) -> Result<Option<u64>> {
    let last = root.last_hash_with(from);
    let mut scratch = Scratch::default();
    // SAFETY: the caller's promise.
    if let Some(group) = unsafe { root.group(memory, from) }? {
        for word in group.words() {
            let key = Group::record(&group, word, &scratch)?.key;
            if (from..=last).contains(&hash.of(key)) {
                visit(key);
            }
            scratch.clear();
        }
    }
    Ok(last.checked_add(1))
}
