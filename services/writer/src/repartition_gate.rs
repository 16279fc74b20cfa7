//! Gate for writes during a repartition. A writer pauses a store's writes until the new version is
//! live: the writer appends to the new logs only once they hold all earlier writes.
//!
//! The changes of a document therefore keep their order over the repartition. Paused writes wait in
//! the order of their arrival.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::REPARTITION_WRITE_WAIT_MS;
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;

/// Lock that releases the paused writes of one store in order.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Gate that pauses the writes of stores that are being repartitioned.
#[derive(Default)]
pub(crate) struct WriteGate {
    by_store: Mutex<BTreeMap<StoreId, Turn>>,
}

impl WriteGate {
    /// Waits while writes to a store are paused. Returns `false` at once if none waits; otherwise
    /// earlier writes are released first.
    ///
    /// # Errors
    /// `Unavailable` if the wait takes too long; nothing was appended.
    pub(crate) async fn await_writes_resumed(
        &self,
        catalog: &CatalogFollower,
        store: StoreId,
    ) -> Result<bool> {
        let Some(turn) = self.join(store, are_writes_paused(catalog, store)) else {
            return Ok(false);
        };
        let wait = async {
            let _ours = turn.lock().await;
            loop {
                let changed = catalog.changes();
                if !are_writes_paused(catalog, store) {
                    return true;
                }
                if !changed.await {
                    return false;
                }
            }
        };
        let wait = tokio::time::timeout(Duration::from_millis(REPARTITION_WRITE_WAIT_MS), wait);
        if wait.await.unwrap_or(false) {
            return Ok(true);
        }
        let message = "a repartition of the store is under way; try again, and check that a \
            snapshot service runs if this error persists";
        Err(Error::unavailable(message))
    }

    /// Returns the queue of a store's paused writes, if writes wait in it already or this write
    /// must wait.
    fn join(&self, store: StoreId, are_paused: bool) -> Option<Turn> {
        let mut by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        // Each write that waits, or has just been released, holds a clone.
        by_store.retain(|_, turn| Arc::strong_count(turn) > 1);
        match are_paused {
            true => Some(Arc::clone(by_store.entry(store).or_default())),
            false => by_store.get(&store).cloned(),
        }
    }
}

/// Returns whether writes to a store are paused. `store` is the store's id or the id of some of its
/// logs.
fn are_writes_paused(catalog: &CatalogFollower, store: StoreId) -> bool {
    let catalog = catalog.catalog();
    catalog.store_by_logs(store).is_some_and(|newest| newest.definition.versions.writes_paused())
}

/// Refuses to append changes to logs that a store's documents have left, or have not reached yet.
///
/// # Errors
/// `Conflict`; nothing was appended.
pub(crate) fn check_written(catalog: &CatalogFollower, at: PartitionRef) -> Result<()> {
    let newest = catalog.catalog().store_by_logs(at.store).cloned();
    let is_left = newest.is_some_and(|newest| newest.definition.write_logs().store != at.store);
    if !is_left && !are_writes_paused(catalog, at.store) {
        return Ok(());
    }
    let message = "a repartition of the store is under way; describe the store again, and resend \
        the changes that are not in the log";
    Err(Error::conflict(message).with_partition(at.partition))
}
