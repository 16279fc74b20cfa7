//! The files of a frozen shard, for copies of unchanged files. The source lists the files and reads
//! them piece by piece; the target writes and verifies them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use forebay_core::limits::{COPY_BLOCK_BYTES, COPY_FILES_MAX};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, Result};
use forebay_wire::shard_copy::{FileKind, PieceDigest, file_kind};
use forebay_wire::v1;
use rocksdb::{DB, ErrorKind};

use super::files::{disk_error, engine_refused, sync_folder};
use super::part::{PartBlock, PartEnd, PartSource};
use crate::resources::Resources;

/// Message of the engine for a missing file.
const NO_FILE: &str = "No such file";

/// Lists the files that make up a frozen shard, without its options and identity, which the opener
/// provides.
///
/// # Errors
/// `LimitExceeded` if there are too many files; `Unavailable` if the disk refuses.
pub(super) fn list(dir: &Path) -> Result<Vec<v1::CopyFile>> {
    let listing = || {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if file_kind(&name).is_some() {
                files.push(v1::CopyFile { name, bytes: entry.metadata()?.len() });
            }
        }
        Ok(files)
    };
    let mut files = listing().map_err(|error: io::Error| disk_error("freezing a shard", &error))?;
    if files.len() > COPY_FILES_MAX {
        let advice = "the shard has too many files for a copy of files; copy the rows";
        let (limit, actual) = (COPY_FILES_MAX as u64, files.len() as u64);
        return Err(Error::limit_exceeded(advice, limit, actual));
    }
    files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Returns whether the files that a source names may be the files of a shard: each name has a known
/// form and occurs once.
pub(super) fn are_sound(files: &[v1::CopyFile]) -> bool {
    let count_of = |kind| files.iter().filter(|file| file_kind(&file.name) == Some(kind)).count();
    let mut names: Vec<_> = files.iter().map(|file| &file.name).collect();
    names.sort_unstable();
    names.dedup();
    let (currents, manifests) = (count_of(FileKind::Current), count_of(FileKind::Manifest));
    names.len() == files.len()
        && files.len() <= COPY_FILES_MAX
        && (currents, manifests) == (1, 1)
        && count_of(FileKind::Table) == files.len() - 2
}

/// A reader of a file of a frozen shard, block by block.
pub struct ExportFile {
    file: File,
    bytes_left: u64,
    digest: PieceDigest,
    piece_left: u64,
    piece_bytes: u64,
}

impl ExportFile {
    /// Opens a file after its first `behind_bytes` bytes.
    pub(super) fn open(
        dir: &Path,
        file: &v1::CopyFile,
        behind_bytes: u64,
        piece_bytes: u64,
    ) -> Result<Self> {
        let bytes = file.bytes;
        let bytes_left = bytes.checked_sub(behind_bytes).ok_or_else(|| {
            Error::invalid_argument(format!(
                "the file has {bytes} bytes, and the request begins after its end; ask for an \
                 earlier byte"
            ))
        })?;
        let opening = || {
            let mut file = File::open(dir.join(&file.name))?;
            file.seek(SeekFrom::Start(behind_bytes))?;
            Ok(file)
        };
        let file = opening().map_err(|error| disk_error("reading a frozen shard", &error))?;
        let (digest, piece_left) = (PieceDigest::default(), piece_bytes);
        Ok(Self { file, bytes_left, digest, piece_left, piece_bytes })
    }

    /// Returns the next block, and the piece's end if the piece ends with the block. Blocks on the
    /// disk. A caller must not call this after the end of the file.
    ///
    /// # Errors
    /// `Corrupt` if the file has become shorter; `Unavailable` if the disk refuses.
    pub fn next_block(&mut self) -> Result<(Vec<u8>, Option<PartEnd>)> {
        let length = self.bytes_left.min(self.piece_left).min(COPY_BLOCK_BYTES as u64);
        let mut block = vec![0; length as usize];
        self.file.read_exact(&mut block).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::corrupt("a file of a frozen shard became shorter; copy the shard again")
            }
            _ => disk_error("reading a frozen shard", &error),
        })?;
        self.digest.add(&block);
        self.bytes_left -= length;
        self.piece_left -= length;
        if self.bytes_left > 0 && self.piece_left > 0 {
            return Ok((block, None));
        }
        self.piece_left = self.piece_bytes;
        let digest = digest_of(&std::mem::take(&mut self.digest));
        Ok((block, Some(PartEnd { digest, is_range_end: self.bytes_left == 0 })))
    }
}

/// Returns the digest of a piece, which has no rows.
fn digest_of(piece: &PieceDigest) -> RowsDigest {
    RowsDigest { rows: 0, sum: piece.sum() }
}

/// Writes a piece of a file durably after the first `behind_bytes` bytes; returns the length and
/// the end of the piece.
///
/// # Errors
/// - The errors of the source.
/// - `Corrupt`: the bytes do not match their digest, or are too many.
/// - `LimitExceeded`: the disk is full.
/// - `Unavailable`: the disk refuses.
pub(super) fn write_piece(
    dir: &Path,
    file: &v1::CopyFile,
    behind_bytes: u64,
    source: &mut impl PartSource,
) -> Result<(u64, PartEnd)> {
    let write_error = |error: io::Error| disk_error("writing a file of a copy", &error);
    let path = dir.join(&file.name);
    let mut local_file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(write_error)?;
    local_file.seek(SeekFrom::Start(behind_bytes)).map_err(write_error)?;
    let (mut digest, mut bytes) = (PieceDigest::default(), 0);
    let end = loop {
        let PartBlock { bytes: block, end, .. } = source.next_block()?;
        let block = block.as_ref();
        bytes += block.len() as u64;
        if bytes > file.bytes.saturating_sub(behind_bytes) {
            return Err(Error::corrupt(
                "a file of a copy is longer than the plan says; copy again",
            ));
        }
        digest.add(block);
        local_file.write_all(block).map_err(write_error)?;
        if let Some(end) = end {
            break end;
        }
    };
    let is_file_end = behind_bytes + bytes == file.bytes;
    if digest_of(&digest) != end.digest || end.is_range_end != is_file_end {
        let message = "a file of a copy differs from the file at the source; copy again";
        return Err(Error::corrupt(message));
    }
    local_file.sync_data().map_err(write_error)?;
    if behind_bytes == 0 {
        sync_folder(&path).map_err(write_error)?;
    }
    Ok((bytes, end))
}

/// Opens the database that these files make up.
///
/// # Errors
/// `Corrupt` if the files are no complete database; `Unavailable` if the disk refuses.
pub(super) fn open_whole(dir: &Path, files: &[v1::CopyFile]) -> Result<DB> {
    let no_shard = |reason: &dyn std::fmt::Display| {
        Error::corrupt(format!("the copied files are no shard: {reason}; copy the shard again"))
    };
    let sizes: BTreeMap<_, _> = files.iter().map(|file| (&file.name[..], file.bytes)).collect();
    for (name, bytes) in &sizes {
        let found = fs::metadata(dir.join(name)).map(|found| found.len());
        if found.as_ref().ok() != Some(bytes) {
            return Err(no_shard(&format!("{name} should have {bytes} bytes: {found:?}")));
        }
    }
    // A read-only open writes nothing, so a kill leaves the files unchanged.
    let result = DB::open_for_read_only(&Resources::export_options(), dir, false);
    let db = result.map_err(|error| match error.kind() {
        ErrorKind::IOError if !error.as_ref().contains(NO_FILE) => {
            engine_refused("building a shard from a copy", &error)
        }
        _ => no_shard(&error),
    })?;
    // The engine opens most tables only when they are read.
    for table in db.live_files().map_err(|error| no_shard(&error))? {
        let name = table.name.trim_start_matches('/');
        if sizes.get(name) != Some(&(table.size as u64)) {
            return Err(no_shard(&format!("{name} is not among the copied files")));
        }
    }
    Ok(db)
}
