//! The rows of a delta: the last state of each document that has changed, including deletions.
//! Format: `proto/spec/snapshot.md`.

use bytes::{Bytes, BytesMut};
use forebay_core::byte_reader::{ByteReader, parse_items};
use forebay_core::key::Key;
use forebay_core::limits::SNAPSHOT_CHUNK_BYTES;
use forebay_core::{Error, Result};

/// Value of the row's length for a deleted document.
const DELETED: u32 = u32::MAX;

/// A writer that splits the rows of a delta into chunks.
#[derive(Debug, Default)]
pub struct DeltaBlocks(BytesMut);

impl DeltaBlocks {
    /// Appends a document: its row, or its deletion. Returns a chunk if the document fills it.
    pub fn push(&mut self, key: &[u8], row: Option<&[u8]>) -> Option<Bytes> {
        let row_bytes = row.map_or(DELETED, |row| row.len() as u32);
        self.0.extend((key.len() as u32).to_le_bytes());
        self.0.extend(row_bytes.to_le_bytes());
        self.0.extend(key);
        self.0.extend(row.unwrap_or_default());
        if self.0.len() >= SNAPSHOT_CHUNK_BYTES { self.take() } else { None }
    }

    /// Returns the bytes that are not in a chunk yet, if any.
    pub fn take(&mut self) -> Option<Bytes> {
        (!self.0.is_empty()).then(|| self.0.split().freeze())
    }
}

/// Iterates over the documents of a chunk and their rows; `None` is a deletion. The iterator ends
/// after an error.
pub fn delta_rows(bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], Option<&[u8]>)>> {
    parse_items(bytes, next_row)
}

/// Documents that are written in one batch.
pub const WRITES_AT_ONCE: usize = 1_024;

/// Iterates over batches of the writes of a chunk's documents. The iterator ends after an error.
pub fn delta_writes(bytes: &[u8]) -> impl Iterator<Item = Result<Vec<(Key, Option<Vec<u8>>)>>> {
    let mut rows = delta_rows(bytes).map(|row| {
        let (key, row) = row?;
        Ok((Key::from_identity_bytes(key), row.map(<[u8]>::to_vec)))
    });
    std::iter::from_fn(move || {
        let writes = rows.by_ref().take(WRITES_AT_ONCE).collect::<Result<Vec<_>>>();
        let is_end = writes.as_ref().is_ok_and(Vec::is_empty);
        (!is_end).then_some(writes)
    })
}

type Row<'b> = (&'b [u8], Option<&'b [u8]>);

fn next_row(bytes: &[u8]) -> Result<(Row<'_>, &[u8])> {
    let mut reader = ByteReader::new(bytes, torn);
    let (key_bytes, row_bytes) = (reader.u32()?, reader.u32()?);
    let key = reader.bytes(key_bytes as usize)?;
    if row_bytes == DELETED {
        return Ok(((key, None), reader.rest()));
    }
    let row = reader.bytes(row_bytes as usize)?;
    Ok(((key, Some(row)), reader.rest()))
}

fn torn() -> Error {
    Error::corrupt("a delta of a snapshot ends inside a row; the reader ignores the snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_rows_round_trip() {
        let large = vec![7; SNAPSHOT_CHUNK_BYTES];
        let rows: [(&[u8], Option<&[u8]>); 4] =
            [(b"", Some(b"")), (b"a", None), (b"b", Some(&large)), (b"c", Some(b"row"))];
        let mut blocks = DeltaBlocks::default();
        let mut chunks: Vec<_> =
            rows.iter().filter_map(|(key, row)| blocks.push(key, *row)).collect();
        chunks.extend(blocks.take());
        assert_eq!(chunks.len(), 2);
        let found: Vec<_> = chunks.iter().flat_map(|chunk| delta_rows(chunk)).collect();
        assert_eq!(found.into_iter().collect::<Result<Vec<_>>>().unwrap(), rows);
    }

    #[test]
    fn torn_rows_are_refused() {
        let mut blocks = DeltaBlocks::default();
        assert!(blocks.push(b"key", Some(b"row")).is_none());
        assert!(blocks.push(b"other", None).is_none());
        let chunk = blocks.take().unwrap();
        for length in 1..chunk.len() {
            let found: Vec<_> = delta_rows(&chunk[..length]).collect();
            let row_count = usize::from(length >= 14);
            assert_eq!(found.iter().filter(|row| row.is_ok()).count(), row_count, "{length}");
            assert_eq!(found.len() - row_count, usize::from(length != 14), "{length}");
        }
    }
}
