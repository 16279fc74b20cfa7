//! A reader that asks whether what it answers from is what a replicator has.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionId;
use forebay_core::{Error, ErrorCode, Result};
use tonic::transport::Channel;

use super::{ReaderCopy, ShardCopy, Verified, VerifiedCopy, VerifyLog, verify};
use crate::reader::Reader;
use crate::shared::Shared;
use crate::tail::reader_backoff;

impl Reader {
    /// Compares the copy of a partition that this reader answers from, the first, with the shard of
    /// the node that it is connected to, the second, at one position; names the documents that are
    /// not the same. Waits so long at most for the shard, and then until the reader has come as far
    /// as that. Reads both whole, the shard over the network; the partition applies nothing while
    /// its own copy is read, and answers on.
    ///
    /// # Errors
    /// Those of [`verify`]; `InvalidArgument` for a partition that is not followed; `Unsupported`
    /// without a node to compare with, and where another reader of the directory keeps the copy;
    /// `DeadlineExceeded` where the reader does not come so far; `Closed`.
    pub async fn verify(&self, partition: PartitionId, wait_max: Duration) -> Result<Verified> {
        let shared = self.shared();
        shared.partition(partition)?;
        let replicator = shared.parts.replicator.clone().ok_or_else(|| {
            let message = "this reader has no node to be compared with; open it over a connection";
            Error::unsupported(message).with_store(&shared.name)
        })?;
        let (log, catalog) = (Arc::clone(&shared.parts.log), Arc::clone(&shared.parts.catalog));
        let log = VerifyLog::new(log, catalog, shared.store)?;
        let mut own = ReaderCopy::new(self.clone(), partition, wait_max);
        let mut shard = Box::new(shard_of(&shared, &replicator, partition, wait_max).await?);
        let verified = verify(&mut own, &mut *shard, &log).await;
        shard.end().await;
        verified.map_err(|error| error.with_store(&shared.name).with_partition(partition))
    }
}

/// The shard of a partition, frozen; one that has just begun may still be empty.
async fn shard_of(
    shared: &Shared,
    replicator: &Channel,
    partition: PartitionId,
    wait_max: Duration,
) -> Result<ShardCopy> {
    let definition = &shared.storage.schemas().newest().definition;
    let (mut backoff, mut trouble) = (reader_backoff(), None);
    let frozen = async {
        loop {
            shared.closing.check()?;
            let frozen =
                ShardCopy::freeze(replicator.clone(), definition, shared.store, partition).await;
            match frozen {
                Err(error) if error.code() == ErrorCode::Unavailable => trouble = Some(error),
                frozen => return frozen,
            }
            tokio::time::sleep(backoff.next_wait(&*shared.parts.entropy)).await;
        }
    };
    tokio::time::timeout(wait_max, frozen).await.unwrap_or_else(|_| {
        let late = || Error::unavailable("the node has not answered in time; try again");
        Err(trouble.unwrap_or_else(late))
    })
}
