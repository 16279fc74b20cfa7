//! A shard that is being copied here: the rows of each part become a file of the engine, and all
//! files at once a shard.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::HEAD;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::shard_copy::block_rows;
use forebay_wire::v1;
use parking_lot::Mutex;
use prost::Message;
use rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};

use super::export::{PLAN, PartEnd, SHARD};
use super::files::{refused, remove_folder, sync_folder, write_durably};
use super::parts::PartsJournal;
use crate::error::explained;
use crate::resources::Resources;

/// The journal's file.
const PARTS: &str = "parts";

/// What is durable of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeDone {
    /// Its last key; `None` where there is none yet.
    pub last_key: Option<Vec<u8>>,
    /// Its rows.
    pub digest: RowsDigest,
    /// Bytes of its keys and values.
    pub bytes: u64,
    /// Whether nothing is missing.
    pub is_ended: bool,
}

/// Where the rows of a part come from.
pub trait PartSource {
    /// The bytes of a block.
    type Block: AsRef<[u8]>;

    /// The next block of rows, and what ends with it.
    ///
    /// # Errors
    /// Why there is none; nothing of the part counts then.
    fn next_block(&mut self) -> Result<(Self::Block, Option<PartEnd>)>;
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
    ranges: Vec<RangeDone>,
    /// Files of the parts that count.
    files: Vec<u32>,
    next_file: u32,
}

impl Import {
    /// Begins with nothing, in a folder of which all is removed that is there.
    ///
    /// # Errors
    /// `Corrupt` for a plan that is none, `Unavailable` for a disk that refuses.
    pub(crate) fn begin(dir: &Path, plan: v1::CopyPlan) -> Result<Self> {
        check(&plan)?;
        let lock = lock(dir)?;
        remove_folder(dir)?;
        fs::create_dir_all(dir).map_err(|error| refused("beginning a copy", &error))?;
        write_durably(&dir.join(PLAN), &plan.encode_to_vec())?;
        Self::of(lock, dir, plan)
    }

    /// Goes on with what an earlier process has left; `None` where that is nothing.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(crate) fn resume(dir: &Path) -> Result<Option<Self>> {
        let lock = lock(dir)?;
        let bytes = match fs::read(dir.join(PLAN)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| refused("reading the plan of a copy", &error))?,
        };
        let plan = v1::CopyPlan::decode(&bytes[..]).ok().filter(|plan| check(plan).is_ok());
        let Some(plan) = plan else { return remove_folder(dir).map(|()| None) };
        let import = Self::of(lock, dir, plan)?;
        // Killed when its shard had left already.
        let is_taken_in = {
            let state = import.state.lock();
            let is_gone = |file: &u32| !file_path(dir, *file).exists();
            let are_ended = state.ranges.iter().all(|range| range.is_ended);
            are_ended && !dir.join(SHARD).exists() && state.files.iter().any(is_gone)
        };
        if is_taken_in {
            return remove_folder(dir).map(|()| None);
        }
        Ok(Some(import))
    }

    fn of(lock: File, dir: &Path, plan: v1::CopyPlan) -> Result<Self> {
        let (journal, parts) = PartsJournal::open(&dir.join(PARTS))?;
        let ranges = vec![RangeDone::default(); plan.ranges.len()];
        let mut state = State { journal, ranges, files: Vec::new(), next_file: 0 };
        parts.iter().try_for_each(|part| state.take(part))?;
        let (dir, state) = (dir.to_owned(), Mutex::new(state));
        Ok(Self { _lock: lock, dir, plan, state })
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

    /// What is durable of each range.
    pub fn ranges(&self) -> Vec<RangeDone> {
        self.state.lock().ranges.clone()
    }

    /// All rows that are durable.
    pub fn digest(&self) -> RowsDigest {
        let mut all = RowsDigest::default();
        self.state.lock().ranges.iter().for_each(|range| all.merge(range.digest));
        all
    }

    /// Writes the next part of a range, of rows behind what is durable of it; answers whether the
    /// range ends with it. Blocks on the disk. Nobody else may write to the range meanwhile.
    ///
    /// # Errors
    /// Those of the source; `Corrupt` for rows that are not what its end says, out of order, or of
    /// another range; `Unavailable` for a disk that refuses. Nothing of the part counts then.
    pub fn write_part(&self, range: usize, source: &mut impl PartSource) -> Result<bool> {
        let file = {
            let mut state = self.state.lock();
            let file = state.next_file;
            state.next_file += 1;
            file
        };
        let options = Resources::import_options();
        let mut part = PartWriter::new(self, range, file, &options)?;
        let end = loop {
            let (block, end) = source.next_block()?;
            part.write(block.as_ref())?;
            if let Some(end) = end {
                break end;
            }
        };
        let part = part.finish(end)?;
        let mut state = self.state.lock();
        state.journal.append(&part)?;
        state.take(&part)?;
        Ok(end.is_range_end)
    }

    /// Makes the shard of what was copied, at a path that does not exist yet; the copy is over
    /// then. May be called again by another process where this one was killed.
    ///
    /// # Errors
    /// `Unavailable` where a range has not ended, and for a disk that refuses; `Corrupt` for rows
    /// that make no shard.
    pub(crate) fn finish(self, path: &Path) -> Result<()> {
        let State { ranges, files, .. } = self.state.into_inner();
        if ranges.iter().any(|range| !range.is_ended) {
            return Err(Error::unavailable("the copy has not ended yet; go on with it"));
        }
        let shard = self.dir.join(SHARD);
        let told = |error| explained(&error, "taking in a copy");
        let options = Resources::import_options();
        let db = DB::open(&options, &shard).map_err(told)?;
        // All files come in one step, and with them the head.
        if db.get_pinned(HEAD).map_err(told)?.is_none() {
            let mut ingest = IngestExternalFileOptions::default();
            ingest.set_move_files(true);
            let files = files.into_iter().map(|file| file_path(&self.dir, file));
            db.ingest_external_file_opts(&ingest, files.collect()).map_err(told)?;
            if db.get_pinned(HEAD).map_err(told)?.is_none() {
                return Err(Error::corrupt("the copied rows have no head; copy the shard again"));
            }
        }
        drop(db);
        let moving = || {
            fs::rename(&shard, path)?;
            sync_folder(path)
        };
        moving().map_err(|error| refused("taking in a copy", &error))?;
        remove_folder(&self.dir)
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
        if end.rows > 0 {
            range.last_key = Some(part.last_key.to_vec());
            self.files.push(part.file);
        }
        range.digest.merge(RowsDigest::of(end.rows, &end.digest)?);
        range.bytes += part.bytes;
        range.is_ended |= end.is_range_end;
        self.next_file = self.next_file.max(part.file + 1);
        Ok(())
    }
}

/// The file of one part.
struct PartWriter<'w> {
    import: &'w Import,
    range: usize,
    file: u32,
    path: PathBuf,
    writer: SstFileWriter<'w>,
    last_key: Option<Vec<u8>>,
    digest: RowsDigest,
    bytes: u64,
}

impl<'w> PartWriter<'w> {
    fn new(import: &'w Import, range: usize, file: u32, options: &'w Options) -> Result<Self> {
        let path = file_path(&import.dir, file);
        let last_key = import.state.lock().ranges.get(range).cloned().unwrap_or_default().last_key;
        let writer = SstFileWriter::create(options);
        writer.open(&path).map_err(|error| explained(&error, "writing a part of a copy"))?;
        let (digest, bytes) = (RowsDigest::default(), 0);
        Ok(Self { import, range, file, path, writer, last_key, digest, bytes })
    }

    fn write(&mut self, block: &[u8]) -> Result<()> {
        let Some(range) = self.import.plan.ranges.get(self.range) else {
            return Err(Error::invalid_argument("the copy has no such range"));
        };
        let mut last_key = self.last_key.as_deref();
        for row in block_rows(block) {
            let (key, value) = row?;
            let is_behind = last_key.is_none_or(|last| last < key) && key >= &range.from[..];
            if !is_behind || range.to.as_ref().is_some_and(|to| key >= &to[..]) {
                let message = "the source of a copy has sent a row out of its order; copy again";
                return Err(Error::corrupt(message));
            }
            let put = self.writer.put(key, value);
            put.map_err(|error| explained(&error, "writing a part of a copy"))?;
            self.digest.add(key, value);
            self.bytes += (key.len() + value.len()) as u64;
            last_key = Some(key);
        }
        self.last_key = last_key.map(<[u8]>::to_vec);
        Ok(())
    }

    /// Ends the file, durably; what the journal is to say of it.
    fn finish(mut self, end: PartEnd) -> Result<v1::CopyPart> {
        if self.digest != end.digest {
            let message = format!(
                "{} rows came where the source of the copy has {}, or others; copy again",
                self.digest.rows, end.digest.rows
            );
            return Err(Error::corrupt(message));
        }
        if self.digest.rows > 0 {
            let finished = self.writer.finish();
            finished.map_err(|error| explained(&error, "writing a part of a copy"))?;
            let named = sync_folder(&self.path);
            named.map_err(|error| refused("writing a part of a copy", &error))?;
        }
        let digest = self.digest.sum.to_le_bytes().to_vec();
        let (rows, is_range_end) = (self.digest.rows, end.is_range_end);
        Ok(v1::CopyPart {
            range: self.range as u32,
            file: self.file,
            last_key: self.last_key.unwrap_or_default().into(),
            bytes: self.bytes,
            end: Some(v1::CopyPartEnd { rows, digest: digest.into(), is_range_end }),
        })
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
/// `Corrupt` for a plan whose ranges leave keys out.
fn check(plan: &v1::CopyPlan) -> Result<()> {
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

fn file_path(dir: &Path, file: u32) -> PathBuf {
    dir.join(format!("{file}.sst"))
}
