//! Bucket groups: 1,024 slots in 128 buckets of one cache line each, or 768 slots in 256 buckets
//! that also contain small records (`group_layout`).
//!
//! A search starts at the bucket that the key's hash names and continues with the next bucket,
//! around the group, while buckets are full. A used slot never becomes empty again while a search
//! may rely on its bucket being full; a group with too many deleted slots is rewritten.

use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::group_layout::{GroupRef, INLINE_RECORD_BYTES_MAX, ROOM};
use super::record::Record;
use super::scratch::Scratch;
use super::slot;
use super::spilled_record::record;
use crate::memory::Memory;
use crate::schedule;

/// Cache lines of one record that are prefetched; the rest of a long record is read in order
/// anyway.
const LINES_AT_ONCE: usize = 8;
const LINE_BYTES: u64 = 64;

/// The order of a slot's store. The weaker order, a planted fault, proves that ThreadSanitizer
/// detects a reader that may find a slot before the record that it names.
const PUBLISHED: Ordering =
    if cfg!(forebay_planted = "race") { Ordering::Relaxed } else { Ordering::Release };

/// A group in memory, as a reader sees it.
#[derive(Clone, Copy)]
pub(super) struct Group<'g> {
    memory: &'g Memory,
    at: GroupRef,
}

impl<'g> Group<'g> {
    /// # Safety
    /// The address is that of a group which is in use, or was in use at some time since the
    /// caller's guard was entered, and its bytes were verified.
    #[inline]
    pub(super) unsafe fn at(memory: &'g Memory, at: GroupRef) -> Self {
        Self { memory, at }
    }

    /// The group's address and form.
    #[inline]
    pub(super) fn place(&self) -> GroupRef {
        self.at
    }

    #[inline]
    fn load(&self, slot: u64) -> u64 {
        // SAFETY: a slot of a group in use; slots are only ever accessed as atomics.
        unsafe { self.memory.word(slot) }.load(Ordering::Relaxed)
    }

    /// Loads a slot whose record will be read. The load is sequentially consistent, as all loads on
    /// the path to a record are. A guard's announcement is sequentially consistent, too, so one of
    /// the two sees the other.
    #[inline]
    fn load_to_follow(&self, slot: u64) -> u64 {
        // SAFETY: as above.
        unsafe { self.memory.word(slot) }.load(Ordering::SeqCst)
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let bucket = self.at.bucket(hash, 0);
        self.memory.prefetch(bucket);
        if self.at.is_inline() {
            self.memory.prefetch(bucket + LINE_BYTES);
        }
    }

    /// Returns the word of the first slot in the key's bucket with its tag: most likely the key's
    /// own.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<u64> {
        let (bucket, tag) = (self.at.bucket(hash, 0), slot::tag_of(hash));
        let tagged = self.look(bucket, |word| slot::tag(word) == tag).0;
        if tagged == 0 {
            return None;
        }
        let place = tagged.trailing_zeros();
        let word = self.load_to_follow(bucket + 8 * u64::from(place));
        (slot::tag(word) == tag).then_some(word)
    }

    /// Returns which slots of a bucket match, a bit for each, and whether no slot is empty. The
    /// loop has no branch, because the processor cannot predict which slot matches.
    #[inline(always)]
    fn look(&self, bucket: u64, is_match: impl Fn(u64) -> bool) -> (u32, bool) {
        if self.at.is_inline() {
            self.look_at::<3>(bucket, is_match)
        } else {
            self.look_at::<8>(bucket, is_match)
        }
    }

    #[inline(always)]
    fn look_at<const SLOTS: u64>(
        &self,
        bucket: u64,
        is_match: impl Fn(u64) -> bool,
    ) -> (u32, bool) {
        let (mut matching, mut is_full) = (0, true);
        for place in 0..SLOTS {
            let word = self.load(bucket + 8 * place);
            matching |= u32::from(is_match(word)) << place;
            is_full &= word != slot::EMPTY;
        }
        (matching, is_full)
    }

    /// Returns the record of a slot's word, if it is the key's.
    pub(super) fn record_of(
        &self,
        word: u64,
        key: &[u8],
        scratch: &'g Scratch,
    ) -> Result<Option<Record<'g>>> {
        let record = self.record(word, scratch)?;
        Ok((record.key == key).then_some(record))
    }

    /// Returns the result of `take` for the first slot with a key's tag that `take` accepts.
    #[inline]
    pub(super) fn find_by<T>(
        &self,
        hash: u64,
        mut take: impl FnMut(u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.find_slot_by(hash, |_, word| take(word))
    }

    /// As [`Group::find_by`], with the slot's address.
    #[inline]
    fn find_slot_by<T>(
        &self,
        hash: u64,
        mut take: impl FnMut(u64, u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let tag = slot::tag_of(hash);
        for step in 0..self.at.buckets() {
            let bucket = self.at.bucket(hash, step);
            let (mut tagged, is_full) = self.look(bucket, |word| slot::tag(word) == tag);
            while tagged != 0 {
                let slot_address = bucket + 8 * u64::from(tagged.trailing_zeros());
                tagged &= tagged - 1;
                let word = self.load_to_follow(slot_address);
                if slot::tag(word) == tag {
                    // Otherwise the rest would arrive only after the first line has given the
                    // length.
                    self.prefetch_record(word);
                    let result = take(slot_address, word)?;
                    if result.is_some() {
                        return Ok(result);
                    }
                }
            }
            if !is_full {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Prefetches the cache lines of the record of a slot's word.
    #[inline]
    pub(super) fn prefetch_record(&self, word: u64) {
        slot::lines(word).take(LINES_AT_ONCE).for_each(|line| self.memory.prefetch(line));
    }

    /// Returns the record of a slot's word.
    pub(super) fn record(&self, word: u64, scratch: &'g Scratch) -> Result<Record<'g>> {
        // SAFETY: a published word names a record that stays while the caller's guard is held.
        unsafe { record(self.memory, slot::address(word), scratch) }
    }

    /// Returns the slot of a key, its word and its record. For the writer, under which nothing
    /// moves.
    pub(super) fn locate(
        &self,
        hash: u64,
        key: &[u8],
        scratch: &'g Scratch,
    ) -> Result<Option<(u64, u64, Record<'g>)>> {
        self.find_slot_by(hash, |slot_address, word| {
            Ok(self.record_of(word, key, scratch)?.map(|record| (slot_address, word, record)))
        })
    }

    /// Returns the slot that names this address, for a key with this hash.
    pub(super) fn slot_of(&self, hash: u64, address: u64) -> Option<u64> {
        let tag = slot::tag_of(hash);
        for step in 0..self.at.buckets() {
            let bucket = self.at.bucket(hash, step);
            let (matching, is_full) = self.look(bucket, |word| slot::names(word, tag, address));
            if matching != 0 {
                return Some(bucket + 8 * u64::from(matching.trailing_zeros()));
            }
            if !is_full {
                break;
            }
        }
        None
    }

    /// Returns the first slot that a new key with this hash may take.
    fn free_slot(&self, hash: u64) -> Option<u64> {
        (0..self.at.buckets()).find_map(|step| {
            let bucket = self.at.bucket(hash, step);
            let (free, _) = self.look(bucket, |word| !slot::is_live(word));
            (free != 0).then(|| bucket + 8 * u64::from(free.trailing_zeros()))
        })
    }

    /// Publishes a word: a reader that loads the word sees the record that was written before.
    pub(super) fn store(&self, slot_address: u64, word: u64) {
        schedule::store();
        // SAFETY: a slot of a group in use; slots are only ever accessed as atomics.
        unsafe { self.memory.word(slot_address) }.store(word, PUBLISHED);
        schedule::stored_slot();
    }

    /// Returns the value of a slot whose record is removed: empty if no search relies on its bucket
    /// being full.
    pub(super) fn word_after_removal(&self, slot_address: u64) -> u64 {
        let bucket = slot_address - slot_address % self.at.bucket_bytes();
        let mut words = (0..self.at.slots()).map(|place| self.load(bucket + 8 * place));
        if words.any(|word| word == slot::EMPTY) { slot::EMPTY } else { slot::DELETED }
    }

    /// Puts a word that is not in the group into the first free slot for its hash. Returns the
    /// slot's previous value, or `None` in a group without a free slot.
    pub(super) fn put(&self, hash: u64, word: u64) -> Option<u64> {
        let slot_address = self.free_slot(hash)?;
        let previous = self.load(slot_address);
        self.store(slot_address, word);
        Some(previous)
    }

    /// Takes room in its bucket for a record of a key with this hash, in an inline group. Returns
    /// the address, or `None` if there is no room. A crash after this call leaks the room, and
    /// nothing else.
    pub(super) fn take_room(&self, hash: u64, bytes: u64) -> Option<u64> {
        if !self.at.is_inline() || bytes > INLINE_RECORD_BYTES_MAX {
            return None;
        }
        let bucket = self.at.bucket(hash, 0);
        // SAFETY: a byte of a group in use that only writers access.
        let used = unsafe { self.memory.byte(bucket + ROOM.end) };
        let start = ROOM.start + u64::from(used.load(Ordering::Relaxed));
        if start + bytes > ROOM.end {
            return None;
        }
        used.store((start + bytes - ROOM.start) as u8, Ordering::Relaxed);
        Some(bucket + start)
    }

    /// Counts the slots that are not empty, and those with a record.
    pub(super) fn counts(&self) -> (u32, u32) {
        self.slots().map(|slot_address| self.load(slot_address)).fold(
            (0, 0),
            |(filled, live), word| {
                (filled + u32::from(word != slot::EMPTY), live + u32::from(slot::is_live(word)))
            },
        )
    }

    /// The addresses of all slots.
    fn slots(self) -> impl Iterator<Item = u64> {
        let buckets =
            (0..self.at.buckets()).map(move |n| self.at.address() + n * self.at.bucket_bytes());
        buckets.flat_map(move |bucket| (0..self.at.slots()).map(move |place| bucket + 8 * place))
    }

    /// The words of all slots with a record.
    pub(super) fn words(self) -> impl Iterator<Item = u64> {
        let words = self.slots().map(move |slot_address| self.load_to_follow(slot_address));
        words.filter(|word| slot::is_live(*word))
    }
}
