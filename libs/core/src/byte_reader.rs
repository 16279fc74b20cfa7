//! Reader of bytes that may end too early: takes fixed-width little-endian numbers and byte
//! strings of known length from the front, or item by item.

use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// Byte reader that takes values from the front of its bytes.
///
/// ```
/// use forebay_core::Error;
/// use forebay_core::byte_reader::ByteReader;
/// let mut reader = ByteReader::new(&[7, 0, 9], || Error::corrupt("it ends too early"));
/// assert_eq!(reader.u16()?, 7);
/// assert!(reader.u32().is_err());
/// assert_eq!(reader.rest(), [9], "what was refused is still there");
/// assert_eq!(reader.bytes(1)?, [9]);
/// assert!(reader.bytes(1).is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ByteReader<'b> {
    bytes: &'b [u8],
    short_error: fn() -> Error,
}

impl<'b> ByteReader<'b> {
    /// Creates a reader of these bytes. `short_error` creates the error for too few bytes.
    pub fn new(bytes: &'b [u8], short_error: fn() -> Error) -> Self {
        Self { bytes, short_error }
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// Returns the error of `short_error` if fewer bytes are left; the reader then does not move.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.bytes.split_first_chunk().ok_or_else(self.short_error)?;
        self.bytes = rest;
        Ok(*bytes)
    }

    /// Takes the next `count` bytes without copying them.
    ///
    /// # Errors
    /// Returns the errors of [`ByteReader::take`].
    pub fn bytes(&mut self, count: usize) -> Result<&'b [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or_else(self.short_error)?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// Takes a 16-bit number.
    ///
    /// # Errors
    /// Returns the errors of [`ByteReader::take`].
    pub fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// Takes a 32-bit number.
    ///
    /// # Errors
    /// Returns the errors of [`ByteReader::take`].
    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Takes a 64-bit number.
    ///
    /// # Errors
    /// Returns the errors of [`ByteReader::take`].
    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Takes a time, in microseconds.
    ///
    /// # Errors
    /// Returns the errors of [`ByteReader::take`].
    pub fn time(&mut self) -> Result<Timestamp> {
        self.take().map(i64::from_le_bytes).map(Timestamp::from_micros)
    }

    /// Returns the bytes that are left.
    pub fn rest(&self) -> &'b [u8] {
        self.bytes
    }
}

/// Parses the items of these bytes, one after the other. `next` takes an item from the front and
/// returns it with the bytes after it. The iterator ends after an error.
///
/// ```
/// use forebay_core::Error;
/// use forebay_core::byte_reader::{ByteReader, parse_items};
/// let numbers = parse_items(&[7, 0, 9, 0, 1], |bytes| {
///     let mut reader = ByteReader::new(bytes, || Error::corrupt("it ends too early"));
///     Ok((reader.u16()?, reader.rest()))
/// });
/// assert_eq!(numbers.map(Result::ok).collect::<Vec<_>>(), [Some(7), Some(9), None]);
/// ```
pub fn parse_items<'b, T>(
    bytes: &'b [u8],
    mut next: impl FnMut(&'b [u8]) -> Result<(T, &'b [u8])>,
) -> impl Iterator<Item = Result<T>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = next(rest);
        rest = item.as_ref().map_or(&[], |(_, tail)| tail);
        Some(item.map(|(item, _)| item))
    })
}
