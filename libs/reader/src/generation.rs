//! The copy of one partition that follows the log: the fold's state and the index's writer, moved
//! together, a whole entry at a time.
//!
//! The first copy is in service from the start, as a bootstrapping one. A later one is built beside
//! it and put in its place once it may be: when it has passed the old one's position, where both
//! are of one log, or when it has caught up, where its log is another one.
//!
//! A checkpoint of a copy is its fold state and an image of its documents: both are of one
//! position, since the tail alone moves them.

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

/// Why a record was not applied; the copy is as it was.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The definition of this version is needed first.
    NeedsDefinition(SchemaVersion),
    /// The record is newer than this build.
    UpgradeNeeded(Error),
    /// There is no room for what it writes; it is tried again.
    Full(Error),
    /// There is none here, and a copy that is built anew may have some.
    NeedsRoom(Error),
    /// An invariant broke.
    Broken(Error),
}

/// What applying one record came to.
#[derive(Debug)]
pub(crate) struct Step {
    pub skipped: Option<Error>,
    pub repeats: u64,
    pub too_large: u64,
}

/// The copy that follows the log.
pub(crate) struct Generation {
    number: u32,
    state: PartitionState,
    writer: Box<dyn CopyWriter>,
    append_time: Option<Timestamp>,
    /// The log's bounds when the copy was opened.
    opened: Option<Bounds>,
    /// Why it is built beside another; `None` while it is in service.
    reason: Option<Error>,
    /// Outcomes of a copy that is not in service yet.
    outcomes: OutcomeTable,
    /// Whether an invariant broke, so that state and rows may differ.
    is_broken: bool,
    /// How far apart the clocks may be.
    clock_error_us: Option<i64>,
    /// What was folded, and found no room in the index; it is tried again before all else.
    waiting: Option<Waiting>,
    /// Whether the writer may hold back what it was given.
    is_unsettled: bool,
    /// What the documents come from.
    shown: Served,
    /// Blocks of its checkpoint that were mended, as last told.
    blocks_mended: u64,
    /// The version of the documents that readers have until this one takes its place.
    beside: Option<StoreId>,
}

/// A record's effect that waits for room.
struct Waiting {
    applied: Applied,
    append_time: Timestamp,
}

impl Generation {
    /// The first copy, empty.
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

    /// Says which version of the documents readers have until this one takes its place: most of
    /// them may be alike.
    pub(crate) fn set_beside(&mut self, beside: Option<StoreId>) {
        self.beside = beside;
    }

    /// The copy that another reader has kept until now.
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

    /// Starts over from the log's start, beside the copy that is in service.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no room for another copy; this one is as it was.
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

    /// Notes that an invariant broke: from now on it is neither put in service nor kept.
    pub(crate) fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    pub(crate) fn state(&self) -> &PartitionState {
        &self.state
    }

    pub(crate) fn is_served(&self) -> bool {
        self.reason.is_none()
    }

    /// Takes in where the log starts and ends; the first time it tells when the copy is caught up.
    ///
    /// # Errors
    /// `Unavailable` when the log no longer holds what an empty copy begins with.
    pub(crate) fn open(&mut self, bounds: Bounds) -> Result<()> {
        if bounds.start > self.state.offset_applied {
            let message = format!(
                "the log starts at offset {}, and there is no snapshot of what was before; give \
                 the reader the folder of the snapshots",
                bounds.start
            );
            return Err(self.locate(Error::unavailable(message)));
        }
        // Truncated since, above what is applied: there is less to catch up with.
        let is_first = self.opened.is_none_or(|opened| bounds.end < opened.end);
        if is_first {
            let start = bounds.start.max(self.state.offset_applied);
            self.opened = Some(Bounds { start, ..bounds });
        }
        self.writer.note_following(self.following());
        self.writer.publish_following();
        Ok(())
    }

    /// What is known of the log, for those who read beside this process.
    fn following(&self) -> Following {
        Following {
            append_time: self.append_time,
            clock_error_us: self.clock_error_us,
            opened: self.opened.map(|at| (at.start, at.end)),
            copy: self.number,
            ..Following::default()
        }
    }

    /// How far apart the clocks may be, as last measured by this reader or one before it.
    pub(crate) fn clock_error_us(&self) -> Option<i64> {
        self.clock_error_us
    }

    /// Notes how far apart the clocks may be.
    pub(crate) fn note_clock_error(&mut self, micros: i64) {
        self.clock_error_us = Some(micros);
    }

    /// Whether it has begun with nothing yet.
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

    /// What a checkpoint holds beside the rows; `None` while there is nothing worth one, or while
    /// the copy is broken or built beside another.
    pub(crate) fn checkpoint_head(&self, clock_error_us: Option<i64>) -> Option<ImageState> {
        // One that uses another version's memory has no image of its own; the snapshot that it has
        // begun with was fetched, and is its checkpoint until it stands alone.
        let is_whole = self.is_at_rest() && !self.writer.is_borrowing();
        let is_kept = is_whole && self.state.log_id.is_some();
        let opened = self.opened.filter(|_| is_kept)?;
        let (state, append_time) = (self.state.clone(), self.append_time);
        let opened = Some((opened.start, opened.end));
        Some(ImageState { state, append_time, clock_error_us, opened })
    }

    /// The writer of the copy that follows the log.
    pub(crate) fn writer(&self) -> &dyn CopyWriter {
        &*self.writer
    }

    /// How many blocks of the checkpoint that it goes on from were mended since the last call.
    pub(crate) fn take_blocks_mended(&mut self) -> u64 {
        let mended = self.writer.blocks_mended();
        mended.saturating_sub(std::mem::replace(&mut self.blocks_mended, mended))
    }

    /// Number of the copy.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Takes over a checkpoint. On `Err` the copy is as it was: empty.
    ///
    /// # Errors
    /// Those of [`PartitionWriter::start_rebuild_of`].
    pub(crate) fn restore(&mut self, head: ImageState, image: &Image) -> Result<()> {
        self.begin_with(image, &head.state)?;
        self.take_over(head)
    }

    /// Begins again with an image, in place of what is built now or has begun empty. Readers see
    /// none of it before [`Generation::take_over`].
    ///
    /// # Errors
    /// Those of [`PartitionWriter::start_rebuild_of`]; the copy is as it was.
    pub(crate) fn begin_with(&mut self, image: &Image, state: &PartitionState) -> Result<()> {
        self.writer.start_rebuild_of(image, state, self.beside)
    }

    /// Lays documents over what it has begun with, of this state.
    ///
    /// # Errors
    /// Those of [`CopyWriter::lay_over`]; it is given up by [`Generation::give_up`].
    pub(crate) fn lay_over(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.writer.lay_over(writes, state)
    }

    /// Notes the state that all makes which was laid over an image of another state.
    ///
    /// # Errors
    /// Those of [`CopyWriter::apply`]; it is given up by [`Generation::give_up`].
    pub(crate) fn note_state(
        &mut self,
        base: &PartitionState,
        state: &PartitionState,
    ) -> Result<()> {
        // Those that were forgotten since, too.
        let windows = base.dedup.windows().into_iter().chain(state.dedup.windows());
        let clients = windows.map(|(client, _)| client).collect();
        let sources = state.sources.keys().copied().collect();
        let mut applied = Applied { clients, sources, ..Applied::default() };
        self.writer.apply(&mut applied, state)
    }

    /// Whether it is in service, and uses another version's memory.
    pub(crate) fn is_borrowing(&self) -> bool {
        self.is_at_rest() && self.writer.is_borrowing()
    }

    /// Makes it, at rest, one that uses no other version's memory.
    ///
    /// # Errors
    /// Those of [`CopyWriter::stand_alone`]; it is as it was.
    pub(crate) fn stand_alone(&mut self) -> Result<()> {
        self.writer.stand_alone(&self.state)
    }

    /// Gives up what was begun: the copy is empty.
    pub(crate) fn give_up(&mut self) {
        let given_up = match self.is_served() {
            true => self.writer.abandon_rebuild(),
            false => self.writer.start_rebuild(),
        };
        if let Err(error) = given_up {
            tracing::debug!(%error, "the next attempt gives it up");
        }
    }

    /// Goes on with what was begun, as of this state. Readers see it now, unless they have an older
    /// copy: then once it may take that one's place.
    ///
    /// # Errors
    /// Those of [`CopyWriter::publish_rebuild`].
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

    /// Applies one record: documents first, then the position. `keep` gets the outcomes of its
    /// conditional changes, if the copy is in service. It counts from [`Generation::settle`] on.
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

    /// Whether it is the copy in service, and its documents are of the state's position.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_served() && !self.is_broken && !self.is_waiting()
    }

    /// Whether something that was folded waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some() || self.is_unsettled
    }

    /// Writes what found no room before, and makes it count.
    pub(crate) fn write_waiting(&mut self) -> std::result::Result<(), Stop> {
        self.apply_waiting()?;
        self.settle()
    }

    fn apply_waiting(&mut self) -> std::result::Result<(), Stop> {
        self.waiting.take().map_or(Ok(()), |waiting| self.write(waiting))
    }

    /// Writes what the writer holds back of what was applied, and makes all of it count.
    pub(crate) fn settle(&mut self) -> std::result::Result<(), Stop> {
        // The state may be ahead of what the writer has.
        if !self.is_unsettled || self.is_broken || self.waiting.is_some() {
            return Ok(());
        }
        self.writer.settle(&self.state).map_err(|error| self.stopped(error))?;
        self.is_unsettled = false;
        self.shown = self.served();
        Ok(())
    }

    /// Why something cannot be written, now or for good.
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

    /// Writes what was folded: documents first, then the position.
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

    /// Whether the copy may take the place of the one that this picture shows.
    pub(crate) fn may_be_served(&self, picture: &Progress, serve_partial: bool) -> bool {
        if self.is_served() || self.is_broken {
            return false;
        }
        match picture.phase {
            // Nobody has read the old one.
            Phase::Bootstrapping if !serve_partial => true,
            Phase::Poisoned => self.has_caught_up(),
            _ if self.shown.log_id.is_none() => false,
            _ if picture.served.log_id != self.shown.log_id => self.has_caught_up(),
            _ => self.shown.position >= picture.served.position,
        }
    }

    /// Lets the copy wait until it may be served in place of what readers have.
    pub(crate) fn wait_beside(&mut self, reason: Error) {
        self.reason = Some(reason);
    }

    /// Shows the copy where readers see it, in place of the older one, which was in this phase.
    ///
    /// # Errors
    /// Those of [`CopyWriter::publish_rebuild`].
    pub(crate) fn publish(&mut self, phase: Phase) -> Result<()> {
        self.writer.publish_rebuild()?;
        if phase == Phase::Serving {
            // Not so yet where readers began with a checkpoint.
            self.writer.set_phase(PartitionPhase::Serving);
        }
        Ok(())
    }

    /// Notes that the copy is in service; answers its outcomes.
    pub(crate) fn serve(&mut self) -> OutcomeTable {
        self.reason = None;
        std::mem::take(&mut self.outcomes)
    }

    /// Makes reads answer `Internal`.
    pub(crate) fn poison(&mut self) {
        self.writer.set_phase(PartitionPhase::Poisoned);
    }

    /// Shows the copy in a picture, as the one in service or as the one under construction.
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

/// Whether what cannot be written now may be later: there is no room, or a disk refuses.
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
