//! Dependencies of the replicator.

use std::sync::Arc;

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
