//! Moves of a store's documents to other logs, as a writer makes them: it appends to the new logs
//! only once all that was written before stands there, which is when their version is live.
//!
//! So a document's changes keep their order over the move. Until then writes wait here, in the
//! order in which they came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::MOVE_HELD_MS;
use forebay_core::{Error, Result};
use forebay_log::CatalogFollower;

use crate::writer::Writer;

/// What waits for one store's move goes on in turn.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// The writes that wait.
#[derive(Default)]
pub(crate) struct Held {
    by_store: Mutex<BTreeMap<StoreId, Turn>>,
}

impl Held {
    /// A place behind those that wait already, if there are any or one is to wait.
    fn join(&self, store: StoreId, is_held: bool) -> Option<Turn> {
        let mut by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits, or has just gone on, has a clone.
        by_store.retain(|_, turn| Arc::strong_count(turn) > 1);
        match is_held {
            true => Some(Arc::clone(by_store.entry(store).or_default())),
            false => by_store.get(&store).cloned(),
        }
    }
}

impl Writer {
    /// Waits while writes to a store are held. Without a wait it ends at once; with one, those that
    /// came first go on first.
    ///
    /// # Errors
    /// `Unavailable` where that takes too long; nothing was appended.
    pub(crate) async fn wait_held(&self, store: StoreId) -> Result<()> {
        let catalog = &self.parts.catalog;
        let Some(turn) = self.held.join(store, is_held(catalog, store)) else { return Ok(()) };
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
            self.forget_left(store);
            return Ok(());
        }
        let message = "the store's documents are on their way to other partitions; try again, and \
                       see that a snapshot service runs if this stays";
        Err(Error::unavailable(message))
    }
}

/// Whether writes are held to a store, known by its own id or that of some of its logs.
fn is_held(catalog: &CatalogFollower, store: StoreId) -> bool {
    let catalog = catalog.catalog();
    catalog.of_logs(store).is_some_and(|newest| newest.definition.versions.are_held())
}

/// Refuses to append changes to logs that a store's documents have left, or have not come to.
///
/// # Errors
/// `Conflict`; nothing was appended.
pub(crate) fn check_written(catalog: &CatalogFollower, at: PartitionRef) -> Result<()> {
    let newest = catalog.catalog().of_logs(at.store).cloned();
    let is_left = newest.is_some_and(|newest| newest.definition.written().store != at.store);
    if !is_left && !is_held(catalog, at.store) {
        return Ok(());
    }
    let message = "the store's documents move to other partitions; describe it again, and send \
                   what is not in the log anew";
    Err(Error::conflict(message).with_partition(at.partition))
}
