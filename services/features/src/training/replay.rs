//! The fold of one partition of a view's log again, for some of its groups, moment by moment.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionId};
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::{Error, ErrorCode, Result};
use forebay_sketch::{Event, EventAt, GroupTiles};

use crate::derive::SourceLog;
use crate::parts::FeatureParts;
use crate::plan::Plan;

/// Entries between two looks at the tiles that no window is made of any more.
const ADVANCE_EVERY: u32 = 1_000;

/// The groups at one moment.
pub(super) struct Replay<'v> {
    parts: &'v FeatureParts,
    definition: &'v Definition,
    plan: &'v Plan,
    log: SourceLog,
    /// Those that are folded; all others are passed over.
    groups: BTreeMap<Vec<u8>, GroupTiles>,
    entries: u32,
}

impl<'v> Replay<'v> {
    /// At the beginning of the log.
    pub(super) fn new(
        parts: &'v FeatureParts,
        (definition, plan): (&'v Definition, &'v Plan),
        partition: PartitionId,
        groups: impl Iterator<Item = Vec<u8>>,
    ) -> Self {
        let written = definition.written();
        let state = PartitionState::new(written.at(partition), written.partitions);
        let groups = groups.map(|group| (group, GroupTiles::default())).collect();
        let log = SourceLog::new(state, None);
        Self { parts, definition, plan, log, groups, entries: 0 }
    }

    /// Goes on to the last entry that is of this moment or before, or to the log's end.
    ///
    /// # Errors
    /// `TokenLost` for a log whose beginning is gone; those of the log and of the fold.
    pub(super) async fn until(&mut self, moment: Timestamp) -> Result<()> {
        while let Some(time) = self.next_time().await? {
            if time > moment {
                break;
            }
            self.take().await?;
        }
        Ok(())
    }

    /// Goes on to this offset.
    ///
    /// # Errors
    /// As [`Replay::until`]; `Unavailable` where the log ends before it.
    pub(super) async fn to(&mut self, offset: Offset) -> Result<()> {
        while self.log.state.offset_applied < offset {
            if self.next_time().await?.is_none() {
                return Err(Error::unavailable("a view's log ends before what was folded of it"));
            }
            self.take().await?;
        }
        Ok(())
    }

    /// The moment of the next entry; `None` at the log's end.
    async fn next_time(&mut self) -> Result<Option<Timestamp>> {
        let read = self.log.read(self.parts).await;
        read.map_err(|error| match error.code() {
            ErrorCode::TokenLost => error.while_doing("reading a view's log from its beginning"),
            _ => error,
        })?;
        Ok(self.log.next_moment())
    }

    async fn take(&mut self) -> Result<()> {
        let store = self.definition.versions.home();
        let Some(taken) = self.log.take(self.parts, store).await? else { return Ok(()) };
        let partition_time = self.log.state.partition_time;
        for (position, event) in &taken.events {
            let value = |column| event.set_value(column);
            let Some(group) = self.plan.view.group_key(&value) else { continue };
            let Some(tiles) = self.groups.get_mut(&group) else { continue };
            let inputs = self.plan.inputs(&value);
            let time = self.plan.time(&value, partition_time);
            let event = Event { at: EventAt { time, position: *position }, inputs: &inputs };
            match tiles.insert(&self.plan.fold, &event, partition_time) {
                // It is left out at insert, too.
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

    /// All values of a group at a moment, in the order of the view's outputs.
    ///
    /// # Errors
    /// Those of the aggregates; `Internal` for a group that is not folded.
    pub(super) fn values(&self, group: &[u8], at: Timestamp) -> Result<Vec<Option<Value>>> {
        let tiles = self.groups.get(group).ok_or_else(|| Error::internal("a group too many"))?;
        self.plan.values(tiles, at)
    }
}
