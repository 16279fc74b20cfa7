//! The records of a log in a backup. Format: `proto/spec/backup.md`. Decoders accept any bytes.

use bytes::{Bytes, BytesMut};
use forebay_core::byte_reader::{ByteReader, parse_items};
use forebay_core::clock::Timestamp;
use forebay_core::id::Offset;
use forebay_core::limits::SNAPSHOT_CHUNK_BYTES;
use forebay_core::{Error, Result};

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRecord<'b> {
    /// Offset of the record.
    pub offset: Offset,
    /// Time at which the log appended the record.
    pub append_time: Timestamp,
    /// The entry with its frame.
    pub entry: &'b [u8],
}

/// A writer that splits records into chunks.
#[derive(Debug, Default)]
pub struct LogBlocks(BytesMut);

impl LogBlocks {
    /// Appends a record. Returns a chunk if the record fills it.
    pub fn push(&mut self, record: KeptRecord<'_>) -> Option<Bytes> {
        self.0.extend(record.offset.0.to_le_bytes());
        self.0.extend(record.append_time.as_micros().to_le_bytes());
        self.0.extend((record.entry.len() as u32).to_le_bytes());
        self.0.extend(record.entry);
        if self.0.len() >= SNAPSHOT_CHUNK_BYTES { self.take() } else { None }
    }

    /// Returns the bytes that are not in a chunk yet, if any.
    pub fn take(&mut self) -> Option<Bytes> {
        (!self.0.is_empty()).then(|| self.0.split().freeze())
    }
}

/// Iterates over the records of a chunk, by ascending offset. The iterator ends after an error.
pub fn kept_records(bytes: &[u8]) -> impl Iterator<Item = Result<KeptRecord<'_>>> {
    let mut last = None;
    parse_items(bytes, move |rest| {
        let (record, remainder) = next_record(rest)?;
        if last.replace(record.offset).is_some_and(|last| last >= record.offset) {
            return Err(Error::corrupt("the records of a backup are out of order"));
        }
        Ok((record, remainder))
    })
}

fn next_record(bytes: &[u8]) -> Result<(KeptRecord<'_>, &[u8])> {
    let mut reader = ByteReader::new(bytes, torn);
    let (offset, append_time, length) = (Offset(reader.u64()?), reader.time()?, reader.u32()?);
    let entry = reader.bytes(length as usize)?;
    Ok((KeptRecord { offset, append_time, entry }, reader.rest()))
}

fn torn() -> Error {
    Error::corrupt("the records of a backup end inside a record")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, entry: &[u8]) -> KeptRecord<'_> {
        let append_time = Timestamp::from_micros(offset as i64 * 1_000 - 7);
        KeptRecord { offset: Offset(offset), append_time, entry }
    }

    #[test]
    fn log_records_round_trip() {
        let records = [record(3, b"one"), record(4, b""), record(9, &[7; 300])];
        let mut blocks = LogBlocks::default();
        assert!(records.iter().all(|record| blocks.push(*record).is_none()));
        let chunk = blocks.take().unwrap();
        let found: Vec<_> = kept_records(&chunk).map(Result::unwrap).collect();
        assert_eq!(found, records);
        assert_eq!(blocks.take(), None);
    }

    #[test]
    fn chunk_ends_after_the_record_that_fills_it() {
        let mut blocks = LogBlocks::default();
        assert!(blocks.push(record(1, b"small")).is_none());
        let large = vec![1; SNAPSHOT_CHUNK_BYTES];
        let chunk = blocks.push(record(2, &large)).unwrap();
        assert_eq!(kept_records(&chunk).count(), 2);
        assert_eq!(blocks.take(), None);
    }

    #[test]
    fn damage_ends_the_records_with_an_error() {
        let mut blocks = LogBlocks::default();
        blocks.push(record(1, b"one"));
        blocks.push(record(2, b"two"));
        let chunk = blocks.take().unwrap();
        for cut in 1..chunk.len() {
            let found: Vec<_> = kept_records(&chunk[..cut]).collect();
            assert!(found.last().unwrap().is_err() || cut == chunk.len() / 2, "{cut}");
        }
        let repeated_chunk = [&chunk[..], &chunk[..]].concat();
        assert!(kept_records(&repeated_chunk).last().unwrap().is_err());
        assert_eq!(kept_records(&repeated_chunk).count(), 3);
    }
}
