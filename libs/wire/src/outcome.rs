//! Conversion of the outcome of a change to and from `ChangeResult` of `writer.proto`.

use forebay_core::error::ErrorContext;
use forebay_core::id::{DocumentVersion, Position};
use forebay_core::limits::ROW_BYTES_MAX;
use forebay_core::outcome::ConditionOutcome;
use forebay_core::{Error, ErrorCode, Result};

use crate::decode_error::{newer_error, unset_error};
use crate::v1;
use crate::v1::change_result::{Appended, Applied, ConditionFailed, Kind};

/// Result of one change of a batch, as its sender receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeResult {
    /// Position of the change in the log; `None` if the change is not in the log or this is
    /// unknown.
    pub position: Option<Position>,
    /// Outcome of the change.
    pub outcome: ChangeOutcome,
}

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change is in the log; without a condition this outcome is final.
    Appended,
    /// The condition held, and the change was applied.
    Applied,
    /// The condition did not hold; the version is the document's, if the store has versions.
    ConditionFailed(Option<DocumentVersion>),
    /// The change failed, or its outcome is unknown; the code says which.
    Failed(Error),
}

impl ChangeResult {
    /// Creates the result of a change without condition at this position in the log.
    pub fn appended(position: Position) -> Self {
        Self { position: Some(position), outcome: ChangeOutcome::Appended }
    }

    /// Creates the result of a conditional change at this position in the log, as a replica
    /// evaluated it.
    pub fn conditional(position: Position, condition: ConditionOutcome) -> Self {
        let outcome = match condition {
            ConditionOutcome::Applied => ChangeOutcome::Applied,
            ConditionOutcome::ConditionFailed(version) => ChangeOutcome::ConditionFailed(version),
            ConditionOutcome::TooLarge => ChangeOutcome::Failed(too_large()),
        };
        Self { position: Some(position), outcome }
    }

    /// Creates the result of a change that failed, or whose outcome is unknown.
    pub fn failed(error: Error) -> Self {
        Self { position: None, outcome: ChangeOutcome::Failed(error) }
    }

    /// Returns the outcome that a replica computed; `None` if no replica computed one, or if it is
    /// unknown.
    ///
    /// A change in the log can exceed only the limit of its document: all other limits are checked
    /// before the append.
    pub fn condition_outcome(&self) -> Option<ConditionOutcome> {
        match &self.outcome {
            ChangeOutcome::Applied => Some(ConditionOutcome::Applied),
            ChangeOutcome::ConditionFailed(version) => {
                Some(ConditionOutcome::ConditionFailed(*version))
            }
            ChangeOutcome::Failed(error)
                if self.position.is_some() && error.code() == ErrorCode::LimitExceeded =>
            {
                Some(ConditionOutcome::TooLarge)
            }
            ChangeOutcome::Appended | ChangeOutcome::Failed(_) => None,
        }
    }
}

fn too_large() -> Error {
    let message = "the document would grow over the limit and stays as it was; split the document";
    let limit = Some(ROW_BYTES_MAX as u64);
    let context = ErrorContext { limit, ..ErrorContext::default() };
    Error::new(ErrorCode::LimitExceeded, message).with_context(context)
}

impl From<&ChangeResult> for v1::ChangeResult {
    fn from(result: &ChangeResult) -> Self {
        let kind = match &result.outcome {
            ChangeOutcome::Appended => Kind::Appended(Appended {}),
            ChangeOutcome::Applied => Kind::Applied(Applied {}),
            ChangeOutcome::ConditionFailed(version) => {
                Kind::ConditionFailed(ConditionFailed { version: version.map(|version| version.0) })
            }
            ChangeOutcome::Failed(error) => Kind::Error(error.into()),
        };
        Self { position: result.position.map(Into::into), kind: Some(kind) }
    }
}

impl TryFrom<v1::ChangeResult> for ChangeResult {
    type Error = Error;

    fn try_from(wire: v1::ChangeResult) -> Result<Self> {
        let outcome = match wire.kind.ok_or_else(|| newer_error("the kind of a change's result"))? {
            Kind::Appended(_) => ChangeOutcome::Appended,
            Kind::Applied(_) => ChangeOutcome::Applied,
            Kind::ConditionFailed(ConditionFailed { version }) => {
                ChangeOutcome::ConditionFailed(version.map(DocumentVersion))
            }
            Kind::Error(error) => ChangeOutcome::Failed(error.into()),
        };
        let position = wire.position.map(Position::try_from).transpose()?;
        if position.is_none() && !matches!(outcome, ChangeOutcome::Failed(_)) {
            return Err(unset_error("the position of a change that is in the log"));
        }
        Ok(Self { position, outcome })
    }
}
