//! Fold of a run of entries into the tiles of their groups: each tile is read and written once for
//! all of them.

use std::collections::BTreeMap;

use forebay_core::change::Change;
use forebay_core::id::Position;
use forebay_core::key::Key;
use forebay_core::{ErrorCode, Result};
use forebay_shard::Shard;
use forebay_shard_replica::BufferedEntry;
use forebay_sketch::{Event, EventAdmission, EventOrder, Tile, TileId};

use super::keys::tile_key;
use super::view_rows::ViewRows;
use crate::dirty_groups::GroupChange;
use crate::plan::Plan;
use crate::view_stats::FoldCounts;

/// The groups of the events in a run of entries.
pub(super) struct RunFold<'f> {
    plan: &'f Plan,
    rows: &'f ViewRows,
    shard: &'f Shard,
    groups: BTreeMap<Vec<u8>, Group>,
    counts: FoldCounts,
}

/// A group with the tiles that the run needs.
#[derive(Default)]
struct Group {
    tiles: Vec<HeldTile>,
    /// Position and time of the group's changes.
    changed: Option<GroupChange>,
}

/// A tile of the shard, with the events folded since.
struct HeldTile {
    id: TileId,
    tile: Tile,
    is_changed: bool,
}

impl<'f> RunFold<'f> {
    pub(super) fn new(plan: &'f Plan, rows: &'f ViewRows, shard: &'f Shard) -> Self {
        Self { plan, rows, shard, groups: BTreeMap::new(), counts: FoldCounts::default() }
    }

    /// Folds all events of an entry, in order.
    ///
    /// # Errors
    /// As the shard; `Corrupt` for an invalid tile.
    pub(super) fn fold(&mut self, entry: &BufferedEntry) -> Result<()> {
        let change = GroupChange { position: entry.position, time: entry.partition_time };
        let mut events = entry.effects.events.iter();
        events.try_for_each(|(position, event)| self.take(*position, event, change))
    }

    fn take(&mut self, position: Position, event: &Change, change: GroupChange) -> Result<()> {
        let plan = self.plan;
        let value = |column| event.set_value(column);
        let Some(name) = plan.view.group_key(&value) else {
            self.counts.ungrouped_dropped += 1;
            return Ok(());
        };
        let time = plan.time(&value, change.time);
        let windows = plan.fold.windows();
        let admission = windows.admit(time, change.time);
        if admission != EventAdmission::Admitted {
            self.counts.note(admission);
            return Ok(());
        }
        let inputs = plan.inputs(&value);
        let event = Event { at: EventOrder { time, position }, inputs: &inputs };
        match self.fold_into(name, windows.tiles_of(time), &event, change)? {
            true => self.counts.note(admission),
            false => self.counts.invalid_dropped += 1,
        }
        Ok(())
    }

    /// Folds an event into all tiles of its group, or into none if they refuse it; returns whether
    /// they accepted it.
    fn fold_into(
        &mut self,
        name: Vec<u8>,
        tiles: impl Iterator<Item = TileId>,
        event: &Event<'_>,
        change: GroupChange,
    ) -> Result<bool> {
        let (plan, rows, shard) = (self.plan, self.rows, self.shard);
        let of_shard = |name: &[u8], id| read_tile((plan, rows), shard, name, id);
        if let Some(group) = self.groups.get_mut(&name) {
            return group.fold(tiles, event, change, |id| of_shard(&name, id));
        }
        let mut group = Group::default();
        let is_taken = group.fold(tiles, event, change, |id| of_shard(&name, id))?;
        self.groups.insert(name, group);
        Ok(is_taken)
    }

    /// Returns the groups with a changed tile, and their changes.
    pub(super) fn changed_groups(&self) -> impl Iterator<Item = (&[u8], GroupChange)> {
        self.groups.iter().filter_map(|(name, group)| Some((name.as_slice(), group.changed?)))
    }

    /// Appends the rows of all changed tiles to `writes`; returns the counters of the events.
    ///
    /// # Errors
    /// As the codecs.
    pub(super) fn write(self, writes: &mut Vec<(Key, Option<Vec<u8>>)>) -> Result<FoldCounts> {
        let (plan, rows) = (self.plan, self.rows);
        for (name, group) in &self.groups {
            for HeldTile { id, tile, .. } in
                group.tiles.iter().filter(|held_tile| held_tile.is_changed)
            {
                writes.push((tile_key(name, *id), Some(rows.of_tile(&plan.fold, *id, tile)?)));
            }
        }
        Ok(self.counts)
    }
}

impl Group {
    fn fold(
        &mut self,
        tiles: impl Iterator<Item = TileId>,
        event: &Event<'_>,
        change: GroupChange,
        of_shard: impl Fn(TileId) -> Result<Tile>,
    ) -> Result<bool> {
        for id in tiles {
            let index = match self.tiles.iter().position(|held_tile| held_tile.id == id) {
                Some(index) => index,
                None => {
                    self.tiles.push(HeldTile { id, tile: of_shard(id)?, is_changed: false });
                    self.tiles.len() - 1
                }
            };
            let held_tile = &mut self.tiles[index];
            match held_tile.tile.insert(event) {
                Ok(()) => held_tile.is_changed = true,
                Err(error) if error.code() == ErrorCode::Internal => return Err(error),
                // If the first tile refuses the event, all tiles do, and replicas stay identical
                // because all of them omit it.
                Err(_) => return Ok(false),
            }
        }
        self.changed = Some(self.changed.map_or(change, |changed| changed.and(change)));
        Ok(true)
    }
}

/// Reads a tile of a group from a shard; returns an empty tile if the shard has none.
fn read_tile(
    (plan, rows): (&Plan, &ViewRows),
    shard: &Shard,
    name: &[u8],
    id: TileId,
) -> Result<Tile> {
    match shard.row(tile_key(name, id).as_bytes())? {
        Some(row) => rows.tile(&plan.fold, &row),
        None => Tile::new(plan.fold.aggregates()),
    }
}
