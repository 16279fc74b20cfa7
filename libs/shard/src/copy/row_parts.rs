//! Writes the rows of a copy's part to a file of the engine at the target.

use std::fs;
use std::path::Path;

use forebay_core::limits::{COPY_BLOCK_BYTES_MAX, COPY_PART_BYTES_MAX, COPY_PART_ROWS_MAX};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, Result};
use forebay_wire::shard_copy::block_rows;
use forebay_wire::v1;
use rocksdb::{Options, SstFileWriter};

use super::files::{disk_error, engine_refused, sync_folder};
use super::part::{PartBlock, PartEnd, PartSource};
use crate::resources::Resources;

const DOING: &str = "writing a part of a copy";

/// A complete part.
pub(super) struct RowPart {
    pub last_key: Option<Vec<u8>>,
    pub bytes: u64,
    pub end: PartEnd,
}

/// Writes the next rows of a range, after `last_key` if given, to a file, durably. A part without
/// rows has no file.
///
/// # Errors
/// - The errors of the source.
/// - `Corrupt`: rows do not match their digest, are out of order, are outside the range, or are too
///   many.
/// - `LimitExceeded`: the disk is full.
/// - `Unavailable`: the disk refuses.
pub(super) fn write_rows(
    path: &Path,
    range: &v1::CopyRange,
    last_key: Option<Vec<u8>>,
    source: &mut impl PartSource,
) -> Result<RowPart> {
    let first = source.next_block()?;
    // Rows that were not worth compressing in transit are stored uncompressed, too.
    let options = Resources::import_options(first.was_compressed);
    let result = write(path, (range, last_key), (first, source), &options);
    if !matches!(&result, Ok(part) if part.end.digest.rows > 0) {
        // The part does not count, and the disk may be full.
        drop(fs::remove_file(path));
    }
    result
}

fn write<S: PartSource>(
    path: &Path,
    (range, last_key): (&v1::CopyRange, Option<Vec<u8>>),
    (first, source): (PartBlock<S::Block>, &mut S),
    options: &Options,
) -> Result<RowPart> {
    let writer = SstFileWriter::create(options);
    writer.open(path).map_err(|error| engine_refused(DOING, &error))?;
    let (digest, bytes) = (RowsDigest::default(), 0);
    let mut part = PartWriter { range, writer, last_key, digest, bytes };
    let mut next = first;
    let end = loop {
        part.write(next.bytes.as_ref())?;
        if let Some(end) = next.end {
            break end;
        }
        next = source.next_block()?;
    };
    part.finish(path, end)
}

/// The file of one part.
struct PartWriter<'w> {
    range: &'w v1::CopyRange,
    writer: SstFileWriter<'w>,
    last_key: Option<Vec<u8>>,
    digest: RowsDigest,
    bytes: u64,
}

impl PartWriter<'_> {
    fn write(&mut self, block: &[u8]) -> Result<()> {
        let v1::CopyRange { from, to, .. } = self.range;
        let mut last_key = self.last_key.as_deref();
        for row in block_rows(block) {
            let (key, value) = row?;
            let is_behind = last_key.is_none_or(|last| last < key) && key >= &from[..];
            if !is_behind || to.as_ref().is_some_and(|to| key >= &to[..]) {
                let message = "the source of a copy sent a row out of order; copy again";
                return Err(Error::corrupt(message));
            }
            self.writer.put(key, value).map_err(|error| engine_refused(DOING, &error))?;
            self.digest.add(key, value);
            self.bytes += (key.len() + value.len()) as u64;
            last_key = Some(key);
        }
        self.last_key = last_key.map(<[u8]>::to_vec);
        // The engine holds memory for each row until the file ends.
        let is_too_long = self.bytes > COPY_PART_BYTES_MAX + COPY_BLOCK_BYTES_MAX as u64;
        if is_too_long || self.digest.rows > COPY_PART_ROWS_MAX {
            return Err(Error::corrupt(
                "the source of a copy sent a part without an end; copy again",
            ));
        }
        Ok(())
    }

    /// Ends the file, durably.
    fn finish(mut self, path: &Path, end: PartEnd) -> Result<RowPart> {
        let Self { digest, bytes, .. } = self;
        if digest != end.digest {
            let message = format!(
                "{} rows arrived, but the source of the copy has {} rows, or other rows; copy \
                 again",
                digest.rows, end.digest.rows
            );
            return Err(Error::corrupt(message));
        }
        if digest.rows > 0 {
            self.writer.finish().map_err(|error| engine_refused(DOING, &error))?;
            sync_folder(path).map_err(|error| disk_error(DOING, &error))?;
        }
        Ok(RowPart { last_key: self.last_key, bytes, end })
    }
}
