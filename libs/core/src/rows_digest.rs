//! Digest of a set of rows, by which two replicas that should hold the same rows compare them.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::error::{Error, Result};

/// Number of rows and a sum of their hashes. Digests of parts add up, in any order.
///
/// ```
/// use forebay_core::rows_digest::RowsDigest;
/// let (mut one, mut other) = (RowsDigest::default(), RowsDigest::default());
/// one.add(b"", b"1");
/// other.add(b"b", b"2");
/// let mut all = RowsDigest::default();
/// all.add(b"b", b"2");
/// all.add(b"", b"1");
/// one.merge(other);
/// assert_eq!(one, all);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsDigest {
    /// Number of rows.
    pub rows: u64,
    /// Sum of the hashes, modulo 2^128.
    pub sum: u128,
}

impl RowsDigest {
    /// Adds a row.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let key = u128::from(xxh3_64(key) | 1);
        self.sum = self.sum.wrapping_add(key.wrapping_mul(xxh3_128(value)));
        self.rows += 1;
    }

    /// Adds all rows of another digest.
    pub fn merge(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.rows += other.rows;
    }

    /// Decodes the digest of a message.
    ///
    /// # Errors
    /// Returns `Corrupt` for bytes of another length.
    pub fn of(rows: u64, sum: &[u8]) -> Result<Self> {
        let sum = sum
            .try_into()
            .map_err(|_| Error::corrupt("a digest of rows does not have 16 bytes"))?;
        Ok(Self { rows, sum: u128::from_le_bytes(sum) })
    }
}
