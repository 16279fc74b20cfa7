//! The journal of one committer. A group that touches several segments becomes durable by one sync
//! of this file; the committer syncs the segments later, one by one.
//!
//! Only the committer's thread uses the journal. The journal has two halves and writes to one of
//! them at a time. A segment is *dirty* in a half if only that half stores some of the segment's
//! bytes durably. A half may be overwritten when no segment is dirty in it. To avoid a burst of
//! syncs, the committer syncs the dirty segments of the other half at the rate at which the current
//! half fills.
//!
//! Invariant: recovery never writes a record over different bytes. Four rules ensure it:
//!
//! - Acknowledged bytes never change.
//! - A failed write is truncated before any record could contain it.
//! - Recovery removes every journal before the log accepts appends.
//! - If a record still names a segment that is about to be created (its store was deleted and
//!   recreated), the committer retires the journal first.

pub(super) mod format;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::Result;

pub(super) use self::replay::{JournaledEnds, replay};

use self::format::{
    HEADER_BLOCK_BYTES, HalfHeader, Piece, SegmentName, encode_record, record_bytes,
};
use super::partition::Partition;
use super::paths;
use super::segment_write::SegmentWrite;
use super::state::LogState;
use crate::disk::DiskFile;

/// Largest record: beyond this size, writing all bytes twice costs more than the saved syncs.
pub(super) const RECORD_BYTES_MAX: usize = 256 * 1024;
/// Most segments that may be dirty in one half. The half holds each of them open, so that the sync
/// receives the error of an earlier failed write-back.
const DIRTY_MAX: usize = 128;
/// A journal is created only if this multiple of its size is free, so that the journal does not
/// fill the disk.
const ROOM_FACTOR: u64 = 8;

pub(super) struct Journal {
    shared: Arc<LogState>,
    path: PathBuf,
    temp_path: PathBuf,
    half_bytes: u64,
    /// `None` until the first group that needs the journal.
    file: Option<Arc<dyn DiskFile>>,
    /// Whether the journal could not be created; the next start tries again.
    is_refused: bool,
    /// Sequence number of the next record.
    sequence: u64,
    /// The half that receives records.
    current: Half,
    other: Half,
}

struct Half {
    /// Byte offset of the half in the journal.
    start: u64,
    /// Byte offset of the next record in the half.
    end: u64,
    /// Segments that the records of the half name.
    segment_names: BTreeSet<SegmentName>,
    dirty: BTreeMap<SegmentName, Dirty>,
    /// Number of dirty segments when the other half was started.
    dirty_at_switch: usize,
}

/// A segment with bytes that only the journal stores durably.
struct Dirty {
    partition: Arc<Partition>,
    file: Arc<dyn DiskFile>,
}

impl Half {
    fn new(start: u64) -> Self {
        let (segment_names, dirty) = (BTreeSet::new(), BTreeMap::new());
        Self { start, end: HEADER_BLOCK_BYTES as u64, segment_names, dirty, dirty_at_switch: 0 }
    }

    /// Returns whether the half can take a record of this size about these segments.
    fn has_room(&self, half_bytes: u64, record_bytes: usize, writes: &[&SegmentWrite]) -> bool {
        let new = writes.iter().filter(|write| !self.dirty.contains_key(&write.segment()));
        self.end + record_bytes as u64 <= half_bytes && self.dirty.len() + new.count() <= DIRTY_MAX
    }
}

impl Journal {
    pub(super) fn new(shared: Arc<LogState>, number: usize) -> Self {
        let half_bytes = shared.options.journal_bytes / 2;
        Self {
            path: shared.paths.journal(number),
            temp_path: shared.paths.journal_temp(number),
            shared,
            half_bytes,
            file: None,
            is_refused: false,
            sequence: 1,
            current: Half::new(0),
            other: Half::new(half_bytes),
        }
    }

    /// Makes all writes durable that are not durable yet, by one record and one sync. Returns
    /// `false` if the caller must sync the segments instead: for a single write, too many bytes or
    /// segments, or no journal.
    ///
    /// # Errors
    /// The error that stopped the log; the outcome of the writes is unknown.
    pub(super) fn append(&mut self, writes: &[SegmentWrite]) -> Result<bool> {
        let unsynced_writes: Vec<&SegmentWrite> =
            writes.iter().filter(|write| !write.is_synced).collect();
        let pieces: Option<Vec<Piece<'_>>> =
            unsynced_writes.iter().map(|write| write.piece()).collect();
        let Some(pieces) = pieces.filter(|pieces| pieces.len() >= 2) else { return Ok(false) };
        let bytes = record_bytes(&pieces);
        if bytes > RECORD_BYTES_MAX
            || !Half::new(0).has_room(self.half_bytes, bytes, &unsynced_writes)
        {
            return Ok(false);
        }
        self.shared.poison.check()?;
        let Some(file) = self.make()? else { return Ok(false) };
        if !self.current.has_room(self.half_bytes, bytes, &unsynced_writes) {
            self.switch(&*file)?;
        }
        let at = self.current.start + self.current.end;
        let result = file.write_at(&encode_record(self.sequence, &pieces), at);
        result.map_err(|error| self.shared.stop("write", &self.path, &error))?;
        self.shared.sync_file(&self.path, &*file)?;
        self.sequence += 1;
        self.current.end += bytes as u64;
        for write in unsynced_writes {
            let (partition, file) = (write.partition.clone(), write.file.clone());
            self.current.segment_names.insert(write.segment());
            self.current.dirty.insert(write.segment(), Dirty { partition, file });
        }
        Ok(true)
    }

    /// Notes that a segment was made durable.
    pub(super) fn mark_clean(&mut self, segment: SegmentName) {
        self.current.dirty.remove(&segment);
        self.other.dirty.remove(&segment);
    }

    /// Returns whether a record contains bytes of a segment.
    pub(super) fn names(&self, segment: SegmentName) -> bool {
        self.current.segment_names.contains(&segment) || self.other.segment_names.contains(&segment)
    }

    /// Syncs dirty segments of the other half until the share that is still dirty is no greater
    /// than the free share of the current half, by bytes and by segments.
    pub(super) fn write_back(&mut self) -> Result<()> {
        self.shared.poison.check()?;
        let capacity = self.half_bytes.saturating_sub(HEADER_BLOCK_BYTES as u64) as usize;
        let bytes_free = self.half_bytes.saturating_sub(self.current.end) as usize;
        let dirty_free = DIRTY_MAX - self.current.dirty.len();
        loop {
            let (remaining_dirty, all) = (self.other.dirty.len(), self.other.dirty_at_switch);
            if remaining_dirty * capacity <= all * bytes_free
                && remaining_dirty * DIRTY_MAX <= all * dirty_free
            {
                return Ok(());
            }
            self.sync_dirty_of_other()?;
        }
    }

    /// Retires the journal: makes every dirty segment durable and removes the journal durably.
    /// After a disk failure the journal stays for recovery.
    pub(super) fn retire(&mut self) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        self.shared.poison.check()?;
        self.sync_all_of_other()?;
        std::mem::swap(&mut self.current, &mut self.other);
        self.sync_all_of_other()?;
        // The sync detects a lost disk: a process that has lost the disk must not remove, by name,
        // the journal of the process that succeeded it.
        self.shared.sync_file(&self.path, &*file)?;
        let result = self.shared.disk.remove(&self.path);
        result.map_err(|error| self.shared.stop("remove", &self.path, &error))?;
        self.shared.sync_dir(&self.shared.paths.logs)?;
        (self.file, self.sequence) = (None, 1);
        (self.current, self.other) = (Half::new(0), Half::new(self.half_bytes));
        Ok(())
    }

    /// Returns the journal's file, and creates it if needed. Returns `None` if the disk refuses the
    /// creation or has too little space; the log then continues without a journal.
    fn make(&mut self) -> Result<Option<Arc<dyn DiskFile>>> {
        if self.file.is_some() || self.is_refused {
            return Ok(self.file.clone());
        }
        let file = match self.write_empty() {
            Ok(file) => file,
            Err(error) => return Ok(self.refuse(&error)),
        };
        self.shared.sync_file(&self.temp_path, &*file)?;
        if let Err(error) = self.shared.disk.rename(&self.temp_path, &self.path) {
            return Ok(self.refuse(&error));
        }
        self.shared.sync_dir(&self.shared.paths.logs)?;
        self.file = Some(file);
        Ok(self.file.clone())
    }

    fn refuse(&mut self, error: &io::Error) -> Option<Arc<dyn DiskFile>> {
        tracing::warn!(path = %self.path.display(), %error, "log continues without a journal");
        self.is_refused = true;
        // The next start removes the remains of the file.
        let _ = self.shared.disk.remove(&self.temp_path);
        None
    }

    /// Creates the file and writes every byte, so that a later sync makes only data durable, no
    /// metadata.
    fn write_empty(&self) -> io::Result<Arc<dyn DiskFile>> {
        let (disk, half_bytes) = (&self.shared.disk, self.half_bytes);
        if disk.free_bytes(&self.shared.paths.logs)? / ROOM_FACTOR < 2 * half_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = disk.create(&self.temp_path)?;
        for (start, first) in [(0, 1), (half_bytes, 0)] {
            let mut half = HalfHeader { half_bytes, first }.encode();
            half.resize(half_bytes as usize, 0);
            file.write_at(&half, start)?;
        }
        Ok(file)
    }

    /// Switches to the other half, after syncing the segments that need its records. The header is
    /// durable before any record of the half, so that recovery can interpret a damaged header by
    /// the records after it.
    fn switch(&mut self, file: &dyn DiskFile) -> Result<()> {
        self.sync_all_of_other()?;
        std::mem::swap(&mut self.current, &mut self.other);
        self.other.dirty_at_switch = self.other.dirty.len();
        let header = HalfHeader { half_bytes: self.half_bytes, first: self.sequence };
        let result = file.write_at(&header.encode(), self.current.start);
        result.map_err(|error| self.shared.stop("write", &self.path, &error))?;
        self.shared.sync_file(&self.path, file)?;
        self.current = Half::new(self.current.start);
        Ok(())
    }

    fn sync_all_of_other(&mut self) -> Result<()> {
        while !self.other.dirty.is_empty() {
            self.sync_dirty_of_other()?;
        }
        Ok(())
    }

    /// Makes one dirty segment of the other half durable, unless its store was deleted.
    fn sync_dirty_of_other(&mut self) -> Result<()> {
        let Some((segment, Dirty { partition, file })) = self.other.dirty.pop_first() else {
            return Ok(());
        };
        self.mark_clean(segment);
        if partition.write.lock().is_deleted {
            return Ok(());
        }
        self.shared.sync_file(&paths::segment(&partition.dir, segment.1), &*file)?;
        partition.mark_synced(segment.1);
        Ok(())
    }
}
