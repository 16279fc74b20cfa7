//! The target end of a copy. When rows are copied, each part becomes a file of the engine, and all
//! files together are ingested as a shard. When files are copied, they arrive piece by piece under
//! their own names, and are a shard once they are complete.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use forebay_core::fold::PartitionState;
use forebay_core::id::{LogId, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::{HEAD, Head};
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::v1;
use parking_lot::Mutex;
use prost::Message;
use rocksdb::{DB, IngestExternalFileOptions};
use rustix::fs::statvfs;

use super::files::{
    PLAN, SHARD, disk_error, engine_refused, remove_folder, sync_folder, write_durably,
};
use super::part::{PartEnd, PartSource};
use super::parts_journal::PartsJournal;
use super::pieces::{are_sound, open_whole, write_piece};
use super::row_parts::{RowPart, write_rows};
use crate::resources::Resources;

/// Name of the journal's file.
const PARTS: &str = "parts";

/// Durable progress of a range, or of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeDone {
    /// Last key of the range; `None` before the first row, and for a file.
    pub last_key: Option<Vec<u8>>,
    /// Digest of the rows; empty for a file.
    pub digest: RowsDigest,
    /// Bytes of the keys and values, or of the file.
    pub bytes: u64,
    /// Whether the range or file is complete.
    pub is_ended: bool,
}

/// A shard that is being copied to this process. Parts of different ranges may be written
/// concurrently.
pub struct Import {
    /// Lock that prevents a second process from copying the same partition to the same folder.
    _lock: File,
    dir: PathBuf,
    plan: v1::CopyPlan,
    state: Mutex<State>,
}

struct State {
    journal: PartsJournal,
    /// Progress by the ranges of the plan, or by its files.
    ranges: Vec<RangeDone>,
    /// Numbers of the files of completed parts; empty if files are copied.
    files: Vec<u32>,
    next_file: u32,
}

impl Import {
    /// Reads the plan in a folder; returns `None` if there is no plan that can be resumed.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(crate) fn plan_in(dir: &Path) -> Result<Option<v1::CopyPlan>> {
        let bytes = match fs::read(dir.join(PLAN)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| disk_error("reading the plan of a copy", &error))?,
        };
        Ok(v1::CopyPlan::decode(&bytes[..]).ok().filter(|plan| check(plan).is_ok()))
    }

    /// Starts a new copy in a folder, after removing its previous contents.
    ///
    /// # Errors
    /// `Corrupt` if the plan is invalid; `LimitExceeded` if the disk is full; `Unavailable` if the
    /// disk refuses.
    pub(crate) fn begin(dir: &Path, plan: v1::CopyPlan) -> Result<Self> {
        check(&plan)?;
        let lock = lock(dir)?;
        remove_folder(dir)?;
        let beginning = || {
            fs::create_dir_all(dir)?;
            if !plan.files.is_empty() {
                fs::create_dir(dir.join(SHARD))?;
            }
            sync_folder(dir)
        };
        beginning().map_err(|error| disk_error("beginning a copy", &error))?;
        write_durably(&dir.join(PLAN), &plan.encode_to_vec())?;
        Self::of(lock, dir, plan)
    }

    /// Resumes the copy of an earlier process; returns `None` if there is nothing to resume.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(crate) fn resume(dir: &Path) -> Result<Option<Self>> {
        let lock = lock(dir)?;
        let Some(plan) = Self::plan_in(dir)? else { return remove_folder(dir).map(|()| None) };
        let import = Self::of(lock, dir, plan)?;
        match import.has_all_that_is_durable() {
            true => Ok(Some(import)),
            // Either the shard had already been moved when the process was killed, or completed
            // parts were removed.
            false => remove_folder(dir).map(|()| None),
        }
    }

    fn of(lock: File, dir: &Path, plan: v1::CopyPlan) -> Result<Self> {
        let (journal, parts) = PartsJournal::open(&dir.join(PARTS))?;
        let ranges = vec![RangeDone::default(); plan.ranges.len() + plan.files.len()];
        let mut state = State { journal, ranges, files: Vec::new(), next_file: 0 };
        parts.iter().try_for_each(|part| state.take(part))?;
        let (dir, state) = (dir.to_owned(), Mutex::new(state));
        Ok(Self { _lock: lock, dir, plan, state })
    }

    fn has_all_that_is_durable(&self) -> bool {
        let (state, shard) = (self.state.lock(), self.dir.join(SHARD));
        if self.plan.files.is_empty() {
            // A kill may have interrupted the database after it took the files in.
            let is_there = |file: &u32| file_path(&self.dir, *file).exists();
            return shard.exists() || state.files.iter().all(is_there);
        }
        self.plan.files.iter().zip(&state.ranges).all(|(file, progress)| {
            let found = fs::metadata(shard.join(&file.name));
            progress.bytes == 0 || found.is_ok_and(|found| found.len() >= progress.bytes)
        })
    }

    /// Returns the plan of the copy.
    pub fn plan(&self) -> &v1::CopyPlan {
        &self.plan
    }

    /// Returns the partition whose shard is copied.
    pub fn partition(&self) -> PartitionRef {
        let (store, partition) = (StoreId(self.plan.store_id), PartitionId(self.plan.partition));
        PartitionRef { store, partition }
    }

    /// Returns whether a shard with this state contains everything that the copy would bring.
    pub(crate) fn is_passed_by(&self, state: &PartitionState) -> bool {
        let is_there = position(&self.plan).is_ok_and(|position| position <= state.position);
        is_there && state.log_id == Some(LogId(self.plan.log_id))
    }

    /// Returns the durable progress of each range or file.
    pub fn ranges(&self) -> Vec<RangeDone> {
        self.state.lock().ranges.clone()
    }

    /// Returns the durable progress of one range or file.
    pub fn range(&self, range: usize) -> RangeDone {
        self.state.lock().ranges.get(range).cloned().unwrap_or_default()
    }

    /// Returns the digest of all durable rows; empty if files are copied.
    pub fn digest(&self) -> RowsDigest {
        let mut all = RowsDigest::default();
        self.state.lock().ranges.iter().for_each(|range| all.merge(range.digest));
        all
    }

    /// Writes the next part of a range after its durable rows, or the next piece of a file. Returns
    /// whether the range or file ends with it. Blocks on the disk. No other thread may write to the
    /// range during the call. If the call fails, nothing of the part counts.
    ///
    /// # Errors
    /// - The errors of the source.
    /// - `InvalidArgument`: the plan has no such range or file.
    /// - `Corrupt`: the contents do not match their digest, or rows are out of order or outside the
    ///   range.
    /// - `LimitExceeded`: the disk is full; the error states the free bytes and the bytes to come.
    /// - `Unavailable`: the disk refuses.
    pub fn write_part(&self, range: usize, source: &mut impl PartSource) -> Result<bool> {
        self.write(range, source).map_err(|error| self.with_room(error))
    }

    fn write(&self, range: usize, source: &mut impl PartSource) -> Result<bool> {
        let progress = self.range(range);
        let number = range as u32;
        let (part, end) = if let Some(file) = self.plan.files.get(range) {
            let (bytes, end) = write_piece(&self.dir.join(SHARD), file, progress.bytes, source)?;
            (v1::CopyPart { range: number, bytes, ..Default::default() }, end)
        } else if let Some(copy_range) = self.plan.ranges.get(range) {
            let file = {
                let mut state = self.state.lock();
                state.next_file += 1;
                state.next_file - 1
            };
            let RowPart { last_key, bytes, end } =
                write_rows(&file_path(&self.dir, file), copy_range, progress.last_key, source)?;
            let last_key = last_key.unwrap_or_default().into();
            (v1::CopyPart { range: number, file, last_key, bytes, end: None }, end)
        } else {
            return Err(Error::invalid_argument("the copy has no such range"));
        };
        let PartEnd { digest: RowsDigest { rows, sum }, is_range_end } = end;
        if part.bytes == 0 && rows == 0 && !is_range_end {
            return Err(Error::corrupt("the source of a copy sent an empty part; copy again"));
        }
        let digest = sum.to_le_bytes().to_vec().into();
        let part =
            v1::CopyPart { end: Some(v1::CopyPartEnd { rows, digest, is_range_end }), ..part };
        let mut state = self.state.lock();
        state.journal.append(&part)?;
        state.take(&part)?;
        Ok(is_range_end)
    }

    /// Adds the free and the missing bytes to the error of a full disk.
    fn with_room(&self, error: Error) -> Error {
        if error.code() != ErrorCode::LimitExceeded {
            return error;
        }
        let free = statvfs(&self.dir).map_or(0, |at| at.f_bavail.saturating_mul(at.f_frsize));
        let sizes = self.plan.ranges.iter().map(|range| range.bytes);
        let sizes = sizes.chain(self.plan.files.iter().map(|file| file.bytes));
        let missing_bytes: u64 = sizes
            .zip(&self.state.lock().ranges)
            .filter(|(_, progress)| !progress.is_ended)
            .map(|(bytes, progress)| bytes.saturating_sub(progress.bytes))
            .sum();
        // The missing bytes exceed the free ones, whatever the plan says.
        Error::limit_exceeded(error.message(), free, missing_bytes.max(free + 1))
    }

    /// Turns the complete copy into a shard at a new path, and ends the copy. If the process is
    /// killed during the call, another process may call it again.
    ///
    /// # Errors
    /// - `Unavailable`: a range is incomplete, or the disk refuses.
    /// - `Corrupt`: the contents are no shard, or another shard; the copy is removed then.
    /// - `LimitExceeded`: the disk is full.
    pub(crate) fn finish(self, path: &Path) -> Result<()> {
        if self.state.lock().ranges.iter().any(|range| !range.is_ended) {
            return Err(Error::unavailable("the copy is not complete yet; continue the copy"));
        }
        let move_shard = || {
            fs::rename(self.dir.join(SHARD), path)?;
            sync_folder(path)
        };
        let move_shard =
            || move_shard().map_err(|error| disk_error("building a shard from a copy", &error));
        match self.make_whole().and_then(|()| move_shard()) {
            Ok(()) => self.remove(),
            Err(error) if error.code() == ErrorCode::Corrupt => self.remove().and(Err(error)),
            Err(error) => Err(self.with_room(error)),
        }
    }

    /// Builds a database from the files of the parts, unless an earlier process has built it.
    fn make_whole(&self) -> Result<()> {
        let shard = self.dir.join(SHARD);
        if !self.plan.files.is_empty() {
            return self.check_head(&open_whole(&shard, &self.plan.files)?);
        }
        let engine_error = |error| engine_refused("building a shard from a copy", &error);
        let db = DB::open(&Resources::import_options(true), &shard).map_err(engine_error)?;
        // The engine ingests all files atomically, and with them the head.
        if db.get_pinned(HEAD).map_err(engine_error)?.is_none() {
            let mut ingest = IngestExternalFileOptions::default();
            ingest.set_move_files(true);
            let state = self.state.lock();
            let files = state.files.iter().map(|file| file_path(&self.dir, *file));
            db.ingest_external_file_opts(&ingest, files.collect()).map_err(engine_error)?;
        }
        self.check_head(&db)
    }

    /// Checks that the shard is the planned one.
    ///
    /// # Errors
    /// `Corrupt` if the shard is another one.
    fn check_head(&self, db: &DB) -> Result<()> {
        let head = db.get_pinned(HEAD);
        let head = head.map_err(|error| engine_refused("building a shard from a copy", &error))?;
        let head = head.map(|bytes| Head::decode(&bytes)).transpose()?;
        let position = position(&self.plan)?;
        let is_planned = head.is_some_and(|head| {
            head.at == self.partition()
                && head.log_id == Some(LogId(self.plan.log_id))
                && head.position == position
        });
        let message = "the copied shard is not the planned shard; copy the shard again";
        is_planned.then_some(()).ok_or_else(|| Error::corrupt(message))
    }

    /// Abandons the copy and removes its folder.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn remove(self) -> Result<()> {
        remove_folder(&self.dir)
    }
}

impl State {
    fn take(&mut self, part: &v1::CopyPart) -> Result<()> {
        let part_error =
            || Error::corrupt("the journal of a copy names a range or file that the plan lacks");
        let range = self.ranges.get_mut(part.range as usize).ok_or_else(part_error)?;
        let end = part.end.as_ref().ok_or_else(part_error)?;
        // A piece of a file has no rows.
        if end.rows > 0 {
            range.last_key = Some(part.last_key.to_vec());
            range.digest.merge(RowsDigest::of(end.rows, &end.digest)?);
            self.files.push(part.file);
        }
        range.bytes = range.bytes.saturating_add(part.bytes);
        range.is_ended |= end.is_range_end;
        self.next_file = self.next_file.max(part.file.saturating_add(1));
        Ok(())
    }
}

/// Takes the lock of a copy's folder; the lock file is next to the folder.
///
/// # Errors
/// `Conflict` if this process or another one holds the lock; `Unavailable` if the disk refuses.
fn lock(dir: &Path) -> Result<File> {
    let lock_error = |error: std::io::Error| disk_error("taking the lock of a copy", &error);
    dir.parent().map_or(Ok(()), fs::create_dir_all).map_err(lock_error)?;
    let file = File::create(dir.with_extension("lock")).map_err(lock_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(lock_error(error)),
        Err(TryLockError::WouldBlock) => {
            let message = "another process copies the partition to this folder; wait until that \
                copy has ended";
            Err(Error::new(ErrorCode::Conflict, message))
        }
    }
}

/// Checks a plan.
///
/// # Errors
/// `Corrupt` if the ranges of the plan omit keys, or if its files are not those of a shard.
fn check(plan: &v1::CopyPlan) -> Result<()> {
    position(plan)?;
    if !plan.files.is_empty() {
        let is_sound = plan.ranges.is_empty() && are_sound(&plan.files);
        let message = "the files of a copy do not form a shard";
        return is_sound.then_some(()).ok_or_else(|| Error::corrupt(message));
    }
    let mut from: Option<&[u8]> = Some(&[]);
    for range in &plan.ranges {
        let is_next = from == Some(&range.from[..]);
        if !is_next || range.to.as_ref().is_some_and(|to| to <= &range.from) {
            return Err(Error::corrupt("the ranges of a copy omit keys"));
        }
        from = range.to.as_deref();
    }
    let is_whole = from.is_none() && !plan.ranges.is_empty();
    is_whole.then_some(()).ok_or_else(|| Error::corrupt("the ranges of a copy omit keys"))
}

/// Returns the position of a plan.
///
/// # Errors
/// `Corrupt` if the plan has no position.
fn position(plan: &v1::CopyPlan) -> Result<Position> {
    let position =
        plan.position.ok_or_else(|| Error::corrupt("the plan of a copy has no position"))?;
    position.try_into().map_err(|_| Error::corrupt("the plan of a copy has no position"))
}

fn file_path(dir: &Path, file: u32) -> PathBuf {
    dir.join(format!("{file}.sst"))
}
