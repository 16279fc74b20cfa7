//! Numeric ids. Each has a type of its own, so the compiler rejects swapped ids.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Permanent id of a store. A name may be used again; an id never is.
    StoreId(u64)
);
number!(
    /// Partition of a store, from 0.
    PartitionId(u32)
);
number!(
    /// Number of partitions of a store, 1 to [`PARTITIONS_MAX`](crate::limits::PARTITIONS_MAX).
    PartitionCount(u32)
);
number!(
    /// Offset in one partition's log, from 0.
    Offset(u64)
);
number!(
    /// Number of a store's home; raised by each fail-over.
    Epoch(u32)
);
number!(
    /// Version of a store's definition, from 1; rows store it in 16 bits.
    SchemaVersion(u32)
);
number!(
    /// Permanent id of a field in its store, from 1.
    FieldId(u32)
);
number!(
    /// Number that a writing client gives to a change in one partition, from 1, without gaps.
    Sequence(u64)
);
number!(
    /// Random number of one log, set by its log header entry.
    LogId(u64)
);
number!(
    /// Random number of one writing client.
    ClientId(u128)
);

/// Bit that is set in every store id that is handed out; ids without it are reserved.
const STORE_BIT: u64 = 1 << 63;
/// Reserved ids below this one have fixed meanings; 0 is the control log.
const LOW_STORE_IDS: u64 = 256;

impl StoreId {
    /// Returns the id under which the log stores this store's dead letters; `None` for a reserved
    /// id, whose dead letters are not stored.
    pub const fn dead_letters(self) -> Option<Self> {
        let reserved = self.0 & !STORE_BIT;
        if self.0 & STORE_BIT == 0 || reserved < LOW_STORE_IDS {
            return None;
        }
        Some(Self(reserved))
    }
}

impl Offset {
    /// Returns the next offset; the last offset returns itself.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::LowerHex for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// A point in a partition's history: home epoch, home offset, and index in that entry.
///
/// Positions of one log are ordered. Tokens, outcomes and lag are expressed in positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Home epoch in which the entry was first appended.
    pub epoch: Epoch,
    /// Offset of the entry in its home log.
    pub offset: Offset,
    /// Index of the change in its entry, from 0.
    pub index_in_entry: u16,
}

/// Size of a [`Position`] in every file, in bytes.
pub const POSITION_BYTES: usize = 14;

impl Position {
    /// Encodes the position for checkpoints, live copies and shards: `epoch u32 | offset u64 |
    /// index_in_entry u16`.
    pub fn to_bytes(self) -> [u8; POSITION_BYTES] {
        let mut bytes = [0; POSITION_BYTES];
        bytes[..4].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.offset.0.to_le_bytes());
        bytes[12..].copy_from_slice(&self.index_in_entry.to_le_bytes());
        bytes
    }

    /// Decodes a position; any bytes are valid.
    pub fn from_bytes(bytes: &[u8; POSITION_BYTES]) -> Self {
        let [a, b, c, d, offset @ .., e, f] = *bytes;
        let (epoch, offset) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(offset));
        let index_in_entry = u16::from_le_bytes([e, f]);
        Self { epoch: Epoch(epoch), offset: Offset(offset), index_in_entry }
    }

    /// Returns the document version that a change at this position gives: offset and index in one
    /// number.
    pub const fn document_version(self) -> DocumentVersion {
        DocumentVersion((self.offset.0 << 16) | self.index_in_entry as u64)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.epoch, self.offset, self.index_in_entry)
    }
}

number!(
    /// Version of one document in a `versioned` store. The version grows with every change, even
    /// across a delete.
    DocumentVersion(u64)
);

/// A partition of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRef {
    /// The store.
    pub store: StoreId,
    /// Partition of the store.
    pub partition: PartitionId,
}

impl PartitionRef {
    /// The control log: the partition from which the catalog is folded.
    pub const CONTROL: Self = Self { store: StoreId(0), partition: PartitionId(0) };
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.store, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(epoch: u32, offset: u64, index_in_entry: u16) -> Position {
        Position { epoch: Epoch(epoch), offset: Offset(offset), index_in_entry }
    }

    #[test]
    fn positions_are_ordered_by_epoch_then_offset_then_index() {
        let ascending =
            [position(0, 9, 9), position(1, 0, 0), position(1, 0, 1), position(1, 1, 0)];
        assert!(ascending.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn positions_round_trip() {
        let at = position(0x0403_0201, 0x0c0b_0a09_0807_0605, 0x0e0d);
        assert_eq!(at.to_bytes(), std::array::from_fn(|place| place as u8 + 1));
        assert_eq!(Position::from_bytes(&at.to_bytes()), at);
    }

    #[test]
    fn dead_letter_stores_use_the_reserved_ids() {
        let store = StoreId(STORE_BIT | 0xfeed);
        assert_eq!(store.dead_letters(), Some(StoreId(0xfeed)));
        for reserved in [0, 0xfeed, STORE_BIT, STORE_BIT | 255] {
            assert_eq!(StoreId(reserved).dead_letters(), None);
        }
    }

    #[test]
    fn document_versions_grow_with_offset_and_index() {
        let version =
            |offset, index_in_entry| position(0, offset, index_in_entry).document_version();
        assert!(version(1, 0) > version(0, u16::MAX));
        assert!(version(1, 1) > version(1, 0));
        assert_eq!(Offset(u64::MAX).next(), Offset(u64::MAX));
    }
}
