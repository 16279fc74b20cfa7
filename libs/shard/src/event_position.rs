//! The position of an event, by which the rows of events are keyed, and the retention floor, below
//! which events are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::id::Offset;
use forebay_core::key_order::DOCUMENTS;

/// Key of the offset below which events are removed.
pub(crate) const EVENTS_FROM: &[u8] = b"e";
/// Name of the column family of events.
pub(crate) const EVENTS: &str = "events";

/// Position of an event in the log of its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition {
    /// Offset of the event's entry.
    pub offset: Offset,
    /// Number of the event in its entry.
    pub index_in_entry: u16,
}

/// Bytes of an [`EventPosition`].
pub const EVENT_POSITION_BYTES: usize = 10;

impl EventPosition {
    /// Encodes the position so that bytes sort like positions: `offset u64 | index_in_entry u16`,
    /// big-endian.
    pub fn to_bytes(self) -> [u8; EVENT_POSITION_BYTES] {
        let mut bytes = [0; EVENT_POSITION_BYTES];
        bytes[..8].copy_from_slice(&self.offset.0.swap_bytes().to_le_bytes());
        bytes[8..].copy_from_slice(&self.index_in_entry.swap_bytes().to_le_bytes());
        bytes
    }

    /// Decodes a position.
    pub fn from_bytes(bytes: [u8; EVENT_POSITION_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, index_in_entry @ ..] = bytes;
        let offset = u64::from_le_bytes([a, b, c, d, e, f, g, h]).swap_bytes();
        Self {
            offset: Offset(offset),
            index_in_entry: u16::from_le_bytes(index_in_entry).swap_bytes(),
        }
    }
}

/// The retention floor: the offset below which a shard's events are removed, or about to be. The
/// floor of a shard without events is 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetentionFloor(Arc<AtomicU64>);

impl RetentionFloor {
    pub(crate) fn raise(&self, to: Offset) {
        self.0.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(crate) fn get(&self) -> Offset {
        Offset(self.0.load(Ordering::Acquire))
    }

    /// Returns whether a row is the index row of a removed event.
    pub(crate) fn is_below(&self, key: &[u8]) -> bool {
        let floor = self.get();
        let [DOCUMENTS, key @ ..] = key else { return false };
        let at = key.last_chunk().filter(|_| floor > Offset(0));
        at.is_some_and(|at| EventPosition::from_bytes(*at).offset < floor)
    }
}
