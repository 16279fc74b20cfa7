//! A shard that is being copied here. Rows: those of each part become a file of the engine, and all
//! files at once a shard. Files: they come piece by piece, each under its own name, and are a shard
//! once they are whole.

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

use super::export::PartEnd;
use super::files::{
    PLAN, SHARD, engine_refused, refused, remove_folder, sync_folder, write_durably,
};
use super::parts::PartsJournal;
use super::pieces::{are_sound, open_whole, write_piece};
use super::row_parts::{RowPart, write_rows};
use crate::resources::Resources;

/// The journal's file.
const PARTS: &str = "parts";

/// What is durable of a range, or of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeDone {
    /// Its last key; `None` where there is none yet, and for a file.
    pub last_key: Option<Vec<u8>>,
    /// Its rows; none for a file.
    pub digest: RowsDigest,
    /// Bytes of its keys and values, or of the file.
    pub bytes: u64,
    /// Whether nothing is missing.
    pub is_ended: bool,
}

/// A block of a part.
#[derive(Clone, Debug)]
pub struct PartBlock<B> {
    /// Its rows, or the bytes of a file.
    pub bytes: B,
    /// What ends with it.
    pub end: Option<PartEnd>,
    /// Whether it came compressed: a part whose first block did not is kept as it is.
    pub was_compressed: bool,
}

/// Where the blocks of a part come from.
pub trait PartSource {
    /// The bytes of a block.
    type Block: AsRef<[u8]>;

    /// The next block.
    ///
    /// # Errors
    /// Why there is none; nothing of the part counts then.
    fn next_block(&mut self) -> Result<PartBlock<Self::Block>>;
}

/// A shard that is being copied here. Parts of different ranges may be written at the same time.
pub struct Import {
    /// Keeps a second process from copying the same partition to the same place.
    _lock: File,
    dir: PathBuf,
    plan: v1::CopyPlan,
    state: Mutex<State>,
}

struct State {
    journal: PartsJournal,
    /// By the ranges of the plan, or by its files.
    ranges: Vec<RangeDone>,
    /// Files of the parts that count; a copy of files has none beside those of its plan.
    files: Vec<u32>,
    next_file: u32,
}

impl Import {
    /// The plan of what lies in a folder; `None` where there is none that can be gone on with.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(crate) fn plan_in(dir: &Path) -> Result<Option<v1::CopyPlan>> {
        let bytes = match fs::read(dir.join(PLAN)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| refused("reading the plan of a copy", &error))?,
        };
        Ok(v1::CopyPlan::decode(&bytes[..]).ok().filter(|plan| check(plan).is_ok()))
    }

    /// Begins with nothing, in a folder of which all is removed that is there.
    ///
    /// # Errors
    /// `Corrupt` for a plan that is none, `LimitExceeded` for a full disk, `Unavailable` for one
    /// that refuses.
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
        beginning().map_err(|error| refused("beginning a copy", &error))?;
        write_durably(&dir.join(PLAN), &plan.encode_to_vec())?;
        Self::of(lock, dir, plan)
    }

    /// Goes on with what an earlier process has left; `None` where that is nothing.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(crate) fn resume(dir: &Path) -> Result<Option<Self>> {
        let lock = lock(dir)?;
        let Some(plan) = Self::plan_in(dir)? else { return remove_folder(dir).map(|()| None) };
        let import = Self::of(lock, dir, plan)?;
        match import.has_all_that_is_durable() {
            true => Ok(Some(import)),
            // Its shard had left already when it was killed, or somebody took of it what counts.
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
            // A database that takes the files in may have taken them.
            let is_there = |file: &u32| file_path(&self.dir, *file).exists();
            return shard.exists() || state.files.iter().all(is_there);
        }
        self.plan.files.iter().zip(&state.ranges).all(|(file, done)| {
            let found = fs::metadata(shard.join(&file.name));
            done.bytes == 0 || found.is_ok_and(|found| found.len() >= done.bytes)
        })
    }

    /// What is copied.
    pub fn plan(&self) -> &v1::CopyPlan {
        &self.plan
    }

    /// Which partition's shard it becomes.
    pub fn partition(&self) -> PartitionRef {
        let (store, partition) = (StoreId(self.plan.store_id), PartitionId(self.plan.partition));
        PartitionRef { store, partition }
    }

    /// Whether a shard of this state has all that would be copied.
    pub(crate) fn is_passed_by(&self, state: &PartitionState) -> bool {
        let is_there = position(&self.plan).is_ok_and(|position| position <= state.position);
        is_there && state.log_id == Some(LogId(self.plan.log_id))
    }

    /// What is durable of each range, or of each file.
    pub fn ranges(&self) -> Vec<RangeDone> {
        self.state.lock().ranges.clone()
    }

    /// What is durable of one of them.
    pub fn range(&self, range: usize) -> RangeDone {
        self.state.lock().ranges.get(range).cloned().unwrap_or_default()
    }

    /// All rows that are durable; none where files are copied.
    pub fn digest(&self) -> RowsDigest {
        let mut all = RowsDigest::default();
        self.state.lock().ranges.iter().for_each(|range| all.merge(range.digest));
        all
    }

    /// Writes the next part of a range behind what is durable of it, or the next piece of a file;
    /// answers whether that ends with it. Blocks on the disk. Nobody else may write to the range
    /// meanwhile.
    ///
    /// # Errors
    /// Those of the source; `Corrupt` for what is not what its end says, for rows out of order or
    /// of another range; `LimitExceeded` for a full disk, with the bytes that are free and those
    /// that are about to come; `Unavailable` for one that refuses. Nothing of the part counts then.
    pub fn write_part(&self, range: usize, source: &mut impl PartSource) -> Result<bool> {
        self.write(range, source).map_err(|error| self.with_room(error))
    }

    fn write(&self, range: usize, source: &mut impl PartSource) -> Result<bool> {
        let done = self.range(range);
        let number = range as u32;
        let (part, end) = if let Some(file) = self.plan.files.get(range) {
            let (bytes, end) = write_piece(&self.dir.join(SHARD), file, done.bytes, source)?;
            (v1::CopyPart { range: number, bytes, ..Default::default() }, end)
        } else if let Some(of) = self.plan.ranges.get(range) {
            let file = {
                let mut state = self.state.lock();
                state.next_file += 1;
                state.next_file - 1
            };
            let RowPart { last_key, bytes, end } =
                write_rows(&file_path(&self.dir, file), of, done.last_key, source)?;
            let last_key = last_key.unwrap_or_default().into();
            (v1::CopyPart { range: number, file, last_key, bytes, end: None }, end)
        } else {
            return Err(Error::invalid_argument("the copy has no such range"));
        };
        let PartEnd { digest: RowsDigest { rows, sum }, is_range_end } = end;
        if part.bytes == 0 && rows == 0 && !is_range_end {
            return Err(Error::corrupt(
                "the source of a copy has sent a part of nothing; copy again",
            ));
        }
        let digest = sum.to_le_bytes().to_vec().into();
        let part =
            v1::CopyPart { end: Some(v1::CopyPartEnd { rows, digest, is_range_end }), ..part };
        let mut state = self.state.lock();
        state.journal.append(&part)?;
        state.take(&part)?;
        Ok(is_range_end)
    }

    /// The error of a full disk, with what is missing on it.
    fn with_room(&self, error: Error) -> Error {
        if error.code() != ErrorCode::LimitExceeded {
            return error;
        }
        let free = statvfs(&self.dir).map_or(0, |at| at.f_bavail.saturating_mul(at.f_frsize));
        let planned = self.plan.ranges.iter().map(|range| range.bytes);
        let planned = planned.chain(self.plan.files.iter().map(|file| file.bytes));
        let left: u64 = planned
            .zip(&self.state.lock().ranges)
            .filter(|(_, done)| !done.is_ended)
            .map(|(bytes, done)| bytes.saturating_sub(done.bytes))
            .sum();
        // It is more than there was room for, whatever was planned.
        Error::limit_exceeded(error.message(), free, left.max(free + 1))
    }

    /// Makes the shard of what was copied, at a path that does not exist yet; the copy is over
    /// then. May be called again by another process where this one was killed.
    ///
    /// # Errors
    /// `Unavailable` where a range has not ended; `Corrupt` for what makes no shard, or another
    /// one, of which nothing is left then; `LimitExceeded` for a full disk, `Unavailable` for one
    /// that refuses.
    pub(crate) fn finish(self, path: &Path) -> Result<()> {
        if self.state.lock().ranges.iter().any(|range| !range.is_ended) {
            return Err(Error::unavailable("the copy has not ended yet; go on with it"));
        }
        let moving = || {
            fs::rename(self.dir.join(SHARD), path)?;
            sync_folder(path)
        };
        let moving = || moving().map_err(|error| refused("taking in a copy", &error));
        match self.make_whole().and_then(|()| moving()) {
            Ok(()) => self.remove(),
            Err(error) if error.code() == ErrorCode::Corrupt => self.remove().and(Err(error)),
            Err(error) => Err(self.with_room(error)),
        }
    }

    /// Makes a whole database of the parts' files, or finds it whole.
    fn make_whole(&self) -> Result<()> {
        let shard = self.dir.join(SHARD);
        if !self.plan.files.is_empty() {
            return self.check_head(&open_whole(&shard, &self.plan.files)?);
        }
        let told = |error| engine_refused("taking in a copy", &error);
        let db = DB::open(&Resources::import_options(true), &shard).map_err(told)?;
        // All files come in one step, and with them the head.
        if db.get_pinned(HEAD).map_err(told)?.is_none() {
            let mut ingest = IngestExternalFileOptions::default();
            ingest.set_move_files(true);
            let state = self.state.lock();
            let files = state.files.iter().map(|file| file_path(&self.dir, *file));
            db.ingest_external_file_opts(&ingest, files.collect()).map_err(told)?;
        }
        self.check_head(&db)
    }

    /// # Errors
    /// `Corrupt` for a shard that is not the one that was planned.
    fn check_head(&self, db: &DB) -> Result<()> {
        let head = db.get_pinned(HEAD);
        let head = head.map_err(|error| engine_refused("taking in a copy", &error))?;
        let head = head.map(|bytes| Head::decode(&bytes)).transpose()?;
        let position = position(&self.plan)?;
        let is_planned = head.is_some_and(|head| {
            head.at == self.partition()
                && head.log_id == Some(LogId(self.plan.log_id))
                && head.position == position
        });
        let message = "what was copied is not the shard that was planned; copy it again";
        is_planned.then_some(()).ok_or_else(|| Error::corrupt(message))
    }

    /// Gives it up, and removes what was copied.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn remove(self) -> Result<()> {
        remove_folder(&self.dir)
    }
}

impl State {
    fn take(&mut self, part: &v1::CopyPart) -> Result<()> {
        let wrong = || Error::corrupt("the journal of a copy names what its plan does not have");
        let range = self.ranges.get_mut(part.range as usize).ok_or_else(wrong)?;
        let end = part.end.as_ref().ok_or_else(wrong)?;
        // A piece of a file has none.
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

/// Takes the lock of a copy's folder, which lies beside it.
///
/// # Errors
/// `Conflict` where another process, or this one, has it; `Unavailable` for a disk that refuses.
fn lock(dir: &Path) -> Result<File> {
    let told = |error: std::io::Error| refused("taking the lock of a copy", &error);
    dir.parent().map_or(Ok(()), fs::create_dir_all).map_err(told)?;
    let file = File::create(dir.with_extension("lock")).map_err(told)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(told(error)),
        Err(TryLockError::WouldBlock) => {
            let message = "the partition is being copied to this place; wait until that has ended";
            Err(Error::new(ErrorCode::Conflict, message))
        }
    }
}

/// # Errors
/// `Corrupt` for a plan whose ranges leave keys out, or whose files are none of a shard's.
fn check(plan: &v1::CopyPlan) -> Result<()> {
    position(plan)?;
    if !plan.files.is_empty() {
        let is_sound = plan.ranges.is_empty() && are_sound(&plan.files);
        let message = "the files of a copy are not those of a shard";
        return is_sound.then_some(()).ok_or_else(|| Error::corrupt(message));
    }
    let mut from: Option<&[u8]> = Some(&[]);
    for range in &plan.ranges {
        let is_next = from == Some(&range.from[..]);
        if !is_next || range.to.as_ref().is_some_and(|to| to <= &range.from) {
            return Err(Error::corrupt("the ranges of a copy leave keys out"));
        }
        from = range.to.as_deref();
    }
    let is_whole = from.is_none() && !plan.ranges.is_empty();
    is_whole.then_some(()).ok_or_else(|| Error::corrupt("the ranges of a copy leave keys out"))
}

/// # Errors
/// `Corrupt` for a plan without one.
fn position(plan: &v1::CopyPlan) -> Result<Position> {
    let position = plan.position.ok_or_else(|| Error::corrupt("a copy without a position"))?;
    position.try_into().map_err(|_| Error::corrupt("a copy without a position"))
}

fn file_path(dir: &Path, file: u32) -> PathBuf {
    dir.join(format!("{file}.sst"))
}
