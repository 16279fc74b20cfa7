//! What became of a change, to and from `ChangeResult` of `writer.proto`.

use forebay_core::error::ErrorContext;
use forebay_core::id::{DocumentVersion, Position};
use forebay_core::limits::ROW_BYTES_MAX;
use forebay_core::outcome::Verdict;
use forebay_core::{Error, ErrorCode, Result};

use crate::refusal::{newer, unset};
use crate::v1;
use crate::v1::change_result::{Appended, Applied, Kind, NotMet};

/// What became of one change of a batch, as its sender hears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeResult {
    /// Where the log holds it; `None` when it does not, or when nobody knows.
    pub position: Option<Position>,
    /// What became of it.
    pub outcome: ChangeOutcome,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It is in the log; it had no condition, so nothing more is to be known.
    Appended,
    /// Its condition held and it happened.
    Applied,
    /// Its condition did not hold; the version is the document's, where the store keeps versions.
    NotMet(Option<DocumentVersion>),
    /// It failed, or its outcome is unknown; the code says which.
    Failed(Error),
}

impl ChangeResult {
    /// A change without condition that the log holds at this position.
    pub fn appended(position: Position) -> Self {
        Self { position: Some(position), outcome: ChangeOutcome::Appended }
    }

    /// A change that the log holds at this position and that a replica has judged.
    pub fn judged(position: Position, verdict: Verdict) -> Self {
        let outcome = match verdict {
            Verdict::Applied => ChangeOutcome::Applied,
            Verdict::NotMet(version) => ChangeOutcome::NotMet(version),
            Verdict::TooLarge => ChangeOutcome::Failed(too_large()),
        };
        Self { position: Some(position), outcome }
    }

    /// A change that failed, or whose outcome is unknown.
    pub fn failed(error: Error) -> Self {
        Self { position: None, outcome: ChangeOutcome::Failed(error) }
    }

    /// What a replica judged; `None` when none did, or when nobody knows.
    ///
    /// A limit that a change in the log has passed can only be that of its document: all other
    /// limits are checked before the append.
    pub fn verdict(&self) -> Option<Verdict> {
        match &self.outcome {
            ChangeOutcome::Applied => Some(Verdict::Applied),
            ChangeOutcome::NotMet(version) => Some(Verdict::NotMet(*version)),
            ChangeOutcome::Failed(error)
                if self.position.is_some() && error.code() == ErrorCode::LimitExceeded =>
            {
                Some(Verdict::TooLarge)
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
            ChangeOutcome::NotMet(version) => {
                Kind::NotMet(NotMet { version: version.map(|version| version.0) })
            }
            ChangeOutcome::Failed(error) => Kind::Error(error.into()),
        };
        Self { position: result.position.map(Into::into), kind: Some(kind) }
    }
}

impl TryFrom<v1::ChangeResult> for ChangeResult {
    type Error = Error;

    fn try_from(wire: v1::ChangeResult) -> Result<Self> {
        let outcome = match wire.kind.ok_or_else(|| newer("the kind of a change's result"))? {
            Kind::Appended(_) => ChangeOutcome::Appended,
            Kind::Applied(_) => ChangeOutcome::Applied,
            Kind::NotMet(NotMet { version }) => ChangeOutcome::NotMet(version.map(DocumentVersion)),
            Kind::Error(error) => ChangeOutcome::Failed(error.into()),
        };
        let position = wire.position.map(Position::try_from).transpose()?;
        if position.is_none() && !matches!(outcome, ChangeOutcome::Failed(_)) {
            return Err(unset("the position of a change that is in the log"));
        }
        Ok(Self { position, outcome })
    }
}
