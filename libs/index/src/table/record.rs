//! Records: a key and its row in a segment, after the lengths of both.
//!
//! The lengths are variable: 7 bits per byte, lowest first, so a record with less than 128 bytes of
//! row has a header of 2 bytes. The bytes of a record never change once its address is published.

use forebay_core::Result;

use crate::memory::{CHUNK_BYTES_MIN, Memory};

/// Maximum header bytes for a key below 128 bytes and a row below 16 KiB.
const SHORT_HEADER_BYTES: u64 = 3;
/// Bytes of the longest header.
pub(super) const HEADER_BYTES_MAX: usize = 10;

/// A record in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'g> {
    /// The identity bytes of its key.
    pub(crate) key: &'g [u8],
    /// The row of the record.
    pub(crate) row: &'g [u8],
    /// Bytes that the record takes, header included.
    pub(super) bytes: u64,
}

/// Encodes the header of a record; returns its bytes and their number.
pub(super) fn header(key: usize, row: usize) -> ([u8; HEADER_BYTES_MAX], usize) {
    let mut bytes = [0; HEADER_BYTES_MAX];
    // Most headers are this short.
    if key < 0x80 && row < 0x80 {
        (bytes[0], bytes[1]) = (key as u8, row as u8);
        return (bytes, 2);
    }
    let mut length = 0;
    for mut number in [key, row] {
        loop {
            let more_bit = u8::from(number > 0x7f) << 7;
            bytes[length] = number as u8 & 0x7f | more_bit;
            length += 1;
            number >>= 7;
            if number == 0 {
                break;
            }
        }
    }
    (bytes, length)
}

/// Decodes the lengths of the header, the key and the row of a record that begins with these bytes;
/// returns `None` if the bytes are shorter than the header.
pub(super) fn lengths(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let mut position = 0;
    let mut number = || {
        let (mut number, mut shift) = (0_usize, 0);
        loop {
            let byte = *bytes.get(position)?;
            position += 1;
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 28 {
                return Some(number);
            }
        }
    };
    let (key, row) = (number()?, number()?);
    Some((position, key, row))
}

/// Returns the bytes of a record with a key and a row of these lengths.
pub(super) fn record_bytes(key: usize, row: usize) -> u64 {
    let length = |number: usize| (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize;
    (length(key) + length(row) + key + row) as u64
}

/// Writes a record and returns its bytes.
///
/// # Safety
/// The address has room for the record, and no other thread has the address yet.
pub(super) unsafe fn write(memory: &Memory, address: u64, key: &[u8], row: &[u8]) -> u64 {
    let (header, length) = header(key.len(), row.len());
    let mut end = address;
    for part in [&header[..length], key, row] {
        // SAFETY: the caller's promise.
        unsafe { memory.write(end, part) };
        end += part.len() as u64;
    }
    end - address
}

/// Returns the header of a record without key that takes this many bytes, header included. Such a
/// record fills a gap; only a walk of the segment reads it. `None` for one byte, which is too few.
pub(crate) fn filler(bytes: u64) -> Option<Vec<u8>> {
    debug_assert!(bytes < CHUNK_BYTES_MIN);
    match bytes {
        0 => Some(Vec::new()),
        1 => None,
        // The record has an empty key, and its row's length takes one byte or two.
        2..130 => Some(vec![0, (bytes - 2) as u8]),
        _ => Some(vec![0, (bytes - 3) as u8 & 0x7f | 0x80, ((bytes - 3) >> 7) as u8]),
    }
}

/// Returns the record at an address in memory.
///
/// # Errors
/// `Corrupt` if an image is damaged.
///
/// # Safety
/// A record was written there before its address was published, and it is not overwritten until the
/// caller's guard is gone. If the memory is from an image, any address is allowed.
pub(super) unsafe fn in_memory(memory: &Memory, address: u64) -> Result<Record<'_>> {
    // This verifies the header as far as its first block; the rest of a longer header is verified
    // below.
    let block = CHUNK_BYTES_MIN - address % CHUNK_BYTES_MIN;
    memory.verify(address, block.min(HEADER_BYTES_MAX as u64))?;
    let short = if block < SHORT_HEADER_BYTES {
        None
    } else {
        // SAFETY: the caller's promise; each chunk has bytes up to the end of its last block.
        let bytes = unsafe { memory.bytes(address, SHORT_HEADER_BYTES as usize) };
        bytes.first_chunk().and_then(short_lengths)
    };
    let (header, key, row) = match short {
        Some(lengths) => lengths,
        // SAFETY: the caller's promise.
        None => unsafe { long_lengths(memory, address) }?,
    };
    memory.verify(address + header, (key + row) as u64)?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory.bytes(address + header, key + row) };
    let (key, row) = bytes.split_at(key);
    Ok(Record { key, row, bytes: header + bytes.len() as u64 })
}

/// Decodes a header of any length; returns its bytes, and those of the key and the row after it.
///
/// # Errors
/// As [`in_memory`].
///
/// # Safety
/// As [`in_memory`]; the part of the header in its first block is verified.
#[cold]
unsafe fn long_lengths(memory: &Memory, address: u64) -> Result<(u64, usize, usize)> {
    let mut end = address;
    let mut number = || {
        let (mut number, mut shift) = (0_usize, 0);
        loop {
            if end.is_multiple_of(CHUNK_BYTES_MIN) {
                memory.verify(end, 1)?;
            }
            // SAFETY: the caller's promise; the header's end is found by its own bits.
            let byte = unsafe { memory.bytes(end, 1) }[0];
            end += 1;
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 28 {
                return Ok(number);
            }
        }
    };
    let (key, row) = (number()?, number()?);
    Ok((end - address, key, row))
}

/// Returns the row of the record at an address, if the record is this key's and has a short header;
/// otherwise only [`in_memory`] can tell. This is the path of most reads.
///
/// # Safety
/// As [`in_memory`].
#[inline(always)]
pub(super) unsafe fn row_of<'g>(memory: &'g Memory, address: u64, key: &[u8]) -> Option<&'g [u8]> {
    if address % CHUNK_BYTES_MIN > CHUNK_BYTES_MIN - SHORT_HEADER_BYTES {
        return None;
    }
    memory.verify(address, SHORT_HEADER_BYTES).ok()?;
    // SAFETY: the caller's promise; each chunk has bytes up to the end of its last block.
    let bytes = unsafe { memory.bytes(address, SHORT_HEADER_BYTES as usize) };
    let (header, row) = short_header(bytes.first_chunk()?, key.len())?;
    memory.verify(address + header, (key.len() + row) as u64).ok()?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory.bytes(address + header, key.len() + row) };
    let (record_key, row) = bytes.split_at(key.len());
    (record_key == key).then_some(row)
}

/// Decodes a short header: its bytes and those of the row after it; `None` for a longer header, or
/// for a key of another length.
#[inline(always)]
pub(super) fn short_header(bytes: &[u8; 3], key: usize) -> Option<(u64, usize)> {
    let (header, _, row) = short_lengths(bytes).filter(|(_, length, _)| *length == key)?;
    Some((header, row))
}

/// Decodes a short header: its bytes, and those of the key and the row; `None` for a longer header.
#[inline(always)]
fn short_lengths(bytes: &[u8; 3]) -> Option<(u64, usize, usize)> {
    match *bytes {
        [key @ ..0x80, row @ ..0x80, _] => Some((2, key.into(), row.into())),
        [key @ ..0x80, low, high @ ..0x80] => {
            Some((3, key.into(), usize::from(low & 0x7f) | usize::from(high) << 7))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RESERVED_BYTES;

    #[test]
    fn record_occupies_its_stated_bytes() {
        let memory = Memory::reserve(RESERVED_BYTES).unwrap();
        let chunk = memory.allocate(64 * 1_024).unwrap();
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let (key, row) = (vec![7; length], vec![9; length]);
            // SAFETY: the chunk is this test's, and has room.
            let record = unsafe {
                write(&memory, chunk.address(), &key, &row);
                in_memory(&memory, chunk.address()).unwrap()
            };
            assert_eq!((record.key, record.row), (&key[..], &row[..]));
            assert_eq!(record.bytes, record_bytes(length, length));
        }
        memory.release([chunk]);
    }

    #[test]
    fn filler_is_a_record_of_exactly_its_bytes() {
        assert_eq!(filler(0), Some(Vec::new()));
        assert_eq!(filler(1), None);
        let memory = Memory::reserve(RESERVED_BYTES).unwrap();
        let chunk = memory.allocate(2 * CHUNK_BYTES_MIN).unwrap();
        for bytes in 2..CHUNK_BYTES_MIN {
            let header = filler(bytes).unwrap();
            // SAFETY: the chunk is this test's, and has room.
            let record = unsafe {
                memory.clear(&chunk);
                memory.write(chunk.address(), &header);
                in_memory(&memory, chunk.address()).unwrap()
            };
            assert_eq!((record.key.len(), record.bytes), (0, bytes));
        }
        memory.release([chunk]);
    }
}
