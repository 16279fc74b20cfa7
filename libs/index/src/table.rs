//! A table: the documents of one generation of one partition.
//!
//! Readers come from the root: directory, bucket group, slot, record. Its one writer keeps beside
//! it what readers do not need: how full each group is, when its documents expire, and what lives
//! in each segment.
//!
//! # How a write is published
//!
//! The record is written first, then its slot is stored with release; one that replaces another
//! swings the same slot. A group that is full is split: both halves are written beside it, then the
//! directory's entries are swung, so a search that began in the old group finds there what it held
//! at that moment. At most one group moves per document that is new. A directory that must grow is
//! copied before the root is swung. What readers may still see is retired, and its memory comes
//! back when the readers of that time have gone.
//!
//! # Why a reader never comes to memory that is used again
//!
//! A chunk is a directory, a group or a segment. A reader comes to it by a chain of words: root,
//! directory entry, slot. The writer retires a chunk only after it has stored over every word *of
//! the table in use* that named it. What of words that nobody stores over any more, in a directory
//! or a group that was itself replaced? Call such a word old, and let U be the moment when the
//! chunk that it lies in was taken out of the table.
//!
//! - A reader that follows an old word has entered before U: it came to the old chunk through words
//!   that were stored over at U, and it loads none of them before it enters.
//! - What the old word names was in use at U: until then it was stored over like any other word. So
//!   it is retired, if ever, after U, and therefore after that reader has entered. The collector
//!   waits for that reader.
//!
//! The same holds along longer chains, link by link. So a record which only an old group still
//! names may be retired like any other: nothing is counted, and no old word is ever corrected. A
//! reader that enters after U finds none of them. This is why each word of the chain is loaded with
//! sequential consistency, after entering, and why nobody keeps a root, a group or a slot's word
//! from one pin to the next.
//!
//! # When there is no memory
//!
//! Each step takes its chunks before it changes anything, and gives them back when it cannot get
//! all of them. So a write that fails leaves the document as it was, and the table whole.

mod directory;
mod expiry;
mod group;
mod of_image;
mod record;
mod segments;
mod slot;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::clock::Timestamp;
use forebay_core::{Error, ErrorCode, Result};

pub(crate) use directory::Root;
use directory::{DEPTH_MAX, ENTRY_BYTES, entry_of};
use expiry::{Due, NEVER};
use group::{FILLED_MAX, Group, Place, SLOTS};
pub(crate) use record::{Record, filler};
use segments::Segments;

use crate::memory::{CHUNK_BYTES_MIN, Chunk, Memory};
use crate::reclaim::Reclaim;
use crate::storage::SeededHash;

/// Deleted slots above which a full group is written anew instead of split: half of it.
const DELETED_MAX: u32 = FILLED_MAX / 2;
/// Keys whose records are asked for before the first of them is read.
pub(crate) const PREFETCHED: usize = 32;

/// The record of a key, in the table that begins at this root.
///
/// # Errors
/// `Corrupt` where the table is of an image and damaged; so of all that follow.
///
/// # Safety
/// The root was loaded from its cell while the guard has been held that outlives `'g`.
#[inline]
pub(crate) unsafe fn find<'g>(
    memory: &'g Memory,
    root: Root,
    hash: u64,
    key: &[u8],
) -> Result<Option<Record<'g>>> {
    // SAFETY: the caller's promise.
    match unsafe { root.group(memory, hash) }? {
        Some(group) => group.find(hash, key),
        None => Ok(None),
    }
}

/// Asks for the bucket of a hash.
///
/// # Safety
/// As [`find`].
#[inline]
pub(crate) unsafe fn prefetch_bucket(memory: &Memory, root: Root, hash: u64) {
    // SAFETY: the caller's promise. Damage is told by the search that follows.
    if let Ok(Some(group)) = unsafe { root.group(memory, hash) } {
        group.prefetch(hash);
    }
}

/// Asks for the lines of the record that most likely is the key's, but not beyond `lines_max`.
///
/// # Safety
/// As [`find`].
#[inline]
pub(crate) unsafe fn prefetch_record(memory: &Memory, root: Root, hash: u64, lines_max: usize) {
    // SAFETY: as above.
    let group = unsafe { root.group(memory, hash) };
    if let Some(word) = group.ok().flatten().and_then(|group| group.likely(hash)) {
        slot::lines(word).take(lines_max).for_each(|line| memory.prefetch(line));
    }
}

/// The keys of all records whose hash lies in the directory entry of `from`, but not below it, and
/// the first hash behind that entry; `None` is the end.
///
/// # Safety
/// As [`find`].
pub(crate) unsafe fn keys_from<'g>(
    memory: &'g Memory,
    root: Root,
    hash: SeededHash,
    from: u64,
    mut visit: impl FnMut(&'g [u8]),
) -> Result<Option<u64>> {
    let depth = root.depth();
    let width = 1_u64.checked_shl(64 - depth);
    let last = width.map_or(u64::MAX, |width| from | (width - 1));
    // SAFETY: the caller's promise.
    if let Some(group) = unsafe { root.group(memory, from) }? {
        for word in group.words() {
            let key = group.record(word)?.key;
            if (from..=last).contains(&hash.of(key)) {
                visit(key);
            }
        }
    }
    Ok(last.checked_add(1))
}

/// What the writer knows of a group.
#[derive(Debug)]
struct Kept {
    chunk: Chunk,
    /// How many top bits of their hash its keys share.
    depth: u32,
    /// Slots that are not empty.
    filled: u32,
    /// Slots with a record.
    live: u32,
    /// Whether the two are counted: not yet in a group of an image that nobody wrote to.
    is_counted: bool,
    /// Before this time none of its documents expires.
    expires: i64,
    /// When it is looked through, at the latest.
    due: i64,
}

/// One generation's documents; belongs to the partition's writer.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Arc<Memory>,
    hash: SeededHash,
    root: Root,
    directory: Option<Chunk>,
    /// By directory entry, the place of its group in `groups`.
    places: Vec<u32>,
    groups: Vec<Kept>,
    due: Due,
    segments: Segments,
}

/// How a write is made visible, and what goes out of use.
#[derive(Clone, Copy)]
pub(crate) struct Publishing<'w> {
    /// Where readers find the root; `None` while the table is built unseen.
    pub(crate) root: Option<&'w AtomicU64>,
    /// Waits for readers before memory is used again.
    pub(crate) reclaim: &'w Reclaim,
}

impl Table {
    /// An empty table; takes no memory before its first document.
    pub(crate) fn new(memory: Arc<Memory>, hash: SeededHash) -> Self {
        Self {
            memory,
            hash,
            root: Root::NONE,
            directory: None,
            places: Vec::new(),
            groups: Vec::new(),
            due: Due::default(),
            segments: Segments::default(),
        }
    }

    /// Where readers begin.
    pub(crate) fn root(&self) -> Root {
        self.root
    }

    /// Where it lies.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// By which it finds keys.
    pub(crate) fn hash(&self) -> SeededHash {
        self.hash
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let directory = self.directory.as_ref().map_or(0, Chunk::bytes);
        self.groups.len() as u64 * CHUNK_BYTES_MIN + directory + self.segments.bytes()
    }

    fn group(&self, hash: u64) -> Result<Option<Group<'_>>> {
        // SAFETY: the writer's own table: nothing in it goes while it is borrowed.
        unsafe { self.root.group(&self.memory, hash) }
    }

    fn place_of(&self, hash: u64) -> usize {
        let depth = self.root.depth();
        let entry = if depth == 0 { 0 } else { (hash >> (64 - depth)) as usize };
        self.places[entry] as usize
    }

    /// The row of a key.
    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let hash = self.hash.of(key);
        let Some(group) = self.group(hash)? else { return Ok(None) };
        Ok(group.find(hash, key)?.map(|found| found.row))
    }

    /// Asks for all lines that a search for these keys comes to, so that they arrive at the same
    /// time: in turns, as readers of many keys do.
    pub(crate) fn prefetch<'k>(&self, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
        let mut hashes = [0; PREFETCHED];
        let count = keys.len().min(PREFETCHED);
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash.of(key);
            self.root.prefetch(&self.memory, *hash);
        }
        for hash in &hashes[..count] {
            // SAFETY: the writer's own table: nothing in it goes while it is borrowed.
            unsafe { prefetch_bucket(&self.memory, self.root, *hash) };
        }
        for hash in &hashes[..count] {
            // SAFETY: as above.
            unsafe { prefetch_record(&self.memory, self.root, *hash, usize::MAX) };
        }
    }

    /// The keys and rows of all documents, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Result<(&[u8], &[u8])>> {
        self.groups.iter().flat_map(|kept| {
            let (group, error) = match self.group_of(kept) {
                Ok(group) => (Some(group), None),
                Err(error) => (None, Some(Err(error))),
            };
            let found = group.into_iter().flat_map(|group| {
                let pair = move |word| group.record(word).map(|found| (found.key, found.row));
                group.words().map(pair)
            });
            found.chain(error)
        })
    }

    fn group_of(&self, kept: &Kept) -> Result<Group<'_>> {
        self.memory.prove(kept.chunk.address(), kept.chunk.bytes())?;
        // SAFETY: as in `group`.
        Ok(unsafe { Group::at(&self.memory, kept.chunk.address()) })
    }

    /// Writes a row, whose document may expire; answers the length of the one that it replaces.
    ///
    /// # Errors
    /// `LimitExceeded` without memory; the document is as it was then.
    pub(crate) fn insert(
        &mut self,
        key: &[u8],
        row: &[u8],
        expires: Option<Timestamp>,
        publishing: Publishing<'_>,
    ) -> Result<Option<usize>> {
        let hash = self.hash.of(key);
        self.make_room(hash, key, publishing)?;
        let (address, bytes) = self.segments.append(&self.memory, key, row)?;
        let word = slot::pack(slot::tag_of(hash), address, bytes);
        let group = self.group(hash)?;
        let found = match group {
            Some(group) => group.locate(hash, key)?.map(|at| (group, at)),
            None => None,
        };
        let Some((group, at)) = found else {
            return Err(Error::internal("a bucket group that was made has no room"));
        };
        let replaced = match at {
            Place::Held(at, old) => {
                let record = group.record(old)?;
                let (address, bytes, row) = (slot::address(old), record.bytes, record.row.len());
                group.store(at, word);
                self.segments.bury(address, bytes);
                Some(row)
            }
            Place::Free(at, old) => {
                group.store(at, word);
                let place = self.place_of(hash);
                let kept = &mut self.groups[place];
                kept.live += 1;
                kept.filled += u32::from(old == slot::EMPTY);
                None
            }
        };
        if let Some(expires) = expires {
            let place = self.place_of(hash);
            self.due.note(place, &mut self.groups[place], expires.as_micros());
        }
        Ok(replaced)
    }

    /// Removes a key; answers the length of its row.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<Option<usize>> {
        let hash = self.hash.of(key);
        if self.groups.is_empty() {
            return Ok(None);
        }
        self.count(self.place_of(hash))?;
        let Some(group) = self.group(hash)? else { return Ok(None) };
        let Some(Place::Held(at, word)) = group.locate(hash, key)? else { return Ok(None) };
        let record = group.record(word)?;
        let (address, bytes, row) = (slot::address(word), record.bytes, record.row.len());
        let becomes = group.emptied(at);
        group.store(at, becomes);
        let place = self.place_of(hash);
        let kept = &mut self.groups[place];
        kept.live -= 1;
        kept.filled -= u32::from(becomes == slot::EMPTY);
        self.segments.bury(address, bytes);
        Ok(Some(row))
    }

    /// Counts the slots of a group, if nobody has yet.
    fn count(&mut self, place: usize) -> Result<()> {
        if !self.groups[place].is_counted {
            let (filled, live) = self.group_of(&self.groups[place])?.counts();
            let kept = &mut self.groups[place];
            (kept.filled, kept.live, kept.is_counted) = (filled, live, true);
        }
        Ok(())
    }

    /// Makes sure that a key which is not there yet finds a free slot.
    fn make_room(&mut self, hash: u64, key: &[u8], publishing: Publishing<'_>) -> Result<()> {
        if self.groups.is_empty() {
            let kept = self.new_group(0)?;
            self.root = Root::new(0, kept.chunk.address());
            self.places.push(0);
            self.groups.push(kept);
            self.publish(publishing);
        }
        // Each turn halves the group's share of all hashes.
        for _ in 0..=DEPTH_MAX {
            let place = self.place_of(hash);
            self.count(place)?;
            let kept = &self.groups[place];
            if kept.filled < FILLED_MAX {
                return Ok(());
            }
            let held = self.group_of(kept)?.locate(hash, key)?;
            if matches!(held, Some(Place::Held(..))) {
                return Ok(());
            }
            if kept.filled - kept.live > DELETED_MAX {
                return self.rewrite(hash, publishing);
            }
            self.split(hash, publishing)?;
        }
        let message = "more keys than a bucket group holds share the top bits of their hash";
        Err(Error::limit_exceeded(message, SLOTS, SLOTS + 1))
    }

    fn publish(&self, publishing: Publishing<'_>) {
        if let Some(cell) = publishing.root {
            self.root.store_release(cell);
        }
    }

    fn new_group(&self, depth: u32) -> Result<Kept> {
        let chunk = self.memory.allocate(CHUNK_BYTES_MIN)?;
        // SAFETY: the chunk was just allocated, so nobody else has its address.
        unsafe { self.memory.clear(&chunk) };
        let (is_counted, expires, due) = (true, NEVER, NEVER);
        Ok(Kept { chunk, depth, filled: 0, live: 0, is_counted, expires, due })
    }

    /// Writes the group of a hash anew, without its deleted slots.
    fn rewrite(&mut self, hash: u64, publishing: Publishing<'_>) -> Result<()> {
        let (place, entries) = (self.place_of(hash), self.entries_of(hash));
        let words = self.words_of(place)?;
        let mut fresh = self.new_group(self.groups[place].depth)?;
        (fresh.expires, fresh.due) = (self.groups[place].expires, self.groups[place].due);
        for (hash, word) in &words {
            self.put(&mut fresh, *hash, *word);
        }
        let old = std::mem::replace(&mut self.groups[place], fresh);
        self.point(entries, place, publishing);
        publishing.reclaim.retire(&self.memory, vec![old.chunk]);
        Ok(())
    }

    /// Splits the group of a hash by the next bit.
    fn split(&mut self, hash: u64, publishing: Publishing<'_>) -> Result<()> {
        let place = self.place_of(hash);
        let depth = self.groups[place].depth + 1;
        let words = self.words_of(place)?;
        if depth > self.root.depth() {
            self.double(publishing)?;
        }
        let mut low = self.new_group(depth)?;
        let mut high = match self.new_group(depth) {
            Ok(high) => high,
            Err(error) => {
                self.memory.release([low.chunk]);
                return Err(error);
            }
        };
        let bit = 1_u64 << (64 - depth);
        for (hash, word) in words {
            let half = if hash & bit == 0 { &mut low } else { &mut high };
            self.put(half, hash, word);
        }
        let entries = self.entries_of(hash);
        let middle = entries.start + entries.len() / 2;
        let (expires, due) = (self.groups[place].expires, self.groups[place].due);
        (low.expires, low.due) = (expires, due);
        let old = std::mem::replace(&mut self.groups[place], low);
        self.due.note(self.groups.len(), &mut high, expires);
        self.groups.push(high);
        self.point(entries.start..middle, place, publishing);
        self.point(middle..entries.end, self.groups.len() - 1, publishing);
        publishing.reclaim.retire(&self.memory, vec![old.chunk]);
        Ok(())
    }

    /// The directory entries that name the group of this hash: they lie side by side.
    fn entries_of(&self, hash: u64) -> Range<usize> {
        let depth = self.groups[self.place_of(hash)].depth;
        let width = 1_usize << (self.root.depth() - depth);
        let shared = if depth == 0 { 0 } else { (hash >> (64 - depth)) as usize };
        shared * width..(shared + 1) * width
    }

    /// Swings directory entries to a group.
    fn point(&mut self, entries: Range<usize>, place: usize, publishing: Publishing<'_>) {
        let group = self.groups[place].chunk.address();
        self.places[entries.clone()].fill(place as u32);
        let Some(directory) = &self.directory else {
            self.root = Root::new(0, group);
            return self.publish(publishing);
        };
        for entry in entries {
            let at = directory.address() + entry as u64 * ENTRY_BYTES;
            // SAFETY: an entry of the directory in use; entries are only touched as atomics.
            unsafe { self.memory.half_word(at) }.store(entry_of(group), Ordering::Release);
        }
    }

    /// Doubles the directory: each entry becomes two.
    fn double(&mut self, publishing: Publishing<'_>) -> Result<()> {
        let depth = self.root.depth() + 1;
        if depth > DEPTH_MAX {
            let message = "an index partition has grown beyond its directory; use more partitions";
            let most = FILLED_MAX as u64;
            return Err(Error::limit_exceeded(message, most << DEPTH_MAX, most << depth));
        }
        let directory = self.memory.allocate(ENTRY_BYTES << depth)?;
        // SAFETY: the chunk was just allocated, so nobody else has its address.
        unsafe { self.memory.clear(&directory) };
        let places: Vec<u32> = self.places.iter().flat_map(|place| [*place; 2]).collect();
        for (entry, place) in places.iter().enumerate() {
            let group = self.groups[*place as usize].chunk.address();
            let at = directory.address() + entry as u64 * ENTRY_BYTES;
            // SAFETY: a place in the same chunk, which is large enough.
            unsafe { self.memory.half_word(at) }.store(entry_of(group), Ordering::Relaxed);
        }
        self.places = places;
        self.root = Root::new(depth, directory.address());
        self.publish(publishing);
        let old = self.directory.replace(directory);
        publishing.reclaim.retire(&self.memory, old.into_iter().collect());
        Ok(())
    }

    /// The hashes and words of a group's records.
    fn words_of(&self, place: usize) -> Result<Vec<(u64, u64)>> {
        let mut hashed = Vec::new();
        self.visit_records(&self.groups[place], |word, record| {
            hashed.push((self.hash.of(record.key), word));
        })?;
        Ok(hashed)
    }

    /// Visits the records of a group, each with its slot's word; asks for many at once.
    fn visit_records(&self, kept: &Kept, mut visit: impl FnMut(u64, Record<'_>)) -> Result<()> {
        let group = self.group_of(kept)?;
        let words: Vec<u64> = group.words().collect();
        for words in words.chunks(PREFETCHED) {
            words.iter().for_each(|word| self.memory.prefetch(slot::address(*word)));
            for word in words {
                visit(*word, group.record(*word)?);
            }
        }
        Ok(())
    }

    fn put(&self, group: &mut Kept, hash: u64, word: u64) {
        // SAFETY: a group that only this writer has.
        unsafe { Group::at(&self.memory, group.chunk.address()) }.put(hash, word);
        group.filled += 1;
        group.live += 1;
    }

    /// Moves live records out of segments that are half dead: twice as many bytes as have died
    /// since the last call, and this many more. Without memory to move to it waits for the next
    /// call.
    ///
    /// # Errors
    /// `Corrupt`, `Internal`.
    pub(crate) fn reclaim(&mut self, bytes_more: u64, publishing: Publishing<'_>) -> Result<()> {
        let bytes_max = bytes_more + 2 * self.segments.take_died();
        let (mut walked, mut retired) = (0, Vec::new());
        while walked < bytes_max {
            let Some(rest) = self.segments.rest_to_move() else {
                match self.segments.take_emptied()? {
                    Some(chunk) => retired.push(chunk),
                    None => break,
                }
                continue;
            };
            let records = self.records_ahead(rest, bytes_max - walked)?;
            match self.move_records(&records) {
                Err(error) if error.code() == ErrorCode::LimitExceeded => break,
                moved => walked += moved?,
            }
        }
        publishing.reclaim.retire(&self.memory, retired);
        Ok(())
    }

    /// Addresses and hashes of the next records of a segment, up to so many bytes; asks for their
    /// buckets.
    fn records_ahead(&self, rest: Range<u64>, bytes_max: u64) -> Result<Vec<(u64, u64)>> {
        let end = rest.end.min(rest.start.saturating_add(bytes_max));
        let (mut at, mut records) = (rest.start, Vec::with_capacity(PREFETCHED));
        while at < end && records.len() < PREFETCHED {
            // SAFETY: the address of a record in a segment of this table, which is not retired.
            let record = unsafe { record::record(&self.memory, at) }?;
            let hash = self.hash.of(record.key);
            self.root.prefetch(&self.memory, hash);
            records.push((at, hash));
            at += record.bytes;
        }
        for (_, hash) in &records {
            // SAFETY: the writer's own table: nothing in it goes while it is borrowed.
            unsafe { prefetch_bucket(&self.memory, self.root, *hash) };
        }
        Ok(records)
    }

    /// Moves those of these records that live to the open segment; answers the bytes of all.
    ///
    /// # Errors
    /// `LimitExceeded` without memory to move to; what did not move is where it was.
    fn move_records(&mut self, records: &[(u64, u64)]) -> Result<u64> {
        let memory = self.memory.clone();
        let mut walked = 0;
        for (address, hash) in records {
            // SAFETY: as in `records_ahead`.
            let record = unsafe { record::record(&memory, *address) }?;
            let slot = self.group(*hash)?.and_then(|group| group.slot_of(*hash, *address));
            if let Some(at) = slot {
                let (moved, bytes) = self.segments.append(&memory, record.key, record.row)?;
                if let Some(group) = self.group(*hash)? {
                    group.store(at, slot::pack(slot::tag_of(*hash), moved, bytes));
                }
                self.segments.bury_moved(*address, record.bytes);
            }
            self.segments.moved(record.bytes);
            walked += record.bytes;
        }
        Ok(walked)
    }

    /// Ends the table; readers may still be in it.
    pub(crate) fn retire(self, reclaim: &Reclaim) {
        let groups = self.groups.into_iter().map(|kept| kept.chunk);
        let chunks = groups.chain(self.directory).chain(self.segments.into_chunks());
        reclaim.retire(&self.memory, chunks.collect());
    }
}
