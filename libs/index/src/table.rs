//! A table: the documents of one generation of one partition.
//!
//! Readers start at the root: directory, bucket group, slot, record. The table's only writer also
//! keeps state that readers do not need: how full each group is, when its documents expire, and the
//! live bytes of each segment.
//!
//! # Publication of a write
//!
//! The writer first writes the record, then stores its slot with release; a record that replaces
//! another one takes over the same slot. The writer writes all records of an entry before it stores
//! the first of their slots (`entry`). A full group is split: the writer writes both halves to new
//! memory, then switches the directory's entries to them, so a search that began in the old group
//! finds there the content of that moment. A new document moves at most one group, unless nearly
//! all keys of a split group fall into one half. A directory that must grow is copied before the
//! root is switched. Memory that readers may still see is retired, and is reused when the readers
//! of that time have left.
//!
//! # The proof that a reader never reaches reused memory
//!
//! A chunk is a directory, a group or a segment. A reader reaches a chunk by a chain of words:
//! root, directory entry, slot. The writer retires a chunk only after it has overwritten every word
//! *of the table in use* that named the chunk. Words in a directory or a group that was itself
//! replaced are not overwritten any more. Call such a word old, and let U be the moment when the
//! chunk that contains the word was taken out of the table.
//!
//! - A reader that follows an old word entered before U: the reader reached the old chunk through
//!   words that were overwritten at U, and a reader loads none of them before it enters.
//! - The chunk that the old word names was in use at U: until U the word was overwritten like any
//!   other word. The named chunk is therefore retired, if ever, after U, and so after the reader
//!   entered. The collector waits for the reader.
//!
//! The same holds along longer chains, link by link. A record that only an old group still names
//! may therefore be retired like any other: no references are counted, and no old word is ever
//! corrected. A reader that enters after U finds no old word. This is why each word of the chain is
//! loaded with sequential consistency, after entering, and why nobody keeps a root, a group or a
//! slot's word from one pin to the next.
//!
//! # When memory is exhausted
//!
//! Each step allocates its chunks before it changes anything, and frees them if it cannot allocate
//! all of them. A write that fails therefore leaves the document as it was, and the table whole.

mod borrowing;
mod copied;
mod directory;
mod entry;
mod expiry;
mod form;
mod group;
mod groups;
mod lay;
mod moving;
mod of_image;
mod places;
mod record;
mod scratch;
mod segments;
mod slot;
mod spilled;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Error, Result};

pub(crate) use borrowing::{Borrowing, Document};
pub(crate) use copied::{Reused, keys_copied_from};
pub(crate) use directory::Root;
use directory::{DEPTH_MAX, ENTRY_BYTES};
use entry::Pending;
pub(crate) use entry::Replaced;
use expiry::{Due, NEVER};
use form::GroupAt;
use group::Group;
use groups::Groups;
pub(crate) use moving::MoveTo;
use places::{Places, first_bits};
pub(crate) use record::{Record, filler};
pub(crate) use scratch::Scratch;
use segments::Segments;

use crate::memory::{Chunk, Memory, is_spilled};
use crate::reclaim::Reclaim;
use crate::storage::SeededHash;

/// Serial of the first table of documents in a space; lower serials belong to other tables.
pub(crate) const FIRST_SERIAL: u64 = 2;
/// Number of keys whose records are prefetched before the first record is read.
pub(crate) const PREFETCHED: usize = 32;

/// A search for a key's record, in the table that begins at a root. The search is split into calls,
/// so that many searches take each step together and their cache lines arrive at the same time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Search {
    root: Root,
    hash: u64,
    /// The hash's group; none until its bucket was prefetched.
    group: GroupAt,
    /// The slot that is most likely the key's; 0 if none is known.
    likely: u64,
}

impl Search {
    /// Starts a search; prefetches the directory entry.
    #[inline]
    pub(crate) fn begin(memory: &Memory, root: Root, hash: u64) -> Self {
        root.prefetch(memory, hash);
        Self { root, hash, group: GroupAt::NONE, likely: slot::EMPTY }
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
    pub(crate) unsafe fn ask_for_bucket(&mut self, memory: &Memory) {
        // SAFETY: the caller's promise.
        if let Ok(Some(group)) = unsafe { self.root.group(memory, self.hash) } {
            group.prefetch(self.hash);
            self.group = group.place();
        }
    }

    /// Prefetches the record that is most likely the key's.
    ///
    /// # Safety
    /// As [`Search::ask_for_bucket`].
    #[inline(always)]
    pub(crate) unsafe fn ask_for_record(&mut self, memory: &Memory) {
        if self.group != GroupAt::NONE {
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
    /// As [`Search::ask_for_bucket`], with a guard that outlives `'g`; not for live memory.
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
    /// As [`Search::ask_for_bucket`].
    #[inline]
    unsafe fn end_by<'g, T>(
        &self,
        memory: &'g Memory,
        take: impl Fn(&Group<'g>, u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let group = match self.group {
            // SAFETY: the caller's promise.
            GroupAt::NONE => unsafe { self.root.group(memory, self.hash) }?,
            // SAFETY: as above; the group was verified.
            at => Some(unsafe { Group::at(memory, at) }),
        };
        let Some(group) = group else { return Ok(None) };
        group.find_by(self.hash, |word| take(&group, word))
    }
}

/// Visits the keys of all records whose hash is in the directory entry of `from`, but not below
/// `from`. Returns the first hash after that entry; `None` is the end.
///
/// # Safety
/// As [`Search::ask_for_bucket`].
pub(crate) unsafe fn keys_from(
    memory: &Memory,
    root: Root,
    hash: SeededHash,
    from: u64,
    mut visit: impl FnMut(&[u8]),
) -> Result<Option<u64>> {
    let last = root.last_hash_beside(from);
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

/// The writer's state of a group.
#[derive(Debug)]
struct Kept {
    chunk: Chunk,
    /// Number of top bits of the hash that the group's keys share.
    depth: u32,
    /// Slots that are not empty.
    filled: u32,
    /// Slots with a record.
    live: u32,
    /// Slots that pending new keys will take.
    reserved: u32,
    /// Whether `filled` and `live` are counted: not yet in a group of an image that was never
    /// written.
    is_counted: bool,
    /// The time before which none of the group's documents expires.
    expires: i64,
    /// The time at which the group is searched for expired documents, at the latest.
    due: i64,
    /// Whether records may be written to the group's buckets: not if the buckets are in an image.
    has_room: bool,
    /// Records of an inline group that have left their buckets since the group was created.
    away: u32,
    /// Whether the group is queued to be rebuilt.
    is_lined_up: bool,
}

impl Kept {
    /// Creates the state of a group with nothing known but its chunk and depth.
    fn of(chunk: Chunk, depth: u32) -> Self {
        let (filled, live, reserved, is_counted) = (0, 0, 0, false);
        let (expires, due, has_room, away, is_lined_up) = (NEVER, NEVER, true, 0, false);
        Self {
            chunk,
            depth,
            filled,
            live,
            reserved,
            is_counted,
            expires,
            due,
            has_room,
            away,
            is_lined_up,
        }
    }

    /// Slots in use beyond which the group is split or rewritten.
    fn filled_max(&self) -> u32 {
        GroupAt::of(&self.chunk).filled_max()
    }
}

/// The documents of one generation; belongs to the partition's writer.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Arc<Memory>,
    hash: SeededHash,
    root: Root,
    directory: Option<Chunk>,
    /// The index in `groups` of each hash's group.
    places: Places,
    groups: Groups,
    due: Due,
    segments: Segments,
    /// The writes of an entry that are prepared and not shown yet.
    pending: Vec<Pending>,
    /// Number of group rewrites: slots that were found before a rewrite may have moved.
    moves: u64,
    /// The most groups that one document moved.
    moved_max: u32,
    /// Groups that were searched for expired documents, until the removals are shown.
    looked_through: Vec<usize>,
    /// Bytes of all groups.
    group_bytes: u64,
    /// Whether new groups may be inline.
    may_be_inline: bool,
    /// Inline groups many of whose records are elsewhere.
    to_lay_anew: VecDeque<u32>,
}

/// The means to make a write visible, and to retire memory.
#[derive(Clone, Copy)]
pub(crate) struct Publishing<'w> {
    /// The cell of the root for readers; `None` while the table is built unseen.
    pub(crate) root: Option<&'w AtomicU64>,
    /// Waits for readers before memory is reused.
    pub(crate) reclaim: &'w Reclaim,
}

impl Table {
    /// Creates an empty table; it allocates no memory before its first document.
    pub(crate) fn new(memory: Arc<Memory>, hash: SeededHash, serial: u64) -> Self {
        Self {
            memory,
            hash,
            root: Root::NONE,
            directory: None,
            places: Places::default(),
            groups: Groups::default(),
            due: Due::default(),
            segments: Segments::new(serial),
            pending: Vec::new(),
            moves: 0,
            moved_max: 0,
            looked_through: Vec::new(),
            group_bytes: 0,
            may_be_inline: true,
            to_lay_anew: VecDeque::new(),
        }
    }

    /// The root that readers begin with.
    pub(crate) fn root(&self) -> Root {
        self.root
    }

    /// The memory that the table is in.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The serial, which distinguishes the table's segments from those of other tables in the same
    /// memory.
    pub(crate) fn serial(&self) -> u64 {
        self.segments.serial()
    }

    /// The most groups that one document has moved.
    pub(crate) fn moved_max(&self) -> u32 {
        self.moved_max
    }

    /// The hash by which the table finds keys.
    pub(crate) fn hash(&self) -> SeededHash {
        self.hash
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn bytes(&self) -> u64 {
        let directory = self.directory.as_ref().map_or(0, Chunk::bytes);
        self.group_bytes + directory + self.segments.bytes()
    }

    fn group(&self, hash: u64) -> Result<Option<Group<'_>>> {
        // SAFETY: the writer's own table: its memory is not retired while it is borrowed.
        unsafe { self.root.group(&self.memory, hash) }
    }

    /// Returns the group of a hash.
    fn group_at(&self, hash: u64) -> Result<GroupAt> {
        Ok(self.group(hash)?.map_or(GroupAt::NONE, |group| group.place()))
    }

    fn place_of(&self, hash: u64) -> usize {
        self.places.of(hash)
    }

    /// Returns the row of a key; a copy if it is spilled.
    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let hash = self.hash.of(key);
        let Some(group) = self.group(hash)? else { return Ok(None) };
        group.find_by(hash, |word| {
            let address = slot::address(word);
            if is_spilled(address) {
                let scratch = Scratch::default();
                let found = spilled::spilled(&self.memory, address, &scratch)?;
                return Ok((found.key == key).then(|| Cow::from(found.row.to_vec())));
            }
            // SAFETY: the writer's own table: its memory is not retired while it is borrowed.
            let found = unsafe { record::in_memory(&self.memory, address) }?;
            Ok((found.key == key).then(|| Cow::from(found.row)))
        })
    }

    /// Prefetches all cache lines that a search for these keys reads, for [`PREFETCHED`] keys at
    /// most, so that the lines arrive at the same time: in turns, as readers of many keys do.
    /// Returns their hashes.
    pub(crate) fn prefetch<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> [u64; PREFETCHED] {
        let mut all = [Search::default(); PREFETCHED];
        let searches = &mut all[..keys.len().min(PREFETCHED)];
        for (search, key) in searches.iter_mut().zip(keys) {
            *search = Search::begin(&self.memory, self.root, self.hash.of(key));
        }
        for search in searches.iter_mut() {
            // SAFETY: the writer's own table: its memory is not retired while it is borrowed.
            unsafe { search.ask_for_bucket(&self.memory) };
        }
        for search in searches.iter_mut() {
            // SAFETY: as above.
            unsafe { search.ask_for_record(&self.memory) };
        }
        all.map(|search| search.hash)
    }

    /// Visits the keys and rows of all documents, in no order.
    ///
    /// # Errors
    /// The first error of `visit`; `Corrupt`, `Unavailable`.
    pub(crate) fn visit_rows(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.groups.iter().try_for_each(|kept| {
            self.visit_records(kept, |_, record| visit(record.key, record.row))
        })
    }

    fn group_of(&self, kept: &Kept) -> Result<Group<'_>> {
        self.memory.prove(kept.chunk.address(), kept.chunk.bytes())?;
        // SAFETY: as in `group`.
        Ok(unsafe { Group::at(&self.memory, GroupAt::of(&kept.chunk)) })
    }

    /// Counts the slots of a group, unless they are counted already.
    fn count(&mut self, place: usize) -> Result<()> {
        if !self.groups[place].is_counted {
            let (filled, live) = self.group_of(&self.groups[place])?.counts();
            let kept = &mut self.groups[place];
            (kept.filled, kept.live, kept.is_counted) = (filled, live, true);
        }
        Ok(())
    }

    fn publish(&self, publishing: Publishing<'_>) {
        if let Some(cell) = publishing.root {
            self.root.store_release(cell);
        }
    }

    /// Returns the directory entries that name the group of this hash; they are adjacent.
    fn entries_of(&self, hash: u64) -> Range<usize> {
        let depth = self.groups[self.place_of(hash)].depth;
        let width = 1_usize << (self.root.depth() - depth);
        let shared = first_bits(hash, depth);
        shared * width..(shared + 1) * width
    }

    /// Switches directory entries to a group.
    fn point(&mut self, entries: Range<usize>, place: usize, publishing: Publishing<'_>) {
        let group = GroupAt::of(&self.groups[place].chunk);
        if !entries.is_empty() {
            // The number of entries is a power of two, and all of them share their first bits.
            let depth = self.root.depth() - entries.len().ilog2();
            self.places.point(self.root.first_hash(entries.start), depth, place);
        }
        let Some(directory) = &self.directory else {
            self.root = Root::of_group(group);
            return self.publish(publishing);
        };
        debug_assert!(directory.bytes() >= entries.end as u64 * ENTRY_BYTES);
        for entry in entries {
            let at = self.entry_address(entry);
            crate::schedule::store();
            // SAFETY: an entry of the directory in use; entries are only accessed as atomics.
            unsafe { self.memory.half_word(at) }.store(group.entry(), Ordering::Release);
        }
    }

    /// Returns the address of a directory entry.
    fn entry_address(&self, entry: usize) -> u64 {
        let directory = self.directory.as_ref().map_or(0, Chunk::address);
        directory + entry as u64 * ENTRY_BYTES
    }

    /// Doubles the directory: each entry becomes two.
    fn double(&mut self, publishing: Publishing<'_>) -> Result<()> {
        let depth = self.root.depth() + 1;
        if depth > DEPTH_MAX {
            let message = "an index partition is too large for its directory; repartition the \
                store to more partitions";
            let most = u64::from(form::filled_max(false));
            return Err(Error::limit_exceeded(message, most << DEPTH_MAX, most << depth));
        }
        let directory = self.memory.allocate(ENTRY_BYTES << depth)?;
        // SAFETY: the chunk was just allocated, so nobody else has its address.
        unsafe { self.memory.clear(&directory) };
        for entry in 0..1 << self.root.depth() {
            let group = match self.directory {
                None => self.root.only_group().entry(),
                // SAFETY: an entry of the directory in use, which only this writer stores to.
                Some(_) => unsafe { self.memory.half_word(self.entry_address(entry)) }
                    .load(Ordering::Relaxed),
            };
            let at = directory.address() + 2 * entry as u64 * ENTRY_BYTES;
            for at in [at, at + ENTRY_BYTES] {
                // SAFETY: an entry of the new chunk, which is large enough.
                unsafe { self.memory.half_word(at) }.store(group, Ordering::Relaxed);
            }
        }
        self.root = Root::new(depth, directory.address());
        self.publish(publishing);
        let old = self.directory.replace(directory);
        publishing.reclaim.retire(&self.memory, old.into_iter().collect());
        Ok(())
    }

    /// Visits the records of a group, each with its slot's word; prefetches many at once.
    fn visit_records(
        &self,
        kept: &Kept,
        mut visit: impl FnMut(u64, Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let group = self.group_of(kept)?;
        let words: Vec<u64> = group.words().collect();
        let mut scratch = Scratch::default();
        for words in words.chunks(PREFETCHED) {
            words.iter().for_each(|word| self.memory.prefetch(slot::address(*word)));
            for word in words {
                visit(*word, Group::record(&group, *word, &scratch)?)?;
                scratch.clear();
            }
        }
        Ok(())
    }

    /// Retires the table's memory; readers may still be in it.
    pub(crate) fn retire(self, reclaim: &Reclaim) {
        let groups = self.groups.into_iter().map(|kept| kept.chunk);
        self.segments.chunks().for_each(|chunk| self.memory.forget_note(chunk.address()));
        let chunks = groups.chain(self.directory).chain(self.segments.into_chunks());
        reclaim.retire(&self.memory, chunks.collect());
    }
}
