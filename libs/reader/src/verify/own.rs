//! A reader that asks whether what it answers from is what a replicator has.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};

use super::{ReaderCopy, ShardCopy, Verified, VerifiedCopy, VerifyLog, verify};
use crate::reader::Reader;

impl Reader {
    /// Compares the copy of a partition that this reader answers from, the first, with the shard of
    /// the node that it is connected to, the second, at one position; names the documents that are
    /// not the same. Waits so long at most until the reader has come as far as the shard. Reads
    /// both whole, the shard over the network; the partition applies nothing while its own copy is
    /// read, and answers on.
    ///
    /// # Errors
    /// Those of [`verify`]; `InvalidArgument` for a partition that is not followed; `Unsupported`
    /// without a node to compare with, and where another reader of the directory keeps the copy;
    /// `Stale` where it does not come so far; `Closed`.
    pub async fn verify(&self, partition: PartitionId, wait_max: Duration) -> Result<Verified> {
        let shared = self.shared();
        shared.partition(partition)?;
        let replicator = shared.parts.replicator.clone().ok_or_else(|| {
            let message = "this reader has no node to be compared with; open it over a connection";
            Error::unsupported(message).with_store(&shared.name)
        })?;
        let (log, catalog) = (Arc::clone(&shared.parts.log), Arc::clone(&shared.parts.catalog));
        let log = VerifyLog::new(log, catalog, shared.store)?;
        let definition = &shared.storage.schemas().newest().definition;
        let mut own = ReaderCopy::new(self.clone(), partition, wait_max);
        let mut shard =
            Box::new(ShardCopy::freeze(replicator, definition, shared.store, partition).await?);
        let verified = verify(&mut own, &mut *shard, &log).await;
        shard.end().await;
        verified.map_err(|error| error.with_store(&shared.name).with_partition(partition))
    }
}
