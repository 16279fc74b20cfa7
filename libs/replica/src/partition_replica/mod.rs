//! The replica of one partition that follows the log: the fold's state and the storage's writer,
//! which advance together by whole entries.
//!
//! The first replica is in service from the start, in the bootstrapping phase. A later one is built
//! next to it and replaces it (1) once it has passed the older replica's position, if both follow
//! the same log, or (2) once it has caught up, if its log is another one.
//!
//! A checkpoint of a replica is its fold state and an image of its documents. Both are at one
//! position, because only the tail advances them.

mod apply;
mod rebuild;
mod visibility;

use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::outcome::OutcomeTable;
use forebay_core::replica_state::{LogCursor, ReplicaState};
use forebay_core::{Error, Result};
use forebay_log::Bounds;
use forebay_snapshot::ImageState;

use crate::progress::ServedState;
use crate::storage::ReplicaWriter;

pub use self::apply::{ApplyError, ApplyResult};

/// The replica of one partition that follows the log.
pub struct PartitionReplica {
    number: u32,
    state: PartitionState,
    writer: Box<dyn ReplicaWriter>,
    append_time: Option<Timestamp>,
    /// The log's bounds when the replica was opened.
    opened: Option<Bounds>,
    /// Reason why the replica is built next to another one; `None` while it is in service.
    reason: Option<Error>,
    /// Outcomes of conditional changes of a replica that is not in service yet.
    outcomes: OutcomeTable,
    /// Whether an invariant broke, so that state and rows may differ.
    is_broken: bool,
    /// Largest possible distance of the clocks, in microseconds.
    clock_error_us: Option<i64>,
    /// Folded effects that found no space in the index; retried before any other record.
    pending: Option<PendingEffects>,
    /// Whether the writer may hold buffered effects.
    has_buffered: bool,
    /// Source of the visible documents.
    visible: ServedState,
    /// Number of repaired blocks of the checkpoint, as last reported.
    repaired_blocks: u64,
    /// Storage id of the store version that readers use until this version replaces it.
    beside: Option<StoreId>,
}

/// The effects of a record that wait for space.
struct PendingEffects {
    effects: FoldEffects,
    append_time: Timestamp,
}

impl PartitionReplica {
    /// Returns the first replica, empty.
    pub fn first(at: PartitionRef, count: PartitionCount, writer: Box<dyn ReplicaWriter>) -> Self {
        Self {
            number: 1,
            state: PartitionState::new(at, count),
            writer,
            append_time: None,
            opened: None,
            reason: None,
            outcomes: OutcomeTable::default(),
            is_broken: false,
            clock_error_us: None,
            pending: None,
            has_buffered: false,
            visible: ServedState::default(),
            repaired_blocks: 0,
            beside: None,
        }
    }

    /// Sets the store version that readers use until this one replaces it: the new replica may
    /// share that version's equal records.
    pub(crate) fn set_beside(&mut self, beside: Option<StoreId>) {
        self.beside = beside;
    }

    /// Returns the replica that another reader owned until now.
    pub fn resumed(writer: Box<dyn ReplicaWriter>, resumed: ReplicaState) -> Self {
        let ReplicaState { state, cursor, .. } = resumed;
        let mut replica = Self::first(state.partition, state.partitions, writer);
        replica.number = cursor.copy.max(1);
        replica.append_time = cursor.append_time;
        replica.clock_error_us = cursor.clock_error_us;
        let bounds = |(start, end)| Bounds { start, end, server_time: None };
        replica.opened = cursor.opened.map(bounds);
        replica.state = state;
        replica.visible = replica.served();
        replica
    }

    /// Notes that an invariant broke: from now on the replica is neither put in service nor written
    /// to a checkpoint.
    pub(crate) fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    /// Returns the state of the fold.
    pub fn state(&self) -> &PartitionState {
        &self.state
    }

    /// Returns whether readers use the replica.
    pub(crate) fn is_served(&self) -> bool {
        self.reason.is_none()
    }

    /// Notes the log's bounds; the first call fixes the offset at which the replica is caught up.
    ///
    /// # Errors
    /// Returns `Unavailable` if the log no longer holds the offset that the replica needs next.
    pub fn open(&mut self, bounds: Bounds) -> Result<()> {
        if bounds.start > self.state.offset_applied {
            let message = format!(
                "the log starts at offset {}, and there is no snapshot of the earlier records; \
                 set the folder of the snapshots",
                bounds.start
            );
            return Err(self.locate(Error::unavailable(message)));
        }
        // If the log was truncated since, above the applied offset, there is less to catch up with.
        let is_first = self.opened.is_none_or(|bounds_at_open| bounds.end < bounds_at_open.end);
        if is_first {
            let start = bounds.start.max(self.state.offset_applied);
            self.opened = Some(Bounds { start, ..bounds });
        }
        self.writer.note_cursor(self.log_cursor());
        self.writer.publish_cursor();
        Ok(())
    }

    /// Returns the facts about the log that other readers of a shared copy need.
    fn log_cursor(&self) -> LogCursor {
        LogCursor {
            append_time: self.append_time,
            clock_error_us: self.clock_error_us,
            opened: self.opened.map(|bounds| (bounds.start, bounds.end)),
            copy: self.number,
            ..LogCursor::default()
        }
    }

    /// Returns the largest possible distance of the clocks, as last measured by this reader or an
    /// earlier owner.
    pub(crate) fn clock_error_us(&self) -> Option<i64> {
        self.clock_error_us
    }

    /// Notes the largest possible distance of the clocks.
    pub(crate) fn note_clock_error(&mut self, micros: i64) {
        self.clock_error_us = Some(micros);
    }

    /// Returns whether the replica has started from nothing yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.opened.is_none() && self.state.log_id.is_none()
    }

    /// Returns whether the log's bounds are known.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened.is_some()
    }

    fn locate(&self, error: Error) -> Error {
        error.with_partition(self.partition())
    }

    fn partition(&self) -> PartitionId {
        self.state.partition.partition
    }

    /// Returns the part of a checkpoint that is not documents; `None` while there is nothing worth
    /// a checkpoint, and while the replica is broken or built next to another one.
    pub fn checkpoint_head(&self, clock_error_us: Option<i64>) -> Option<ImageState> {
        // A replica that shares another version's records has no image of its own. The fetched
        // image of its snapshot is its checkpoint until the replica is detached.
        let is_whole = self.is_quiesced() && !self.writer.shares_records();
        let is_kept = is_whole && self.state.log_id.is_some();
        let bounds_at_open = self.opened.filter(|_| is_kept)?;
        let (state, append_time) = (self.state.clone(), self.append_time);
        let open_range = Some((bounds_at_open.start, bounds_at_open.end));
        Some(ImageState { state, append_time, clock_error_us, opened: open_range })
    }

    /// Returns the writer of the replica that follows the log.
    pub fn writer(&self) -> &dyn ReplicaWriter {
        &*self.writer
    }

    /// Returns the number of blocks of the replica's checkpoint that were repaired since the last
    /// call.
    pub(crate) fn take_repaired_blocks(&mut self) -> u64 {
        let repaired = self.writer.blocks_repaired();
        repaired.saturating_sub(std::mem::replace(&mut self.repaired_blocks, repaired))
    }

    /// Returns the replica's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the visible state has reached the end that the log had at the open.
    fn has_caught_up(&self) -> bool {
        self.opened.is_some_and(|bounds_at_open| self.visible.offset_applied >= bounds_at_open.end)
    }

    /// Returns whether the replica is in service and its documents are at the state's position.
    pub(crate) fn is_quiesced(&self) -> bool {
        self.is_served() && !self.is_broken && !self.has_pending_effects()
    }

    /// Returns whether folded effects wait for space or are buffered.
    pub(crate) fn has_pending_effects(&self) -> bool {
        self.pending.is_some() || self.has_buffered
    }
}

#[cfg(test)]
mod write_buffer_test;
