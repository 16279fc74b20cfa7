//! The tasks that complete the repartitions of this process's stores.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::id::StoreId;
use forebay_core::schema::Definition;
use tokio::task::JoinHandle;
use tracing::warn;

use super::completion::{complete, forwarding_target};
use crate::context::SnapshotParts;

/// First and longest wait after a failure.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// First and longest time in which an active forwarder makes progress: at least twice the time
/// between two of its reads. A busy machine delays the reads, so each look for a forwarder is
/// longer than the one before.
const ACTIVE_FORWARDER_WAIT: (Duration, Duration) =
    (Duration::from_secs(2), Duration::from_secs(8));

/// The repartitions that this process completes.
#[derive(Default)]
pub(crate) struct RepartitionTasks {
    by_store: BTreeMap<StoreId, JoinHandle<()>>,
}

impl RepartitionTasks {
    /// Starts the repartitions of these stores, and stops those of other stores.
    pub(crate) fn reconcile(&mut self, parts: &SnapshotParts, stores: &[Definition]) {
        let is_ours = |id: &StoreId| stores.iter().any(|store| store.store == *id);
        self.by_store.retain(|id, task| {
            let goes_on = is_ours(id) && !task.is_finished();
            if !goes_on {
                task.abort();
            }
            goes_on
        });
        for store in stores.iter().filter(|store| forwarding_target(store).is_some()) {
            self.by_store.entry(store.store).or_insert_with(|| {
                tokio::spawn(complete_with_retries(parts.clone(), store.name.clone(), store.store))
            });
        }
    }

    /// Aborts all repartitions, and waits until their tasks have ended.
    pub(crate) async fn shut_down(&mut self) {
        self.by_store.values().for_each(JoinHandle::abort);
        for task in std::mem::take(&mut self.by_store).into_values() {
            // An aborted task holds what it uses until it has ended.
            let _ = task.await;
        }
    }
}

impl Drop for RepartitionTasks {
    fn drop(&mut self) {
        self.by_store.values().for_each(JoinHandle::abort);
    }
}

async fn complete_with_retries(parts: SnapshotParts, name: String, store: StoreId) {
    let mut backoff = Backoff::new(RETRY_WAIT.0, RETRY_WAIT.1);
    let mut looks = Backoff::new(ACTIVE_FORWARDER_WAIT.0, ACTIVE_FORWARDER_WAIT.1);
    let mut look = None;
    loop {
        match complete(&parts, &name, store, look).await {
            Ok(()) => return,
            Err(error) => warn!(store = name, %error, "repartition stalled"),
        }
        look = Some(looks.next_wait(&*parts.context.entropy));
        tokio::time::sleep(backoff.next_wait(&*parts.context.entropy)).await;
    }
}
