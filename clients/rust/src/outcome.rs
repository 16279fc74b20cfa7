//! What a caller hears of its writes.

use std::fmt;

use forebay_core::id::DocumentVersion;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::outcome::ChangeOutcome;
use forebay_wire::token::Token;

use crate::pending::PendingWrite;

/// What became of a change that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// It is in the log. It had no condition, so there is nothing more to know.
    Appended,
    /// Its condition held, and it happened.
    Applied,
    /// Its condition did not hold, and nothing happened. The version is the document's, where the
    /// store keeps versions and there is a document.
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

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Says where the log holds the write; a reader that has applied this token sees it.
    pub token: Token,
    /// What became of the change.
    pub result: WriteResult,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// Says where the log holds every change that it holds.
    pub token: Token,
    /// What became of each change, in the order in which they were added. An error here is final:
    /// that change is not in the log, or was refused there.
    pub results: Vec<Result<WriteResult>>,
}

impl BatchOutcome {
    /// The outcome, if every change is in the log; else the first error.
    ///
    /// # Errors
    /// The first change's error.
    pub fn into_complete(self) -> Result<Self> {
        match self.results.iter().find_map(|result| result.as_ref().err()) {
            Some(error) => Err(error.clone()),
            None => Ok(self),
        }
    }

    /// The outcome of a batch of one.
    pub(crate) fn into_single(self) -> Result<WriteOutcome> {
        let result = self.results.into_iter().next();
        let result = result.unwrap_or_else(|| Err(Error::internal("a write without a result")))?;
        Ok(WriteOutcome { token: self.token, result })
    }
}

/// A write that did not end well: why, and, where the same write may still be settled, the write.
///
/// It turns into a plain [`Error`] with `?`, which gives the write up.
pub struct WriteError {
    error: Error,
    pending: Option<Box<PendingWrite>>,
}

impl WriteError {
    pub(crate) fn pending(error: Error, pending: PendingWrite) -> Self {
        Self { error, pending: Some(Box::new(pending)) }
    }

    /// The code of the error.
    pub fn code(&self) -> ErrorCode {
        self.error.code()
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The write itself, where it is not settled: retry it, and the same sequences settle it.
    pub fn into_pending(self) -> Option<PendingWrite> {
        self.pending.map(|pending| *pending)
    }

    /// The token of what is known to be in the log, where the write is not settled.
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
