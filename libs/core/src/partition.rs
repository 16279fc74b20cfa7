//! The partition of a key: one hash, the same in every language, fixed permanently. Bytes and
//! vectors: `proto/spec/partitioning.md`, `proto/vectors/partitioning.json`.

use crate::error::{Error, Result};
use crate::id::{PartitionCount, PartitionId};
use crate::limits::PARTITIONS_MAX;

/// Returns XXH3 of the bytes, 64 bits, seed 0.
#[inline(always)]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

impl PartitionCount {
    /// Creates a partition count; refuses 0 and counts above the limit.
    pub fn new(count: u32) -> Result<Self> {
        match count {
            0 => Err(Error::invalid_argument(
                "a store needs at least 1 partition; ask for 1 or more",
            )),
            1..=PARTITIONS_MAX => Ok(Self(count)),
            _ => {
                let advice = "the partition count is too high; ask for fewer partitions";
                Err(Error::limit_exceeded(advice, PARTITIONS_MAX.into(), count.into()))
            }
        }
    }

    /// Returns every partition of a store with this count.
    pub fn partitions(self) -> impl Iterator<Item = PartitionId> {
        (0..self.0).map(PartitionId)
    }
}

/// Returns the partition of a partition key's bytes: `xxh3_64(bytes) mod count`.
///
/// ```
/// use forebay_core::id::PartitionCount;
/// use forebay_core::partition::partition_of;
/// let count = PartitionCount::new(8)?;
/// assert!(partition_of(b"user-1", count).0 < 8);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[inline(always)]
pub fn partition_of(partition_key: &[u8], count: PartitionCount) -> PartitionId {
    let (hash, count) = (xxh3_64(partition_key), u64::from(count.0.max(1)));
    // Most stores have a power of two of partitions, for which a mask replaces the division.
    let remainder = if count.is_power_of_two() { hash & (count - 1) } else { hash % count };
    PartitionId(remainder as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn counts_are_bounded_on_both_sides() {
        assert_eq!(PartitionCount::new(0).unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(PartitionCount::new(PARTITIONS_MAX).unwrap().partitions().count(), 4_096);
        let error = PartitionCount::new(PARTITIONS_MAX + 1).unwrap_err();
        assert_eq!((error.code(), error.context().limit), (ErrorCode::LimitExceeded, Some(4_096)));
    }

    /// Proves that an unchecked count of 0 does not divide by zero.
    #[test]
    fn unchecked_count_of_zero_acts_as_one_partition() {
        assert_eq!(partition_of(b"user-1", PartitionCount(0)), PartitionId(0));
    }
}
