//! Emission rows in the shard of a view: rows of groups that wait for emission, and of times at
//! which a window's values change without an event.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{PartitionId, Position};
use forebay_core::key::Key;
use forebay_core::key_order::Direction;
use forebay_shard::Shard;

use super::ViewFold;
use super::keys::{changed_group, changed_key, moment_and_group, moment_key, moments};
use crate::emit::{Changed, Pending, Settled};

/// Maximum number of such times that one run of entries processes; the next run processes the rest.
const MOMENTS_MAX: usize = 10_000;

/// The emission rows of a run of entries.
pub(super) struct EmissionRows<'f> {
    view: &'f ViewFold,
    shard: &'f Shard,
    pending: &'f Pending,
    /// Groups whose values change in this run.
    changed: BTreeMap<Vec<u8>, Changed>,
    writes: Vec<(Key, Option<Vec<u8>>)>,
    /// Position and time of the last entry.
    at: Changed,
    /// Lower bound of the next time, once all rows are written.
    quiet_until: Timestamp,
}

impl<'f> EmissionRows<'f> {
    pub(super) fn new(
        view: &'f ViewFold,
        shard: &'f Shard,
        pending: &'f Pending,
        state: &PartitionState,
    ) -> Self {
        let at = Changed { position: state.position, since: state.partition_time };
        let (changed, writes, quiet_until) = (BTreeMap::new(), Vec::new(), pending.quiet_until());
        Self { view, shard, pending, changed, writes, at, quiet_until }
    }

    /// Records a change of a group's values.
    pub(super) fn change(&mut self, group: &[u8], changed: Changed) {
        match self.changed.get_mut(group) {
            Some(held) => *held = held.and(changed),
            None => {
                self.changed.insert(group.to_vec(), changed);
            }
        }
    }

    /// Processes the emitted groups, and the times that have passed.
    ///
    /// # Errors
    /// As the shard.
    pub(super) fn pass(&mut self) -> Result<()> {
        if self.quiet_until <= self.at.since {
            self.quiet_until = self.pass_moments()?;
        }
        for settled in self.pending.take_settled() {
            self.settle(settled)?;
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
            if moment > self.at.since {
                return Ok(moment);
            }
            self.change(group, self.at);
            self.writes.push((key, None));
        }
        Ok(Timestamp::MIN)
    }

    fn settle(&mut self, settled: Settled) -> Result<()> {
        let Settled { group, position, next } = settled;
        let key = changed_key(&group);
        let held = self.shard.row(key.as_bytes())?;
        let held = held.map(|row| self.view.rows.changed(&row)).transpose()?;
        if held.is_some_and(|held| held.position <= position) {
            self.writes.push((key, None));
        }
        match next {
            Some(next) if next > self.at.since => {
                let row = self.view.rows.moment()?;
                self.quiet_until = self.quiet_until.min(next);
                self.writes.push((moment_key(next, &group), Some(row)));
            }
            Some(_) => self.change(&group, self.at),
            None => {}
        }
        Ok(())
    }

    /// Appends all rows to `writes`; for equal keys, the last row wins.
    ///
    /// # Errors
    /// As the codec.
    pub(super) fn write(mut self, writes: &mut Vec<(Key, Option<Vec<u8>>)>) -> Result<Told> {
        writes.append(&mut self.writes);
        for (group, changed) in &self.changed {
            writes.push((changed_key(group), Some(self.view.rows.of_changed(*changed)?)));
        }
        Ok(Told { changed: self.changed, quiet_until: self.quiet_until })
    }
}

/// Changed groups and the bound of the next time, to be passed to the emitter once the shard has
/// written them.
pub(super) struct Told {
    changed: BTreeMap<Vec<u8>, Changed>,
    quiet_until: Timestamp,
}

impl Told {
    pub(super) fn tell(self, pending: &Pending) {
        self.changed.iter().for_each(|(group, changed)| pending.note(group, *changed));
        pending.note_quiet_until(self.quiet_until);
    }
}

impl super::ViewShards {
    /// Reads at most `at_most` groups that wait for emission from the shard's rows, after the group
    /// `behind`.
    ///
    /// # Errors
    /// As [`super::ViewShards::group`].
    pub(crate) fn changed_groups(
        &self,
        partition: PartitionId,
        behind: &[u8],
        at_most: usize,
    ) -> Result<Vec<(Vec<u8>, Changed)>> {
        let shard = self.shard(partition)?;
        let view = shard.view()?;
        let mut rows = view.scan(&super::keys::changed_behind(behind), Direction::Forward);
        let mut found = Vec::new();
        while found.len() < at_most {
            let Some((key, row)) = rows.next()? else { break };
            found.push((changed_group(key.as_bytes())?.to_vec(), self.keeps().rows.changed(row)?));
        }
        Ok(found)
    }
}

/// Encodes a change as a row's bytes.
pub(super) fn changed_bytes(changed: Changed) -> Vec<u8> {
    let Changed { position, since } = changed;
    [&position.to_bytes()[..], &since.as_micros().to_le_bytes()].concat()
}

/// Decodes a change; returns `None` for invalid bytes.
pub(super) fn changed_of(bytes: &[u8]) -> Option<Changed> {
    let (position, since) = bytes.split_at_checked(Position::default().to_bytes().len())?;
    let since = Timestamp::from_micros(i64::from_le_bytes(since.try_into().ok()?));
    Some(Changed { position: Position::from_bytes(position.try_into().ok()?), since })
}
