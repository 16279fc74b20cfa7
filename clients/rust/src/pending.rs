//! Unsettled writes: the client sent the write and its outcome is unknown; only the same write can
//! settle it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Error, Result};
use forebay_wire::token::Token;

use crate::draft::Draft;
use crate::outcome::{BatchOutcome, WriteError};
use crate::plan::Item;
use crate::settle::{LastError, Route, Settlement};
use crate::store::{Place, Store, StoreState};

/// A write or batch whose deadline passed before its outcome was known, from
/// [`WriteError::into_pending`].
///
/// A retry sends the same changes under the same sequences: a change that is in the log already
/// does not happen again. While it is held, an unsettled write counts against the 1,024 unsettled
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
    settlement: Settlement,
    deadline: Duration,
}

impl PendingWrite {
    /// Resolves drafts into a write that is ready to be sent.
    ///
    /// # Errors
    /// Errors of the drafts.
    async fn prepare(
        state: Arc<StoreState>,
        drafts: Vec<Draft>,
        deadline: Duration,
    ) -> Result<Self> {
        let (definition, routed) = state.resolve(&drafts).await?;
        let item = |(place, routed)| Item::new(routed, place);
        let items = routed.iter().enumerate().map(item).collect::<Result<_>>();
        let settlement = Settlement::new(
            state.clone(),
            (definition.version, definition.written()),
            Route::Calls,
            items.map_err(|error| error.with_store(state.name()))?,
            LastError::default(),
        );
        Ok(Self { settlement, deadline })
    }

    /// Retries the unsettled changes, with the deadline of the write.
    ///
    /// # Errors
    /// Errors of [`Write::send`](crate::Write::send).
    pub async fn retry(self) -> Result<BatchOutcome, WriteError> {
        let deadline = self.deadline;
        settle_within(deadline, std::future::ready(Ok(self))).await
    }

    /// Sets the deadline of the next retry.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the token of the changes that are known to be in the log so far.
    pub fn token(&self) -> &Token {
        self.settlement.token()
    }
}

impl fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWrite").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Sends drafts of one store, until the outcome of each draft is known or the deadline passes.
pub(crate) async fn send(
    store: Store,
    drafts: Vec<Draft>,
    deadline: Duration,
) -> Result<BatchOutcome, WriteError> {
    match store.place() {
        Place::Node(state) => {
            let prepare = PendingWrite::prepare(Arc::clone(state), drafts, deadline);
            settle_within(deadline, prepare).await
        }
        Place::Memory(memory) => Ok(memory.write(&drafts)?),
    }
}

/// Prepares a write and settles it, within the deadline.
async fn settle_within(
    deadline: Duration,
    prepare: impl Future<Output = Result<PendingWrite>>,
) -> Result<BatchOutcome, WriteError> {
    let mut prepared = None;
    let settled = {
        let slot = &mut prepared;
        let settle = async {
            let pending = slot.insert(prepare.await?);
            pending.settlement.run().await;
            Ok::<(), Error>(())
        };
        tokio::time::timeout(deadline, settle).await
    };
    match (settled, prepared) {
        (Ok(Ok(())), Some(pending)) => {
            let (token, results) = pending.settlement.into_results();
            Ok(BatchOutcome { token, results })
        }
        (Ok(Err(error)), _) => Err(error.into()),
        (Err(_), Some(pending)) => {
            Err(WriteError::pending(pending.settlement.at_deadline(), pending))
        }
        (_, None) => {
            let message = "the deadline passed while the store's definition was read; allow more \
                           time";
            Err(Error::deadline_exceeded(message).into())
        }
    }
}
