//! Segments: where a table's records lie, and how the space of dead ones comes back.
//!
//! Records are appended to the open segment; a replaced or deleted one stays where it is and counts
//! as dead. A sealed segment that is half dead is emptied: its live records move to the open one, a
//! bounded number of bytes per call, and then the segment is retired. An open segment in which
//! nothing lives is sealed once it is half full, so that deletes give its memory back too.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use forebay_core::{Error, Result};

use super::record::header;
use crate::image::{SegmentAt, damaged};
use crate::memory::{CHUNK_BYTES_MIN, Chunk, Memory};

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
}

impl Segment {
    fn is_sparse(&self) -> bool {
        self.live * 2 <= self.used
    }
}

/// All segments of one table; belongs to its writer.
#[derive(Debug, Default)]
pub(super) struct Segments {
    by_address: BTreeMap<u64, Segment>,
    open: Option<u64>,
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
    /// As an image holds them.
    pub(super) fn list(&self) -> Vec<SegmentAt> {
        let list = self.by_address.iter().map(|(address, segment)| SegmentAt {
            address: *address,
            bytes: segment.chunk.bytes(),
            used: segment.used,
            live: segment.live,
            is_open: self.open == Some(*address),
        });
        list.collect()
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
            if is_open && segments.open.replace(address).is_some() {
                return Err(damaged("two open segments"));
            }
            segments.bytes += chunk.bytes();
            let segment = Segment { chunk, used, live, sparse: false };
            if segments.by_address.insert(address, segment).is_some() {
                return Err(damaged("two segments in one place"));
            }
        }
        list.iter().for_each(|at| segments.note_sparse(at.address));
        Ok(segments)
    }

    /// What of the open segment is still to be written: where it begins, and its bytes.
    pub(super) fn open_rest(&self) -> Option<(u64, u64)> {
        let segment = self.by_address.get(&self.open?)?;
        Some((segment.chunk.address() + segment.used, segment.chunk.bytes() - segment.used))
    }

    /// The chunks of all.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.by_address.values().map(|segment| &segment.chunk)
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
        Ok((address, bytes))
    }

    fn room_for(&mut self, memory: &Memory, bytes: u64) -> Result<&mut Segment> {
        let open = self.open.and_then(|open| self.by_address.get(&open));
        if open.is_none_or(|open| open.chunk.bytes() - open.used < bytes) {
            let share = self.bytes / SEGMENT_SHARE;
            let wanted = share.clamp(CHUNK_BYTES_MIN, SEGMENT_BYTES_MAX).max(bytes);
            let chunk = memory.allocate(wanted)?;
            self.bytes += chunk.bytes();
            let address = chunk.address();
            let sealed = self.open.replace(address);
            self.by_address.insert(address, Segment { chunk, used: 0, live: 0, sparse: false });
            sealed.into_iter().for_each(|sealed| self.note_sparse(sealed));
        }
        let open = self.open.and_then(|open| self.by_address.get_mut(&open));
        Ok(open.expect("a segment was opened above"))
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a record as dead: it was replaced or deleted.
    pub(super) fn bury(&mut self, address: u64, bytes: u64) {
        self.died += bytes;
        self.bury_moved(address, bytes);
    }

    /// Counts a record as dead: it lives on elsewhere.
    pub(super) fn bury_moved(&mut self, address: u64, bytes: u64) {
        let Some((start, segment)) = self.by_address.range_mut(..=address).next_back() else {
            return;
        };
        let start = *start;
        // Less than nothing only where an image has lied; then the segment is never emptied.
        segment.live = segment.live.saturating_sub(bytes);
        let is_spent = segment.live == 0 && segment.used * 2 > segment.chunk.bytes();
        if is_spent && self.open == Some(start) {
            self.open = None;
        }
        self.note_sparse(start);
    }

    /// How many bytes died since the last call.
    pub(super) fn take_died(&mut self) -> u64 {
        std::mem::take(&mut self.died)
    }

    fn note_sparse(&mut self, start: u64) {
        let is_open = self.open == Some(start);
        let Some(segment) = self.by_address.get_mut(&start) else { return };
        if !is_open && !segment.sparse && segment.is_sparse() {
            segment.sparse = true;
            self.sparse.push_back(start);
        }
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
        let segment = self.by_address.get(&emptied.segment)?;
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
        let lives = self.by_address.get(&emptied.segment).is_some_and(|segment| segment.live > 0);
        if lives {
            let message = "a record was counted twice, or its slot was not found";
            return Err(Error::internal(message));
        }
        let Some(segment) = self.by_address.remove(&emptied.segment) else { return Ok(None) };
        self.bytes -= segment.chunk.bytes();
        Ok(Some(segment.chunk))
    }

    /// All chunks, for a table that ends.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.by_address.into_values().map(|segment| segment.chunk)
    }
}
