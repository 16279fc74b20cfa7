//! The committer: group commit for the partitions of one queue.
//!
//! The committer takes all waiting appends as one group and runs three stages:
//!
//! 1. Write: append the frames to the segments, under each partition's `write` mutex.
//! 2. Sync: make the group durable by one sync of the journal (a write-ahead log for groups that
//!    touch several segments), or by a sync of each segment that the group touches.
//! 3. Acknowledge: make the records readable, and answer the appends.
//!
//! If a write fails, the committer truncates the segment and fails the appends; if the truncation
//! fails, too, their outcome is unknown and the log stops. If a sync fails, the outcome of the
//! unsynced appends is unknown and the log stops.
//!
//! Each partition belongs to one committer, so no other thread appends to its files. A deletion may
//! occur between two stages; the deletion marks the partition first, so that no stage creates a
//! file under a removed name.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use tokio::sync::mpsc;

use super::errors::{DiskSpace, io_error, write_error};
use super::format::{FRAME_HEADER_BYTES, HEADER_BYTES, SegmentHeader, encode_frame};
use super::journal::{Journal, RECORD_BYTES_MAX};
use super::options::Durability;
use super::partition::{Active, Partition, WriteState};
use super::paths;
use super::segment_write::{FrameWrite, PendingAppend, SegmentWrite, unknown_outcome};
use super::state::LogState;
use crate::change_log::{AppendReceipt, LogRecord, no_such_log};
use crate::disk::DiskFile;

/// Group commit delay: after a sync that acknowledged several appends, the committer thread waits
/// this long to collect a larger group. Each sync costs a processor some 70 us
/// (tools/decisions/0053).
const GROUP_COMMIT_DELAY: Duration = Duration::from_micros(250);

/// The committer of some partitions.
pub(super) struct Committer {
    pub(super) shared: Arc<LogState>,
    pub(super) queue: mpsc::Receiver<PendingAppend>,
    /// Partitions with bytes that are not durable yet; only with [`Durability::Buffered`].
    unsynced: BTreeMap<PartitionRef, Arc<Partition>>,
    /// Only with [`Durability::Fsync`].
    journal: Journal,
    /// Whether the last sync acknowledged several appends, so that more appends are likely to
    /// arrive soon. A lone append is never delayed.
    is_shared: bool,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<LogState>,
        number: usize,
        queue: mpsc::Receiver<PendingAppend>,
    ) -> Self {
        let journal = Journal::new(shared.clone(), number);
        Self { shared, queue, unsynced: BTreeMap::new(), journal, is_shared: false }
    }

    /// Commits until the queue closes; runs on its own thread.
    pub(super) fn run_on_thread(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            if self.is_shared {
                thread::sleep(GROUP_COMMIT_DELAY);
            }
            self.commit(first);
        }
        self.finish();
    }

    /// Commits until the queue closes; runs as a task.
    pub(super) async fn run_as_task(mut self) {
        while let Some(first) = self.queue.recv().await {
            // The yield lets other tasks that are about to append join the group.
            tokio::task::yield_now().await;
            self.commit(first);
        }
        self.finish();
    }

    fn commit(&mut self, first: PendingAppend) {
        let mut group: BTreeMap<PartitionRef, Vec<PendingAppend>> = BTreeMap::new();
        let mut next = Some(first);
        while let Some(pending) = next {
            group.entry(pending.partition.at).or_default().push(pending);
            next = self.queue.try_recv().ok();
        }
        let is_fsync = self.shared.options.durability == Durability::Fsync;
        self.is_shared = is_fsync && group.values().map(Vec::len).sum::<usize>() > 1;
        let mut writes = Vec::new();
        for pendings in group.into_values() {
            self.write(pendings, &mut writes);
        }
        if is_fsync {
            self.make_durable(&mut writes);
        }
        for write in writes {
            if !is_fsync {
                self.unsynced.insert(write.partition.at, write.partition.clone());
            }
            acknowledge(write);
        }
        // No caller waits for this result; a failure has stopped the log.
        let _ = self.journal.write_back();
    }

    /// Writes one partition's entries. The committer answers failed appends at once and adds
    /// written frames to `writes`, in order.
    fn write(&mut self, pendings: Vec<PendingAppend>, writes: &mut Vec<SegmentWrite>) {
        let mut rest = VecDeque::from(pendings);
        let Some(partition) = rest.front().map(|pending| pending.partition.clone()) else {
            return;
        };
        let mut state = partition.write.lock();
        while let Some(next) = rest.front() {
            let entry_bytes = next.entry.len();
            let write = self
                .segment_for(&partition, &mut state, entry_bytes, writes)
                .and_then(|segment| self.write_frames(&partition, &mut state, segment, &mut rest));
            match write {
                Ok(write) => writes.push(write),
                Err(error) => {
                    for pending in rest.drain(..) {
                        pending.answer(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Returns the segment for an entry of this size, and creates the segment if needed.
    fn segment_for(
        &mut self,
        partition: &Partition,
        state: &mut WriteState,
        entry_bytes: usize,
        writes: &mut [SegmentWrite],
    ) -> Result<(Active, Arc<dyn DiskFile>)> {
        self.shared.poison.check()?;
        if state.is_deleted {
            return Err(no_such_log(partition.at));
        }
        if let Some(active) = state.active {
            let path = paths::segment(&partition.dir, active.base);
            let file = self.shared.files.open(&path);
            let file = file.map_err(|error| io_error("open", &path, &error))?;
            if !active.is_closed && self.has_room(active.bytes, entry_bytes) {
                return Ok((active, file));
            }
            self.shared.sync_file(&path, &*file)?;
            self.journal.mark_clean((partition.at, active.base));
            let is_same_segment = |write: &&mut SegmentWrite| {
                write.partition.at == partition.at && write.base == active.base
            };
            if let Some(write) = writes.iter_mut().find(is_same_segment) {
                write.is_synced = true;
            }
        }
        let (active, file) = self.make_segment(partition, state)?;
        state.active = Some(active);
        Ok((active, file))
    }

    /// Returns whether a segment of this size can take one more entry; an empty segment takes any.
    fn has_room(&self, segment_bytes: u64, entry_bytes: usize) -> bool {
        let bytes = segment_bytes + FRAME_HEADER_BYTES + entry_bytes as u64;
        segment_bytes <= HEADER_BYTES || bytes <= self.shared.options.segment_bytes
    }

    /// Creates the next segment of a partition: header, then name, both durable before any frame.
    fn make_segment(
        &mut self,
        partition: &Partition,
        state: &WriteState,
    ) -> Result<(Active, Arc<dyn DiskFile>)> {
        let base = state.offset_next;
        if self.journal.names((partition.at, base)) {
            // The journal record is from a store that was deleted and recreated under the same id.
            // No dirty segment belongs to this partition, whose lock this thread holds: each
            // segment of the partition is made durable before the next one is created.
            self.journal.retire()?;
        }
        let shared = &self.shared;
        if state.active.is_none() {
            let store_dir = shared.paths.store(partition.at.store);
            let result = shared.disk.create_dir(&partition.dir);
            result.map_err(|error| self.write_error(&partition.dir, &error, HEADER_BYTES))?;
            self.shared.sync_dir(&store_dir)?;
        }
        let path = paths::segment(&partition.dir, base);
        let floor = state.append_time_last;
        let header = SegmentHeader { at: partition.at, base, append_time_floor: floor };
        let file = shared.files.create(&path).and_then(|file| {
            file.write_at(&header.encode(), 0)?;
            Ok(file)
        });
        let file = file.map_err(|error| {
            let refusal = self.write_error(&path, &error, HEADER_BYTES);
            if error.kind() == io::ErrorKind::AlreadyExists {
                // The file is not of this call and may hold acknowledged entries.
                return refusal;
            }
            let removal = self.remove_unmade(&partition.dir, &path);
            removal.map_or_else(|stop| stop, |()| refusal)
        })?;
        self.shared.sync_file(&path, &*file)?;
        self.shared.sync_dir(&partition.dir)?;
        let (bytes, synced_bytes) = (HEADER_BYTES, HEADER_BYTES);
        Ok((Active { base, bytes, synced_bytes, is_closed: false }, file))
    }

    /// Removes, durably, a segment whose header could not be written. The previous segment stays
    /// active and may grow past the offset in the name of the removed segment.
    fn remove_unmade(&self, dir: &Path, path: &Path) -> Result<()> {
        self.shared.files.forget(path);
        match self.shared.disk.remove(path) {
            Ok(()) => self.shared.sync_dir(dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.shared.stop("remove", path, &error)),
        }
    }

    /// Writes as many of the entries as the segment takes, by one write.
    ///
    /// On failure, the committer answers the attempted entries; the returned error is for the
    /// others.
    fn write_frames(
        &self,
        partition: &Arc<Partition>,
        state: &mut WriteState,
        (mut active, file): (Active, Arc<dyn DiskFile>),
        rest: &mut VecDeque<PendingAppend>,
    ) -> Result<SegmentWrite> {
        let append_time = self.shared.clock.now().max(state.append_time_last);
        let (mut offset, at) = (state.offset_next, active.bytes);
        let mut buffer = Vec::new();
        let mut frames = Vec::new();
        while let Some(pending) = rest.pop_front() {
            if !self.has_room(active.bytes, pending.entry.len()) {
                rest.push_front(pending);
                break;
            }
            encode_frame(&mut buffer, offset, append_time, active.synced_bytes, &pending.entry);
            let receipt = AppendReceipt { offset, append_time };
            frames.push(FrameWrite { pending, receipt, at: active.bytes });
            active.bytes = at + buffer.len() as u64;
            offset = offset.next();
        }
        let path = paths::segment(&partition.dir, active.base);
        if let Err(error) = file.write_at(&buffer, at) {
            let refusal = self.write_error(&path, &error, buffer.len() as u64);
            let result = file.truncate(at).and_then(|()| file.sync_data());
            let reply = match &result {
                Ok(()) => refusal.clone(),
                Err(_) => unknown_outcome(partition.at),
            };
            frames.into_iter().for_each(|frame| frame.pending.answer(Err(reply.clone())));
            return Err(result
                .err()
                .map_or(refusal, |error| self.shared.stop("cut", &path, &error)));
        }
        (state.active, state.offset_next) = (Some(active), offset);
        state.append_time_last = append_time;
        let (partition, base, bytes) = (partition.clone(), active.base, active.bytes);
        let copy = (buffer.len() <= RECORD_BYTES_MAX).then_some(buffer);
        Ok(SegmentWrite { partition, file, base, at, bytes, is_synced: false, frames, copy })
    }

    /// Makes every write durable, by the journal or by a sync of each segment. Writes with an
    /// unknown outcome are answered and leave the group.
    fn make_durable(&mut self, writes: &mut Vec<SegmentWrite>) {
        match self.journal.append(writes) {
            Ok(true) => {}
            Ok(false) => self.sync(writes),
            Err(_) => {
                for write in writes.extract_if(.., |write| !write.is_synced) {
                    write.answer_unknown();
                }
            }
        }
    }

    /// Syncs the segment of every write that is not durable yet. After a failure the committer
    /// syncs no more segments; the remaining writes have an unknown outcome.
    fn sync(&mut self, writes: &mut Vec<SegmentWrite>) {
        for mut write in std::mem::take(writes) {
            if !write.is_synced {
                let path = paths::segment(&write.partition.dir, write.base);
                let result = self.shared.poison.check();
                if result.and_then(|()| self.shared.sync_file(&path, &*write.file)).is_err() {
                    write.answer_unknown();
                    continue;
                }
                self.journal.mark_clean(write.segment());
                write.is_synced = true;
            }
            write.partition.mark_synced(write.base);
            writes.push(write);
        }
    }

    /// Makes all written bytes durable in their segments.
    fn finish(mut self) {
        // A failure has stopped the log, and the journal stays for the next start.
        let _ = self.journal.retire();
        for partition in self.unsynced.values() {
            let state = partition.write.lock();
            let Some(active) = state.active.filter(|_| !state.is_deleted) else { continue };
            let path = paths::segment(&partition.dir, active.base);
            if let Err(error) = self.shared.files.open(&path).and_then(|file| file.sync_data()) {
                self.shared.poison.set("make durable", &path, &error);
            }
        }
    }

    fn write_error(&self, path: &Path, error: &io::Error, bytes_needed: u64) -> Error {
        let bytes_free = self.shared.disk.free_bytes(&self.shared.paths.logs).unwrap_or_default();
        write_error("write", path, error, DiskSpace { bytes_needed, bytes_free })
    }
}

/// Makes the records of a write readable, and acknowledges its appends.
fn acknowledge(write: SegmentWrite) {
    let partition = write.partition;
    let records = write.frames.iter().map(|frame| {
        // The cache needs a copy: the entry may be a slice of a buffer that is far larger than the
        // bytes that the cache counts.
        let entry = Bytes::copy_from_slice(&frame.pending.entry);
        let AppendReceipt { offset, append_time } = frame.receipt;
        (LogRecord { offset, append_time, entry }, frame.at)
    });
    let end = partition.read.lock().add_records(write.base, write.bytes, records);
    if let Some(end) = end {
        partition.end.advance(end);
    }
    for frame in write.frames {
        let result = end.map(|_| frame.receipt);
        frame.pending.answer(result.ok_or_else(|| no_such_log(partition.at)));
    }
}
