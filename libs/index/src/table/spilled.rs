//! Records that were spilled: in the space's file on disk, each behind a checksum.
//!
//! ```text
//! checksum u64 | key length | row length | key | row
//! ```
//!
//! The checksum is seeded with the record's address: what another record has overwritten is never
//! taken for it, and a flipped bit is found.

use forebay_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::{HEADER_BYTES_MAX, Record, header, lengths};
use super::scratch::Scratch;
use crate::image::damaged;
use crate::memory::{CHUNK_BYTES_MAX, Memory};

const CHECKSUM_BYTES: usize = 8;
/// What is read at first: all of most records.
const READ_AT_ONCE: usize = 512;

/// Adds a record that will lie at an address of the file; answers its bytes.
pub(super) fn append(into: &mut Vec<u8>, address: u64, key: &[u8], row: &[u8]) -> u64 {
    let start = into.len();
    into.extend([0; CHECKSUM_BYTES]);
    let (header, length) = header(key.len(), row.len());
    for part in [&header[..length], key, row] {
        into.extend_from_slice(part);
    }
    let (checksum, body) = into[start..].split_at_mut(CHECKSUM_BYTES);
    checksum.copy_from_slice(&xxh3_64_with_seed(body, address).to_le_bytes());
    (into.len() - start) as u64
}

/// The most bytes that a record of such a key and row takes there.
pub(super) fn bytes_max(key: usize, row: usize) -> u64 {
    (CHECKSUM_BYTES + HEADER_BYTES_MAX + key + row) as u64
}

/// A copy of the record at an address of the file.
///
/// # Errors
/// `Corrupt` for what is no record that was written there; `Unavailable`, also where the caller
/// must not wait for the disk.
pub(super) fn spilled<'s>(
    memory: &Memory,
    address: u64,
    scratch: &'s Scratch,
) -> Result<Record<'s>> {
    if !scratch.may_wait() {
        return Err(Error::unavailable("the document lies on disk; read it where you may wait"));
    }
    let none = |what: &str| memory.note_spill_damage(damaged(what));
    let first = scratch.bytes(READ_AT_ONCE);
    let read = memory.read_spilled(address, first)?;
    let lengths = first[..read].get(CHECKSUM_BYTES..).and_then(lengths);
    let (header, key, row) = lengths.ok_or_else(|| none("no record in the spill file"))?;
    let bytes = CHECKSUM_BYTES + header + key + row;
    if bytes as u64 > CHUNK_BYTES_MAX {
        return Err(none("a spilled record that is too long"));
    }
    let whole = if bytes <= read {
        &first[..bytes]
    } else {
        let all = scratch.bytes(bytes);
        let (known, rest) = all.split_at_mut(read);
        known.copy_from_slice(&first[..read]);
        if memory.read_spilled(address + read as u64, rest)? < rest.len() {
            return Err(none("a spilled record that ends too early"));
        }
        all
    };
    let (checksum, body) = whole.split_at(CHECKSUM_BYTES);
    if checksum != xxh3_64_with_seed(body, address).to_le_bytes() {
        return Err(none("a spilled record whose checksum does not fit"));
    }
    let (key, row) = body[header..].split_at(key);
    Ok(Record { key, row, bytes: bytes as u64 })
}
