//! New starts of a replica: from the log, from an image, or from the records that it shares with
//! another version.

use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::key::Key;
use forebay_core::outcome::OutcomeTable;
use forebay_core::{Error, Result};
use forebay_index::Image;
use forebay_log::Bounds;
use forebay_snapshot::ImageState;

use super::PartitionReplica;
use crate::progress::ServedState;

impl PartitionReplica {
    /// Starts over from the log's start, next to the replica in service.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if there is no space for a second replica; this one is unchanged.
    pub fn start_over(&mut self, reason: Error) -> Result<()> {
        self.writer.start_rebuild()?;
        self.number += 1;
        self.state = PartitionState::new(self.state.partition, self.state.partitions);
        self.append_time = None;
        self.opened = None;
        self.reason = Some(reason);
        self.outcomes = OutcomeTable::default();
        self.is_broken = false;
        self.pending = None;
        self.has_buffered = false;
        self.visible = ServedState::default();
        self.repaired_blocks = 0;
        Ok(())
    }

    /// Restores the replica from a checkpoint. On `Err` the replica is still empty.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::start_rebuild_from_image`.
    pub fn restore(&mut self, head: ImageState, image: &Image) -> Result<()> {
        self.start_from_image(image, &head.state)?;
        self.take_over(head)
    }

    /// Starts again from an image, and replaces an empty replica or one under construction. Readers
    /// see nothing of it before [`PartitionReplica::take_over`].
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::start_rebuild_from_image`; the replica is unchanged.
    pub(crate) fn start_from_image(&mut self, image: &Image, state: &PartitionState) -> Result<()> {
        self.writer.start_rebuild_from_image(image, state, self.beside)
    }

    /// Applies a snapshot's delta, of this state, to the image that the replica started from.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::apply_delta`; the caller discards the replica by
    /// [`PartitionReplica::discard_rebuild`].
    pub(crate) fn apply_delta(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.writer.apply_delta(writes, state)
    }

    /// Notes the state that the deltas lead to, which were applied to an image of the state `base`.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::apply`; the caller discards the replica by
    /// [`PartitionReplica::discard_rebuild`].
    pub(crate) fn note_state(
        &mut self,
        base: &PartitionState,
        state: &PartitionState,
    ) -> Result<()> {
        // Include the clients that were forgotten since.
        let windows = base.dedup.windows().into_iter().chain(state.dedup.windows());
        let clients = windows.map(|(client, _)| client).collect();
        let sources = state.sources.keys().copied().collect();
        let mut effects = FoldEffects { clients, sources, ..FoldEffects::default() };
        self.writer.apply(&mut effects, state)
    }

    /// Returns whether the replica is in service and shares another version's records.
    pub(crate) fn shares_records(&self) -> bool {
        self.is_quiesced() && self.writer.shares_records()
    }

    /// Detaches the quiescent replica from the other version's records.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::detach_shared_records`; the replica is unchanged.
    pub(crate) fn detach_shared_records(&mut self) -> Result<()> {
        self.writer.detach_shared_records(&self.state)
    }

    /// Discards the replica under construction: the replica is empty.
    pub(crate) fn discard_rebuild(&mut self) {
        let given_up = match self.is_served() {
            true => self.writer.abandon_rebuild(),
            false => self.writer.start_rebuild(),
        };
        if let Err(error) = given_up {
            tracing::debug!(%error, "unfinished replica not discarded");
        }
    }

    /// Continues with the replica under construction from this state. Readers see it now; if they
    /// have an older replica, they see it once it may replace that one.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::publish_rebuild`.
    pub(crate) fn take_over(&mut self, head: ImageState) -> Result<()> {
        self.append_time = head.append_time;
        let bounds = |(start, end)| Bounds { start, end, server_time: None };
        self.opened = head.opened.map(bounds);
        self.clock_error_us = head.clock_error_us.or(self.clock_error_us);
        self.writer.note_cursor(self.log_cursor());
        if self.is_served() {
            self.writer.publish_rebuild()?;
        }
        self.state = head.state;
        self.visible = self.served();
        Ok(())
    }
}
