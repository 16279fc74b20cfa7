//! The image of a table, and a table that continues from an image.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::directory::{ENTRY_BYTES, Root};
use super::group_layout::GroupRef;
use super::groups::{GroupState, NEVER};
use super::scratch::Scratch;
use super::segments::{Segments, spilled_segment};
use super::spilled_record::read_spilled_record;
use super::{Table, slot};
use crate::image::{Content, Image, damaged};
use crate::key::SeededHash;
use crate::memory::{
    BLOCK_BYTES, CHUNK_BYTES_MIN, Chunk, Memory, SpillPlace, image_end, is_spilled,
};
use crate::space::Space;

impl Table {
    /// Returns the parts of the table that an image contains.
    pub(crate) fn content(&self) -> Content {
        let groups = self.groups.iter().map(|state| &state.chunk);
        let chunks = groups.chain(&self.directory).map(|chunk| (chunk.address(), chunk.bytes()));
        Content {
            hash_seed: self.hash.seed(),
            root: self.root.word(),
            chunks: chunks.collect(),
            expiries: self.expiries(),
            segments: self.segments.list(),
        }
    }

    /// Creates the table of an image, in memory of its own with at most this many addresses.
    /// Verifies the directory; groups and records are verified at first use.
    ///
    /// # Errors
    /// `Corrupt` when the image cannot be a table; those of [`Memory::from_image`].
    pub(crate) fn from_image(
        image: &Image,
        addresses: u64,
        spill: Option<SpillPlace>,
    ) -> Result<Self> {
        let parts = Parts::from_image(image)?;
        let memory = Memory::from_image(image, &parts.chunks(), addresses, spill)?;
        let table = Self::assemble(memory, parts, &mut image.expiries().iter())?;
        table.memory.adopt(table.chunks(), table.segments.open_rest())?;
        Ok(table)
    }

    /// Creates a space with a mapped image, for readers alone: no thread writes there.
    ///
    /// # Errors
    /// As [`Table::from_image`].
    pub(crate) fn space_from_image(image: &Image) -> Result<Arc<Space>> {
        let parts = Parts::from_image(image)?;
        let chunks = parts.chunks();
        let addresses = image_end(image, &chunks).next_multiple_of(BLOCK_BYTES);
        let memory = Memory::from_image(image, &chunks, addresses, None)?;
        Ok(Space::new(memory, parts.hash, parts.root))
    }

    /// Creates the table of an image, copied to empty shared memory and verified.
    ///
    /// # Errors
    /// `Corrupt` when the image is damaged, or cannot be a table; those of [`Memory::copy_image`].
    pub(crate) fn copied_from_image(image: &Image, memory: &Arc<Memory>) -> Result<Self> {
        let mut parts = Parts::from_image(image)?;
        parts.segments = parts.segments.with_serial(memory.header().serial.load(Ordering::Relaxed));
        memory.copy_image(image, &parts.chunks())?;
        let table = Self::assemble(memory.clone(), parts, &mut image.expiries().iter())?;
        memory.adopt(table.chunks(), None)?;
        table.segments.note_all(memory);
        for state in table.groups.iter() {
            memory.note_group(state.chunk.address(), state.expires);
        }
        Ok(table)
    }

    /// Opens a table as an earlier writer of shared memory has left it.
    ///
    /// # Errors
    /// `Corrupt` when it cannot be a table.
    pub(crate) fn from_shared(
        memory: &Arc<Memory>,
        hash: SeededHash,
        root: u64,
        serial: u64,
    ) -> Result<Self> {
        let root = Root::from_image(root)?;
        let segments = Segments::of_notes(&memory.noted_segments(), serial)?;
        let directory = directory_of(root)?;
        let mut ends = directory.iter().map(|chunk| chunk.address() + chunk.bytes());
        if ends.any(|end| end > memory.opened()) {
            return Err(damaged("the directory is outside the image"));
        }
        let parts = Parts { hash, root, directory, segments };
        let table = Self::new(memory.clone(), hash, serial);
        let groups = table.entries_of_parts(&parts)?;
        let expiries: Vec<i64> = groups
            .chunk_by(|entry, next_entry| entry == next_entry)
            .map(|run| memory.group_expires(run[0].address()).unwrap_or(NEVER))
            .collect();
        let mut table = Self::assemble(memory.clone(), parts, &mut expiries.iter())?;
        if memory.has_spill_file() {
            let spilled_segments = table.spilled_segments()?;
            table.segments.add_spilled(spilled_segments)?;
        }
        Ok(table)
    }

    /// Collects the segments of the spill file from the slots: chunk, bytes used, and an upper
    /// bound of the live bytes.
    fn spilled_segments(&self) -> Result<Vec<(Chunk, u64, u64)>> {
        let (memory, mut scratch) = (&self.memory, Scratch::default());
        let mut words = Vec::new();
        for state in self.groups.iter() {
            words.extend(self.group_of(state)?.words().filter(|word| is_spilled(*word)));
        }
        words.sort_unstable_by_key(|word| slot::address(*word));
        let mut segments: Vec<(Chunk, u64, u64)> = Vec::new();
        for word in words {
            let address = slot::address(word);
            let is_within = |chunk: &Chunk| address < chunk.address() + chunk.bytes();
            if !segments.last().is_some_and(|(chunk, ..)| is_within(chunk)) {
                segments.push((spilled_segment(memory, address)?, 0, 0));
            }
            let Some((chunk, last, live)) = segments.last_mut() else { continue };
            *live += match slot::bytes_max(word) {
                Some(bytes) => bytes,
                None => read_spilled_record(memory, address, &scratch)?.bytes,
            };
            *last = address - chunk.address();
            scratch.clear();
        }
        for (chunk, used, live) in &mut segments {
            // Before this step `used` is the offset of the last record.
            *used += read_spilled_record(memory, chunk.address() + *used, &scratch)?.bytes;
            *live = (*live).min(*used);
            scratch.clear();
        }
        Ok(segments)
    }

    fn assemble(
        memory: Arc<Memory>,
        parts: Parts,
        expiries: &mut std::slice::Iter<'_, i64>,
    ) -> Result<Self> {
        let mut table = Self::new(memory, parts.hash, parts.segments.serial());
        let entries = table.entries_of_parts(&parts)?;
        (table.root, table.directory, table.segments) =
            (parts.root, parts.directory, parts.segments);
        table.take_groups(&entries, expiries)?;
        Ok(table)
    }

    /// Returns all chunks that the table uses, as start and bytes each.
    pub(crate) fn chunks(&self) -> Vec<(u64, u64)> {
        let groups = self.groups.iter().map(|state| &state.chunk);
        let chunks = groups.chain(&self.directory).chain(self.segments.chunks());
        chunks.map(|chunk| (chunk.address(), chunk.bytes())).collect()
    }

    /// Finds the groups in the directory; several adjacent entries may name one group.
    fn take_groups(
        &mut self,
        entries: &[GroupRef],
        expiries: &mut std::slice::Iter<'_, i64>,
    ) -> Result<()> {
        let mut first = 0;
        for run in entries.chunk_by(|entry, next_entry| entry == next_entry) {
            let width = run.len();
            if !width.is_power_of_two() || first % width != 0 {
                return Err(damaged("the directory is out of order"));
            }
            let expires = *expires_of(expiries.next())?;
            let chunk =
                run[0].chunk().ok_or_else(|| damaged("a bucket group is not in a chunk"))?;
            self.group_bytes += chunk.bytes();
            let depth = self.root.depth() - width.ilog2();
            let mut state = GroupState::of(chunk, depth);
            state.has_room = !self.memory.is_of_image();
            let place = self.groups.len();
            if expires < NEVER {
                self.due.note(place, &mut state, expires);
            }
            self.groups.push(state);
            self.writer_directory.point(self.root.first_hash(first), depth, place);
            first += width;
        }
        if expiries.next().is_some() {
            Err(damaged("there are more bucket groups than the directory has"))
        } else {
            Ok(())
        }
    }

    /// Returns the groups by directory entry.
    fn entries_of_parts(&self, parts: &Parts) -> Result<Vec<GroupRef>> {
        if parts.root == Root::NONE {
            return Ok(Vec::new());
        }
        let Some(chunk) = &parts.directory else { return Ok(vec![parts.root.only_group()]) };
        self.memory.verify(chunk.address(), chunk.bytes())?;
        let entry = |entry: u64| {
            let entry_address = chunk.address() + entry * ENTRY_BYTES;
            // SAFETY: an entry of the table's own directory, which was just verified.
            GroupRef::of_entry(
                unsafe { self.memory.half_word(entry_address) }.load(Ordering::Relaxed),
            )
        };
        Ok((0..1 << parts.root.depth()).map(entry).collect())
    }
}

/// The parts that a table is assembled from.
struct Parts {
    hash: SeededHash,
    root: Root,
    directory: Option<Chunk>,
    segments: Segments,
}

impl Parts {
    fn from_image(image: &Image) -> Result<Self> {
        let root = Root::from_image(image.root())?;
        let segments = Segments::from_image(image.segments())?;
        let (hash, directory) = (SeededHash::of_seed(image.hash_seed()), directory_of(root)?);
        Ok(Self { hash, root, directory, segments })
    }

    /// The chunks of everything but the groups.
    fn chunks(&self) -> Vec<(u64, u64)> {
        let chunks = self.segments.chunks().chain(&self.directory);
        chunks.map(|chunk| (chunk.address(), chunk.bytes())).collect()
    }
}

/// Returns the chunk of a root's directory.
fn directory_of(root: Root) -> Result<Option<Chunk>> {
    if root.depth() == 0 {
        return Ok(None);
    }
    let bytes = (ENTRY_BYTES << root.depth()).max(CHUNK_BYTES_MIN);
    let chunk = Chunk::from_image(root.address(), bytes);
    chunk.map(Some).ok_or_else(|| damaged("the directory is not in a chunk"))
}

fn expires_of(expiry: Option<&i64>) -> Result<&i64> {
    expiry.ok_or_else(|| damaged("there are fewer bucket groups than the directory has"))
}
