//! The replica of one partition that follows the log: the fold's state and the index's writer,
//! which advance together by whole entries.
//!
//! The first replica is in service from the start, in the bootstrapping phase. A later one is built
//! next to it and replaces it (1) once it has passed the older replica's position, if both follow
//! the same log, or (2) once it has caught up, if its log is another one.
//!
//! A checkpoint of a replica is its fold state and an image of its documents. Both are at one
//! position, because only the tail advances them.

use forebay_core::clock::Timestamp;
use forebay_core::fold::{Applied, Blocked, PartitionState, Record};
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::key::Key;
use forebay_core::outcome::{Outcome, OutcomeTable, Verdict};
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{Following, Image, PartitionPhase, Resumed, SchemaSet};
use forebay_log::Bounds;
use forebay_snapshot::ImageState;

use crate::progress::{CatchUp, Phase, Progress, Rebuilding, Served};
use crate::storage::CopyWriter;

/// The reason why a record was not applied; the replica is unchanged.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The schema definition of this version is needed first.
    NeedsDefinition(SchemaVersion),
    /// The record is newer than this build.
    UpgradeNeeded(Error),
    /// The index has no space for the record's writes; the tail retries.
    Full(Error),
    /// The index has no space, and a rebuild may free some.
    NeedsRoom(Error),
    /// An invariant broke.
    Broken(Error),
}

/// The result of applying one record.
#[derive(Debug)]
pub(crate) struct Step {
    pub skipped: Option<Error>,
    pub repeats: u64,
    pub too_large: u64,
}

/// The replica that follows the log.
pub(crate) struct Generation {
    number: u32,
    state: PartitionState,
    writer: Box<dyn CopyWriter>,
    append_time: Option<Timestamp>,
    /// The log's bounds when the copy was opened.
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
    waiting: Option<Waiting>,
    /// Whether the writer may hold buffered effects.
    is_unsettled: bool,
    /// Source of the visible documents.
    shown: Served,
    /// Number of repaired blocks of the checkpoint, as last reported.
    blocks_mended: u64,
    /// Storage id of the store version that readers use until this version replaces it.
    beside: Option<StoreId>,
}

/// The effects of a record that wait for space.
struct Waiting {
    applied: Applied,
    append_time: Timestamp,
}

impl Generation {
    /// Returns the first replica, empty.
    pub(crate) fn first(
        at: PartitionRef,
        count: PartitionCount,
        writer: Box<dyn CopyWriter>,
    ) -> Self {
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
            waiting: None,
            is_unsettled: false,
            shown: Served::default(),
            blocks_mended: 0,
            beside: None,
        }
    }

    /// Sets the store version that readers use until this one replaces it: the new replica may
    /// share that version's equal records.
    pub(crate) fn set_beside(&mut self, beside: Option<StoreId>) {
        self.beside = beside;
    }

    /// Returns the replica that another reader owned until now.
    pub(crate) fn resumed(writer: Box<dyn CopyWriter>, resumed: Resumed) -> Self {
        let Resumed { state, following, .. } = resumed;
        let mut copy = Self::first(state.partition, state.partitions, writer);
        copy.number = following.copy.max(1);
        copy.append_time = following.append_time;
        copy.clock_error_us = following.clock_error_us;
        let bounds = |(start, end)| Bounds { start, end, server_time: None };
        copy.opened = following.opened.map(bounds);
        copy.state = state;
        copy.shown = copy.served();
        copy
    }

    /// Starts over from the log's start, next to the replica in service.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if there is no space for a second replica; this one is unchanged.
    pub(crate) fn start_over(&mut self, reason: Error) -> Result<()> {
        self.writer.start_rebuild()?;
        self.number += 1;
        self.state = PartitionState::new(self.state.partition, self.state.partitions);
        self.append_time = None;
        self.opened = None;
        self.reason = Some(reason);
        self.outcomes = OutcomeTable::default();
        self.is_broken = false;
        self.waiting = None;
        self.is_unsettled = false;
        self.shown = Served::default();
        self.blocks_mended = 0;
        Ok(())
    }

    /// Notes that an invariant broke: from now on the replica is neither put in service nor written
    /// to a checkpoint.
    pub(crate) fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    pub(crate) fn state(&self) -> &PartitionState {
        &self.state
    }

    pub(crate) fn is_served(&self) -> bool {
        self.reason.is_none()
    }

    /// Notes the log's bounds; the first call fixes the offset at which the replica is caught up.
    ///
    /// # Errors
    /// Returns `Unavailable` if the log no longer holds the offset that the replica needs next.
    pub(crate) fn open(&mut self, bounds: Bounds) -> Result<()> {
        if bounds.start > self.state.offset_applied {
            let message = format!(
                "the log starts at offset {}, and there is no snapshot of the earlier records; \
                 give the reader the folder of the snapshots",
                bounds.start
            );
            return Err(self.locate(Error::unavailable(message)));
        }
        // If the log was truncated since, above the applied offset, there is less to catch up with.
        let is_first = self.opened.is_none_or(|opened| bounds.end < opened.end);
        if is_first {
            let start = bounds.start.max(self.state.offset_applied);
            self.opened = Some(Bounds { start, ..bounds });
        }
        self.writer.note_following(self.following());
        self.writer.publish_following();
        Ok(())
    }

    /// Returns the facts about the log that other readers of a shared copy need.
    fn following(&self) -> Following {
        Following {
            append_time: self.append_time,
            clock_error_us: self.clock_error_us,
            opened: self.opened.map(|at| (at.start, at.end)),
            copy: self.number,
            ..Following::default()
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
    pub(crate) fn checkpoint_head(&self, clock_error_us: Option<i64>) -> Option<ImageState> {
        // A replica that shares another version's records has no image of its own. The fetched
        // image of its snapshot is its checkpoint until the replica is detached.
        let is_whole = self.is_at_rest() && !self.writer.is_borrowing();
        let is_kept = is_whole && self.state.log_id.is_some();
        let opened = self.opened.filter(|_| is_kept)?;
        let (state, append_time) = (self.state.clone(), self.append_time);
        let opened = Some((opened.start, opened.end));
        Some(ImageState { state, append_time, clock_error_us, opened })
    }

    /// Returns the writer of the replica that follows the log.
    pub(crate) fn writer(&self) -> &dyn CopyWriter {
        &*self.writer
    }

    /// Returns the number of blocks of the replica's checkpoint that were repaired since the last
    /// call.
    pub(crate) fn take_blocks_mended(&mut self) -> u64 {
        let mended = self.writer.blocks_mended();
        mended.saturating_sub(std::mem::replace(&mut self.blocks_mended, mended))
    }

    /// Returns the replica's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Restores the replica from a checkpoint. On `Err` the replica is still empty.
    ///
    /// # Errors
    /// Returns the errors of [`PartitionWriter::start_rebuild_of`].
    pub(crate) fn restore(&mut self, head: ImageState, image: &Image) -> Result<()> {
        self.begin_with(image, &head.state)?;
        self.take_over(head)
    }

    /// Starts again from an image, and replaces an empty replica or one under construction. Readers
    /// see nothing of it before [`Generation::take_over`].
    ///
    /// # Errors
    /// Returns the errors of [`PartitionWriter::start_rebuild_of`]; the replica is unchanged.
    pub(crate) fn begin_with(&mut self, image: &Image, state: &PartitionState) -> Result<()> {
        self.writer.start_rebuild_of(image, state, self.beside)
    }

    /// Applies a snapshot's delta, of this state, to the image that the replica started from.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::lay_over`]; the caller discards the replica by
    /// [`Generation::give_up`].
    pub(crate) fn lay_over(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.writer.lay_over(writes, state)
    }

    /// Notes the state that the deltas lead to, which were applied to an image of the state `base`.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::apply`]; the caller discards the replica by
    /// [`Generation::give_up`].
    pub(crate) fn note_state(
        &mut self,
        base: &PartitionState,
        state: &PartitionState,
    ) -> Result<()> {
        // Include the clients that were forgotten since.
        let windows = base.dedup.windows().into_iter().chain(state.dedup.windows());
        let clients = windows.map(|(client, _)| client).collect();
        let sources = state.sources.keys().copied().collect();
        let mut applied = Applied { clients, sources, ..Applied::default() };
        self.writer.apply(&mut applied, state)
    }

    /// Returns whether the replica is in service and shares another version's records.
    pub(crate) fn is_borrowing(&self) -> bool {
        self.is_at_rest() && self.writer.is_borrowing()
    }

    /// Detaches the quiescent replica from the other version's records.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::stand_alone`]; the replica is unchanged.
    pub(crate) fn stand_alone(&mut self) -> Result<()> {
        self.writer.stand_alone(&self.state)
    }

    /// Discards the replica under construction: the replica is empty.
    pub(crate) fn give_up(&mut self) {
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
    /// Returns the errors of [`CopyWriter::publish_rebuild`].
    pub(crate) fn take_over(&mut self, head: ImageState) -> Result<()> {
        self.append_time = head.append_time;
        let bounds = |(start, end)| Bounds { start, end, server_time: None };
        self.opened = head.opened.map(bounds);
        self.clock_error_us = head.clock_error_us.or(self.clock_error_us);
        self.writer.note_following(self.following());
        if self.is_served() {
            self.writer.publish_rebuild()?;
        }
        self.state = head.state;
        self.shown = self.served();
        Ok(())
    }

    fn has_caught_up(&self) -> bool {
        self.opened.is_some_and(|opened| self.shown.offset_applied >= opened.end)
    }

    /// Applies one record: documents first, then the position. If the replica is in service, `keep`
    /// receives the outcomes of the record's conditional changes. The record becomes visible with
    /// [`Generation::settle`].
    pub(crate) fn apply(
        &mut self,
        record: Record,
        schemas: &SchemaSet,
        keep: impl FnOnce(&[Outcome]),
    ) -> std::result::Result<Step, Stop> {
        self.apply_waiting()?;
        let source = record.entry.as_ref().ok().and_then(|entry| entry.source);
        let append_time = source.map_or(record.append_time, |source| source.append_time);
        let applied = match self.state.apply(record, &self.writer, schemas) {
            Ok(applied) => applied,
            Err(Blocked::NeedsDefinition(version)) => return Err(Stop::NeedsDefinition(version)),
            Err(Blocked::UpgradeNeeded(error)) => return Err(Stop::UpgradeNeeded(error)),
            Err(Blocked::Unreadable(error) | Blocked::Internal(error)) => {
                return Err(Stop::Broken(error));
            }
        };
        if self.is_served() {
            keep(&applied.outcomes);
        } else {
            applied.outcomes.iter().for_each(|outcome| self.outcomes.keep(*outcome));
        }
        let step = step(&applied);
        self.write(Waiting { applied, append_time })?;
        Ok(step)
    }

    /// Returns whether the replica is in service and its documents are at the state's position.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_served() && !self.is_broken && !self.is_waiting()
    }

    /// Returns whether folded effects wait for space or are buffered.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some() || self.is_unsettled
    }

    /// Writes the effects that found no space before, and makes them visible.
    pub(crate) fn write_waiting(&mut self) -> std::result::Result<(), Stop> {
        self.apply_waiting()?;
        self.settle()
    }

    fn apply_waiting(&mut self) -> std::result::Result<(), Stop> {
        self.waiting.take().map_or(Ok(()), |waiting| self.write(waiting))
    }

    /// Flushes the effects that the writer has buffered, and makes all applied records visible.
    pub(crate) fn settle(&mut self) -> std::result::Result<(), Stop> {
        // If the replica is broken or effects wait for space, the state is ahead of the writer.
        if !self.is_unsettled || self.is_broken || self.waiting.is_some() {
            return Ok(());
        }
        self.writer.settle(&self.state).map_err(|error| self.stopped(error))?;
        self.is_unsettled = false;
        self.shown = self.served();
        Ok(())
    }

    /// Classifies a write error as temporary or permanent.
    fn stopped(&mut self, error: Error) -> Stop {
        if !is_for_now(&error) {
            self.is_broken = true;
            return Stop::Broken(error);
        }
        match self.writer.may_find_room() {
            true => Stop::NeedsRoom(error),
            false => Stop::Full(error),
        }
    }

    /// Writes folded effects: documents first, then the position.
    fn write(&mut self, mut waiting: Waiting) -> std::result::Result<(), Stop> {
        let append_time = self.append_time;
        if waiting.applied.skipped.is_none() {
            self.append_time = Some(waiting.append_time);
        }
        self.writer.note_following(self.following());
        let Err(error) = self.writer.apply(&mut waiting.applied, &self.state) else {
            self.is_unsettled = true;
            return Ok(());
        };
        if is_for_now(&error) {
            self.append_time = append_time;
            self.waiting = Some(waiting);
        }
        Err(self.stopped(error))
    }

    /// Returns whether the replica may replace the one that `picture` shows.
    pub(crate) fn may_be_served(&self, picture: &Progress, serve_partial: bool) -> bool {
        if self.is_served() || self.is_broken {
            return false;
        }
        match picture.phase {
            // No read has used the old replica.
            Phase::Bootstrapping if !serve_partial => true,
            Phase::Poisoned => self.has_caught_up(),
            _ if self.shown.log_id.is_none() => false,
            _ if picture.served.log_id != self.shown.log_id => self.has_caught_up(),
            _ => self.shown.position >= picture.served.position,
        }
    }

    /// Keeps the replica out of service until it may replace the one that readers use.
    pub(crate) fn wait_beside(&mut self, reason: Error) {
        self.reason = Some(reason);
    }

    /// Makes the replica visible to readers, in place of the older one, which was in this phase.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::publish_rebuild`].
    pub(crate) fn publish(&mut self, phase: Phase) -> Result<()> {
        self.writer.publish_rebuild()?;
        if phase == Phase::Serving {
            // A replica is not in this phase yet if readers started from a checkpoint.
            self.writer.set_phase(PartitionPhase::Serving);
        }
        Ok(())
    }

    /// Notes that the replica is in service; returns its outcomes.
    pub(crate) fn serve(&mut self) -> OutcomeTable {
        self.reason = None;
        std::mem::take(&mut self.outcomes)
    }

    /// Makes reads answer `Internal`.
    pub(crate) fn poison(&mut self) {
        self.writer.set_phase(PartitionPhase::Poisoned);
    }

    /// Enters the replica into a picture, as the one in service or as the one under construction.
    pub(crate) fn show(&mut self, progress: &mut Progress) {
        let opened = self.opened.map_or((Offset(0), Offset(0)), |at| (at.start, at.end));
        let offset_applied = self.shown.offset_applied;
        let catch_up = CatchUp { start: opened.0, offset_applied, target: opened.1 };
        if let Some(reason) = &self.reason {
            let (generation, log_id, reason) = (self.number, self.shown.log_id, reason.clone());
            progress.rebuilding = Some(Rebuilding { generation, log_id, catch_up, reason });
            return;
        }
        let replaces = progress.generation != self.number;
        progress.rebuilding = None;
        progress.generation = self.number;
        progress.served = self.shown;
        if progress.phase != Phase::Serving {
            progress.catch_up = catch_up;
            progress.phase = Phase::Bootstrapping;
        }
        if self.has_caught_up() && (progress.phase != Phase::Serving || replaces) {
            self.writer.set_phase(PartitionPhase::Serving);
            progress.phase = Phase::Serving;
        }
    }

    fn served(&self) -> Served {
        let log_id = self.state.log_id;
        Served {
            log_id,
            position: log_id.map(|_| self.state.position),
            offset_applied: self.state.offset_applied,
            append_time: self.append_time,
            schema_version: self.state.schema_version,
        }
    }
}

/// Returns whether a write error is temporary: no space, or a disk that refuses.
fn is_for_now(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::LimitExceeded | ErrorCode::Unavailable)
}

fn step(applied: &Applied) -> Step {
    let is_too_large = |outcome: &&Outcome| outcome.verdict == Verdict::TooLarge;
    let too_large = applied.outcomes.iter().filter(is_too_large).count() as u64;
    Step { skipped: applied.skipped.clone(), repeats: applied.repeats, too_large }
}

#[cfg(test)]
mod held_test;
