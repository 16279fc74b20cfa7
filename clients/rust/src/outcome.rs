//! Outcomes and errors of writes, as callers receive them.

use std::fmt;

use forebay_core::id::DocumentVersion;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::outcome::ChangeOutcome;
use forebay_wire::token::Token;

use crate::pending::PendingWrite;

/// The result of a change that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The change is in the log. The change had no condition, so there is nothing more to know.
    Appended,
    /// The condition held, and the change happened.
    Applied,
    /// The condition did not hold, and nothing happened. The version is the document's, if the
    /// store is versioned and the document exists.
    NotMet(Option<DocumentVersion>),
}

impl TryFrom<ChangeOutcome> for WriteResult {
    type Error = Error;

    fn try_from(outcome: ChangeOutcome) -> Result<Self> {
        match outcome {
            ChangeOutcome::Appended => Ok(Self::Appended),
            ChangeOutcome::Applied => Ok(Self::Applied),
            ChangeOutcome::NotMet(version) => Ok(Self::NotMet(version)),
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
    pub fn into_complete(self) -> Result<Self> {
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

/// A write that failed or is unsettled: the error, and, if the same write can still be settled, the
/// write.
///
/// `?` converts it to a plain [`Error`], which gives the write up.
pub struct WriteError {
    error: Error,
    pending: Option<Box<PendingWrite>>,
}

impl WriteError {
    pub(crate) fn pending(error: Error, pending: PendingWrite) -> Self {
        Self { error, pending: Some(Box::new(pending)) }
    }

    /// Returns the code of the error.
    pub fn code(&self) -> ErrorCode {
        self.error.code()
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the write if it is unsettled: a retry settles it under the same sequences.
    pub fn into_pending(self) -> Option<PendingWrite> {
        self.pending.map(|pending| *pending)
    }

    /// Returns the token of the changes that are known to be in the log, if the write is unsettled.
    pub fn token(&self) -> Option<&Token> {
        self.pending.as_ref().map(|pending| pending.token())
    }
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self { error, pending: None }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        error.error
    }
}

impl fmt::Debug for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.pending.is_some();
        f.debug_struct("WriteError").field("error", &self.error).field("pending", &pending).finish()
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
