//! Shards of a store's documents.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::key_order::KeyOrder;
use forebay_core::schema_set::SchemaSet;
use forebay_shard::{Shard, ShardDirectory};
use forebay_shard_replica::{EntryRun, Materializer, ShardFolder, ShardReplicas, WrittenShard};
use tokio::sync::Notify;

use crate::ordered_reads::ScanSessions;

/// The shards of one store's documents in this process.
pub(crate) type DocumentShards = ShardReplicas<DocumentRows>;

/// Row format of documents: one row for each key.
#[derive(Default)]
pub(crate) struct DocumentRows {
    scan_sessions: ScanSessions,
}

impl DocumentRows {
    /// Creates the set of a store's shards in a folder, with these definitions; no shard is open
    /// yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition.
    pub(crate) fn shards(
        versions: Vec<Arc<SchemaAt>>,
        directory: ShardDirectory,
        reopen: Arc<Notify>,
    ) -> Result<DocumentShards> {
        let schemas = SchemaSet::new(versions)?;
        let definition = &schemas.newest().definition;
        let (order, partitions) = (KeyOrder::of(definition), definition.partitions);
        let folder = ShardFolder { directory, order, partitions };
        Ok(ShardReplicas::new(Self::default(), schemas, folder, reopen))
    }

    /// Returns the scans that can be resumed.
    pub(crate) fn scan_sessions(&self) -> &ScanSessions {
        &self.scan_sessions
    }
}

impl Materializer for DocumentRows {
    type Shared = ();

    const STORES_DOCUMENTS: bool = true;

    fn is_compatible(&self, _shard: &Shard, _schemas: &SchemaSet) -> Result<bool> {
        Ok(true)
    }

    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()> {
        shard.write_documents(run)
    }

    fn release_views(&self, shard: &Arc<Shard>) {
        self.scan_sessions.release(shard);
    }

    fn drop_idle_views(&self) {
        self.scan_sessions.sweep();
    }
}
