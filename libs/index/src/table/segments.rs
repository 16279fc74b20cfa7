//! Segments: the chunks of a table's records, and how the space of dead records is reclaimed.
//!
//! Records are appended to the open segment; a replaced or deleted record stays in place and counts
//! as dead. A sealed segment that is half dead is emptied: its live records move to the open
//! segment, a bounded number of bytes per call, and then the segment is retired. An open segment
//! without any live record is sealed once it is half full, so that deletes free its memory, too.
//!
//! Once memory is short, the segment that was sealed first is emptied into a segment of the spill
//! file. Such a segment is like the others, with a header that marks its start.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::{self, record_bytes};
use crate::image::{SegmentAt, damaged};
use crate::memory::{
    BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Chunk, Memory, SegmentNote, is_spilled,
};

/// Size of a new segment as a part of all segments: small tables take little memory.
const SEGMENT_SHARE: u64 = 8;
/// Bytes of a segment of a large table: a block of huge pages.
const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Bytes of the smallest chunk of the spill file.
const SPILL_SEGMENT_BYTES_MIN: u64 = BLOCK_BYTES;
/// Bytes before the records of a segment in the spill file: its length, and a checksum of the
/// length and of the segment's address.
const SPILL_HEADER_BYTES: u64 = 16;

/// Encodes the header of a segment in the spill file.
fn spill_header(chunk: &Chunk) -> [u8; SPILL_HEADER_BYTES as usize] {
    let bytes = chunk.bytes().to_le_bytes();
    let checksum = xxh3_64_with_seed(&bytes, chunk.address()).to_le_bytes();
    let mut header = [0; SPILL_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&bytes);
    header[8..].copy_from_slice(&checksum);
    header
}

/// Finds the segment of the spill file that contains an address.
///
/// # Errors
/// `Corrupt` if there is none; `Unavailable`.
pub(super) fn spilled_segment(memory: &Memory, address: u64) -> Result<Chunk> {
    let mut bytes = SPILL_SEGMENT_BYTES_MIN;
    while bytes <= CHUNK_BYTES_MAX {
        let chunk = Chunk::from_image(address / bytes * bytes, bytes);
        let mut header = [0; SPILL_HEADER_BYTES as usize];
        if let Some(chunk) = chunk {
            memory.read_spilled(chunk.address(), &mut header)?;
            if header == spill_header(&chunk) {
                return Ok(chunk);
            }
        }
        bytes *= 2;
    }
    Err(memory.note_spill_damage(damaged("a spilled record is in no segment")))
}

#[derive(Debug)]
struct Segment {
    chunk: Chunk,
    used: u64,
    live: u64,
    /// Ordinal of the segment's sealing.
    sealed_as: u64,
    /// Whether the segment is queued to be emptied.
    is_queued: bool,
    /// Whether `live` may be too high: an earlier owner may have been killed between a record and
    /// its slot.
    is_inexact: bool,
}

impl Segment {
    fn new(chunk: Chunk, used: u64, live: u64) -> Self {
        Self { chunk, used, live, sealed_as: 0, is_queued: false, is_inexact: false }
    }

    fn is_spilled(&self) -> bool {
        is_spilled(self.chunk.address())
    }

    /// The address of the first record.
    fn first(&self) -> u64 {
        let header = if self.is_spilled() { SPILL_HEADER_BYTES } else { 0 };
        self.chunk.address() + header
    }

    fn holds(&self, address: u64) -> bool {
        (self.chunk.address()..self.chunk.address() + self.chunk.bytes()).contains(&address)
    }

    fn is_sparse(&self) -> bool {
        self.live * 2 <= self.used
    }
}

/// Segments by address: searched for each record that dies, changed for each segment.
#[derive(Debug, Default)]
struct ByAddress {
    starts: Vec<u64>,
    /// The segments, in the order of `starts`.
    segments: Vec<Segment>,
    /// By block of the memory, up to the last segment: the number of segments that begin below it.
    /// Most blocks are one segment, so most searches end here.
    segments_below: Vec<u32>,
}

impl ByAddress {
    /// Returns the last segment that begins at or before an address.
    fn at_or_before(&mut self, address: u64) -> Option<&mut Segment> {
        let block = (address / BLOCK_BYTES) as usize;
        let first = self
            .segments_below
            .get(block)
            .or(self.segments_below.last())
            .map_or(0, |count| *count as usize);
        let end =
            self.segments_below.get(block + 1).map_or(self.starts.len(), |count| *count as usize);
        let next = first + self.starts[first..end].partition_point(|start| *start <= address);
        self.segments.get_mut(next.checked_sub(1)?)
    }

    fn get(&self, start: u64) -> Option<&Segment> {
        self.starts.binary_search(&start).ok().map(|place| &self.segments[place])
    }

    /// Inserts a segment; returns whether there was none at its address.
    #[must_use]
    fn insert(&mut self, segment: Segment) -> bool {
        let start = segment.chunk.address();
        let Err(place) = self.starts.binary_search(&start) else { return false };
        if !segment.is_spilled() {
            let block = (start / BLOCK_BYTES) as usize;
            for new in self.segments_below.len()..=block {
                let end = new as u64 * BLOCK_BYTES;
                self.segments_below.push(self.starts.partition_point(|start| *start < end) as u32);
            }
            self.segments_below[block + 1..].iter_mut().for_each(|count| *count += 1);
        }
        self.starts.insert(place, start);
        self.segments.insert(place, segment);
        true
    }

    fn remove(&mut self, start: u64) -> Option<Segment> {
        let place = self.starts.binary_search(&start).ok()?;
        self.starts.remove(place);
        let segment = self.segments.remove(place);
        if !segment.is_spilled() {
            let block = (start / BLOCK_BYTES) as usize;
            self.segments_below[block + 1..].iter_mut().for_each(|count| *count -= 1);
        }
        Some(segment)
    }
}

/// The segments of one table; belongs to the table's writer.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// The serial, which distinguishes them in shared memory from segments of other tables.
    serial: u64,
    sealed: ByAddress,
    /// The segment that records are appended to.
    open: Option<Segment>,
    /// The segment of the spill file that records are moved to.
    open_spilled: Option<Segment>,
    /// Bytes of the segments in memory.
    bytes: u64,
    /// Number of segments that have been sealed.
    sealed_count: u64,
    /// The queue of segments to be emptied.
    queue: VecDeque<u64>,
    /// The progress of the segment that is being emptied.
    evacuation: Option<EvacuationProgress>,
    /// Bytes of records that were replaced or deleted since the last [`Segments::take_dead_bytes`].
    dead_bytes: u64,
}

/// The progress of emptying a segment.
#[derive(Clone, Copy, Debug)]
struct EvacuationProgress {
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

    /// Loads the segments that an earlier writer of shared memory has noted. None of them is open:
    /// a record that the writer was appending is lost.
    ///
    /// # Errors
    /// `Corrupt` for an impossible segment.
    pub(super) fn of_notes(notes: &[SegmentNote], serial: u64) -> Result<Self> {
        let mut segments = Self::new(serial);
        for note in notes.iter().filter(|note| note.serial == serial) {
            let SegmentNote { address, bytes, used, live, .. } = *note;
            let chunk = Chunk::from_image(address, bytes).filter(|_| used <= bytes && live <= used);
            let chunk = chunk.ok_or_else(|| damaged("a segment is not in a chunk"))?;
            segments.insert(Segment { is_inexact: true, ..Segment::new(chunk, used, live) })?;
        }
        segments.queue_sparse();
        Ok(segments)
    }

    /// Adds the segments of the spill file that an earlier writer has left: chunk, bytes used, and
    /// an upper bound of the live bytes.
    ///
    /// # Errors
    /// `Corrupt` for two segments at one address.
    pub(super) fn add_spilled(
        &mut self,
        segments: impl IntoIterator<Item = (Chunk, u64, u64)>,
    ) -> Result<()> {
        for (chunk, used, live) in segments {
            self.insert(Segment { is_inexact: true, ..Segment::new(chunk, used, live) })?;
        }
        self.queue_sparse();
        Ok(())
    }

    /// Adds a sealed segment.
    fn insert(&mut self, segment: Segment) -> Result<()> {
        self.bytes += if segment.is_spilled() { 0 } else { segment.chunk.bytes() };
        let is_alone = self.sealed.insert(segment);
        is_alone.then_some(()).ok_or_else(|| damaged("two segments are in one place"))
    }

    fn queue_sparse(&mut self) {
        self.sealed.segments.iter_mut().for_each(|sealed| queue_if_sparse(&mut self.queue, sealed));
    }

    fn all(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.segments.iter().chain(&self.open).chain(&self.open_spilled)
    }

    /// Notes all segments in shared memory.
    pub(super) fn note_all(&self, memory: &Memory) {
        for segment in self.all() {
            memory.note_segment(&segment.chunk, segment.used, segment.live, self.serial);
        }
    }

    /// Lists the segments as an image stores them.
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
        list.sort_unstable_by_key(|segment_at| segment_at.address);
        list
    }

    /// Loads the segments of an image.
    ///
    /// # Errors
    /// `Corrupt` for an impossible segment, and for two open segments.
    pub(super) fn from_image(list: &[SegmentAt]) -> Result<Self> {
        let mut segments = Self::default();
        for segment_at in list {
            let SegmentAt { address, bytes, used, live, is_open } = *segment_at;
            let chunk = Chunk::from_image(address, bytes)
                .ok_or_else(|| damaged("a segment is not in a chunk"))?;
            let segment = Segment::new(chunk, used, live);
            if !is_open {
                segments.insert(segment)?;
                continue;
            }
            if used % CHUNK_BYTES_MIN != 0 || segment.is_spilled() {
                return Err(damaged("an open segment has no room for records"));
            }
            segments.bytes += segment.chunk.bytes();
            if segments.open.replace(segment).is_some() {
                return Err(damaged("there are two open segments"));
            }
        }
        segments.queue_sparse();
        Ok(segments)
    }

    /// The unwritten part of the open segment: its address and its bytes.
    pub(super) fn open_rest(&self) -> Option<(u64, u64)> {
        let segment = self.open.as_ref()?;
        Some((segment.chunk.address() + segment.used, segment.chunk.bytes() - segment.used))
    }

    /// The chunks of all segments.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.all().map(|segment| &segment.chunk)
    }

    /// Writes a record and returns its address and its bytes.
    pub(super) fn append(&mut self, memory: &Memory, key: &[u8], row: &[u8]) -> Result<(u64, u64)> {
        let address = self.room(memory, record_bytes(key.len(), row.len()))?;
        // SAFETY: the open segment has room for the record, and no other thread has the address.
        let bytes = unsafe { record::write(memory, address, key, row) };
        self.count_appended(memory, bytes);
        Ok((address, bytes))
    }

    /// Writes a copy of an existing record; returns its address.
    pub(super) fn append_bytes(&mut self, memory: &Memory, record: &[u8]) -> Result<u64> {
        let bytes = record.len() as u64;
        let address = self.room(memory, bytes)?;
        // SAFETY: as above.
        unsafe { memory.write(address, record) };
        self.count_appended(memory, bytes);
        Ok(address)
    }

    /// Returns the address of the next record, of this many bytes.
    fn room(&mut self, memory: &Memory, bytes: u64) -> Result<u64> {
        let open = self.room_for(memory, bytes)?;
        Ok(open.chunk.address() + open.used)
    }

    /// Counts a record of this many bytes that was written to the open segment.
    fn count_appended(&mut self, memory: &Memory, bytes: u64) {
        if let Some(open) = &mut self.open {
            open.used += bytes;
            open.live += bytes;
            memory.note_fill(open.chunk.address(), open.used, open.live);
        }
    }

    fn room_for(&mut self, memory: &Memory, bytes: u64) -> Result<&mut Segment> {
        if self.open.as_ref().is_none_or(|open| open.chunk.bytes() - open.used < bytes) {
            let share = self.bytes / SEGMENT_SHARE;
            let chunk_bytes = share.clamp(CHUNK_BYTES_MIN, SEGMENT_BYTES_MAX).max(bytes);
            let chunk = memory.allocate(chunk_bytes)?;
            self.bytes += chunk.bytes();
            memory.note_segment(&chunk, 0, 0, self.serial);
            let full = self.open.replace(Segment::new(chunk, 0, 0));
            self.seal(full);
        }
        Ok(self.open.as_mut().expect("a segment was opened above"))
    }

    /// Seals a segment that was open: nothing more is appended to it.
    fn seal(&mut self, open: Option<Segment>) {
        let Some(mut sealed) = open else { return };
        self.sealed_count += 1;
        sealed.sealed_as = self.sealed_count;
        queue_if_sparse(&mut self.queue, &mut sealed);
        let is_alone = self.sealed.insert(sealed);
        debug_assert!(is_alone, "no two chunks begin in one place");
    }

    /// Returns an address of the spill file with room for this many bytes; call
    /// [`Segments::count_spilled`] after they are written.
    ///
    /// # Errors
    /// `LimitExceeded` without room; `Unavailable`.
    pub(super) fn room_to_spill(&mut self, memory: &Memory, bytes: u64) -> Result<u64> {
        let has_room = |open: &Segment| open.chunk.bytes() - open.used >= bytes;
        if !self.open_spilled.as_ref().is_some_and(has_room) {
            let chunk = memory.allocate_spilled(SPILL_HEADER_BYTES + bytes)?;
            let header = spill_header(&chunk);
            if let Err(error) = memory.write_spilled(chunk.address(), &header) {
                memory.release([chunk]);
                return Err(error);
            }
            let full = self.open_spilled.replace(Segment::new(chunk, SPILL_HEADER_BYTES, 0));
            self.seal(full);
        }
        let open = self.open_spilled.as_ref().expect("a segment was opened above");
        Ok(open.chunk.address() + open.used)
    }

    /// Counts records of this many bytes that were written to the open segment of the spill file.
    pub(super) fn count_spilled(&mut self, bytes: u64) {
        if let Some(open) = &mut self.open_spilled {
            open.used += bytes;
            open.live += bytes;
        }
    }

    /// Queues the oldest sealed segment in memory to be emptied; returns whether there is one that
    /// is not queued already.
    pub(super) fn queue_oldest(&mut self) -> bool {
        let evacuation = self.evacuation.map(|evacuation| evacuation.segment);
        let can_go = |segment: &&mut Segment| {
            let is_at_rest = !segment.is_queued && evacuation != Some(segment.chunk.address());
            is_at_rest && !segment.is_spilled()
        };
        let oldest = self.sealed.segments.iter_mut().filter(can_go);
        let Some(oldest) = oldest.min_by_key(|segment| segment.sealed_as) else { return false };
        oldest.is_queued = true;
        self.queue.push_back(oldest.chunk.address());
        true
    }

    /// Bytes of all segments in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a record as dead: it was replaced or deleted.
    pub(super) fn bury(&mut self, memory: &Memory, address: u64, bytes: u64) {
        self.dead_bytes += bytes;
        self.bury_moved(memory, address, bytes);
    }

    /// Counts a record as dead that lives on at another address.
    pub(super) fn bury_moved(&mut self, memory: &Memory, address: u64, bytes: u64) {
        let open = if is_spilled(address) { &mut self.open_spilled } else { &mut self.open };
        let open_segment = open.as_mut().filter(|open| open.holds(address));
        let is_open = open_segment.is_some();
        let Some(segment) = open_segment.or_else(|| self.sealed.at_or_before(address)) else {
            return;
        };
        // An address in no segment is in the bucket of an inline group.
        if !segment.holds(address) {
            return;
        }
        // The count saturates only if an image has understated it; then the segment is never
        // emptied.
        segment.live = segment.live.saturating_sub(bytes);
        memory.note_fill(segment.chunk.address(), segment.used, segment.live);
        if !is_open {
            queue_if_sparse(&mut self.queue, segment);
        } else if segment.live == 0 && segment.used * 2 > segment.chunk.bytes() {
            let empty = open.take();
            self.seal(empty);
        }
    }

    /// Returns how many bytes died since the last call.
    pub(super) fn take_dead_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.dead_bytes)
    }

    /// Returns the addresses of the remaining records of the segment that is being emptied; `None`
    /// if the segment has no live record, or no segment is being emptied.
    pub(super) fn range_to_move(&mut self) -> Option<Range<u64>> {
        let evacuation = match self.evacuation {
            Some(evacuation) => evacuation,
            None => {
                let segment = self.queue.pop_front()?;
                let next = self.sealed.get(segment).map_or(segment, Segment::first);
                *self.evacuation.insert(EvacuationProgress { segment, next })
            }
        };
        let segment = self.sealed.get(evacuation.segment)?;
        let end = evacuation.segment + segment.used;
        (segment.live > 0 && evacuation.next < end).then_some(evacuation.next..end)
    }

    /// Advances over the next of the records that `range_to_move` returned.
    pub(super) fn advance_evacuation(&mut self, bytes: u64) {
        if let Some(evacuation) = &mut self.evacuation {
            evacuation.next += bytes;
        }
    }

    /// Returns the chunk of the segment that was being emptied, once it has no live record.
    ///
    /// # Errors
    /// `Internal` when the segment still has a live record.
    pub(super) fn take_evacuated(&mut self) -> Result<Option<Chunk>> {
        let Some(evacuation) = self.evacuation.take() else { return Ok(None) };
        let segment = self.sealed.get(evacuation.segment);
        if segment.is_some_and(|segment| segment.live > 0 && !segment.is_inexact) {
            let message = "a record was counted twice, or its slot was not found";
            return Err(Error::internal(message));
        }
        let Some(segment) = self.sealed.remove(evacuation.segment) else { return Ok(None) };
        self.bytes -= if segment.is_spilled() { 0 } else { segment.chunk.bytes() };
        Ok(Some(segment.chunk))
    }

    /// All chunks, for a table that ends.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        let open = self.open.into_iter().chain(self.open_spilled);
        self.sealed.segments.into_iter().chain(open).map(|segment| segment.chunk)
    }
}

/// Queues a sealed segment to be emptied, once that is worth it.
fn queue_if_sparse(queue: &mut VecDeque<u64>, sealed: &mut Segment) {
    if !sealed.is_queued && sealed.is_sparse() {
        sealed.is_queued = true;
        queue.push_back(sealed.chunk.address());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_found_by_its_addresses_until_it_is_removed() {
        const SPILLED: u64 = 1 << 42;
        let (small, large) = (CHUNK_BYTES_MIN, 2 * BLOCK_BYTES);
        let starts = [
            (BLOCK_BYTES, small),
            (BLOCK_BYTES + 4 * small, 4 * small),
            (2 * BLOCK_BYTES - small, small),
            (2 * BLOCK_BYTES, BLOCK_BYTES),
            (8 * BLOCK_BYTES, large),
            (5 * BLOCK_BYTES, BLOCK_BYTES),
            (SPILLED, BLOCK_BYTES),
            (SPILLED + 8 * BLOCK_BYTES, large),
        ];
        let mut segments = ByAddress::default();
        let find = |segments: &mut ByAddress, address| {
            let found = segments.at_or_before(address).filter(|segment| segment.holds(address));
            found.map(|segment| segment.chunk.address())
        };
        for (start, bytes) in starts {
            let chunk = Chunk::from_image(start, bytes).unwrap();
            assert!(segments.insert(Segment::new(chunk, 0, 0)));
        }
        for removed_start in [5 * BLOCK_BYTES, BLOCK_BYTES, SPILLED] {
            for (start, bytes) in starts {
                let is_present = segments.get(start).is_some();
                for address in [start, start + bytes / 2, start + bytes - 1] {
                    assert_eq!(
                        find(&mut segments, address),
                        is_present.then_some(start),
                        "{address}"
                    );
                }
                assert_eq!(find(&mut segments, start - 1).filter(|found| *found == start), None);
            }
            assert!(
                segments.remove(removed_start).is_some()
                    && segments.remove(removed_start).is_none()
            );
        }
        assert_eq!(find(&mut segments, SPILLED), None);
    }
}
