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
//! the first of their slots (`write_batch`). A full group is split: the writer writes both halves
//! to new memory, then switches the directory's entries to them, so a search that began in the old
//! group finds there the content of that moment. A new document moves at most one group, unless
//! nearly all keys of a split group fall into one half. A directory that must grow is copied before
//! the root is switched. Memory that readers may still see is retired, and is reused when the
//! readers of that time have left.
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
//! loaded with sequential consistency, after entering, and why no thread keeps a root, a group or a
//! slot's word from one pin to the next.
//!
//! # When memory is exhausted
//!
//! Each step allocates its chunks before it changes anything, and frees them if it cannot allocate
//! all of them. A write that fails therefore leaves the document as it was, and the table whole.

mod directory;
mod expiry;
mod from_image;
mod group;
mod group_layout;
mod group_rebuild;
mod groups;
mod optimistic_read;
mod record;
mod relocation;
mod scratch;
mod search;
mod segments;
mod slot;
mod spilled_record;
#[cfg(test)]
mod tests;
mod write_batch;
mod writer_directory;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Error, Result};

pub(crate) use directory::Root;
use directory::{DEPTH_MAX, ENTRY_BYTES};
use group::Group;
use group_layout::GroupRef;
use groups::{ExpiryQueue, GroupState, Groups};
pub(crate) use optimistic_read::{ReuseCount, keys_copied_from};
pub(crate) use record::{Record, filler};
pub(crate) use relocation::RelocationTarget;
pub(crate) use scratch::Scratch;
pub(crate) use search::{Search, keys_from};
use segments::Segments;
pub(crate) use write_batch::PreviousRow;
use writer_directory::{WriterDirectory, first_bits};

use crate::key::SeededHash;
use crate::memory::{Chunk, Memory, is_spilled};
use crate::reclaim::Reclaim;

/// Serial of the first table of documents in a space; lower serials belong to other tables.
pub(crate) const FIRST_SERIAL: u64 = 2;
/// Number of keys whose records are prefetched before the first record is read.
pub(crate) const PREFETCHED: usize = 32;

/// A key and its row.
pub(crate) type Document = (Vec<u8>, Vec<u8>);

/// A pending write.
#[derive(Debug)]
struct PendingWrite {
    hash: u64,
    /// The slot of the key; `None` for a new key.
    existing: Option<SlotLocation>,
    /// The new word of the key's slot; `None` for a removed document.
    word: Option<u64>,
    /// Bytes of the record that the word names.
    bytes: u64,
}

/// The location of a key.
#[derive(Clone, Copy, Debug)]
struct SlotLocation {
    group: GroupRef,
    slot: u64,
    word: u64,
    bytes: u64,
    /// The number of group rewrites when the key was found there.
    moves: u64,
}

/// The documents of one generation; belongs to the partition's writer.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Arc<Memory>,
    hash: SeededHash,
    root: Root,
    directory: Option<Chunk>,
    /// The index in `groups` of each hash's group.
    writer_directory: WriterDirectory,
    groups: Groups,
    due: ExpiryQueue,
    segments: Segments,
    /// The writes of an entry that are prepared and not published yet.
    pending: Vec<PendingWrite>,
    /// Number of group rewrites: slots that were found before a rewrite may have moved.
    moves: u64,
    /// The most groups that one document moved.
    moved_max: u32,
    /// Groups that were searched for expired documents, until the removals are published.
    searched_groups: Vec<usize>,
    /// Bytes of all groups.
    group_bytes: u64,
    /// Whether new groups may be inline.
    may_be_inline: bool,
    /// Inline groups many of whose records are elsewhere.
    rebuild_queue: VecDeque<u32>,
}

/// The means to make a write visible, and to retire memory.
#[derive(Clone, Copy)]
pub(crate) struct PublishTarget<'w> {
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
            writer_directory: WriterDirectory::default(),
            groups: Groups::default(),
            due: ExpiryQueue::default(),
            segments: Segments::new(serial),
            pending: Vec::new(),
            moves: 0,
            moved_max: 0,
            searched_groups: Vec::new(),
            group_bytes: 0,
            may_be_inline: true,
            rebuild_queue: VecDeque::new(),
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
    fn group_at(&self, hash: u64) -> Result<GroupRef> {
        Ok(self.group(hash)?.map_or(GroupRef::NONE, |group| group.place()))
    }

    fn place_of(&self, hash: u64) -> usize {
        self.writer_directory.group_of(hash)
    }

    /// Returns the row of a key; a copy if it is spilled.
    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let hash = self.hash.of(key);
        let Some(group) = self.group(hash)? else { return Ok(None) };
        group.find_by(hash, |word| {
            let address = slot::address(word);
            if is_spilled(address) {
                let scratch = Scratch::default();
                let record = spilled_record::read_spilled_record(&self.memory, address, &scratch)?;
                return Ok((record.key == key).then(|| Cow::from(record.row.to_vec())));
            }
            // SAFETY: the writer's own table: its memory is not retired while it is borrowed.
            let record = unsafe { record::in_memory(&self.memory, address) }?;
            Ok((record.key == key).then(|| Cow::from(record.row)))
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
            unsafe { search.prefetch_bucket(&self.memory) };
        }
        for search in searches.iter_mut() {
            // SAFETY: as above.
            unsafe { search.prefetch_record(&self.memory) };
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
        self.groups.iter().try_for_each(|state| {
            self.visit_records(state, |_, record| visit(record.key, record.row))
        })
    }

    /// Visits all documents, in batches of at most [`PREFETCHED`], until the visit asks for no
    /// more.
    ///
    /// # Errors
    /// As [`Table::visit_rows`].
    pub(crate) fn visit_batches(
        &self,
        mut visit: impl FnMut(&[Document]) -> Result<bool>,
    ) -> Result<()> {
        let mut documents = Vec::new();
        for state in self.groups.iter() {
            self.visit_records(state, |_, record| {
                documents.push((record.key.to_vec(), record.row.to_vec()));
                Ok(())
            })?;
            for batch in documents.chunks(PREFETCHED) {
                if !visit(batch)? {
                    return Ok(());
                }
            }
            documents.clear();
        }
        Ok(())
    }

    fn group_of(&self, state: &GroupState) -> Result<Group<'_>> {
        self.memory.verify(state.chunk.address(), state.chunk.bytes())?;
        // SAFETY: as in `group`.
        Ok(unsafe { Group::at(&self.memory, GroupRef::of(&state.chunk)) })
    }

    /// Counts the slots of a group, unless they are counted already.
    fn count(&mut self, place: usize) -> Result<()> {
        if !self.groups[place].is_counted {
            let (filled, live) = self.group_of(&self.groups[place])?.counts();
            let state = &mut self.groups[place];
            (state.filled, state.live, state.is_counted) = (filled, live, true);
        }
        Ok(())
    }

    fn publish_root(&self, publishing: PublishTarget<'_>) {
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
    fn point(&mut self, entries: Range<usize>, place: usize, publishing: PublishTarget<'_>) {
        let group = GroupRef::of(&self.groups[place].chunk);
        if !entries.is_empty() {
            // The number of entries is a power of two, and all of them share their first bits.
            let depth = self.root.depth() - entries.len().ilog2();
            self.writer_directory.point(self.root.first_hash(entries.start), depth, place);
        }
        let Some(directory) = &self.directory else {
            self.root = Root::of_group(group);
            return self.publish_root(publishing);
        };
        debug_assert!(directory.bytes() >= entries.end as u64 * ENTRY_BYTES);
        for entry in entries {
            let entry_address = self.entry_address(entry);
            crate::schedule::store();
            // SAFETY: an entry of the directory in use; entries are only accessed as atomics.
            unsafe { self.memory.half_word(entry_address) }.store(group.entry(), Ordering::Release);
        }
    }

    /// Returns the address of a directory entry.
    fn entry_address(&self, entry: usize) -> u64 {
        let directory = self.directory.as_ref().map_or(0, Chunk::address);
        directory + entry as u64 * ENTRY_BYTES
    }

    /// Doubles the directory: each entry becomes two.
    fn double(&mut self, publishing: PublishTarget<'_>) -> Result<()> {
        let depth = self.root.depth() + 1;
        if depth > DEPTH_MAX {
            let message = "an index partition is too large for its directory; repartition the \
                store to more partitions";
            let keys_max = u64::from(group_layout::filled_max(false));
            return Err(Error::limit_exceeded(message, keys_max << DEPTH_MAX, keys_max << depth));
        }
        let directory = self.memory.allocate(ENTRY_BYTES << depth)?;
        // SAFETY: the chunk was just allocated, so no other thread has its address.
        unsafe { self.memory.clear(&directory) };
        for entry in 0..1 << self.root.depth() {
            let group = match self.directory {
                None => self.root.only_group().entry(),
                // SAFETY: an entry of the directory in use, which only this writer stores to.
                Some(_) => unsafe { self.memory.half_word(self.entry_address(entry)) }
                    .load(Ordering::Relaxed),
            };
            let entry_address = directory.address() + 2 * entry as u64 * ENTRY_BYTES;
            for entry_address in [entry_address, entry_address + ENTRY_BYTES] {
                // SAFETY: an entry of the new chunk, which is large enough.
                unsafe { self.memory.half_word(entry_address) }.store(group, Ordering::Relaxed);
            }
        }
        self.root = Root::new(depth, directory.address());
        self.publish_root(publishing);
        let old = self.directory.replace(directory);
        publishing.reclaim.retire(&self.memory, old.into_iter().collect());
        Ok(())
    }

    /// Visits the records of a group, each with its slot's word; prefetches many at once.
    fn visit_records(
        &self,
        state: &GroupState,
        mut visit: impl FnMut(u64, Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let group = self.group_of(state)?;
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
        let groups = self.groups.into_iter().map(|state| state.chunk);
        self.segments.chunks().for_each(|chunk| self.memory.forget_note(chunk.address()));
        let chunks = groups.chain(self.directory).chain(self.segments.into_chunks());
        reclaim.retire(&self.memory, chunks.collect());
    }
}
