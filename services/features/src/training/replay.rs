//! Replay: folds one partition of a view's log again, for some of its groups, up to one time after
//! another.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionId};
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::{Error, ErrorCode, Result};
use forebay_sketch::{Event, EventOrder, GroupTiles};

use crate::derive::SourceLog;
use crate::parts::FeatureParts;
use crate::plan::Plan;

/// Number of entries between two removals of tiles that no window needs any more.
const ADVANCE_EVERY: u32 = 1_000;

/// The groups at the current time of a replay.
pub(super) struct Replay<'v> {
    parts: &'v FeatureParts,
    plan: &'v Plan,
    log: SourceLog,
    /// The groups that are folded; all others are skipped.
    groups: BTreeMap<Vec<u8>, GroupTiles>,
    entries: u32,
}

impl<'v> Replay<'v> {
    /// Creates a replay at the start of the log.
    pub(super) fn new(
        parts: &'v FeatureParts,
        (definition, plan): (&'v Definition, &'v Plan),
        partition: PartitionId,
        groups: impl Iterator<Item = Vec<u8>>,
    ) -> Self {
        let written = definition.write_logs();
        let state = PartitionState::new(written.at(partition), written.partitions);
        let groups = groups.map(|group| (group, GroupTiles::default())).collect();
        let log = SourceLog::new(definition.versions.home(), state, None);
        Self { parts, plan, log, groups, entries: 0 }
    }

    /// Folds entries up to and including the last one at or before this time, or to the log's end.
    ///
    /// # Errors
    /// `TokenLost` if the start of the log was trimmed; else as the log and the fold.
    pub(super) async fn fold_until(&mut self, moment: Timestamp) -> Result<()> {
        while let Some(time) = self.next_time().await? {
            if time > moment {
                break;
            }
            self.take().await?;
        }
        Ok(())
    }

    /// Folds entries up to this offset.
    ///
    /// # Errors
    /// As [`Replay::fold_until`]; `Unavailable` if the log ends before the offset.
    pub(super) async fn fold_to(&mut self, offset: Offset) -> Result<()> {
        while self.log.state().offset_applied < offset {
            if self.next_time().await?.is_none() {
                let message = format!(
                    "the replay up to offset {offset} failed: the view's log ends before it; try \
                     again, and restore the log if it stays short"
                );
                return Err(Error::unavailable(message));
            }
            self.take().await?;
        }
        Ok(())
    }

    /// Returns the time of the next entry; `None` at the log's end.
    async fn next_time(&mut self) -> Result<Option<Timestamp>> {
        let read = self.log.read(self.parts).await;
        read.map_err(|error| match error.code() {
            ErrorCode::TokenLost => error.while_doing("reading a view's log from the start"),
            _ => error,
        })?;
        Ok(self.log.next_moment())
    }

    async fn take(&mut self) -> Result<()> {
        let Some(entry) = self.log.take(self.parts).await? else { return Ok(()) };
        let partition_time = self.log.state().partition_time;
        for (position, event) in &entry.events {
            let value = |column| event.set_value(column);
            let Some(group) = self.plan.view.group_key(&value) else { continue };
            let Some(tiles) = self.groups.get_mut(&group) else { continue };
            let inputs = self.plan.inputs(&value);
            let time = self.plan.time(&value, partition_time);
            let event = Event { at: EventOrder { time, position: *position }, inputs: &inputs };
            match tiles.insert(&self.plan.fold, &event, partition_time) {
                // The fold at insert omits the event, too.
                Err(error) if error.code() == ErrorCode::Internal => return Err(error),
                _ => {}
            }
        }
        self.entries += 1;
        if self.entries.is_multiple_of(ADVANCE_EVERY) {
            for tiles in self.groups.values_mut() {
                tiles.advance(&self.plan.fold, partition_time);
            }
        }
        Ok(())
    }

    /// Returns all values of a group at a time, in the order of the view's outputs.
    ///
    /// # Errors
    /// As the aggregates; `Internal` for a group that is not folded.
    pub(super) fn values(&self, group: &[u8], at: Timestamp) -> Result<Vec<Option<Value>>> {
        let tiles = self
            .groups
            .get(group)
            .ok_or_else(|| Error::internal("the log has more groups than were counted"))?;
        self.plan.values(tiles, at)
    }
}
