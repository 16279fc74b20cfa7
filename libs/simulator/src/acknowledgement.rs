//! Sends changes until they are acknowledged, as an application does that does not accept an
//! unknown outcome.

use std::time::Duration;

use forebay::writes::{
    BatchOutcome, PendingWrite, Token, Write, WriteError, WriteOutcome, WriteResult,
};
use forebay::{ErrorCode, Store};

use super::plant::Plant;
use super::world::World;

/// Attempts to send one change; more would mean that a fault is not healed.
pub(crate) const ATTEMPTS_MAX: usize = 200;
pub(crate) const RETRY_WAIT: Duration = Duration::from_millis(200);

/// A result that a retried write can end with.
pub(crate) trait RetriableOutcome: Sized {
    fn retry(pending: PendingWrite) -> impl Future<Output = Result<Self, WriteError>> + Send;

    /// Returns the result in which a client believes that takes an unknown outcome for success.
    fn assume_success(pending: &PendingWrite) -> Option<Self>;
}

impl RetriableOutcome for WriteOutcome {
    async fn retry(pending: PendingWrite) -> Result<Self, WriteError> {
        let outcome = pending.retry().await?.require_complete()?;
        let result = outcome.results.into_iter().next();
        let result = result.unwrap_or_else(|| Err(forebay::Error::internal("no result")))?;
        Ok(Self { token: outcome.token, result })
    }

    fn assume_success(pending: &PendingWrite) -> Option<Self> {
        Some(Self { token: pending.token().clone(), result: WriteResult::Appended })
    }
}

impl RetriableOutcome for BatchOutcome {
    async fn retry(pending: PendingWrite) -> Result<Self, WriteError> {
        pending.retry().await
    }

    fn assume_success(_pending: &PendingWrite) -> Option<Self> {
        None
    }
}

/// Sends until the change is acknowledged; retries the same write if there is a pending one.
///
/// # Errors
/// Returns an error if the change is refused permanently or is never acknowledged.
pub(crate) async fn send_until_acknowledged<T, F>(
    world: &World,
    send: impl Fn() -> F,
) -> Result<T, String>
where
    F: Future<Output = Result<T, WriteError>>,
    T: RetriableOutcome,
{
    let mut pending = None;
    for _ in 0..ATTEMPTS_MAX {
        let is_retry = pending.is_some();
        let result = match pending.take() {
            Some(pending) => T::retry(pending).await,
            None => send().await,
        };
        let error = match result {
            Ok(outcome) => {
                world.trace.count_event("write resolved by its retry", is_retry.into());
                return Ok(outcome);
            }
            Err(error) => error,
        };
        let code = error.code();
        world.note(format!("a write is not acknowledged: {code:?}"));
        world.trace.count_event(failure_kind(code), 1);
        if matches!(code, ErrorCode::InvalidArgument | ErrorCode::NotFound) {
            return Err(format!("a write was refused: {error}"));
        }
        let is_unknown = code == ErrorCode::UnknownOutcome;
        pending = error.into_pending();
        match (world.plant(), &pending) {
            (Some(Plant::RetriesUnderNewSequence), _) if is_unknown => pending = None,
            (Some(Plant::TakesUnknownForDone), Some(pending)) if is_unknown => {
                if let Some(outcome) = T::assume_success(pending) {
                    return Ok(outcome);
                }
            }
            (_, None) if is_unknown => {
                return Err(format!("an unknown outcome, and nothing to retry: {code:?}"));
            }
            _ => {}
        }
        tokio::time::sleep(RETRY_WAIT).await;
    }
    Err("a change was never acknowledged".to_owned())
}

/// Sends a batch until every change is acknowledged; returns the token of all changes.
///
/// # Errors
/// Returns the errors of [`send_until_acknowledged`].
pub(crate) async fn send_batch(
    world: &World,
    store: &Store,
    mut writes: Vec<Write>,
) -> Result<Token, String> {
    let mut all: Option<Token> = None;
    // Only changes that the writer certainly refused are sent again.
    for _ in 0..ATTEMPTS_MAX {
        let send = || async {
            let mut batch = store.batch();
            for write in &writes {
                batch.add(write.clone())?;
            }
            batch.send().await
        };
        let outcome: BatchOutcome = send_until_acknowledged(world, send).await?;
        match all.as_mut() {
            Some(all) => all.merge(&outcome.token).map_err(|error| error.to_string())?,
            None => all = Some(outcome.token),
        }
        let results = outcome.results.into_iter();
        let failed_writes = writes.into_iter().zip(results).filter(|(_, result)| result.is_err());
        writes = Vec::new();
        for (write, result) in failed_writes {
            let code = result.err().map(|error| error.code());
            if code != Some(ErrorCode::LimitExceeded) {
                return Err(format!("a change of a batch ended as {code:?}"));
            }
            writes.push(write);
        }
        match all {
            Some(all) if writes.is_empty() => return Ok(all),
            _ => world.trace.count_event("batch accepted in part", 1),
        }
        tokio::time::sleep(RETRY_WAIT).await;
    }
    Err("a batch was never acknowledged".to_owned())
}

fn failure_kind(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnknownOutcome => "write of unknown outcome",
        ErrorCode::LimitExceeded => "write pushed back",
        _ => "write unavailable",
    }
}
