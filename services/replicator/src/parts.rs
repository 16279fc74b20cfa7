//! Dependencies of the replicator.

use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::StoreId;
use forebay_runtime::ServiceContext;
use forebay_shard::ShardDirectory;

use crate::heartbeat::Heartbeats;

/// Dependencies of the replicas; the simulator supplies its own.
#[derive(Clone)]
pub struct ReplicatorParts {
    /// Dependencies that all services share.
    pub context: ServiceContext,
    /// Appender of heartbeats.
    pub heartbeats: Arc<dyn Heartbeats>,
    /// Directory of the shards; `None` holds documents in memory, and the next process folds the
    /// logs again.
    pub shards: Option<ShardDirectory>,
}

impl ReplicatorParts {
    /// Returns all definitions of a store that the catalog knows.
    pub(crate) fn versions(&self, store: StoreId) -> Vec<Arc<SchemaAt>> {
        let catalog = self.context.catalog.catalog();
        catalog.store(store).into_iter().flat_map(|history| history.versions().cloned()).collect()
    }
}
