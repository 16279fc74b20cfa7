//! A shard frozen at one position, from which copies read. The frozen shard consists of hard links
//! to the shard's files. Therefore it occupies only the space of files that the shard has rewritten
//! since, and it survives restarts.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_core::id::PartitionRef;
use forebay_core::limits::{
    COPY_BLOCK_BYTES, COPY_PART_BYTES_MAX, COPY_PART_BYTES_MIN, COPY_PART_ROWS_MAX, COPY_PARTS,
};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::{HEAD, Head};
use forebay_core::{Error, Result};
use forebay_wire::shard_copy::RowsBlock;
use forebay_wire::v1;
use prost::Message;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};

use super::files::{PLAN, SHARD, disk_error, remove_folder, write_durably};
use super::part::PartEnd;
use super::pieces::{ExportFile, list};
use super::ranges::{RowRange, split};
use crate::error::from_rocksdb;
use crate::resources::Resources;
use crate::shard::Shard;

/// Bytes of read-ahead in a range.
const READAHEAD_BYTES: usize = 2 << 20;
/// Fewest bytes of a range: a smaller range is not worth a stream.
const RANGE_BYTES_MIN: u64 = 1 << 20;

/// Contents that a copy of a frozen shard transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportMode {
    /// The rows of the shard.
    Rows {
        /// Most ranges into which the rows are divided.
        ranges_max: usize,
    },
    /// The files of the shard, unchanged.
    Files,
}

/// A frozen shard.
pub struct Export {
    db: DB,
    dir: PathBuf,
    plan: v1::CopyPlan,
}

impl Export {
    /// Flushes a shard of the store of this name, and freezes the shard in a new folder for copies
    /// in this mode.
    ///
    /// # Errors
    /// - `Unavailable`: the disk refuses an operation, or nothing was written to the shard yet.
    /// - `LimitExceeded`: the shard has too many files to copy them unchanged, or the disk is full.
    pub fn create(
        shard: &Shard,
        store: &str,
        dir: &Path,
        id: u64,
        mode: ExportMode,
    ) -> Result<Self> {
        let unfinished_dir = dir.with_extension("begun");
        remove_folder(&unfinished_dir)?;
        fs::create_dir_all(&unfinished_dir)
            .map_err(|error| disk_error("freezing a shard", &error))?;
        let freezing = |error| shard.engine_error(&error, "freezing a shard");
        let checkpoint = Checkpoint::new(&shard.db).map_err(freezing)?;
        checkpoint.create_checkpoint(unfinished_dir.join(SHARD)).map_err(freezing)?;
        let db = open(&unfinished_dir)?;
        let mut plan = plan(&db, shard.partition(), mode)?;
        plan.copy_id = id;
        store.clone_into(&mut plan.store);
        write_durably(&unfinished_dir.join(PLAN), &plan.encode_to_vec())?;
        drop(db);
        fs::rename(&unfinished_dir, dir).map_err(|error| disk_error("freezing a shard", &error))?;
        Self::open(dir)
    }

    /// Opens a shard that an earlier process has frozen.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt` if it is damaged; `Unavailable` if the disk refuses.
    pub fn open(dir: &Path) -> Result<Self> {
        let bytes = fs::read(dir.join(PLAN)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found("no such copy exists; begin another copy")
            }
            _ => disk_error("reading a frozen shard's plan", &error),
        })?;
        let plan = v1::CopyPlan::decode(&bytes[..]).map_err(|error| {
            Error::corrupt(format!("the plan of a frozen shard is invalid: {error}"))
        })?;
        Ok(Self { db: open(dir)?, dir: dir.join(SHARD), plan })
    }

    /// Returns the plan by which copies read the shard.
    pub fn plan(&self) -> &v1::CopyPlan {
        &self.plan
    }

    /// Returns the rows of a range of the plan, after `behind` if given.
    ///
    /// # Errors
    /// `InvalidArgument` if the plan has no such range.
    pub fn rows(&self, range: usize, after_key: Option<&[u8]>) -> Result<ExportRows<'_>> {
        let Some(range) = self.plan.ranges.get(range) else {
            let ranges = self.plan.ranges.len();
            return Err(Error::invalid_argument(format!("the copy has {ranges} ranges, from 0")));
        };
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(&range.from[..]);
        if let Some(to) = &range.to {
            options.set_iterate_upper_bound(&to[..]);
        }
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
        let mut rows = self.db.raw_iterator_opt(options);
        match after_key {
            None => rows.seek_to_first(),
            Some(after_key) => {
                rows.seek(after_key);
                if rows.key() == Some(after_key) {
                    rows.next();
                }
            }
        }
        let part_bytes_max = self.plan.part_bytes;
        Ok(ExportRows { rows, part: RowsDigest::default(), part_bytes: 0, part_bytes_max })
    }

    /// Returns the bytes of a file of the plan after the first `behind_bytes`.
    ///
    /// # Errors
    /// `InvalidArgument` if the plan has no such file or the file is shorter; `Unavailable` if the
    /// disk refuses.
    pub fn file(&self, file: usize, behind_bytes: u64) -> Result<ExportFile> {
        let Some(file) = self.plan.files.get(file) else {
            let files = self.plan.files.len();
            return Err(Error::invalid_argument(format!("the copy has {files} files, from 0")));
        };
        ExportFile::open(&self.dir, file, behind_bytes, self.plan.part_bytes)
    }

    /// Adds the rows of these keys to a block, as far as the rows exist. Returns the number of
    /// processed keys, at least one: after a full block, the call adds no more rows. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As [`ExportRows::next`].
    pub fn rows_of<K: AsRef<[u8]>>(&self, keys: &[K], block: &mut RowsBlock) -> Result<usize> {
        for (number, key) in keys.iter().enumerate() {
            let row = self.db.get_pinned(key);
            if let Some(row) =
                row.map_err(|error| from_rocksdb(&error, "reading a frozen shard"))?
            {
                block.push(key.as_ref(), &row);
            }
            if block.bytes().len() >= COPY_BLOCK_BYTES {
                return Ok(number + 1);
            }
        }
        Ok(keys.len())
    }

    /// Removes a frozen shard from the disk; its current readers continue.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn remove(dir: &Path) -> Result<()> {
        remove_folder(dir)
    }
}

fn open(dir: &Path) -> Result<DB> {
    let result = DB::open_for_read_only(&Resources::export_options(), dir.join(SHARD), false);
    result.map_err(|error| from_rocksdb(&error, "opening a frozen shard"))
}

/// Returns the plan of a newly frozen shard, without id and name.
fn plan(db: &DB, at: PartitionRef, mode: ExportMode) -> Result<v1::CopyPlan> {
    let reading = |error| from_rocksdb(&error, "reading a frozen shard");
    let head = db.get_pinned(HEAD).map_err(reading)?;
    let head = head.map(|bytes| Head::decode(&bytes)).transpose()?;
    let Some((head, log_id)) = head.and_then(|head| head.log_id.map(|log_id| (head, log_id)))
    else {
        let error = Error::unavailable("the shard has no entries yet; copy the shard later");
        return Err(error.with_partition(at.partition));
    };
    let number = |name| db.property_int_value(name).ok().flatten().unwrap_or(0);
    let bytes = number(rocksdb::properties::LIVE_SST_FILES_SIZE);
    let (mut ranges, mut files) = (Vec::new(), Vec::new());
    match mode {
        ExportMode::Rows { ranges_max } => {
            let count = usize::try_from(bytes / RANGE_BYTES_MIN).unwrap_or(usize::MAX);
            let copy_range = |RowRange { from, to, bytes }: RowRange| {
                let (from, to) = (from.into(), to.map(Into::into));
                v1::CopyRange { from, to, bytes }
            };
            ranges.extend(split(db, count.clamp(1, ranges_max))?.into_iter().map(copy_range));
        }
        ExportMode::Files => files = list(db.path())?,
    }
    Ok(v1::CopyPlan {
        store_id: at.store.0,
        partition: at.partition.0,
        log_id: log_id.0,
        position: Some(head.position.into()),
        ranges,
        part_bytes: (bytes / COPY_PARTS).clamp(COPY_PART_BYTES_MIN, COPY_PART_BYTES_MAX),
        rows: number(rocksdb::properties::ESTIMATE_NUM_KEYS),
        files,
        ..v1::CopyPlan::default()
    })
}

/// An iterator over the rows of a range, block by block.
pub struct ExportRows<'e> {
    rows: DBRawIteratorWithThreadMode<'e, DB>,
    part: RowsDigest,
    part_bytes: u64,
    part_bytes_max: u64,
}

impl ExportRows<'_> {
    /// Adds the next rows to an empty block, and returns the part's end if the part ends with the
    /// block. Blocks on the disk. A caller must not call this after the end of the range.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file; `Unavailable` if the disk refuses. The call never skips rows
    /// silently.
    pub fn next(&mut self, block: &mut RowsBlock) -> Result<Option<PartEnd>> {
        while let Some((key, value)) = self.rows.item() {
            block.push(key, value);
            self.part.add(key, value);
            self.part_bytes += (key.len() + value.len()) as u64;
            self.rows.next();
            if self.part_bytes >= self.part_bytes_max || self.part.rows >= COPY_PART_ROWS_MAX {
                return Ok(Some(self.end_part(false)));
            }
            if block.bytes().len() >= COPY_BLOCK_BYTES {
                return Ok(None);
            }
        }
        self.rows.status().map_err(|error| from_rocksdb(&error, "reading a frozen shard"))?;
        Ok(Some(self.end_part(true)))
    }

    fn end_part(&mut self, is_range_end: bool) -> PartEnd {
        self.part_bytes = 0;
        PartEnd { digest: std::mem::take(&mut self.part), is_range_end }
    }
}
