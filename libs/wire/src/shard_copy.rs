//! Byte forms of a shard copy (`proto/spec/copy.md`): blocks of rows, names and pieces of files,
//! and the records of durable parts.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::byte_reader::{ByteReader, parse_items};
use forebay_core::limits::{
    COPY_BLOCK_BYTES_MAX, COPY_FRAME_BYTES, COPY_PART_RECORD_BYTES_MAX, COPY_STREAM_BYTES,
};
use forebay_core::{Error, Result};
use lz4_flex::block::decompress_into;
use prost::Message;
use tonic::transport::Endpoint;
use xxhash_rust::xxh3::Xxh3Default;

use crate::endpoint::endpoint_of;
use crate::v1;

/// Bytes before each row.
const LENGTHS: usize = 8;
/// Longest wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Creates the endpoint of the replicator at `host:port`, with the window and frame sizes that
/// copies need. Does not connect yet.
///
/// # Errors
/// Returns `InvalidArgument` for an invalid address.
pub fn copy_endpoint(address: &str) -> Result<Endpoint> {
    let endpoint = endpoint_of(address).ok_or_else(|| {
        Error::invalid_argument(format!("the address `{address}` is not of the form host:port"))
    })?;
    Ok(endpoint
        .connect_timeout(CONNECT_WAIT)
        .initial_stream_window_size(COPY_STREAM_BYTES)
        .initial_connection_window_size(COPY_STREAM_BYTES)
        .max_frame_size(COPY_FRAME_BYTES))
}

/// A block of consecutive rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsBlock(Vec<u8>);

impl RowsBlock {
    /// Creates an empty block with capacity for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends a row.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.0.reserve(LENGTHS + key.len() + value.len());
        // Keys and values of the storage engine are shorter than 4 GiB.
        self.0.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.0.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// Converts to bytes without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the block has no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the rows of a block's bytes. The iterator ends after an error.
pub fn block_rows(bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8])>> {
    parse_items(bytes, next_row)
}

type Row<'b> = (&'b [u8], &'b [u8]);

fn next_row(bytes: &[u8]) -> Result<(Row<'_>, &[u8])> {
    let mut reader = ByteReader::new(bytes, torn_error);
    let (key, value) = (reader.u32()? as usize, reader.u32()? as usize);
    let (key, rest) = bytes[LENGTHS..].split_at_checked(key).ok_or_else(torn_error)?;
    let (value, rest) = rest.split_at_checked(value).ok_or_else(torn_error)?;
    Ok(((key, value), rest))
}

fn torn_error() -> Error {
    Error::corrupt("a block of rows ends inside a row")
}

/// Kind of a file of a frozen shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Contains the name of the manifest.
    Current,
    /// Contains the list of tables.
    Manifest,
    /// Contains rows.
    Table,
}

/// Returns the kind of a file by its name; `None` for a name of another form. A process that
/// creates only files with such names stays inside one folder.
pub fn file_kind(name: &str) -> Option<FileKind> {
    let is_number = |digits: &str| {
        (6..=20).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    if name == "CURRENT" {
        return Some(FileKind::Current);
    }
    if name.strip_prefix("MANIFEST-").is_some_and(is_number) {
        return Some(FileKind::Manifest);
    }
    name.strip_suffix(".sst").is_some_and(is_number).then_some(FileKind::Table)
}

/// Incremental digest of a piece of a file.
#[derive(Clone, Default)]
pub struct PieceDigest(Xxh3Default);

impl PieceDigest {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes so far.
    pub fn sum(&self) -> u128 {
        self.0.digest128()
    }
}

/// Verifies and decompresses the block of rows in a received message.
///
/// # Errors
/// Returns `Corrupt` for bytes that are not a block.
pub fn block_of(rows: &v1::CopyBlock) -> Result<Bytes> {
    if crc32c::crc32c(&rows.block) != rows.crc32c {
        return Err(Error::corrupt("a block of rows was damaged on its way; copy again"));
    }
    let raw_bytes = rows.raw_bytes as usize;
    if rows.block.len() == raw_bytes {
        return Ok(rows.block.clone());
    }
    if raw_bytes > COPY_BLOCK_BYTES_MAX {
        let message = format!(
            "a block of rows is too large; a block has {COPY_BLOCK_BYTES_MAX} bytes at most"
        );
        return Err(Error::corrupt(message));
    }
    let mut block = vec![0; raw_bytes];
    match decompress_into(&rows.block, &mut block) {
        Ok(length) if length == raw_bytes => Ok(block.into()),
        _ => Err(Error::corrupt("a compressed block of rows is damaged")),
    }
}

/// Bytes before each record of a part.
const FRAME: usize = 8;

/// Encodes the record of a part for the journal of a copy.
pub fn part_record(part: &v1::CopyPart) -> Vec<u8> {
    let body = part.encode_to_vec();
    let mut record = Vec::with_capacity(FRAME + body.len());
    record.extend((body.len() as u32).to_le_bytes());
    record.extend(crc32c::crc32c(&body).to_le_bytes());
    record.extend(body);
    record
}

/// Returns the whole records at the front of a journal's bytes, and the offset at which they end.
pub fn read_parts(bytes: &[u8]) -> (Vec<v1::CopyPart>, u64) {
    let (mut parts, mut end) = (Vec::new(), 0);
    while let Ok((part, bytes)) = read_part(&bytes[end..]) {
        parts.push(part);
        end += bytes;
    }
    (parts, end as u64)
}

fn read_part(bytes: &[u8]) -> Result<(v1::CopyPart, usize)> {
    let mut reader = ByteReader::new(bytes, torn_record);
    let (length, crc) = (reader.u32()? as usize, reader.u32()?);
    let body = reader.bytes(length)?;
    if length > COPY_PART_RECORD_BYTES_MAX || crc32c::crc32c(body) != crc {
        return Err(torn_record());
    }
    let part = v1::CopyPart::decode(body).map_err(|_| torn_record())?;
    Ok((part, FRAME + length))
}

fn torn_record() -> Error {
    Error::corrupt("the journal of a copy ends inside a record")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_source_must_be_an_address() {
        assert_eq!(copy_endpoint("127.0.0.1:7070").unwrap().uri().port_u16(), Some(7070));
        let error = copy_endpoint("not an address").unwrap_err();
        assert_eq!(error.code(), forebay_core::ErrorCode::InvalidArgument);
        assert!(error.message().contains("host:port"), "{error}");
    }

    #[test]
    fn rows_block_returns_its_rows() {
        let rows: [(&[u8], &[u8]); 4] =
            [(b"", b""), (b"a", b""), (b"b", b"value"), (b"c", &[0; 300])];
        let mut block = RowsBlock::default();
        rows.iter().for_each(|(key, value)| block.push(key, value));
        let found: Result<Vec<_>> = block_rows(block.bytes()).collect();
        assert_eq!(found.unwrap(), rows);
        assert_eq!(block_rows(&[]).count(), 0);
        for length in 1..block.bytes().len() {
            let found: Vec<_> = block_rows(&block.bytes()[..length]).collect();
            let row_count = found.iter().filter(|row| row.is_ok()).count();
            assert!(row_count < rows.len() && row_count + 1 >= found.len(), "{length}: {found:?}");
        }
    }

    #[test]
    fn only_known_file_names_have_a_kind() {
        let (current, manifest) = (Some(FileKind::Current), Some(FileKind::Manifest));
        assert_eq!(file_kind("CURRENT"), current);
        assert_eq!(file_kind("MANIFEST-000005"), manifest);
        assert_eq!(file_kind("000012.sst"), Some(FileKind::Table));
        assert_eq!(file_kind("18446744073709551615.sst"), Some(FileKind::Table));
        for other in [
            "",
            ".",
            "..",
            "/",
            "/etc/passwd",
            "../000012.sst",
            "000012.sst/",
            "000012.sst\0",
            "a/000012.sst",
            "12.sst",
            "00001\u{0662}.sst",
            "+00012.sst",
            "184467440737095516150.sst",
            ".sst",
            "000012.log",
            "000012.SST",
            "CURRENT ",
            "current",
            "MANIFEST-",
            "MANIFEST-../00",
            "MANIFEST-000005.sst",
            "OPTIONS-000007",
            "IDENTITY",
            "LOCK",
        ] {
            assert_eq!(file_kind(other), None, "{other:?}");
        }
    }

    #[test]
    fn piece_digest_covers_all_bytes() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let mut digest = PieceDigest::default();
        bytes.chunks(7).for_each(|bytes| digest.add(bytes));
        assert_eq!(digest.sum(), xxhash_rust::xxh3::xxh3_128(&bytes));
        digest.add(&[0]);
        assert_ne!(digest.sum(), xxhash_rust::xxh3::xxh3_128(&bytes));
    }

    #[test]
    fn flipped_record_ends_the_journal() {
        let end = v1::CopyPartEnd { rows: 7, digest: vec![1; 16].into(), is_range_end: true };
        let part = v1::CopyPart { range: 1, bytes: 9, end: Some(end), ..v1::CopyPart::default() };
        let record = part_record(&part);
        let two_records = record.repeat(2);
        assert_eq!(
            read_parts(&two_records),
            (vec![part.clone(), part.clone()], two_records.len() as u64)
        );
        for place in 0..two_records.len() {
            let mut flipped_records = two_records.clone();
            flipped_records[place] ^= 4;
            let (parts, end) = read_parts(&flipped_records);
            assert_eq!(parts.len(), place / record.len(), "{place}");
            assert_eq!(end, (parts.len() * record.len()) as u64);
        }
    }
}
