//! Batches: many changes of one store, sent together.

use std::fmt;
use std::time::Duration;

use forebay_core::{Error, Result};

use crate::change_spec::ChangeSpec;
use crate::outcome::BatchOutcome;
use crate::pending_write::WriteError;
use crate::store_backend::StoreBackend;
use crate::write_builder::Write;

/// Changes that are sent together.
///
/// The changes of one partition reach the log in their order, and atomically if they are at most
/// 1,024 changes of about 4 MiB; a larger batch is split. Changes of different partitions are
/// independent of each other.
///
/// ```no_run
/// # async fn example(users: forebay::Store) -> forebay::Result<()> {
/// let mut batch = users.batch();
/// for number in 0..10_000 {
///     batch.add(users.upsert(&format!("u{number}")).set("age", 41))?;
/// }
/// let outcome = batch.send().await?.require_complete()?;
/// assert_eq!(outcome.results.len(), 10_000);
/// # Ok(())
/// # }
/// ```
#[must_use = "a batch does nothing before it is sent"]
pub struct Batch {
    backend: StoreBackend,
    specs: Vec<ChangeSpec>,
    deadline: Duration,
}

impl Batch {
    pub(crate) fn new(backend: StoreBackend) -> Self {
        let deadline = backend.deadline();
        Self { backend, specs: Vec::new(), deadline }
    }

    /// Adds a change.
    ///
    /// # Errors
    /// `InvalidArgument` for a write of another store.
    pub fn add(&mut self, write: Write) -> Result<&mut Self> {
        if write.backend().id() != self.backend.id() {
            let message =
                "the write is of another store than the batch; make another batch for that store";
            return Err(Error::invalid_argument(message).with_store(self.backend.name()));
        }
        self.specs.push(write.into_spec());
        Ok(self)
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Returns whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Sets the deadline of the batch, retries included; the client's deadline unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends the batch, and retries unresolved changes until the outcome of each change is known.
    /// An empty batch returns at once.
    ///
    /// # Errors
    /// Errors of [`Write::send`]. An invalid change fails the batch before anything is sent. A
    /// change that the writer refuses is an error in the results, not here.
    pub async fn send(self) -> Result<BatchOutcome, WriteError> {
        self.backend.write(self.specs, self.deadline).await
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.specs.len();
        f.debug_struct("Batch")
            .field("store", &self.backend.name())
            .field("changes", &changes)
            .finish()
    }
}
