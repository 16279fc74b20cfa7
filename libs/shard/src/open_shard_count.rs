//! The number of open shards that share resources, so that a service that stops can wait for their
//! close. A read in flight, or a flush on a thread for blocking work, may hold a shard after the
//! shard's replica has ended.

use std::sync::Arc;

use tokio::sync::watch;

/// The number of open shards. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct OpenShardCount(Arc<watch::Sender<usize>>);

/// The registration of one open shard; the drop marks its close.
#[derive(Debug)]
pub(crate) struct OpenShardGuard(OpenShardCount);

impl Default for OpenShardCount {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl OpenShardCount {
    /// Registers an open shard.
    pub(crate) fn enter(&self) -> OpenShardGuard {
        self.0.send_modify(|open| *open += 1);
        OpenShardGuard(self.clone())
    }

    /// Returns when no shard is open.
    pub(crate) async fn none_open(&self) {
        // The sender lives as long as `self`, so the wait ends only with the count.
        let _ = self.0.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl Drop for OpenShardGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|open| *open -= 1);
    }
}
