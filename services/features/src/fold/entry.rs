//! The events of one entry, folded into the tiles of their groups.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::change::Change;
use forebay_core::clock::Timestamp;
use forebay_core::fold::Applied;
use forebay_core::id::Position;
use forebay_core::key::Key;
use forebay_core::{ErrorCode, Result};
use forebay_shard::Shard;
use forebay_sketch::{Admission, Event, EventAt, GroupTiles, TileId};

use super::ViewFold;
use super::keys::tile_key;
use crate::counts::count;

/// The groups that an entry's events are of.
pub(super) struct EntryFold<'f> {
    view: &'f ViewFold,
    shard: &'f Shard,
    /// Of the entry.
    partition_time: Timestamp,
    groups: BTreeMap<Vec<u8>, Group>,
}

/// One of them, as far as its tiles are needed.
#[derive(Default)]
struct Group {
    tiles: GroupTiles,
    /// Those that were looked for in the shard.
    looked_up: BTreeSet<TileId>,
    changed: BTreeSet<TileId>,
}

impl<'f> EntryFold<'f> {
    pub(super) fn new(view: &'f ViewFold, shard: &'f Shard, partition_time: Timestamp) -> Self {
        Self { view, shard, partition_time, groups: BTreeMap::new() }
    }

    /// Folds all events of an entry, in their order.
    ///
    /// # Errors
    /// Those of the shard; `Corrupt` for what is no tile.
    pub(super) fn fold(&mut self, applied: &Applied) -> Result<()> {
        applied.events.iter().try_for_each(|(position, event)| self.take(*position, event))
    }

    fn take(&mut self, position: Position, event: &Change) -> Result<()> {
        let ViewFold { plan, counters, .. } = self.view;
        let value = |column| event.set_value(column);
        let Some(name) = plan.view.group_key(&value) else {
            count(&counters.ungrouped);
            return Ok(());
        };
        let time = plan.time(&value, self.partition_time);
        let windows = plan.fold.windows();
        let admission = windows.admit(time, self.partition_time);
        if admission != Admission::Admitted {
            counters.admitted(admission);
            return Ok(());
        }
        let inputs = plan.inputs(&value);
        let event = Event { at: EventAt { time, position }, inputs: &inputs };
        let tiles: Vec<_> = windows.tiles_of(time).collect();
        self.look_up(&name, &tiles)?;
        let group = self.groups.entry(name).or_default();
        match group.tiles.insert(&plan.fold, &event, self.partition_time) {
            Ok(admission) => {
                group.changed.extend(tiles);
                counters.admitted(admission);
            }
            // Replicas are alike only if all of them leave it out.
            Err(error) if error.code() != ErrorCode::Internal => count(&counters.refused),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes tiles of a group from the shard, unless it has them by now.
    fn look_up(&mut self, name: &[u8], tiles: &[TileId]) -> Result<()> {
        let group = match self.groups.get_mut(name) {
            Some(group) => group,
            None => self.groups.entry(name.to_vec()).or_default(),
        };
        for tile in tiles.iter().filter(|tile| group.looked_up.insert(**tile)) {
            if let Some(row) = self.shard.row(tile_key(name, *tile).as_bytes())? {
                group.tiles.put(*tile, self.view.rows.tile(&self.view.plan.fold, &row)?);
            }
        }
        Ok(())
    }

    /// The groups of which a tile changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = &[u8]> {
        let changed = self.groups.iter().filter(|(_, group)| !group.changed.is_empty());
        changed.map(|(name, _)| name.as_slice())
    }

    /// The rows of all tiles that changed.
    ///
    /// # Errors
    /// Those of the codecs.
    pub(super) fn into_writes(self) -> Result<Vec<(Key, Option<Vec<u8>>)>> {
        let ViewFold { plan, rows, .. } = self.view;
        let mut writes = Vec::new();
        for (name, group) in &self.groups {
            for (id, tile) in group.tiles.tiles().filter(|(id, _)| group.changed.contains(id)) {
                let row = rows.of_tile(&plan.fold, id, tile)?;
                writes.push((tile_key(name, id), Some(row)));
            }
        }
        Ok(writes)
    }
}
