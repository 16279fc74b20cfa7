//! Materialization rows in the shard of a view: rows of groups that wait for materialization, and
//! of times at which a window's values change without an event.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::key::Key;
use forebay_core::key_order::Direction;
use forebay_shard::Shard;

use super::keys::{changed_key, moment_and_group, moment_key, moments};
use super::view_rows::ViewRows;
use crate::dirty_groups::{DirtyGroups, GroupChange, MaterializedGroup};

/// Maximum number of such times that one run of entries processes; the next run processes the rest.
const MOMENTS_MAX: usize = 10_000;

/// The materialization rows of a run of entries.
pub(super) struct MaterializationRows<'f> {
    rows: &'f ViewRows,
    shard: &'f Shard,
    dirty: &'f DirtyGroups,
    /// Groups whose values change in this run.
    changed: BTreeMap<Vec<u8>, GroupChange>,
    writes: Vec<(Key, Option<Vec<u8>>)>,
    /// Position and time of the last entry.
    last_entry: GroupChange,
    /// Lower bound of the next time, once all rows are written.
    next_timer_at: Timestamp,
}

impl<'f> MaterializationRows<'f> {
    pub(super) fn new(
        rows: &'f ViewRows,
        shard: &'f Shard,
        dirty: &'f DirtyGroups,
        state: &PartitionState,
    ) -> Self {
        let last_entry = GroupChange { position: state.position, time: state.partition_time };
        let (changed, writes, next_timer_at) = (BTreeMap::new(), Vec::new(), dirty.next_timer_at());
        Self { rows, shard, dirty, changed, writes, last_entry, next_timer_at }
    }

    /// Records a change of a group's values.
    pub(super) fn change(&mut self, group: &[u8], changed: GroupChange) {
        match self.changed.get_mut(group) {
            Some(change) => *change = change.and(changed),
            None => {
                self.changed.insert(group.to_vec(), changed);
            }
        }
    }

    /// Processes the materialized groups, and the times that have passed.
    ///
    /// # Errors
    /// As the shard.
    pub(super) fn pass(&mut self) -> Result<()> {
        if self.next_timer_at <= self.last_entry.time {
            self.next_timer_at = self.pass_moments()?;
        }
        for materialized in self.dirty.take_materialized() {
            self.remove_materialized(materialized)?;
        }
        Ok(())
    }

    /// Processes the times that have passed, and returns the first one that has not.
    fn pass_moments(&mut self) -> Result<Timestamp> {
        let view = self.shard.view()?;
        let mut moments = view.scan(&moments(), Direction::Forward);
        for _ in 0..MOMENTS_MAX {
            let Some((key, _)) = moments.next()? else {
                return Ok(Timestamp::from_micros(i64::MAX));
            };
            let (moment, group) = moment_and_group(key.as_bytes())?;
            if moment > self.last_entry.time {
                return Ok(moment);
            }
            self.change(group, self.last_entry);
            self.writes.push((key, None));
        }
        Ok(Timestamp::MIN)
    }

    fn remove_materialized(&mut self, materialized: MaterializedGroup) -> Result<()> {
        let MaterializedGroup { group, position, next } = materialized;
        let key = changed_key(&group);
        let change = self.shard.row(key.as_bytes())?;
        let change = change.map(|row| self.rows.change(&row)).transpose()?;
        if change.is_some_and(|change| change.position <= position) {
            self.writes.push((key, None));
        }
        match next {
            Some(next) if next > self.last_entry.time => {
                let row = self.rows.of_moment()?;
                self.next_timer_at = self.next_timer_at.min(next);
                self.writes.push((moment_key(next, &group), Some(row)));
            }
            Some(_) => self.change(&group, self.last_entry),
            None => {}
        }
        Ok(())
    }

    /// Appends all rows to `writes`; for equal keys, the last row wins.
    ///
    /// # Errors
    /// As the codec.
    pub(super) fn write(mut self, writes: &mut Vec<(Key, Option<Vec<u8>>)>) -> Result<DirtyUpdate> {
        writes.append(&mut self.writes);
        for (group, changed) in &self.changed {
            writes.push((changed_key(group), Some(self.rows.of_change(*changed)?)));
        }
        Ok(DirtyUpdate { changed: self.changed, next_timer_at: self.next_timer_at })
    }
}

/// Changed groups and the bound of the next time, for the materializer once the shard has written
/// both.
pub(super) struct DirtyUpdate {
    changed: BTreeMap<Vec<u8>, GroupChange>,
    next_timer_at: Timestamp,
}

impl DirtyUpdate {
    pub(super) fn publish(self, dirty: &DirtyGroups) {
        self.changed.iter().for_each(|(group, changed)| dirty.note(group, *changed));
        dirty.note_next_timer_at(self.next_timer_at);
    }
}
