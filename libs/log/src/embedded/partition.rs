//! One partition of an embedded log: what its committer knows, and what its readers see.
//!
//! Two mutexes keep the two apart. `write` belongs to the committer while it lays frames down, and
//! to whoever deletes the partition; `read` is held briefly by everybody, also by the committer
//! once a group is durable. Whoever takes both takes `write` first.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionRef};
use parking_lot::Mutex;

use super::format::HEADER_BYTES;
use super::paths;
use crate::change_log::{Bounds, LogRecord, no_such_log, trim_above_end};
use crate::end_signal::EndSignal;
use crate::tail_cache::{CacheBudget, TailCache};

/// Bytes of a segment between two places of its index.
const INDEX_STRIDE_BYTES: u64 = 64 * 1024;

pub(super) struct Partition {
    pub(super) at: PartitionRef,
    pub(super) dir: PathBuf,
    pub(super) end: EndSignal,
    pub(super) write: Mutex<WriteState>,
    pub(super) read: Mutex<ReadState>,
}

/// What the committer knows.
#[derive(Debug)]
pub(super) struct WriteState {
    /// The segment that is appended to; none before the first append.
    pub(super) active: Option<Active>,
    pub(super) offset_next: Offset,
    pub(super) append_time_last: Timestamp,
    pub(super) is_deleted: bool,
}

/// The segment that is appended to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) base: Offset,
    pub(super) bytes: u64,
    /// How many of them are durable in the segment itself, not only in the journal.
    pub(super) synced_bytes: u64,
    /// Whether the next entry goes to another one, so that all of this one can be let go.
    pub(super) is_closed: bool,
}

/// What readers see: only what is acknowledged, or about to be.
#[derive(Debug)]
pub(super) struct ReadState {
    /// Ascending, without gaps.
    segments: VecDeque<Segment>,
    end: Offset,
    append_time_last: Timestamp,
    cache: TailCache,
    is_deleted: bool,
}

/// One segment as readers see it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) base: Offset,
    /// Bytes that may be read.
    pub(super) bytes: u64,
    /// Some places in it; `None` until somebody needs them.
    pub(super) index: Option<SegmentIndex>,
}

/// Where some frames of a segment start: one for each stretch of [`INDEX_STRIDE_BYTES`].
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentIndex(Vec<(Offset, u64)>);

impl SegmentIndex {
    /// Learns where a frame starts; frames come in their order.
    pub(super) fn learn(&mut self, offset: Offset, at: u64) {
        if self.0.last().is_none_or(|(_, last)| at - last >= INDEX_STRIDE_BYTES) {
            self.0.push((offset, at));
        }
    }

    /// A place to start from to find an offset of this segment.
    fn place(&self, offset: Offset, base: Offset) -> (u64, Offset) {
        let after = self.0.partition_point(|(known, _)| *known <= offset);
        let known = after.checked_sub(1).and_then(|place| self.0.get(place));
        known.map_or((HEADER_BYTES, base), |(offset, at)| (*at, *offset))
    }
}

/// How to read an offset from its segment.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) path: PathBuf,
    pub(super) base: Offset,
    /// Place and offset of a frame at or before the one wanted; `None`: the index must be made
    /// first.
    pub(super) place: Option<(u64, Offset)>,
    /// Bytes of the segment that may be read.
    pub(super) bytes: u64,
    /// End of the segment, as an offset.
    pub(super) segment_end: Offset,
    /// End of the log.
    pub(super) end: Offset,
}

/// Where a read finds its records.
#[derive(Debug)]
pub(super) enum Found {
    /// In memory; none at the end of the log.
    Here(crate::Records),
    /// In a file.
    OnDisk,
}

/// What opening a partition found.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) segments: Vec<Segment>,
    pub(super) write: WriteState,
}

impl Opened {
    /// A partition without segments.
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
        opened: Opened,
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
        Self { at, dir, end: EndSignal::new(end), write, read }
    }

    /// The bounds; their time is the append time of the last record.
    pub(super) fn bounds(&self) -> Result<Bounds> {
        self.read.lock().bounds(self.at)
    }

    /// Finds records from an offset on, in memory where they are there.
    pub(super) fn find(&self, from: Offset, bytes_max: usize) -> Result<Found> {
        let read = self.read.lock();
        let bounds = read.bounds(self.at)?;
        bounds.check(self.at, from)?;
        if from == bounds.end {
            return Ok(Found::Here(crate::Records { records: Vec::new(), end: bounds.end }));
        }
        Ok(match read.cache.read(from, bytes_max) {
            Some(records) => Found::Here(crate::Records { records, end: bounds.end }),
            None => Found::OnDisk,
        })
    }

    /// How to read an offset below the end from its file; `None` at the end.
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

    /// Keeps the index of a segment, made by a reader who needed it.
    pub(super) fn keep_index(&self, base: Offset, index: SegmentIndex) {
        let mut read = self.read.lock();
        if let Some(segment) = read.segments.iter_mut().find(|segment| segment.base == base) {
            segment.index.get_or_insert(index);
        }
    }

    /// Takes segments that lie wholly below an offset out of the readers' sight, oldest first. At
    /// the log's end the last one stays, and is closed.
    pub(super) fn take_trimmed(&self, before: Offset) -> Result<Vec<PathBuf>> {
        let mut write = self.write.lock();
        let is_end = before == write.offset_next;
        if let Some(active) = write.active.as_mut().filter(|_| is_end) {
            active.is_closed = true;
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

    /// All that was written to a segment is durable in it.
    pub(super) fn mark_synced(&self, base: Offset) {
        let mut write = self.write.lock();
        if let Some(active) = write.active.as_mut().filter(|active| active.base == base) {
            active.synced_bytes = active.bytes;
        }
    }

    /// Nothing is appended or read any more.
    pub(super) fn mark_deleted(&self) {
        let mut write = self.write.lock();
        write.is_deleted = true;
        let mut read = self.read.lock();
        read.is_deleted = true;
        read.cache.clear();
        self.end.publish_deleted();
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

    /// Shows readers the next records of a segment, each with its place; answers the new end, or
    /// `None` when the log was deleted.
    pub(super) fn publish(
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
