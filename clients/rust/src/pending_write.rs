//! Unresolved writes: the client sent the write and its outcome is unknown; only the same write can
//! resolve it. The error of a write carries the write, if it is unresolved.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::token::Token;
use futures::future::BoxFuture;

use crate::change_spec::ChangeSpec;
use crate::outcome::BatchOutcome;
use crate::plan::Item;
use crate::store_state::StoreState;
use crate::write_driver::{LastError, Route, WriteDriver};

/// A write or batch whose deadline passed before its outcome was known, from
/// [`WriteError::into_pending`].
///
/// A retry sends the same changes under the same sequences: a change that is in the log already
/// does not happen again. While it is held, an unresolved write counts against the 1,024 unresolved
/// writes of each of its partitions. Dropping the write gives it up: its outcome stays unknown.
/// After 12 h the write can no longer be retried.
///
/// ```no_run
/// # async fn example(users: forebay::Store) -> forebay::Result<()> {
/// let mut sent = users.upsert("u1").increment("visits", 1).send().await.map(|_| ());
/// while let Err(error) = sent {
///     let message = error.to_string();
///     let Some(pending) = error.into_pending() else { panic!("refused: {message}") };
///     sent = pending.retry().await.map(|_| ());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it gives up on knowing what became of the write"]
pub struct PendingWrite {
    driver: WriteDriver,
    deadline: Duration,
}

impl PendingWrite {
    /// Resolves changes into a write that is ready to be sent.
    ///
    /// # Errors
    /// Errors of the changes.
    async fn prepare(
        state: Arc<StoreState>,
        specs: Vec<ChangeSpec>,
        deadline: Duration,
    ) -> Result<Self> {
        let (definition, routed) = state.resolve(&specs).await?;
        let item = |(place, routed)| Item::new(routed, place);
        let items = routed.iter().enumerate().map(item).collect::<Result<_>>();
        let driver = WriteDriver::new(
            state.clone(),
            (definition.version, definition.write_logs()),
            Route::Calls,
            items.map_err(|error| error.with_store(state.name()))?,
            LastError::default(),
        );
        Ok(Self { driver, deadline })
    }

    /// Retries the unresolved changes, with the deadline of the write.
    ///
    /// # Errors
    /// Errors of [`Write::send`](crate::writes::Write::send).
    pub async fn retry(self) -> Result<BatchOutcome, WriteError> {
        let deadline = self.deadline;
        resolve_within(deadline, std::future::ready(Ok(self))).await
    }

    /// Sets the deadline of the next retry.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the token of the changes that are known to be in the log so far.
    pub fn token(&self) -> &Token {
        self.driver.token()
    }
}

impl fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWrite").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Sends changes of one store, until the outcome of each change is known or the deadline passes.
pub(crate) fn send(
    state: Arc<StoreState>,
    specs: Vec<ChangeSpec>,
    deadline: Duration,
) -> BoxFuture<'static, Result<BatchOutcome, WriteError>> {
    Box::pin(async move {
        resolve_within(deadline, PendingWrite::prepare(state, specs, deadline)).await
    })
}

/// Prepares a write and resolves its outcome, within the deadline.
async fn resolve_within(
    deadline: Duration,
    prepare: impl Future<Output = Result<PendingWrite>>,
) -> Result<BatchOutcome, WriteError> {
    let mut prepared = None;
    let resolved = {
        let slot = &mut prepared;
        let resolve = async {
            let pending = slot.insert(prepare.await?);
            pending.driver.run().await;
            Ok::<(), Error>(())
        };
        tokio::time::timeout(deadline, resolve).await
    };
    match (resolved, prepared) {
        (Ok(Ok(())), Some(pending)) => {
            let (token, results) = pending.driver.into_results();
            Ok(BatchOutcome { token, results })
        }
        (Ok(Err(error)), _) => Err(error.into()),
        (Err(_), Some(pending)) => Err(WriteError::pending(pending.driver.at_deadline(), pending)),
        (_, None) => {
            let message = "the deadline passed while the store's definition was read; allow more \
                           time";
            Err(Error::deadline_exceeded(message).into())
        }
    }
}

/// A write that failed or is unresolved: the error, and, if the same write can still be resolved,
/// the write.
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

    /// Returns the write if it is unresolved: a retry resolves it under the same sequences.
    pub fn into_pending(self) -> Option<PendingWrite> {
        self.pending.map(|pending| *pending)
    }

    /// Returns the token of the changes that are known to be in the log, if the write is
    /// unresolved.
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
