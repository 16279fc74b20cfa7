//! Finishes what was begun: a definition that is in the control log and not yet in its partitions,
//! logs that are not made yet, logs of stores that are deleted.
//!
//! A writer may die in between, or its log may fail (a full disk, brokers that are gone). Each
//! start looks at everything, and so does whoever failed half-way or meets what another left,
//! until it is done.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::id::PartitionRef;
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::Notify;

use crate::writer::Writer;

const WAIT_FIRST: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(30);

impl Writer {
    /// Finishes what a writer that died may have left, and from now on what this one leaves when
    /// its log fails half-way. Ends with the writer.
    ///
    /// # Errors
    /// As the log's appends, in what is done at once.
    pub async fn start_repairs(self: &Arc<Self>) -> Result<()> {
        self.repair().await?;
        tokio::spawn(finish(Arc::downgrade(self), Arc::clone(&self.unfinished)));
        Ok(())
    }

    /// Looks at every store. Safe at any time, by any number of writers.
    async fn repair(&self) -> Result<()> {
        self.catch_up().await?;
        let catalog = self.parts.catalog.catalog();
        for schema in catalog.living() {
            self.announce(schema).await?;
        }
        for logs in catalog.unused_logs() {
            self.delete_logs(logs).await?;
        }
        Ok(())
    }

    /// Passes on how a change of a definition ended that is in the control log: what is missing
    /// elsewhere is done later.
    pub(crate) fn or_later(&self, ended: Result<()>) -> Result<()> {
        if ended.is_err() {
            self.unfinished.notify_one();
        }
        ended
    }

    /// What a failure of a partition's log means. Where this writer never saw the log of a store
    /// that lives, whoever defined the store has not made it yet, or died before: it is made now,
    /// and the caller may try again. One that it has seen stays `NotFound`, which asks for no
    /// repair; one that is made for another reason, or at a start, makes that log anew too.
    pub(crate) fn or_not_yet(&self, at: PartitionRef, error: Error) -> Error {
        let is_missing = error.code() == ErrorCode::NotFound && self.has(at);
        if !is_missing || self.queue(at).log().was_there() {
            return error;
        }
        self.unfinished.notify_one();
        let message = "the store is defined and its logs are not made yet; try again";
        Error::unavailable(message).with_partition(at.partition)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Ends the task that waits for it.
        self.unfinished.notify_one();
    }
}

async fn finish(writer: Weak<Writer>, unfinished: Arc<Notify>) {
    loop {
        unfinished.notified().await;
        let mut backoff = Backoff::new(WAIT_FIRST, WAIT_MAX);
        loop {
            let Some(writer) = writer.upgrade() else { return };
            match writer.repair().await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "a change of a definition is not finished"),
            }
            let wait = backoff.next_wait(&*writer.parts.entropy);
            drop(writer);
            tokio::time::sleep(wait).await;
        }
    }
}
