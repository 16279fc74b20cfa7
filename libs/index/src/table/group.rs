//! Bucket groups: 1,024 slots in 128 buckets of one cache line each, or 768 in 256 buckets where
//! small records lie beside their slots (`form`).
//!
//! A key starts at the bucket that its hash names and goes on to the next one, round the group,
//! while buckets are full. A slot that was ever used never becomes empty again while a search may
//! rely on its bucket being full; a group with too many deleted slots is written anew.

use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::form::{GroupAt, INLINE_RECORD_BYTES_MAX, ROOM};
use super::record::{Record, record};
use super::scratch::Scratch;
use super::slot;
use crate::memory::Memory;
use crate::schedule;

/// Lines of one record that are asked for ahead; the rest of a long one is read in order anyway.
const LINES_AT_ONCE: usize = 8;
const LINE_BYTES: u64 = 64;

/// How a slot is published. Planted, the weaker order proves that ThreadSanitizer sees a reader who
/// may find a slot before the record behind it.
const PUBLISHED: Ordering =
    if cfg!(forebay_planted = "race") { Ordering::Relaxed } else { Ordering::Release };

/// A group in place: as a reader sees it.
#[derive(Clone, Copy)]
pub(super) struct Group<'g> {
    memory: &'g Memory,
    at: GroupAt,
}

/// Where a key is, or where it may go.
pub(super) enum Place {
    /// In this slot, as this word.
    Held(u64, u64),
    /// Not in the group; this slot is free, and was deleted or never used.
    Free(u64, u64),
}

impl<'g> Group<'g> {
    /// # Safety
    /// There is a group which is in use, or was while the caller's guard has been held, and its
    /// bytes were proved.
    #[inline]
    pub(super) unsafe fn at(memory: &'g Memory, at: GroupAt) -> Self {
        Self { memory, at }
    }

    /// Where it lies.
    #[inline]
    pub(super) fn place(&self) -> GroupAt {
        self.at
    }

    #[inline]
    fn load(&self, slot: u64) -> u64 {
        // SAFETY: a slot of a group in use; slots are only ever touched as atomics.
        unsafe { self.memory.word(slot) }.load(Ordering::Relaxed)
    }

    /// Loads a slot whose record will be read. Sequentially consistent, as all loads on the way to
    /// a record are: so is a guard's announcement, and one of the two sees the other.
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

    /// The word of the first slot in the key's bucket with its tag: most likely the key's own.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<u64> {
        let (bucket, tag) = (self.at.bucket(hash, 0), slot::tag_of(hash));
        let tagged = self.look(bucket, tag).0;
        if tagged == 0 {
            return None;
        }
        let place = tagged.trailing_zeros();
        let word = self.load_to_follow(bucket + 8 * u64::from(place));
        (slot::tag(word) == tag).then_some(word)
    }

    /// Which slots of a bucket have this tag, a bit for each, and whether none is empty. Without a
    /// branch: which of the slots it is cannot be foretold.
    #[inline]
    fn look(&self, bucket: u64, tag: u16) -> (u32, bool) {
        if self.at.is_inline() {
            self.look_at::<3>(bucket, tag)
        } else {
            self.look_at::<8>(bucket, tag)
        }
    }

    #[inline(always)]
    fn look_at<const SLOTS: u64>(&self, bucket: u64, tag: u16) -> (u32, bool) {
        let (mut tagged, mut is_full) = (0, true);
        for place in 0..SLOTS {
            let word = self.load(bucket + 8 * place);
            tagged |= u32::from(slot::tag(word) == tag) << place;
            is_full &= word != slot::EMPTY;
        }
        (tagged, is_full)
    }

    /// The record behind a slot's word, if it is the key's.
    pub(super) fn record_of(
        &self,
        word: u64,
        key: &[u8],
        scratch: &'g Scratch,
    ) -> Result<Option<Record<'g>>> {
        let found = self.record(word, scratch)?;
        Ok((found.key == key).then_some(found))
    }

    /// What `take` makes of the first slot with a key's tag that it takes.
    #[inline]
    pub(super) fn find_by<T>(
        &self,
        hash: u64,
        mut take: impl FnMut(u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let tag = slot::tag_of(hash);
        for step in 0..self.at.buckets() {
            let bucket = self.at.bucket(hash, step);
            let (mut tagged, is_full) = self.look(bucket, tag);
            while tagged != 0 {
                let place = u64::from(tagged.trailing_zeros());
                tagged &= tagged - 1;
                let word = self.load_to_follow(bucket + 8 * place);
                if slot::tag(word) == tag {
                    // Or the rest would come only once the first line has said how long it is.
                    self.prefetch_record(word);
                    let taken = take(word)?;
                    if taken.is_some() {
                        return Ok(taken);
                    }
                }
            }
            if !is_full {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Asks for the lines of the record behind a slot's word.
    #[inline]
    pub(super) fn prefetch_record(&self, word: u64) {
        slot::lines(word).take(LINES_AT_ONCE).for_each(|line| self.memory.prefetch(line));
    }

    /// The record behind a slot's word.
    pub(super) fn record(&self, word: u64, scratch: &'g Scratch) -> Result<Record<'g>> {
        // SAFETY: a published word names a record that stays while the caller's guard is held.
        unsafe { record(self.memory, slot::address(word), scratch) }
    }

    /// Where a key is, or the first slot that it may take. For the writer, to whom nothing moves.
    pub(super) fn locate(
        &self,
        hash: u64,
        key: &[u8],
        scratch: &'g Scratch,
    ) -> Result<Option<Place>> {
        self.search(hash, |word| Ok(self.record(word, scratch)?.key == key))
    }

    /// The slot that names this address, for a key with this hash.
    pub(super) fn slot_of(&self, hash: u64, address: u64) -> Option<u64> {
        match self.search(hash, |word| Ok(slot::address(word) == address)) {
            Ok(Some(Place::Held(slot, _))) => Some(slot),
            _ => None,
        }
    }

    fn search(&self, hash: u64, is_it: impl Fn(u64) -> Result<bool>) -> Result<Option<Place>> {
        let tag = slot::tag_of(hash);
        let mut free = None;
        for step in 0..self.at.buckets() {
            let bucket = self.at.bucket(hash, step);
            let mut is_full = true;
            for at in (0..self.at.slots()).map(|place| bucket + 8 * place) {
                let word = self.load(at);
                if slot::tag(word) == tag && is_it(word)? {
                    return Ok(Some(Place::Held(at, word)));
                }
                if !slot::is_live(word) && free.is_none() {
                    free = Some(Place::Free(at, word));
                }
                is_full &= word != slot::EMPTY;
            }
            if !is_full {
                break;
            }
        }
        Ok(free)
    }

    /// Publishes a word: whoever loads it sees the record that was written before.
    pub(super) fn store(&self, at: u64, word: u64) {
        schedule::store();
        // SAFETY: a slot of a group in use; slots are only ever touched as atomics.
        unsafe { self.memory.word(at) }.store(word, PUBLISHED);
        schedule::stored_slot();
    }

    /// What a slot becomes when its record goes: empty where no search relies on its bucket being
    /// full.
    pub(super) fn emptied(&self, at: u64) -> u64 {
        let bucket = at - at % self.at.bucket_bytes();
        let mut words = (0..self.at.slots()).map(|place| self.load(bucket + 8 * place));
        if words.any(|word| word == slot::EMPTY) { slot::EMPTY } else { slot::DELETED }
    }

    /// Puts a word that is not in the group into the first free slot for its hash; answers what the
    /// slot was, or `None` in a group without one.
    pub(super) fn put(&self, hash: u64, word: u64) -> Option<u64> {
        let Ok(Some(Place::Free(at, was))) = self.search(hash, |_| Ok(false)) else { return None };
        self.store(at, word);
        Some(was)
    }

    /// Takes room in its bucket for a record of a key with this hash, in an inline group; answers
    /// where, or `None` without any. A crash behind it costs the room, and nothing else.
    pub(super) fn take_room(&self, hash: u64, bytes: u64) -> Option<u64> {
        if !self.at.is_inline() || bytes > INLINE_RECORD_BYTES_MAX {
            return None;
        }
        let bucket = self.at.bucket(hash, 0);
        // SAFETY: a byte of a group in use that only writers touch.
        let used = unsafe { self.memory.byte(bucket + ROOM.end) };
        let start = ROOM.start + u64::from(used.load(Ordering::Relaxed));
        if start + bytes > ROOM.end {
            return None;
        }
        used.store((start + bytes - ROOM.start) as u8, Ordering::Relaxed);
        Some(bucket + start)
    }

    /// How many slots are not empty, and how many hold a record.
    pub(super) fn counts(&self) -> (u32, u32) {
        self.slots().map(|at| self.load(at)).fold((0, 0), |(filled, live), word| {
            (filled + u32::from(word != slot::EMPTY), live + u32::from(slot::is_live(word)))
        })
    }

    /// Where its slots lie.
    fn slots(self) -> impl Iterator<Item = u64> {
        let buckets =
            (0..self.at.buckets()).map(move |n| self.at.address() + n * self.at.bucket_bytes());
        buckets.flat_map(move |bucket| (0..self.at.slots()).map(move |place| bucket + 8 * place))
    }

    /// The words of all records.
    pub(super) fn words(self) -> impl Iterator<Item = u64> {
        let words = self.slots().map(move |at| self.load_to_follow(at));
        words.filter(|word| slot::is_live(*word))
    }
}
