//! Rows of a view's shard: one for each tile of a group, which expires once no window needs it, and
//! the materialization rows. Bytes: `proto/spec/views.md`.

use forebay_core::clock::Timestamp;
use forebay_core::id::{Position, SchemaVersion};
use forebay_core::{Error, Result};
use forebay_sketch::{FoldPlan, Tile, TileId};

use crate::dirty_groups::GroupChange;
use crate::rows::ValueRows;

/// Codec of the rows.
#[derive(Debug)]
pub(crate) struct ViewRows(ValueRows);

impl ViewRows {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(ValueRows::new()?))
    }

    /// Encodes a tile as a row.
    ///
    /// # Errors
    /// As the codecs.
    pub(crate) fn of_tile(&self, plan: &FoldPlan, id: TileId, tile: &Tile) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        tile.encode(&mut bytes)?;
        self.0.row(bytes, plan.windows().drops(id))
    }

    /// Decodes the tile of a row.
    ///
    /// # Errors
    /// `Corrupt`, `UpgradeNeeded`.
    pub(crate) fn tile(&self, plan: &FoldPlan, row: &[u8]) -> Result<Tile> {
        Tile::decode(plan.aggregates(), self.0.bytes(row)?)
    }

    /// Encodes the row of a group that waits for materialization.
    ///
    /// # Errors
    /// As the codec.
    pub(crate) fn of_change(&self, change: GroupChange) -> Result<Vec<u8>> {
        self.0.row(encode_change(change), None)
    }

    /// Decodes such a row.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn change(&self, row: &[u8]) -> Result<GroupChange> {
        let damaged = || Error::corrupt("a row of a view has no change");
        decode_change(self.0.bytes(row)?).ok_or_else(damaged)
    }

    /// Encodes the row of a time, whose key has all of its content.
    ///
    /// # Errors
    /// As the codec.
    pub(crate) fn of_moment(&self) -> Result<Vec<u8>> {
        self.0.row(Vec::new(), None)
    }

    /// Encodes the row with the version by which a view was folded.
    ///
    /// # Errors
    /// As the codec.
    pub(crate) fn of_version(&self, version: SchemaVersion) -> Result<Vec<u8>> {
        self.0.row(version.0.to_le_bytes().to_vec(), None)
    }

    /// Decodes the version of a row.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn version(&self, row: &[u8]) -> Result<SchemaVersion> {
        let version = self.0.bytes(row)?.try_into();
        let version = version.map_err(|_| Error::corrupt("a row of a view has no version"))?;
        Ok(SchemaVersion(u32::from_le_bytes(version)))
    }
}

/// Encodes a change as a row's bytes.
fn encode_change(change: GroupChange) -> Vec<u8> {
    let GroupChange { position, time } = change;
    [&position.to_bytes()[..], &time.as_micros().to_le_bytes()].concat()
}

/// Decodes a change; returns `None` for invalid bytes.
fn decode_change(bytes: &[u8]) -> Option<GroupChange> {
    let (position, time) = bytes.split_at_checked(Position::default().to_bytes().len())?;
    let time = Timestamp::from_micros(i64::from_le_bytes(time.try_into().ok()?));
    Some(GroupChange { position: Position::from_bytes(position.try_into().ok()?), time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_records_the_version_that_folded_a_view() {
        let rows = ViewRows::new().unwrap();
        let row = rows.of_version(SchemaVersion(7)).unwrap();
        assert_eq!(rows.version(&row).unwrap(), SchemaVersion(7));
        assert!(rows.version(&row[..2]).is_err());
    }
}
