//! Fixed-width numbers, little-endian, and bytes of a length that is known, taken off the front of
//! bytes that may end too early.

use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// Bytes from the front of which fields are taken.
///
/// ```
/// use forebay_core::Error;
/// use forebay_core::fields::Fields;
/// let mut fields = Fields::new(&[7, 0, 9], || Error::corrupt("it ends too early"));
/// assert_eq!(fields.u16()?, 7);
/// assert!(fields.u32().is_err());
/// assert_eq!(fields.rest(), [9], "what was refused is still there");
/// assert_eq!(fields.bytes(1)?, [9]);
/// assert!(fields.bytes(1).is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Fields<'b> {
    bytes: &'b [u8],
    short: fn() -> Error,
}

impl<'b> Fields<'b> {
    /// The fields of these bytes, and what is said where there are too few.
    pub fn new(bytes: &'b [u8], short: fn() -> Error) -> Self {
        Self { bytes, short }
    }

    /// The next so many bytes.
    ///
    /// # Errors
    /// What `short` says where there are fewer; nothing is taken then.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(self.short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The next so many bytes, as they stand there.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn bytes(&mut self, count: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(self.short)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// A number of 16 bits.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A time, in microseconds.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn time(&mut self) -> Result<Timestamp> {
        self.take().map(i64::from_le_bytes).map(Timestamp::from_micros)
    }

    /// What was not taken.
    pub fn rest(&self) -> &'b [u8] {
        self.bytes
    }
}
