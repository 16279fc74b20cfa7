//! Optimistic reads of a shared copy, whose memory may be reused at any moment.
//!
//! A reader follows an address only after a check that it is inside the memory, and copies a record
//! before it looks at the record's key. The reader may use the copy if the space's reuse word is
//! still as it was before the root was loaded: see [`ReuseCount`].

use std::sync::atomic::{Ordering, fence};

use forebay_core::Result;

use super::directory::Root;
use super::group::Group;
use super::record::{Record, short_header};
use super::scratch::Scratch;
use super::search::Search;
use super::slot;
use super::spilled_record::read_spilled_record;
use crate::image::damaged;
use crate::key::SeededHash;
use crate::memory::{CHUNK_BYTES_MAX, Memory, is_spilled};
use crate::schedule;

/// The value of the reuse word when a read began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReuseCount(u64);

impl ReuseCount {
    /// Loads the reuse word; must precede the load of the root.
    #[inline]
    pub(crate) fn load(memory: &Memory) -> Self {
        schedule::load();
        Self(memory.header().reuse.load(Ordering::Acquire))
    }

    /// Whether everything that was read since is what it was meant to be.
    #[inline]
    pub(crate) fn is_unchanged(self, memory: &Memory) -> bool {
        // Pairs with the fence of `Memory::note_reuse`.
        fence(Ordering::Acquire);
        schedule::load();
        schedule::compared(memory.header().reuse.load(Ordering::Relaxed) == self.0)
    }
}

/// Copies the record at an address.
///
/// # Errors
/// `Corrupt` for bytes that can be no record; in most cases the record's memory was reused.
fn copy<'s>(memory: &Memory, address: u64, scratch: &'s Scratch) -> Result<Record<'s>> {
    if is_spilled(address) {
        return read_spilled_record(memory, address, scratch);
    }
    let load = |word_address: u64| {
        memory.verify(word_address, 8)?;
        // SAFETY: the word is in opened addresses, which are never taken back while they are
        // mapped. Any concurrent change happens by whole words, or is detected afterwards.
        Ok(unsafe { memory.word(word_address) }.load(Ordering::Relaxed))
    };
    let mut record_address = address;
    let mut word = load(record_address - record_address % 8)?;
    let mut number = || {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            if record_address.is_multiple_of(8) {
                word = load(record_address)?;
            }
            let byte = (word >> (record_address % 8 * 8)) as u8;
            record_address += 1;
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
        return Err(damaged("a record is too long"));
    }
    memory.verify(record_address, key + row)?;
    // SAFETY: the bytes were just checked to be inside.
    let (key, row) =
        unsafe { copy_bytes(memory, record_address, bytes, scratch) }.split_at(key_bytes);
    Ok(Record { key, row, bytes: record_address - address + bytes as u64 })
}

/// Copies bytes.
///
/// # Safety
/// The bytes are in opened addresses.
#[inline]
unsafe fn copy_bytes<'s>(
    memory: &Memory,
    address: u64,
    bytes: usize,
    scratch: &'s Scratch,
) -> &'s [u8] {
    let (first, skipped_bytes) = (address - address % 8, (address % 8) as usize);
    let words = scratch.words((skipped_bytes + bytes).div_ceil(8));
    for (place, copy) in words.iter_mut().enumerate() {
        // SAFETY: the caller's promise; opened addresses end with a whole word, and are never taken
        // back while they are mapped.
        *copy = unsafe { memory.word(first + 8 * place as u64) }.load(Ordering::Relaxed).to_le();
    }
    // SAFETY: the words were written above, and any byte is valid; the slice borrows from
    // `scratch`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>().add(skipped_bytes), bytes) }
}

impl Search {
    /// Copies the key's row, if its record is the likely one; otherwise only [`Search::end_copied`]
    /// can find it. The copy must be validated as that of [`Search::end_copied`].
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
        let (first, skipped_bits) = (address - address % 8, 8 * (address % 8) as u32);
        memory.verify(first, 16).ok()?;
        // SAFETY: the words were just checked to be inside.
        let load = |word_address| unsafe { memory.word(word_address) }.load(Ordering::Relaxed);
        let head = match skipped_bits {
            0 => load(first),
            _ => load(first) >> skipped_bits | load(first + 8) << (64 - skipped_bits),
        };
        let (header, row) = short_header(head.to_le_bytes().first_chunk()?, key.len())?;
        let bytes = key.len() + row;
        memory.verify(address + header, bytes as u64).ok()?;
        // SAFETY: as above.
        let copied = unsafe { copy_bytes(memory, address + header, bytes, scratch) };
        let (found, row) = copied.split_at(key.len());
        (found == key).then_some(row)
    }

    /// Copies the key's record. The result, also an error, is valid only if no memory was reused
    /// since before the root was loaded.
    ///
    /// # Errors
    /// `Corrupt`.
    ///
    /// # Safety
    /// The search began in this memory, which is live: each address is therefore checked to be
    /// inside before it is followed.
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

    /// Returns the address and the bytes of the key's record if it is in a segment and has this
    /// row. The result must be validated as that of [`Search::end_copied`].
    ///
    /// # Errors
    /// `Corrupt`.
    ///
    /// # Safety
    /// As [`Search::end_copied`].
    pub(crate) unsafe fn end_equal(
        &self,
        memory: &Memory,
        (key, row): (&[u8], &[u8]),
        scratch: &Scratch,
    ) -> Result<Option<(u64, u64)>> {
        // SAFETY: the caller's promise.
        let record = unsafe {
            self.end_by(memory, |group, word| {
                let address = slot::address(word);
                let is_inline = group.place().is_inline() && group.place().holds(address);
                // Another record may take its place in the bucket of a group.
                if is_spilled(address) || is_inline {
                    return Ok(None);
                }
                let record = copy(memory, address, scratch)?;
                let is_match = record.key == key;
                Ok(is_match.then_some((address, record.bytes, record.row == row)))
            })
        }?;
        Ok(record.and_then(|(address, bytes, is_equal)| is_equal.then_some((address, bytes))))
    }
}

/// As [`keys_from`](super::keys_from), by copies, which must be validated in the same way.
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
    let last = root.last_hash_with(from);
    let mut scratch = Scratch::default();
    // SAFETY: as in `end_copied`.
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
