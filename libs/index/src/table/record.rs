//! Records: a key and its row as they lie in a segment, behind the lengths of both.
//!
//! The lengths are variable: 7 bits per byte, the lowest first, so that a record of less than 128
//! bytes of row has a header of 2 bytes. The bytes of a record never change once its address is
//! published.

use crate::memory::Memory;

/// Bytes of the longest header.
pub(super) const HEADER_BYTES_MAX: usize = 10;

/// A record in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'g> {
    /// The identity bytes of its key.
    pub(crate) key: &'g [u8],
    /// Its row.
    pub(crate) row: &'g [u8],
    /// Bytes that it takes, header included.
    pub(super) bytes: u64,
}

/// The header of a record: its bytes and how many they are.
pub(super) fn header(key: usize, row: usize) -> ([u8; HEADER_BYTES_MAX], usize) {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let mut length = 0;
    for mut number in [key, row] {
        loop {
            let more = u8::from(number > 0x7f) << 7;
            bytes[length] = number as u8 & 0x7f | more;
            length += 1;
            number >>= 7;
            if number == 0 {
                break;
            }
        }
    }
    (bytes, length)
}

/// The record at an address.
///
/// # Safety
/// A record was written there before its address was published, and it is not written over until
/// the caller's guard has gone.
pub(super) unsafe fn record(memory: &Memory, address: u64) -> Record<'_> {
    let mut at = address;
    let mut number = || {
        let (mut number, mut shift) = (0_usize, 0);
        loop {
            // SAFETY: the caller's promise; the header's end is found by its own bits.
            let byte = unsafe { memory.bytes(at, 1) }[0];
            at += 1;
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 28 {
                return number;
            }
        }
    };
    let (key, row) = (number(), number());
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory.bytes(at, key + row) };
    let (key, row) = bytes.split_at(key);
    Record { key, row, bytes: at - address + bytes.len() as u64 }
}
