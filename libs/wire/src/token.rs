//! Tokens, which a write returns and for which a read may wait. Bytes: `proto/spec/token.md`.

use std::collections::BTreeMap;
use std::collections::btree_map;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_core::id::{Epoch, LogId, Offset, PartitionId, Position, StoreId};
use forebay_core::limits::PARTITIONS_MAX;
use forebay_core::{Error, Result};

use crate::decode_error::newer_error;

/// Token format that this build writes, and the newest that it reads.
pub const TOKEN_FORMAT_VERSION: u8 = 1;

const HEADER_BYTES: usize = 1 + 8;
const POSITION_BYTES: usize = 4 + 8 + 4 + 8 + 2;
const CHECKSUM_BYTES: usize = 4;

/// Positions up to which a caller has seen or written the partitions of one store.
///
/// ```
/// use forebay_core::id::{LogId, PartitionId, Position, StoreId};
/// use forebay_wire::token::Token;
/// let mut token = Token::new(StoreId(7));
/// token.advance(PartitionId(0), LogId(1), Position::default())?;
/// assert_eq!(Token::decode(&token.encode())?, token);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The store.
    pub store: StoreId,
    /// Log and position for each partition in the token.
    pub positions: BTreeMap<PartitionId, (LogId, Position)>,
}

impl Token {
    /// Creates a token without positions.
    pub fn new(store: StoreId) -> Self {
        Self { store, positions: BTreeMap::new() }
    }

    /// Raises a partition's position to this one; a larger position stays.
    ///
    /// # Errors
    /// Returns `TokenLost` if the token holds a position of another log of the partition: positions
    /// of two logs have no order, and one of the logs is no longer served. The token does not
    /// change then.
    pub fn advance(
        &mut self,
        partition: PartitionId,
        log: LogId,
        position: Position,
    ) -> Result<()> {
        match self.positions.entry(partition) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert((log, position));
            }
            btree_map::Entry::Occupied(mut entry) => {
                if entry.get().0 != log {
                    return Err(two_logs(partition));
                }
                let position = entry.get().1.max(position);
                entry.insert((log, position));
            }
        }
        Ok(())
    }

    /// Merges another token of the same store; for each partition the larger position stays.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a token of another store, `TokenLost` as [`Token::advance`]
    /// does. The token does not change then.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.store != other.store {
            let message = "the tokens are of two stores; keep one token per store";
            return Err(Error::invalid_argument(message));
        }
        for (partition, (log, _)) in &other.positions {
            if self.positions.get(partition).is_some_and(|(held_log, _)| held_log != log) {
                return Err(two_logs(*partition));
            }
        }
        for (partition, (log, position)) in &other.positions {
            self.advance(*partition, *log, *position)?;
        }
        Ok(())
    }

    /// Encodes the token. Equal tokens have equal bytes.
    pub fn encode(&self) -> Bytes {
        let positions = self.positions.len() * POSITION_BYTES;
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + positions + CHECKSUM_BYTES);
        bytes.put_u8(TOKEN_FORMAT_VERSION);
        bytes.put_u64_le(self.store.0);
        for (partition, (log, position)) in &self.positions {
            bytes.put_u32_le(partition.0);
            bytes.put_u64_le(log.0);
            bytes.put_u32_le(position.epoch.0);
            bytes.put_u64_le(position.offset.0);
            bytes.put_u16_le(position.index_in_entry);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32_le(checksum);
        bytes.freeze()
    }

    /// Decodes a token that a write returned.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for bytes that no write returned, empty ones included;
    /// `UpgradeNeeded` for a token of a newer build.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (covered_bytes, stored_checksum) =
            bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(damage_error)?;
        if u32::from_le_bytes(*stored_checksum) != crc32c::crc32c(covered_bytes) {
            return Err(damage_error());
        }
        let (header, positions) =
            covered_bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(damage_error)?;
        let [version, store @ ..] = *header;
        match version {
            TOKEN_FORMAT_VERSION => {}
            0 => return Err(damage_error()),
            version => return Err(newer_error(&format!("token format version {version}"))),
        }
        let (positions, rest) = positions.as_chunks::<POSITION_BYTES>();
        if !rest.is_empty() {
            return Err(damage_error());
        }
        let mut token = Self::new(StoreId(u64::from_le_bytes(store)));
        for bytes in positions {
            token.push_position(bytes)?;
        }
        Ok(token)
    }

    fn push_position(&mut self, bytes: &[u8; POSITION_BYTES]) -> Result<()> {
        let [a0, a1, a2, a3, l0, l1, l2, l3, l4, l5, l6, l7, rest @ ..] = *bytes;
        let [e0, e1, e2, e3, offset @ .., p0, p1] = rest;
        let partition = PartitionId(u32::from_le_bytes([a0, a1, a2, a3]));
        let last = self.positions.last_key_value().map(|(last, _)| *last);
        if partition.0 >= PARTITIONS_MAX || last.is_some_and(|last| last >= partition) {
            return Err(damage_error());
        }
        let log = LogId(u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]));
        let position = Position {
            epoch: Epoch(u32::from_le_bytes([e0, e1, e2, e3])),
            offset: Offset(u64::from_le_bytes(offset)),
            index_in_entry: u16::from_le_bytes([p0, p1]),
        };
        self.positions.insert(partition, (log, position));
        Ok(())
    }
}

fn damage_error() -> Error {
    Error::invalid_argument(
        "the token is not a token that a write returned; pass its bytes on unchanged, or read \
         without a token",
    )
}

fn two_logs(partition: PartitionId) -> Error {
    Error::token_lost(
        "the tokens are of two logs of the partition, one of which is no longer served; use the \
         newer token alone",
    )
    .with_partition(partition)
}
