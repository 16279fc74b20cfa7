//! A partition of an embedded log: the state of its committer and the state of its readers.
//!
//! A mutex protects each of the two. The committer holds `write` while it writes frames, and a
//! deletion holds it, too. Readers hold `read` briefly, and so does the committer once a group is
//! durable. A thread that takes both mutexes takes `write` first.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionRef};
use parking_lot::Mutex;

use super::format::HEADER_BYTES;
use super::paths;
use crate::append_notifier::AppendNotifier;
use crate::change_log::{Bounds, LogRecord, no_such_log, trim_above_end};
use crate::tail_cache::{CacheBudget, TailCache};

/// Bytes of a segment between two entries of its index.
const INDEX_STRIDE_BYTES: u64 = 64 * 1024;

pub(super) struct Partition {
    pub(super) at: PartitionRef,
    pub(super) dir: PathBuf,
    pub(super) end: AppendNotifier,
    pub(super) write: Mutex<WriteState>,
    pub(super) read: Mutex<ReadState>,
}

/// State of the committer.
#[derive(Debug)]
pub(super) struct WriteState {
    /// The segment that receives appends; `None` before the first append.
    pub(super) active: Option<Active>,
    pub(super) offset_next: Offset,
    pub(super) append_time_last: Timestamp,
    pub(super) is_deleted: bool,
}

/// The segment that receives appends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) base: Offset,
    pub(super) bytes: u64,
    /// Bytes that are durable in the segment itself, not only in the journal.
    pub(super) synced_bytes: u64,
    /// Whether the next entry goes to a new segment, so that all of this one can be trimmed.
    pub(super) is_closed: bool,
}

/// State of the readers: only acknowledged records, and records that are about to be acknowledged.
#[derive(Debug)]
pub(super) struct ReadState {
    /// Segments in ascending order, without gaps.
    segments: VecDeque<Segment>,
    end: Offset,
    append_time_last: Timestamp,
    cache: TailCache,
    is_deleted: bool,
}

/// A segment as readers see it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) base: Offset,
    /// Bytes that may be read.
    pub(super) bytes: u64,
    /// Sparse index of the segment; `None` until a reader needs it.
    pub(super) index: Option<SegmentIndex>,
}

/// Sparse index of a segment: the start of one frame for each [`INDEX_STRIDE_BYTES`].
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentIndex(Vec<(Offset, u64)>);

impl SegmentIndex {
    /// Adds the start of a frame; frames arrive in order.
    pub(super) fn learn(&mut self, offset: Offset, at: u64) {
        if self.0.last().is_none_or(|(_, last)| at - last >= INDEX_STRIDE_BYTES) {
            self.0.push((offset, at));
        }
    }

    /// Returns the byte offset and log offset from which a scan finds an offset of this segment.
    fn place(&self, offset: Offset, base: Offset) -> (u64, Offset) {
        let after = self.0.partition_point(|(known, _)| *known <= offset);
        let known = after.checked_sub(1).and_then(|place| self.0.get(place));
        known.map_or((HEADER_BYTES, base), |(offset, at)| (*at, *offset))
    }
}

/// Plan of a read from a segment file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) path: PathBuf,
    pub(super) base: Offset,
    /// Byte offset and log offset of a frame at or before the wanted one; `None` if the reader must
    /// build the index first.
    pub(super) place: Option<(u64, Offset)>,
    /// Bytes of the segment that may be read.
    pub(super) bytes: u64,
    /// End offset of the segment.
    pub(super) segment_end: Offset,
    /// End of the log.
    pub(super) end: Offset,
}

/// Source of the records of a read.
#[derive(Debug)]
pub(super) enum ReadSource {
    /// Records from memory; empty at the end of the log.
    Memory(crate::Records),
    /// Records in a segment file.
    Segment,
}

/// Result of opening a partition.
#[derive(Debug)]
pub(super) struct OpenedPartition {
    pub(super) segments: Vec<Segment>,
    pub(super) write: WriteState,
}

impl OpenedPartition {
    /// Returns a partition without segments.
    pub(super) fn empty() -> Self {
        let write = WriteState {
            active: None,
            offset_next: Offset(0),
            append_time_last: Timestamp::MIN,
            is_deleted: false,
        };
        Self { segments: Vec::new(), write }
    }
}

impl Partition {
    pub(super) fn new(
        at: PartitionRef,
        dir: PathBuf,
        opened: OpenedPartition,
        budget: &Arc<CacheBudget>,
    ) -> Self {
        let end = opened.write.offset_next;
        let read = ReadState {
            segments: opened.segments.into(),
            end,
            append_time_last: opened.write.append_time_last,
            cache: TailCache::new(budget.clone()),
            is_deleted: false,
        };
        let (write, read) = (Mutex::new(opened.write), Mutex::new(read));
        Self { at, dir, end: AppendNotifier::new(end), write, read }
    }

    /// Returns the bounds; their time is the append time of the last record.
    pub(super) fn bounds(&self) -> Result<Bounds> {
        self.read.lock().bounds(self.at)
    }

    /// Finds records from an offset on, in memory if they are cached.
    pub(super) fn find(&self, from: Offset, bytes_max: usize) -> Result<ReadSource> {
        let read = self.read.lock();
        let bounds = read.bounds(self.at)?;
        bounds.check(self.at, from)?;
        if from == bounds.end {
            return Ok(ReadSource::Memory(crate::Records { records: Vec::new(), end: bounds.end }));
        }
        Ok(match read.cache.read(from, bytes_max) {
            Some(records) => ReadSource::Memory(crate::Records { records, end: bounds.end }),
            None => ReadSource::Segment,
        })
    }

    /// Returns the plan to read an offset below the end from its file; `None` at the end.
    pub(super) fn plan(&self, from: Offset) -> Result<Option<Plan>> {
        let read = self.read.lock();
        let bounds = read.bounds(self.at)?;
        bounds.check(self.at, from)?;
        let after = read.segments.partition_point(|segment| segment.base <= from);
        let Some(segment) = after.checked_sub(1).and_then(|place| read.segments.get(place)) else {
            return Ok(None);
        };
        let segment_end = read.segments.get(after).map_or(bounds.end, |next| next.base);
        if from >= segment_end {
            return Ok(None);
        }
        Ok(Some(Plan {
            path: paths::segment(&self.dir, segment.base),
            base: segment.base,
            place: segment.index.as_ref().map(|index| index.place(from, segment.base)),
            bytes: segment.bytes,
            segment_end,
            end: bounds.end,
        }))
    }

    /// Retains the index of a segment that a reader has built.
    pub(super) fn keep_index(&self, base: Offset, index: SegmentIndex) {
        let mut read = self.read.lock();
        if let Some(segment) = read.segments.iter_mut().find(|segment| segment.base == base) {
            segment.index.get_or_insert(index);
        }
    }

    /// Removes the segments wholly below an offset from the readers' view, oldest first, and
    /// returns their paths. If `before` is the end of the log, the last segment stays and is
    /// closed. A segment without frames stays open, because the next segment would have its name.
    pub(super) fn take_trimmed(&self, before: Offset) -> Result<Vec<PathBuf>> {
        let mut write = self.write.lock();
        let is_end = before == write.offset_next;
        let offset_next = write.offset_next;
        if let Some(active) = write.active.as_mut().filter(|_| is_end) {
            active.is_closed = active.base < offset_next;
        }
        drop(write);
        let mut read = self.read.lock();
        let bounds = read.bounds(self.at)?;
        if before > bounds.end {
            return Err(trim_above_end(self.at, before, bounds.end));
        }
        let mut trimmed = Vec::new();
        while read.segments.get(1).is_some_and(|next| next.base <= before) {
            let oldest = read.segments.pop_front();
            trimmed.extend(oldest.map(|segment| paths::segment(&self.dir, segment.base)));
        }
        Ok(trimmed)
    }

    /// Marks all written bytes of a segment as durable in the segment.
    pub(super) fn mark_synced(&self, base: Offset) {
        let mut write = self.write.lock();
        if let Some(active) = write.active.as_mut().filter(|active| active.base == base) {
            active.synced_bytes = active.bytes;
        }
    }

    /// Ends all appends and reads.
    pub(super) fn mark_deleted(&self) {
        let mut write = self.write.lock();
        write.is_deleted = true;
        let mut read = self.read.lock();
        read.is_deleted = true;
        read.cache.clear();
        self.end.note_deleted();
    }
}

impl ReadState {
    fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        if self.is_deleted {
            return Err(no_such_log(at));
        }
        let start = self.segments.front().map_or(Offset(0), |segment| segment.base);
        Ok(Bounds { start, end: self.end, server_time: Some(self.append_time_last) })
    }

    /// Adds the next records of a segment, each with its byte offset. Returns the new end,
    /// or `None` if the log was deleted.
    pub(super) fn add_records(
        &mut self,
        base: Offset,
        bytes: u64,
        records: impl Iterator<Item = (LogRecord, u64)>,
    ) -> Option<Offset> {
        if self.is_deleted {
            return None;
        }
        if self.segments.back().is_none_or(|last| last.base != base) {
            let index = Some(SegmentIndex::default());
            self.segments.push_back(Segment { base, bytes: HEADER_BYTES, index });
        }
        let segment = self.segments.back_mut()?;
        segment.bytes = bytes;
        for (record, at) in records {
            if let Some(index) = &mut segment.index {
                index.learn(record.offset, at);
            }
            self.end = record.offset.next();
            self.append_time_last = record.append_time;
            self.cache.push(record);
        }
        Some(self.end)
    }
}
