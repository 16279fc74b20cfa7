//! Bucket groups: 1,024 slots in 128 buckets of one cache line each.
//!
//! A key starts at the bucket that its hash names and goes on to the next one, round the group,
//! while buckets are full. A slot that was ever used never becomes empty again while a search may
//! rely on its bucket being full; a group with too many deleted slots is written anew.

use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::record::{Record, record};
use super::scratch::Scratch;
use super::slot;
use crate::memory::{CHUNK_BYTES_MIN, Memory};

pub(super) const SLOTS: u64 = 1_024;
const BUCKET_SLOTS: u64 = 8;
const BUCKETS: u64 = SLOTS / BUCKET_SLOTS;
const BUCKET_BYTES: u64 = 8 * BUCKET_SLOTS;
const BUCKET_SHIFT: u32 = 16;
/// Lines of one record that are asked for ahead; the rest of a long one is read in order anyway.
const LINES_AT_ONCE: usize = 8;

/// Slots in use, deleted ones included, beyond which a group is split or written anew: 85 %.
pub(super) const FILLED_MAX: u32 = (SLOTS * 85 / 100) as u32;

/// How a slot is published. Planted, the weaker order proves that ThreadSanitizer sees a reader who
/// may find a slot before the record behind it.
const PUBLISHED: Ordering =
    if cfg!(forebay_planted = "race") { Ordering::Relaxed } else { Ordering::Release };

const _: () = assert!(SLOTS * 8 == CHUNK_BYTES_MIN, "a group is the smallest chunk");

/// A group in place: as a reader sees it.
#[derive(Clone, Copy)]
pub(super) struct Group<'g> {
    memory: &'g Memory,
    address: u64,
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
    /// The address is that of a group which is in use, or was while the caller's guard has been
    /// held, and its bytes were proved.
    pub(super) unsafe fn at(memory: &'g Memory, address: u64) -> Self {
        Self { memory, address }
    }

    /// Where it lies.
    #[inline]
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    #[inline]
    fn bucket(&self, hash: u64, step: u64) -> u64 {
        let home = hash >> BUCKET_SHIFT;
        self.address + (home + step) % BUCKETS * BUCKET_BYTES
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
        self.memory.prefetch(self.bucket(hash, 0));
    }

    /// The word of the first slot in the key's bucket with its tag: most likely the key's own.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<u64> {
        let (bucket, tag) = (self.bucket(hash, 0), slot::tag_of(hash));
        let place = self.look(bucket, tag).0.trailing_zeros();
        if u64::from(place) >= BUCKET_SLOTS {
            return None;
        }
        let word = self.load_to_follow(bucket + 8 * u64::from(place));
        (slot::tag(word) == tag).then_some(word)
    }

    /// Which slots of a bucket have this tag, a bit for each, and whether none is empty. Without a
    /// branch: which of the slots it is cannot be foretold.
    #[inline]
    fn look(&self, bucket: u64, tag: u16) -> (u32, bool) {
        let (mut tagged, mut is_full) = (0, true);
        for place in 0..BUCKET_SLOTS {
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
        for step in 0..BUCKETS {
            let bucket = self.bucket(hash, step);
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
        for step in 0..BUCKETS {
            let bucket = self.bucket(hash, step);
            let mut is_full = true;
            for at in (0..BUCKET_SLOTS).map(|place| bucket + 8 * place) {
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
        // SAFETY: a slot of a group in use; slots are only ever touched as atomics.
        unsafe { self.memory.word(at) }.store(word, PUBLISHED);
    }

    /// What a slot becomes when its record goes: empty where no search relies on its bucket being
    /// full.
    pub(super) fn emptied(&self, at: u64) -> u64 {
        let bucket = at - at % BUCKET_BYTES;
        let mut words = (0..BUCKET_SLOTS).map(|place| self.load(bucket + 8 * place));
        if words.any(|word| word == slot::EMPTY) { slot::EMPTY } else { slot::DELETED }
    }

    /// Puts a word that is not in the group into the first free slot for its hash; answers what the
    /// slot was, or `None` in a group without one.
    pub(super) fn put(&self, hash: u64, word: u64) -> Option<u64> {
        let Ok(Some(Place::Free(at, was))) = self.search(hash, |_| Ok(false)) else { return None };
        self.store(at, word);
        Some(was)
    }

    /// How many slots are not empty, and how many hold a record.
    pub(super) fn counts(&self) -> (u32, u32) {
        let words = (0..SLOTS).map(|place| self.load(self.address + 8 * place));
        words.fold((0, 0), |(filled, live), word| {
            (filled + u32::from(word != slot::EMPTY), live + u32::from(slot::is_live(word)))
        })
    }

    /// The words of all records.
    pub(super) fn words(self) -> impl Iterator<Item = u64> {
        let slots = (0..SLOTS).map(move |place| self.load_to_follow(self.address + 8 * place));
        slots.filter(|word| slot::is_live(*word))
    }
}
