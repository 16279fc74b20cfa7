//! The fold of records into the replica, and the write of their effects.

use forebay_core::fold::{FoldEffects, FoldError, Record};
use forebay_core::id::SchemaVersion;
use forebay_core::outcome::{ConditionOutcome, Outcome};
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, ErrorCode};

use super::{PartitionReplica, PendingEffects};

/// The reason why a record was not applied; the replica is unchanged.
#[derive(Debug)]
pub enum ApplyError {
    /// The schema definition of this version is needed first.
    NeedsDefinition(SchemaVersion),
    /// The record is newer than this build.
    UpgradeNeeded(Error),
    /// The storage has no space for the record's writes; the tail retries.
    Full(Error),
    /// The storage has no space, and a rebuild may free some.
    NeedsRoom(Error),
    /// An invariant broke.
    Broken(Error),
}

/// The result of applying one record.
#[derive(Debug)]
pub struct ApplyResult {
    /// The reason why every replica skips the record, if they do.
    pub skipped: Option<Error>,
    /// Number of changes that their client sent before.
    pub duplicates_skipped: u64,
    /// Number of changes whose document would have grown above the limit.
    pub oversized_skipped: u64,
}

impl PartitionReplica {
    /// Applies one record: documents first, then the position. If the replica is in service, `keep`
    /// receives the outcomes of the record's conditional changes. The record becomes visible with
    /// [`PartitionReplica::write_buffered`].
    ///
    /// # Errors
    /// Returns the reason why the record was not applied.
    pub fn apply(
        &mut self,
        record: Record,
        schemas: &SchemaSet,
        keep: impl FnOnce(&[Outcome]),
    ) -> std::result::Result<ApplyResult, ApplyError> {
        self.apply_pending()?;
        let source = record.entry.as_ref().ok().and_then(|entry| entry.source);
        let append_time = source.map_or(record.append_time, |source| source.append_time);
        let effects = match self.state.apply(record, &self.writer, schemas) {
            Ok(effects) => effects,
            Err(FoldError::NeedsDefinition(version)) => {
                return Err(ApplyError::NeedsDefinition(version));
            }
            Err(FoldError::UpgradeNeeded(error)) => return Err(ApplyError::UpgradeNeeded(error)),
            Err(FoldError::Unreadable(error) | FoldError::Internal(error)) => {
                return Err(ApplyError::Broken(error));
            }
        };
        if self.is_served() {
            keep(&effects.outcomes);
        } else {
            effects.outcomes.iter().for_each(|outcome| self.outcomes.keep(*outcome));
        }
        let result = apply_result(&effects);
        self.write(PendingEffects { effects, append_time })?;
        Ok(result)
    }

    /// Writes the effects that found no space before, and makes them visible.
    ///
    /// # Errors
    /// Returns the reason why the effects were not written.
    pub(crate) fn write_pending(&mut self) -> std::result::Result<(), ApplyError> {
        self.apply_pending()?;
        self.write_buffered()
    }

    fn apply_pending(&mut self) -> std::result::Result<(), ApplyError> {
        self.pending.take().map_or(Ok(()), |pending| self.write(pending))
    }

    /// Writes the effects that the writer has buffered, and makes all applied records visible.
    ///
    /// # Errors
    /// Returns the reason why the effects were not written.
    pub fn write_buffered(&mut self) -> std::result::Result<(), ApplyError> {
        // If the replica is broken or effects wait for space, the state is ahead of the writer.
        if !self.has_buffered || self.is_broken || self.pending.is_some() {
            return Ok(());
        }
        self.writer.write_buffered(&self.state).map_err(|error| self.apply_error(error))?;
        self.has_buffered = false;
        self.visible = self.served();
        Ok(())
    }

    /// Classifies a write error as temporary or permanent.
    fn apply_error(&mut self, error: Error) -> ApplyError {
        if !is_for_now(&error) {
            self.is_broken = true;
            return ApplyError::Broken(error);
        }
        match self.writer.rebuild_may_free_space() {
            true => ApplyError::NeedsRoom(error),
            false => ApplyError::Full(error),
        }
    }

    /// Writes folded effects: documents first, then the position.
    fn write(&mut self, mut pending: PendingEffects) -> std::result::Result<(), ApplyError> {
        let append_time = self.append_time;
        if pending.effects.skipped.is_none() {
            self.append_time = Some(pending.append_time);
        }
        self.writer.note_cursor(self.log_cursor());
        let Err(error) = self.writer.apply(&mut pending.effects, &self.state) else {
            self.has_buffered = true;
            return Ok(());
        };
        if is_for_now(&error) {
            self.append_time = append_time;
            self.pending = Some(pending);
        }
        Err(self.apply_error(error))
    }
}

/// Returns whether a write error is temporary: no space, or a disk that refuses.
fn is_for_now(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::LimitExceeded | ErrorCode::Unavailable)
}

fn apply_result(effects: &FoldEffects) -> ApplyResult {
    let is_too_large = |outcome: &&Outcome| outcome.condition == ConditionOutcome::TooLarge;
    let oversized_skipped = effects.outcomes.iter().filter(is_too_large).count() as u64;
    ApplyResult {
        skipped: effects.skipped.clone(),
        duplicates_skipped: effects.repeats,
        oversized_skipped,
    }
}
