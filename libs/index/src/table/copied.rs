//! Reads of a table whose memory may be used again at any moment: of a live copy.
//!
//! Whatever is followed is first found to lie inside of the memory, and a record is copied before
//! its key is looked at. What comes of it may be believed once the space's word of reuse is found
//! as it was before the root was loaded: see [`Reused`].

use std::sync::atomic::{Ordering, fence};

use forebay_core::Result;

use super::record::{Record, short_header};
use super::scratch::Scratch;
use super::spilled::spilled;
use super::{Group, Root, Search, slot};
use crate::image::damaged;
use crate::memory::{CHUNK_BYTES_MAX, Memory, is_spilled};
use crate::schedule;
use crate::storage::SeededHash;

/// How often memory had been taken back for new use when a read began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reused(u64);

impl Reused {
    /// Must come before the root is loaded.
    #[inline]
    pub(crate) fn before(memory: &Memory) -> Self {
        schedule::load();
        Self(memory.words().reuse.load(Ordering::Acquire))
    }

    /// Whether everything that was read since is what it was meant to be.
    #[inline]
    pub(crate) fn is_unchanged(self, memory: &Memory) -> bool {
        // Pairs with the fence of `Memory::note_reuse`.
        fence(Ordering::Acquire);
        schedule::load();
        schedule::compared(memory.words().reuse.load(Ordering::Relaxed) == self.0)
    }
}

/// A copy of the record at an address.
///
/// # Errors
/// `Corrupt` for what can be no record; then, most often, it is none any more.
pub(super) fn copy<'s>(memory: &Memory, address: u64, scratch: &'s Scratch) -> Result<Record<'s>> {
    if is_spilled(address) {
        return spilled(memory, address, scratch);
    }
    let load = |at: u64| {
        memory.prove(at, 8)?;
        // SAFETY: the word lies in addresses that are opened and never taken back while they are
        // mapped; whatever happens there happens by whole words, or is noticed afterwards.
        Ok(unsafe { memory.word(at) }.load(Ordering::Relaxed))
    };
    let mut at = address;
    let mut word = load(at - at % 8)?;
    let mut number = || {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            if at.is_multiple_of(8) {
                word = load(at)?;
            }
            let byte = (word >> (at % 8 * 8)) as u8;
            at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 28 {
                return Ok(number);
            }
        }
    };
    let (key, row) = (number()?, number()?);
    let (key_bytes, bytes) = (key as usize, (key + row) as usize);
    if key + row > CHUNK_BYTES_MAX {
        return Err(damaged("a record that is too long"));
    }
    memory.prove(at, key + row)?;
    // SAFETY: they were just proved to lie inside.
    let (key, row) = unsafe { copy_bytes(memory, at, bytes, scratch) }.split_at(key_bytes);
    Ok(Record { key, row, bytes: at - address + bytes as u64 })
}

/// A copy of some bytes.
///
/// # Safety
/// They lie in addresses that are opened.
#[inline]
unsafe fn copy_bytes<'s>(memory: &Memory, at: u64, bytes: usize, scratch: &'s Scratch) -> &'s [u8] {
    let (first, skipped) = (at - at % 8, (at % 8) as usize);
    let words = scratch.words((skipped + bytes).div_ceil(8));
    for (place, copy) in words.iter_mut().enumerate() {
        // SAFETY: the caller's promise; what is opened ends with a whole word, and is never taken
        // back while it is mapped.
        *copy = unsafe { memory.word(first + 8 * place as u64) }.load(Ordering::Relaxed).to_le();
    }
    // SAFETY: the words were written above, and any byte is one; they are borrowed from `scratch`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>().add(skipped), bytes) }
}

impl Search {
    /// A copy of the key's row, if its record is the likely one; to be believed as that of
    /// [`Search::end_copied`], which can tell where this cannot.
    ///
    /// # Safety
    /// As [`Search::end_copied`].
    #[inline(always)]
    pub(crate) unsafe fn likely_copied<'s>(
        &self,
        memory: &Memory,
        key: &[u8],
        scratch: &'s Scratch,
    ) -> Option<&'s [u8]> {
        if self.likely == slot::EMPTY {
            return None;
        }
        let address = slot::address(self.likely);
        let (first, skipped) = (address - address % 8, 8 * (address % 8) as u32);
        memory.prove(first, 16).ok()?;
        // SAFETY: it was just proved to lie inside.
        let load = |at| unsafe { memory.word(at) }.load(Ordering::Relaxed);
        let head = match skipped {
            0 => load(first),
            _ => load(first) >> skipped | load(first + 8) << (64 - skipped),
        };
        let (header, row) = short_header(head.to_le_bytes().first_chunk()?, key.len())?;
        let bytes = key.len() + row;
        memory.prove(address + header, bytes as u64).ok()?;
        // SAFETY: as above.
        let copied = unsafe { copy_bytes(memory, address + header, bytes, scratch) };
        let (found, row) = copied.split_at(key.len());
        (found == key).then_some(row)
    }

    /// A copy of the key's record. To be believed only if nothing was used again since before the
    /// root was loaded; so is an error.
    ///
    /// # Errors
    /// `Corrupt`.
    ///
    /// # Safety
    /// The search began in this memory, which is live: so each address is proved to lie inside
    /// before it is followed.
    #[inline]
    pub(crate) unsafe fn end_copied<'s>(
        &self,
        memory: &Memory,
        key: &[u8],
        scratch: &'s Scratch,
    ) -> Result<Option<Record<'s>>> {
        let take = |_: &Group<'_>, word| {
            let found = copy(memory, slot::address(word), scratch)?;
            Ok((found.key == key).then_some(found))
        };
        // SAFETY: the caller's promise.
        unsafe { self.end_by(memory, take) }
    }
}

/// As [`keys_from`](super::keys_from), by copies; to be believed like them.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn keys_copied_from(
    memory: &Memory,
    root: Root,
    hash: SeededHash,
    from: u64,
    mut visit: impl FnMut(&[u8]),
) -> Result<Option<u64>> {
    let last = root.last_hash_beside(from);
    let mut scratch = Scratch::default();
    // SAFETY: as in `find_copied`.
    if let Some(group) = unsafe { root.group(memory, from) }? {
        for word in group.words() {
            let key = copy(memory, slot::address(word), &scratch)?.key;
            if (from..=last).contains(&hash.of(key)) {
                visit(key);
            }
            scratch.clear();
        }
    }
    Ok(last.checked_add(1))
}
