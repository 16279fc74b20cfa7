//! Spilled records: in the space's file on disk, each with a checksum before it.
//!
//! ```text
//! checksum u64 | key length | row length | key | row
//! ```
//!
//! The checksum is seeded with the record's address: bytes of another record at this address are
//! never taken for this record, and a flipped bit is detected.

use forebay_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::{HEADER_BYTES_MAX, Record, header, in_memory, lengths};
use super::scratch::Scratch;
use crate::image::damaged;
use crate::memory::{Memory, is_spilled};

const CHECKSUM_BYTES: usize = 8;
/// Bytes of the first read, which covers most records.
const READ_AT_ONCE: usize = 512;

/// Appends a record to be written at an address of the file; returns its bytes.
pub(super) fn append(buffer: &mut Vec<u8>, address: u64, key: &[u8], row: &[u8]) -> u64 {
    let start = buffer.len();
    buffer.extend([0; CHECKSUM_BYTES]);
    let (header, length) = header(key.len(), row.len());
    for part in [&header[..length], key, row] {
        buffer.extend_from_slice(part);
    }
    let (checksum, body) = buffer[start..].split_at_mut(CHECKSUM_BYTES);
    checksum.copy_from_slice(&xxh3_64_with_seed(body, address).to_le_bytes());
    (buffer.len() - start) as u64
}

/// Returns the most bytes that a record with such a key and row takes in the file.
pub(super) fn bytes_max(key: usize, row: usize) -> u64 {
    (CHECKSUM_BYTES + HEADER_BYTES_MAX + key + row) as u64
}

/// Returns the record at an address; a copy if it is spilled.
///
/// # Errors
/// `Corrupt` if an image or the spill file is damaged; `Unavailable` if the file cannot be read.
///
/// # Safety
/// As [`in_memory`].
pub(super) unsafe fn record<'g>(
    memory: &'g Memory,
    address: u64,
    scratch: &'g Scratch,
) -> Result<Record<'g>> {
    match is_spilled(address) {
        true => read_spilled_record(memory, address, scratch),
        // SAFETY: the caller's promise.
        false => unsafe { in_memory(memory, address) },
    }
}

/// Copies the record at an address of the file.
///
/// # Errors
/// `Corrupt` for bytes that are no record that was written there; `Unavailable`, also if the caller
/// must not wait for the disk.
pub(super) fn read_spilled_record<'s>(
    memory: &Memory,
    address: u64,
    scratch: &'s Scratch,
) -> Result<Record<'s>> {
    if !scratch.may_wait() {
        return Err(Error::unavailable(
            "the document is spilled to disk; use a read that may block",
        ));
    }
    let damage = |description: &str| memory.note_spill_damage(damaged(description));
    let first = scratch.bytes(READ_AT_ONCE);
    let read = memory.read_spilled(address, first)?;
    let lengths = first[..read].get(CHECKSUM_BYTES..).and_then(lengths);
    let (header, key, row) =
        lengths.ok_or_else(|| damage("the spill file has no record at the address"))?;
    let bytes = CHECKSUM_BYTES + header + key + row;
    // This check precedes the allocation: a damaged length may be any number.
    if bytes > read && bytes as u64 > memory.spilled_bytes_from(address)? {
        return Err(damage("a spilled record is too long"));
    }
    let record = if bytes <= read {
        &first[..bytes]
    } else {
        let buffer = scratch.bytes(bytes);
        let (read_part, remaining) = buffer.split_at_mut(read);
        read_part.copy_from_slice(&first[..read]);
        if memory.read_spilled(address + read as u64, remaining)? < remaining.len() {
            return Err(damage("a spilled record ends too early"));
        }
        buffer
    };
    let (checksum, body) = record.split_at(CHECKSUM_BYTES);
    if checksum != xxh3_64_with_seed(body, address).to_le_bytes() {
        return Err(damage("a spilled record fails its checksum"));
    }
    let (key, row) = body[header..].split_at(key);
    Ok(Record { key, row, bytes: bytes as u64 })
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;
    use crate::memory::SpillPlace;
    use crate::memory::{Chunk, RESERVED_BYTES};

    fn code(memory: &Memory, address: u64) -> Option<ErrorCode> {
        read_spilled_record(memory, address, &Scratch::default()).err().map(|error| error.code())
    }

    #[test]
    fn spill_file_accepts_a_record_only_at_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::reserve(RESERVED_BYTES).unwrap();
        memory.spill_to(SpillPlace::Unnamed(dir.path().to_owned()));
        let chunk = memory.allocate_spilled(1).unwrap();
        let place = chunk.address() + 16;
        for row in [0, 9, 200, 700, 70_000] {
            let (key, row) = (b"key".repeat(row % 7), vec![7; row]);
            let mut bytes = Vec::new();
            let length = append(&mut bytes, place, &key, &row);
            assert!(length == bytes.len() as u64 && length <= bytes_max(key.len(), row.len()));
            memory.write_spilled(place, &bytes).unwrap();
            let scratch = Scratch::default();
            let record = read_spilled_record(&memory, place, &scratch).unwrap();
            assert_eq!((record.key, record.row, record.bytes), (&key[..], &row[..], length));
            let in_memory = Scratch::new(true);
            let error = read_spilled_record(&memory, place, &in_memory).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unavailable);
            for bit in (0..8 * bytes.len()).step_by(1 + bytes.len() / 97) {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                memory.write_spilled(place, &flipped).unwrap();
                assert_eq!(code(&memory, place), Some(ErrorCode::Corrupt), "bit {bit}");
            }
            memory.write_spilled(place + 100_000, &bytes).unwrap();
            assert_eq!(code(&memory, place + 100_000), Some(ErrorCode::Corrupt), "elsewhere");
        }
        memory.release([chunk]);
    }

    #[test]
    fn arbitrary_spill_bytes_are_always_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::reserve(RESERVED_BYTES).unwrap();
        memory.spill_to(SpillPlace::Unnamed(dir.path().to_owned()));
        let chunk: Chunk = memory.allocate_spilled(1).unwrap();
        let mut state = 7_u64;
        for round in 0..2_000_u64 {
            let bytes: Vec<u8> = (0..64)
                .map(|place| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                    // In two of three rounds the lengths are such as a record may have.
                    if place > 7 && round % 3 > 0 { 0x80 } else { (state >> 33) as u8 }
                })
                .collect();
            memory.write_spilled(chunk.address(), &bytes).unwrap();
            assert_eq!(code(&memory, chunk.address()), Some(ErrorCode::Corrupt));
        }
        let end = chunk.address() + chunk.bytes();
        assert_eq!(code(&memory, end - 4), Some(ErrorCode::Corrupt), "at the file's end");
        assert_eq!(code(&memory, end + 4), Some(ErrorCode::Corrupt), "behind it");
        assert!(memory.check_integrity().is_err());
        memory.release([chunk]);
    }
}
