//! The open shards of one store, shared by their writers and by readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::schema_set::SchemaSet;
use forebay_core::state_rows::RestoredState;
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{BulkLoad, Shard, ShardDirectory, ShardWriter};
use parking_lot::RwLock;
use tokio::sync::Notify;
use tracing::info;

use crate::materializer::{Materializer, WrittenShard};

/// The folder of a store's shards, the order of their keys, and their number.
pub struct ShardFolder {
    /// The directory on disk.
    pub directory: ShardDirectory,
    /// Order of the keys in each shard.
    pub order: KeyOrder,
    /// Number of partitions; a shard of another number is not resumed.
    pub partitions: PartitionCount,
}

impl ShardFolder {
    pub(crate) fn create(&self, at: PartitionRef) -> Result<ShardWriter> {
        self.directory.create(at, self.order)
    }

    pub(crate) fn begin_load(&self, at: PartitionRef) -> Result<BulkLoad> {
        self.directory.begin_load(at, self.order)
    }
}

/// State that the writers of a store's shards share.
pub(crate) struct OpenShards<M: Materializer> {
    pub(crate) materializer: M,
    pub(crate) schemas: SchemaSet,
    pub(crate) folder: ShardFolder,
    /// The open shards, as readers see them.
    open: RwLock<BTreeMap<PartitionId, OpenShard<M>>>,
    /// Set once a disk has refused a write: no shard accepts another write before it is reopened.
    has_failed: AtomicBool,
    /// Notified of the failure.
    reopen: Arc<Notify>,
}

/// An open shard, and its shared state.
struct OpenShard<M: Materializer> {
    shard: Arc<Shard>,
    shared: Arc<M::Shared>,
}

impl<M: Materializer> OpenShards<M> {
    pub(crate) fn new(
        materializer: M,
        schemas: SchemaSet,
        folder: ShardFolder,
        reopen: Arc<Notify>,
    ) -> Self {
        let (open, has_failed) = (RwLock::default(), AtomicBool::new(false));
        Self { materializer, schemas, folder, open, has_failed, reopen }
    }

    pub(crate) fn get(&self, partition: PartitionId) -> Option<Arc<Shard>> {
        self.open.read().get(&partition).map(|open| Arc::clone(&open.shard))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Shard>> {
        self.open.read().values().map(|open| Arc::clone(&open.shard)).collect()
    }

    pub(crate) fn shared(&self) -> Vec<(PartitionId, Arc<M::Shared>)> {
        let open = self.open.read();
        open.iter().map(|(partition, open)| (*partition, Arc::clone(&open.shared))).collect()
    }

    /// Lets readers find a shard in place of the partition's earlier one.
    pub(crate) fn publish(&self, written_shard: &WrittenShard<M>) {
        let shard = Arc::clone(written_shard.shard());
        let partition = shard.partition().partition;
        let open = OpenShard { shard, shared: Arc::clone(written_shard.shared()) };
        self.open.write().insert(partition, open);
    }

    pub(crate) fn withdraw(&self, partition: PartitionId) {
        self.open.write().remove(&partition);
    }

    pub(crate) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Requests that the shards are reopened if the error is a refusal of the disk.
    pub(crate) fn note_failure(&self, error: &Error) {
        if error.code() == ErrorCode::Unavailable {
            self.has_failed.store(true, Ordering::Release);
            self.reopen.notify_one();
        }
    }

    /// Resumes the shard that an earlier process has left for a partition; removes a shard with
    /// another format, so that it is rebuilt.
    pub(crate) fn resume(&self, at: PartitionRef) -> Result<Option<(ShardWriter, RestoredState)>> {
        let ShardFolder { directory, order, partitions } = &self.folder;
        let Some((writer, restored)) = directory.resume(at, *partitions, *order)? else {
            return Ok(None);
        };
        if self.materializer.is_compatible(writer.shard(), &self.schemas)? {
            return Ok(Some((writer, restored)));
        }
        info!(%at, "shard of another format removed; rebuilding the shard from the log");
        directory.remove(writer)?;
        Ok(None)
    }
}
