//! Gate for writes during a repartition. While a store's documents move to new logs, a writer holds
//! the store's writes. The writer appends to the new logs only once they hold all earlier writes,
//! which is when the new version is live.
//!
//! The changes of a document therefore keep their order over the repartition. Held writes wait in
//! the order of their arrival.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::MOVE_HELD_MS;
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;

/// Lock that releases the held writes of one store in order.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Gate that holds the writes of stores that are being repartitioned.
#[derive(Default)]
pub(crate) struct WriteGate {
    by_store: Mutex<BTreeMap<StoreId, Turn>>,
}

impl WriteGate {
    /// Waits while writes to a store are held. Returns `false` at once if none waits; otherwise
    /// earlier writes are released first.
    ///
    /// # Errors
    /// `Unavailable` if the wait takes too long; nothing was appended.
    pub(crate) async fn await_writes_resumed(
        &self,
        catalog: &CatalogFollower,
        store: StoreId,
    ) -> Result<bool> {
        let Some(turn) = self.join(store, is_held(catalog, store)) else { return Ok(false) };
        let wait = async {
            let _ours = turn.lock().await;
            loop {
                let changed = catalog.changes();
                if !is_held(catalog, store) {
                    return true;
                }
                if !changed.await {
                    return false;
                }
            }
        };
        let wait = tokio::time::timeout(Duration::from_millis(MOVE_HELD_MS), wait);
        if wait.await.unwrap_or(false) {
            return Ok(true);
        }
        let message = "a repartition of the store is under way; try again, and check that a \
            snapshot service runs if this error persists";
        Err(Error::unavailable(message))
    }

    /// Returns the queue of a store's held writes, if writes wait in it already or this write must
    /// wait.
    fn join(&self, store: StoreId, is_held: bool) -> Option<Turn> {
        let mut by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        // Each write that waits, or has just been released, holds a clone.
        by_store.retain(|_, turn| Arc::strong_count(turn) > 1);
        match is_held {
            true => Some(Arc::clone(by_store.entry(store).or_default())),
            false => by_store.get(&store).cloned(),
        }
    }
}

/// Returns whether writes to a store are held. `store` is the store's id or the id of some of its
/// logs.
fn is_held(catalog: &CatalogFollower, store: StoreId) -> bool {
    let catalog = catalog.catalog();
    catalog.of_logs(store).is_some_and(|newest| newest.definition.versions.are_held())
}

/// Refuses to append changes to logs that a store's documents have left, or have not reached yet.
///
/// # Errors
/// `Conflict`; nothing was appended.
pub(crate) fn check_written(catalog: &CatalogFollower, at: PartitionRef) -> Result<()> {
    let newest = catalog.catalog().of_logs(at.store).cloned();
    let is_left = newest.is_some_and(|newest| newest.definition.written().store != at.store);
    if !is_left && !is_held(catalog, at.store) {
        return Ok(());
    }
    let message = "a repartition of the store is under way; describe the store again, and resend \
        the changes that are not in the log";
    Err(Error::conflict(message).with_partition(at.partition))
}
