//! Spill file: rows between the files and the partitions, in one file on disk with blocks of rows
//! of one partition. The input files are therefore read once, whatever the memory and the order of
//! their rows, and each partition is read in one pass.
//!
//! A block is `partition u32 | length u32 | entry`. Entries have their own checksums, and only the
//! push that wrote the file reads it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldOp};
use forebay_core::id::{ClientId, LogId, PartitionCount, PartitionId, SchemaVersion};
use forebay_core::limits::{ENTRY_CHANGES_MAX, PUSH_BLOCK_BYTES, PUSH_BLOCKS_BYTES};
use forebay_core::{Error, Result};
use forebay_wire::entry::{decode_entry, encode_entry};

use super::columns::ReadRow;

/// Bytes of a block's header.
const HEADER_BYTES: u64 = 8;
/// Placeholders in spilled entries, which belong to no log and to no schema version yet.
const NO_LOG: LogId = LogId(1);
const NO_VERSION: SchemaVersion = SchemaVersion(1);

/// The spilled rows of a push.
pub(crate) struct Spill {
    file: File,
    /// Bytes written to the file.
    bytes: u64,
    /// Offsets and lengths of each partition's blocks.
    blocks: Vec<Vec<(u64, u32)>>,
    /// Rows of each partition that are not written yet.
    open: Vec<OpenBlock>,
    /// Size at which a block is written, in bytes.
    block_bytes: usize,
}

#[derive(Default)]
struct OpenBlock {
    changes: Vec<Change>,
    bytes: usize,
}

impl Spill {
    /// Opens the file and reads the blocks in its first `bytes` bytes; truncates the rest.
    ///
    /// # Errors
    /// As the disk; `Internal` if these bytes are not whole blocks.
    pub(crate) fn open(path: &Path, bytes: u64, partitions: PartitionCount) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| disk_error(&error))?;
        file.set_len(bytes).map_err(|error| disk_error(&error))?;
        let count = partitions.0 as usize;
        let mut blocks = vec![Vec::new(); count];
        let mut offset = 0;
        while offset < bytes {
            let mut header = [0; HEADER_BYTES as usize];
            file.read_exact_at(&mut header, offset).map_err(|error| disk_error(&error))?;
            let [a, b, c, d, e, f, g, h] = header;
            let partition = u32::from_le_bytes([a, b, c, d]) as usize;
            let length = u32::from_le_bytes([e, f, g, h]);
            let block = blocks.get_mut(partition).ok_or_else(broken_error)?;
            block.push((offset + HEADER_BYTES, length));
            offset += HEADER_BYTES + u64::from(length);
        }
        if offset != bytes {
            return Err(broken_error());
        }
        let block_bytes = (PUSH_BLOCKS_BYTES / count).min(PUSH_BLOCK_BYTES);
        let mut open = Vec::new();
        open.resize_with(count, OpenBlock::default);
        Ok(Self { file, bytes, blocks, open, block_bytes })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn add(&mut self, row: ReadRow) -> Result<()> {
        let ReadRow { partition, change } = row;
        let open = self.open.get_mut(partition.0 as usize).ok_or_else(broken_error)?;
        open.bytes += bytes_of(&change);
        open.changes.push(change);
        if open.bytes >= self.block_bytes || open.changes.len() >= ENTRY_CHANGES_MAX {
            self.write(partition)?;
        }
        Ok(())
    }

    /// Writes all added rows; returns the size of the file in bytes.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn flush(&mut self) -> Result<u64> {
        for partition in 0..self.open.len() as u32 {
            self.write(PartitionId(partition))?;
        }
        Ok(self.bytes)
    }

    fn write(&mut self, partition: PartitionId) -> Result<()> {
        let number = partition.0 as usize;
        let OpenBlock { changes, .. } = std::mem::take(&mut self.open[number]);
        if changes.is_empty() {
            return Ok(());
        }
        let batch = ClientBatch { client: ClientId(1), changes };
        let body = EntryBody::Changes(vec![batch]);
        let entry = encode_entry(&Entry::original(NO_LOG, NO_VERSION, body))?;
        let length = entry.len() as u32;
        let mut block = Vec::with_capacity(HEADER_BYTES as usize + entry.len());
        block.extend_from_slice(&partition.0.to_le_bytes());
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&entry);
        self.file.write_all_at(&block, self.bytes).map_err(|error| disk_error(&error))?;
        self.blocks[number].push((self.bytes + HEADER_BYTES, length));
        self.bytes += block.len() as u64;
        Ok(())
    }

    /// Returns the rows of a partition, as entries of this log at this schema version.
    pub(crate) fn entries(
        &self,
        partition: PartitionId,
        log_id: LogId,
        schema_version: SchemaVersion,
    ) -> impl Iterator<Item = Result<Entry>> + '_ {
        let blocks = self.blocks.get(partition.0 as usize).into_iter().flatten();
        blocks.map(move |(offset, length)| {
            let mut bytes = vec![0; *length as usize];
            self.file.read_exact_at(&mut bytes, *offset).map_err(|error| disk_error(&error))?;
            let entry = decode_entry(&bytes).map_err(|_| broken_error())?;
            Ok(Entry { log_id, schema_version, ..entry })
        })
    }
}

/// Returns the approximate size of a change in an entry, in bytes.
fn bytes_of(change: &Change) -> usize {
    let value = |op: &FieldOp| match op {
        FieldOp::Set(Some(value)) => value.encoded_bytes() as usize,
        _ => 0,
    };
    let fields: usize =
        change.fields.iter().map(|field| value(&field.op) + HEADER_BYTES as usize).sum();
    change.key.as_bytes().len() + fields + HEADER_BYTES as usize
}

fn broken_error() -> Error {
    Error::internal("the rows stored during the push differ from the rows read; push again")
}

pub(crate) fn disk_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => broken_error(),
        _ => Error::of_disk("the rows of a push could not be stored", error),
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::change::{Condition, Verb};
    use forebay_core::id::Sequence;
    use forebay_core::key::Key;

    use super::*;

    fn row(number: u64) -> ReadRow {
        let change = Change {
            sequence: Sequence(number + 1),
            key: Key::plain(&number.to_le_bytes()).unwrap(),
            verb: Verb::Put,
            fields: Vec::new(),
            condition: Some(Condition::IfAbsent),
            ttl_us: None,
        };
        ReadRow { partition: PartitionId((number % 3) as u32), change }
    }

    fn sequences(spill: &Spill, partition: u32) -> Vec<u64> {
        let mut found = Vec::new();
        for entry in spill.entries(PartitionId(partition), LogId(9), SchemaVersion(7)) {
            let Entry {
                log_id: LogId(9),
                schema_version: SchemaVersion(7),
                body: EntryBody::Changes(batches),
                ..
            } = entry.unwrap()
            else {
                panic!("an entry of changes, of the log")
            };
            found.extend(batches[0].changes.iter().map(|change| change.sequence.0));
        }
        found
    }

    #[test]
    fn reopened_spill_contains_exactly_the_flushed_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let open = |bytes| Spill::open(&path, bytes, PartitionCount(3));
        let mut spill = open(0).unwrap();
        (0..10_000).for_each(|number| spill.add(row(number)).unwrap());
        let bytes = spill.flush().unwrap();
        let third: Vec<u64> = (0..10_000).filter(|number| number % 3 == 2).map(|n| n + 1).collect();
        assert_eq!(sequences(&spill, 2), third);
        spill.add(row(20_000)).unwrap();
        spill.flush().unwrap();
        let reopened = open(bytes).unwrap();
        assert_eq!(sequences(&reopened, 2), third);
        assert_eq!(open(bytes - 1).err().unwrap().code(), ErrorCode::Internal);
    }

    #[test]
    fn damaged_spilled_rows_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut spill = Spill::open(&path, 0, PartitionCount(3)).unwrap();
        (0..100).for_each(|number| spill.add(row(number)).unwrap());
        spill.flush().unwrap();
        spill.file.write_all_at(&[0xff; 4], 60).unwrap();
        let read: Result<Vec<_>> =
            spill.entries(PartitionId(0), LogId(9), SchemaVersion(7)).collect();
        assert_eq!(read.unwrap_err().code(), ErrorCode::Internal);
    }
}
