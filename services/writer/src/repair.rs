//! Repair of unfinished definition changes:
//! - a definition that is in the control log, but not yet in its partitions,
//! - logs that are not created yet,
//! - logs of deleted stores.
//!
//! A change stays unfinished if a writer crashes in between, or if its log fails (a full disk,
//! unreachable brokers). A writer checks all stores when it starts, after each failed definition
//! change, and when it meets a change that another writer left unfinished. The repair is retried
//! with back-off until it succeeds.

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
    /// Finishes the definition changes that a crashed writer may have left, then starts a task that
    /// finishes those that this writer leaves when its log fails. The task ends with the writer.
    ///
    /// # Errors
    /// As the log's appends, for the first repair.
    pub async fn start_repairs(self: &Arc<Self>) -> Result<()> {
        self.repair().await?;
        tokio::spawn(finish(Arc::downgrade(self), Arc::clone(&self.unfinished)));
        Ok(())
    }

    /// Repairs every store. Any number of writers may call it at any time.
    async fn repair(&self) -> Result<()> {
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        for schema in catalog.active_stores() {
            self.announce(schema).await?;
        }
        for logs in catalog.unused_logs() {
            self.delete_logs(logs).await?;
        }
        Ok(())
    }

    /// Returns the result of a definition change whose record is in the control log. Schedules a
    /// repair if the change failed afterwards.
    pub(crate) fn or_later(&self, ended: Result<()>) -> Result<()> {
        if ended.is_err() {
            self.unfinished.notify_one();
        }
        ended
    }

    /// Maps a failure of a partition's log. `NotFound` for the log of an active store that this
    /// writer has never seen means that the log was not created yet, perhaps because the writer
    /// that defined the store has crashed. In this case the method schedules a repair and returns
    /// `Unavailable`, so that the caller retries. `NotFound` for a log that was seen before is
    /// returned unchanged and schedules no repair; a repair that runs for another reason, or at a
    /// start, creates that log again, too.
    pub(crate) fn or_not_yet(&self, at: PartitionRef, error: Error) -> Error {
        let is_missing = error.code() == ErrorCode::NotFound && self.has(at);
        if !is_missing || self.queue(at).log().was_there() {
            return error;
        }
        self.unfinished.notify_one();
        let message = "the store is defined, but its logs do not exist yet; try again";
        Error::unavailable(message).with_partition(at.partition)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Wakes the repair task so that it ends.
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
                Err(error) => {
                    tracing::warn!(%error, "could not complete the change of a store; trying again")
                }
            }
            let wait = backoff.next_wait(&*writer.context.entropy);
            drop(writer);
            tokio::time::sleep(wait).await;
        }
    }
}
