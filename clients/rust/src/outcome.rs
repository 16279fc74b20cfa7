//! Outcomes of writes, as callers receive them.

use forebay_core::id::DocumentVersion;
use forebay_core::{Error, Result};
use forebay_wire::outcome::ChangeOutcome;
use forebay_wire::token::Token;

/// The result of a change that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The change is in the log. The change had no condition, so there is nothing more to know.
    Appended,
    /// The condition held, and the change happened.
    Applied,
    /// The condition did not hold, and nothing happened. The version is the document's, if the
    /// store is versioned and the document exists.
    ConditionFailed(Option<DocumentVersion>),
}

impl TryFrom<ChangeOutcome> for WriteResult {
    type Error = Error;

    fn try_from(outcome: ChangeOutcome) -> Result<Self> {
        match outcome {
            ChangeOutcome::Appended => Ok(Self::Appended),
            ChangeOutcome::Applied => Ok(Self::Applied),
            ChangeOutcome::ConditionFailed(version) => Ok(Self::ConditionFailed(version)),
            ChangeOutcome::Failed(error) => Err(error),
        }
    }
}

/// The outcome of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Position of the write in the log; a reader that has applied this token sees the write.
    pub token: Token,
    /// Result of the change.
    pub result: WriteResult,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// Positions in the log of every change that is in the log.
    pub token: Token,
    /// Result of each change, in the order in which the changes were added. An error here is final:
    /// the change is not in the log, or was refused there.
    pub results: Vec<Result<WriteResult>>,
}

impl BatchOutcome {
    /// Returns the outcome if every change is in the log, else the first error.
    ///
    /// # Errors
    /// The error of the first failed change.
    pub fn require_complete(self) -> Result<Self> {
        match self.results.iter().find_map(|result| result.as_ref().err()) {
            Some(error) => Err(error.clone()),
            None => Ok(self),
        }
    }

    /// Returns the outcome of a batch of one change.
    pub(crate) fn into_single(self) -> Result<WriteOutcome> {
        let result = self.results.into_iter().next();
        let result = result.unwrap_or_else(|| Err(Error::internal("a write has no result")))?;
        Ok(WriteOutcome { token: self.token, result })
    }
}
