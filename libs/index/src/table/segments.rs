//! Segments: where a table's records lie, and how the space of dead ones comes back.
//!
//! Records are appended to the open segment; a replaced or deleted one stays where it is and counts
//! as dead. A sealed segment that is half dead is emptied: its live records move to the open one, a
//! bounded number of bytes per call, and then the segment is retired. An open segment in which
//! nothing lives is sealed once it is half full, so that deletes give its memory back too.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_core::{Error, Result};

use super::record::header;
use crate::image::{SegmentAt, damaged};
use crate::memory::{CHUNK_BYTES_MIN, Chunk, Memory, SegmentNote};

/// A segment is this part of all that there are: small tables take little memory.
const SEGMENT_SHARE: u64 = 8;
/// Bytes of a segment of a large table: a block of huge pages.
const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Debug)]
struct Segment {
    chunk: Chunk,
    used: u64,
    live: u64,
    /// Whether it waits to be emptied.
    sparse: bool,
    /// Whether `live` may be too much: an earlier holder may have been killed between a record and
    /// its slot.
    is_inexact: bool,
}

impl Segment {
    fn holds(&self, address: u64) -> bool {
        (self.chunk.address()..self.chunk.address() + self.chunk.bytes()).contains(&address)
    }

    fn is_sparse(&self) -> bool {
        self.live * 2 <= self.used
    }
}

/// Segments by their addresses: searched for each record that dies, changed for each segment.
#[derive(Debug, Default)]
struct ByAddress {
    starts: Vec<u64>,
    /// In the same order.
    segments: Vec<Segment>,
}

impl ByAddress {
    /// The last segment that begins at or before an address.
    fn at_or_before(&mut self, address: u64) -> Option<&mut Segment> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.segments.get_mut(behind.checked_sub(1)?)
    }

    fn get(&self, start: u64) -> Option<&Segment> {
        self.starts.binary_search(&start).ok().map(|place| &self.segments[place])
    }

    /// Answers whether there was none in its place.
    #[must_use]
    fn insert(&mut self, segment: Segment) -> bool {
        let start = segment.chunk.address();
        let Err(place) = self.starts.binary_search(&start) else { return false };
        self.starts.insert(place, start);
        self.segments.insert(place, segment);
        true
    }

    fn remove(&mut self, start: u64) -> Option<Segment> {
        let place = self.starts.binary_search(&start).ok()?;
        self.starts.remove(place);
        Some(self.segments.remove(place))
    }
}

/// All segments of one table; belongs to its writer.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// What tells them, in live memory, from those of other tables.
    serial: u64,
    sealed: ByAddress,
    /// The one that records are appended to.
    open: Option<Segment>,
    bytes: u64,
    sparse: VecDeque<u64>,
    emptied: Option<Emptying>,
    /// Bytes of records that were replaced or deleted since this was last asked.
    died: u64,
}

/// How far a segment is emptied.
#[derive(Clone, Copy, Debug)]
struct Emptying {
    segment: u64,
    next: u64,
}

impl Segments {
    pub(super) fn new(serial: u64) -> Self {
        Self { serial, ..Self::default() }
    }

    pub(super) fn with_serial(self, serial: u64) -> Self {
        Self { serial, ..self }
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Those that an earlier writer of live memory has noted. None of them is open: what that one
    /// was just appending is lost.
    ///
    /// # Errors
    /// `Corrupt` for what can be no segment.
    pub(super) fn of_notes(notes: &[SegmentNote], serial: u64) -> Result<Self> {
        let mut segments = Self::new(serial);
        for note in notes.iter().filter(|note| note.serial == serial) {
            let SegmentNote { address, bytes, used, live, .. } = *note;
            let chunk = Chunk::of_image(address, bytes).filter(|_| used <= bytes && live <= used);
            let chunk = chunk.ok_or_else(|| damaged("a segment that is no chunk"))?;
            segments.bytes += bytes;
            let segment = Segment { chunk, used, live, sparse: false, is_inexact: true };
            if !segments.sealed.insert(segment) {
                return Err(damaged("two segments in one place"));
            }
        }
        segments.note_all_sparse();
        Ok(segments)
    }

    fn note_all_sparse(&mut self) {
        self.sealed.segments.iter_mut().for_each(|sealed| note_sparse(&mut self.sparse, sealed));
    }

    fn all(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.segments.iter().chain(&self.open)
    }

    /// Notes all of them in live memory.
    pub(super) fn note_all(&self, memory: &Memory) {
        for segment in self.all() {
            memory.note_segment(&segment.chunk, segment.used, segment.live, self.serial);
        }
    }

    /// As an image holds them.
    pub(super) fn list(&self) -> Vec<SegmentAt> {
        let open = self.open.as_ref().map(|open| open.chunk.address());
        let list = self.all().map(|segment| SegmentAt {
            address: segment.chunk.address(),
            bytes: segment.chunk.bytes(),
            used: segment.used,
            live: segment.live,
            is_open: open == Some(segment.chunk.address()),
        });
        let mut list: Vec<_> = list.collect();
        list.sort_unstable_by_key(|at| at.address);
        list
    }

    /// Those of an image.
    ///
    /// # Errors
    /// `Corrupt` for what can be no segment, and for two that are open.
    pub(super) fn of_image(list: &[SegmentAt]) -> Result<Self> {
        let mut segments = Self::default();
        for at in list {
            let SegmentAt { address, bytes, used, live, is_open } = *at;
            let chunk = Chunk::of_image(address, bytes)
                .ok_or_else(|| damaged("a segment that is no chunk"))?;
            if is_open && used % CHUNK_BYTES_MIN != 0 {
                return Err(damaged("an open segment that ends inside of a block"));
            }
            segments.bytes += chunk.bytes();
            let segment = Segment { chunk, used, live, sparse: false, is_inexact: false };
            if is_open && segments.open.is_some() {
                return Err(damaged("two open segments"));
            }
            if is_open {
                segments.open = Some(segment);
            } else if !segments.sealed.insert(segment) {
                return Err(damaged("two segments in one place"));
            }
        }
        segments.note_all_sparse();
        Ok(segments)
    }

    /// What of the open segment is still to be written: where it begins, and its bytes.
    pub(super) fn open_rest(&self) -> Option<(u64, u64)> {
        let segment = self.open.as_ref()?;
        Some((segment.chunk.address() + segment.used, segment.chunk.bytes() - segment.used))
    }

    /// The chunks of all.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.all().map(|segment| &segment.chunk)
    }

    /// Writes a record and answers its address and its bytes.
    pub(super) fn append(&mut self, memory: &Memory, key: &[u8], row: &[u8]) -> Result<(u64, u64)> {
        let (header, length) = header(key.len(), row.len());
        let bytes = (length + key.len() + row.len()) as u64;
        let segment = self.room_for(memory, bytes)?;
        let address = segment.chunk.address() + segment.used;
        let mut at = address;
        for part in [&header[..length], key, row] {
            // SAFETY: the open segment has room for the record, and nobody has its address yet.
            unsafe { memory.write(at, part) };
            at += part.len() as u64;
        }
        segment.used += bytes;
        segment.live += bytes;
        memory.note_fill(segment.chunk.address(), segment.used, segment.live);
        Ok((address, bytes))
    }

    fn room_for(&mut self, memory: &Memory, bytes: u64) -> Result<&mut Segment> {
        if self.open.as_ref().is_none_or(|open| open.chunk.bytes() - open.used < bytes) {
            let share = self.bytes / SEGMENT_SHARE;
            let wanted = share.clamp(CHUNK_BYTES_MIN, SEGMENT_BYTES_MAX).max(bytes);
            let chunk = memory.allocate(wanted)?;
            self.bytes += chunk.bytes();
            memory.note_segment(&chunk, 0, 0, self.serial);
            self.seal();
            self.open = Some(Segment { chunk, used: 0, live: 0, sparse: false, is_inexact: false });
        }
        Ok(self.open.as_mut().expect("a segment was opened above"))
    }

    /// Nothing more is appended to the open segment.
    fn seal(&mut self) {
        let Some(mut sealed) = self.open.take() else { return };
        note_sparse(&mut self.sparse, &mut sealed);
        let is_alone = self.sealed.insert(sealed);
        debug_assert!(is_alone, "no two chunks begin in one place");
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a record as dead: it was replaced or deleted.
    pub(super) fn bury(&mut self, memory: &Memory, address: u64, bytes: u64) {
        self.died += bytes;
        self.bury_moved(memory, address, bytes);
    }

    /// Counts a record as dead: it lives on elsewhere.
    pub(super) fn bury_moved(&mut self, memory: &Memory, address: u64, bytes: u64) {
        let open = self.open.as_mut().filter(|open| open.holds(address));
        let is_open = open.is_some();
        let Some(segment) = open.or_else(|| self.sealed.at_or_before(address)) else { return };
        // Less than nothing only where an image has lied; then the segment is never emptied.
        segment.live = segment.live.saturating_sub(bytes);
        memory.note_fill(segment.chunk.address(), segment.used, segment.live);
        if !is_open {
            note_sparse(&mut self.sparse, segment);
        } else if segment.live == 0 && segment.used * 2 > segment.chunk.bytes() {
            self.seal();
        }
    }

    /// How many bytes died since the last call.
    pub(super) fn take_died(&mut self) -> u64 {
        std::mem::take(&mut self.died)
    }

    /// Where the records lie that are still to be looked at in a segment that is being emptied;
    /// `None` when nothing in it lives, or there is none.
    pub(super) fn rest_to_move(&mut self) -> Option<Range<u64>> {
        let emptied = match self.emptied {
            Some(emptied) => emptied,
            None => {
                let segment = self.sparse.pop_front()?;
                *self.emptied.insert(Emptying { segment, next: segment })
            }
        };
        let segment = self.sealed.get(emptied.segment)?;
        let end = emptied.segment + segment.used;
        (segment.live > 0 && emptied.next < end).then_some(emptied.next..end)
    }

    /// The next of the records that `rest_to_move` answered was looked at.
    pub(super) fn moved(&mut self, bytes: u64) {
        if let Some(emptied) = &mut self.emptied {
            emptied.next += bytes;
        }
    }

    /// The segment that was being emptied, once nothing in it lives.
    ///
    /// # Errors
    /// `Internal` when something lives in it still.
    pub(super) fn take_emptied(&mut self) -> Result<Option<Chunk>> {
        let Some(emptied) = self.emptied.take() else { return Ok(None) };
        let segment = self.sealed.get(emptied.segment);
        if segment.is_some_and(|segment| segment.live > 0 && !segment.is_inexact) {
            let message = "a record was counted twice, or its slot was not found";
            return Err(Error::internal(message));
        }
        let Some(segment) = self.sealed.remove(emptied.segment) else { return Ok(None) };
        self.bytes -= segment.chunk.bytes();
        Ok(Some(segment.chunk))
    }

    /// All chunks, for a table that ends.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.sealed.segments.into_iter().chain(self.open).map(|segment| segment.chunk)
    }
}

/// Lines a sealed segment up to be emptied, once that is worth it.
fn note_sparse(line: &mut VecDeque<u64>, sealed: &mut Segment) {
    if !sealed.sparse && sealed.is_sparse() {
        sealed.sparse = true;
        line.push_back(sealed.chunk.address());
    }
}
