//! A shard frozen as it is at one position, for copies to read. It lies in links to the shard's
//! files, so it costs the disk what the shard has rewritten since, and it stays over restarts.

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

use super::files::{PLAN, SHARD, refused, remove_folder, write_durably};
use super::pieces::{ExportFile, list};
use super::ranges::{RowRange, split};
use crate::error::explained;
use crate::resources::Resources;
use crate::shard::Shard;

/// Bytes that are read ahead of a range.
const READAHEAD_BYTES: usize = 2 << 20;
/// Least bytes of a range: a smaller one is not worth a stream.
const RANGE_BYTES_MIN: u64 = 1 << 20;

/// What a copy of a frozen shard moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportMode {
    /// Its rows.
    Rows {
        /// Ranges that they are divided into, at most.
        ranges_max: usize,
    },
    /// Its files as they are.
    Files,
}

/// A frozen shard.
pub struct Export {
    db: DB,
    dir: PathBuf,
    plan: v1::CopyPlan,
}

impl Export {
    /// Freezes a shard of the store of this name in a folder that does not exist yet, to be moved
    /// so. Puts it on the disk first.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses, and for a shard to which nothing was written yet;
    /// `LimitExceeded` for one of too many files to be moved as they are, and for a full disk.
    pub fn create(
        shard: &Shard,
        store: &str,
        dir: &Path,
        id: u64,
        mode: ExportMode,
    ) -> Result<Self> {
        let begun = dir.with_extension("begun");
        remove_folder(&begun)?;
        fs::create_dir_all(&begun).map_err(|error| refused("freezing a shard", &error))?;
        let freezing = |error| shard.explained(&error, "freezing a shard");
        let checkpoint = Checkpoint::new(&shard.db).map_err(freezing)?;
        checkpoint.create_checkpoint(begun.join(SHARD)).map_err(freezing)?;
        let db = open(&begun)?;
        let mut plan = plan(&db, shard.partition(), mode)?;
        plan.copy_id = id;
        store.clone_into(&mut plan.store);
        write_durably(&begun.join(PLAN), &plan.encode_to_vec())?;
        drop(db);
        fs::rename(&begun, dir).map_err(|error| refused("freezing a shard", &error))?;
        Self::open(dir)
    }

    /// One that an earlier process has frozen.
    ///
    /// # Errors
    /// `NotFound` where none is, `Corrupt` where it is damaged, `Unavailable` for a disk that
    /// refuses.
    pub fn open(dir: &Path) -> Result<Self> {
        let bytes = fs::read(dir.join(PLAN)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("no such copy; begin another one"),
            _ => refused("reading a frozen shard's plan", &error),
        })?;
        let plan = v1::CopyPlan::decode(&bytes[..])
            .map_err(|error| Error::corrupt(format!("a frozen shard's plan: {error}")))?;
        Ok(Self { db: open(dir)?, dir: dir.join(SHARD), plan })
    }

    /// How it is read.
    pub fn plan(&self) -> &v1::CopyPlan {
        &self.plan
    }

    /// The rows of a range of its plan, behind a key if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that it does not have.
    pub fn rows(&self, range: usize, behind: Option<&[u8]>) -> Result<ExportRows<'_>> {
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
        match behind {
            None => rows.seek_to_first(),
            Some(behind) => {
                rows.seek(behind);
                if rows.key() == Some(behind) {
                    rows.next();
                }
            }
        }
        let part_bytes_max = self.plan.part_bytes;
        Ok(ExportRows { rows, part: RowsDigest::default(), part_bytes: 0, part_bytes_max })
    }

    /// The bytes of a file of its plan, behind so many of them.
    ///
    /// # Errors
    /// `InvalidArgument` for a file that it does not have, or for more bytes than that has;
    /// `Unavailable` for a disk that refuses.
    pub fn file(&self, file: usize, behind_bytes: u64) -> Result<ExportFile> {
        let Some(file) = self.plan.files.get(file) else {
            let files = self.plan.files.len();
            return Err(Error::invalid_argument(format!("the copy has {files} files, from 0")));
        };
        ExportFile::open(&self.dir, file, behind_bytes, self.plan.part_bytes)
    }

    /// Puts the rows of these keys into a block, as far as they are there; answers for how many of
    /// the keys, one at least: behind a full block comes no other. Blocks on the disk.
    ///
    /// # Errors
    /// As [`ExportRows::next`].
    pub fn rows_of<K: AsRef<[u8]>>(&self, keys: &[K], block: &mut RowsBlock) -> Result<usize> {
        for (number, key) in keys.iter().enumerate() {
            let row = self.db.get_pinned(key);
            if let Some(row) = row.map_err(|error| explained(&error, "reading a frozen shard"))? {
                block.push(key.as_ref(), &row);
            }
            if block.bytes().len() >= COPY_BLOCK_BYTES {
                return Ok(number + 1);
            }
        }
        Ok(keys.len())
    }

    /// Removes one from the disk; who reads it reads on.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn remove(dir: &Path) -> Result<()> {
        remove_folder(dir)
    }
}

fn open(dir: &Path) -> Result<DB> {
    let opened = DB::open_for_read_only(&Resources::export_options(), dir.join(SHARD), false);
    opened.map_err(|error| explained(&error, "opening a frozen shard"))
}

/// The plan of a shard that was just frozen, without an id and a name.
fn plan(db: &DB, at: PartitionRef, mode: ExportMode) -> Result<v1::CopyPlan> {
    let reading = |error| explained(&error, "reading a frozen shard");
    let head = db.get_pinned(HEAD).map_err(reading)?;
    let head = head.map(|bytes| Head::decode(&bytes)).transpose()?;
    let Some((head, log_id)) = head.and_then(|head| head.log_id.map(|log_id| (head, log_id)))
    else {
        let error = Error::unavailable("nothing was written to the shard yet; copy it later");
        return Err(error.with_partition(at.partition));
    };
    let number = |name| db.property_int_value(name).ok().flatten().unwrap_or(0);
    let bytes = number(rocksdb::properties::LIVE_SST_FILES_SIZE);
    let (mut ranges, mut files) = (Vec::new(), Vec::new());
    match mode {
        ExportMode::Rows { ranges_max } => {
            let count = usize::try_from(bytes / RANGE_BYTES_MIN).unwrap_or(usize::MAX);
            let of = |RowRange { from, to, bytes }: RowRange| {
                let (from, to) = (from.into(), to.map(Into::into));
                v1::CopyRange { from, to, bytes }
            };
            ranges.extend(split(db, count.clamp(1, ranges_max))?.into_iter().map(of));
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

/// The end of a part of a range, or of a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEnd {
    /// Of its rows; a piece has none, and the digest of its bytes for a sum.
    pub digest: RowsDigest,
    /// Whether the range, or the file, ends with it.
    pub is_range_end: bool,
}

/// The rows of a range, block by block.
pub struct ExportRows<'e> {
    rows: DBRawIteratorWithThreadMode<'e, DB>,
    part: RowsDigest,
    part_bytes: u64,
    part_bytes_max: u64,
}

impl ExportRows<'_> {
    /// Puts the next rows into a block, which is empty; what ends with them. Blocks on the disk.
    /// Behind the range's end there is nothing more to ask for.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file, `Unavailable` for a disk that refuses: never fewer rows than
    /// there are.
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
        self.rows.status().map_err(|error| explained(&error, "reading a frozen shard"))?;
        Ok(Some(self.end_part(true)))
    }

    fn end_part(&mut self, is_range_end: bool) -> PartEnd {
        self.part_bytes = 0;
        PartEnd { digest: std::mem::take(&mut self.part), is_range_end }
    }
}
