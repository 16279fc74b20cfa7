//! Verification of a reader's replica against a replicator's shard.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionId;
use forebay_core::{Error, ErrorCode, Result};
use forebay_replica::{ReplicaContext, replica_backoff};
use futures::future::BoxFuture;
use tonic::transport::Channel;

use super::{ReaderCopy, ShardCopy, Verification, VerifiedCopy, VerifyLog, verify};
use crate::reader::Reader;

impl Reader {
    /// Compares this reader's replica of a partition (the first copy) with the shard of the node
    /// that the reader is connected to (the second copy), at one position; names the differing
    /// documents. Waits at most `wait_max` for the shard, and then until the reader has reached the
    /// shard's position. Reads both copies whole, the shard over the network. The partition applies
    /// nothing while its replica is read, and continues to answer.
    ///
    /// # Errors
    /// - The errors of [`verify`].
    /// - `InvalidArgument` for a partition that the reader does not follow.
    /// - `Unsupported` without a node to compare with, and if another reader of the directory owns
    ///   the copy.
    /// - `DeadlineExceeded` if the reader does not reach the shard's position in time.
    /// - `Closed` after the close.
    pub fn verify(
        &self,
        partition: PartitionId,
        wait_max: Duration,
    ) -> BoxFuture<'_, Result<Verification>> {
        Box::pin(async move {
            let context = self.context();
            context.partition(partition)?;
            let replicator = context.parts.replicator.clone().ok_or_else(|| {
                let message =
                    "this reader has no node to compare with; open the reader over a connection";
                Error::unsupported(message).with_store(&context.name)
            })?;
            let (log, catalog) =
                (Arc::clone(&context.parts.log), Arc::clone(&context.parts.catalog));
            let log = VerifyLog::new(log, catalog, context.store)?;
            let mut own_copy = ReaderCopy::new(self.clone(), partition, wait_max);
            let mut shard = Box::new(shard_of(&context, &replicator, partition, wait_max).await?);
            let verified = verify(&mut own_copy, &mut *shard, &log).await;
            shard.end().await;
            verified.map_err(|error| error.with_store(&context.name).with_partition(partition))
        })
    }
}

/// Freezes the shard of a partition; a shard that has just started may be empty.
async fn shard_of(
    context: &ReplicaContext,
    replicator: &Channel,
    partition: PartitionId,
    wait_max: Duration,
) -> Result<ShardCopy> {
    let definition = &context.storage.schemas().newest().definition;
    let (mut backoff, mut last_error) = (replica_backoff(), None);
    let copy = async {
        loop {
            context.close_signal.check()?;
            let copy =
                ShardCopy::freeze(replicator.clone(), definition, context.store, partition).await;
            match copy {
                Err(error) if error.code() == ErrorCode::Unavailable => last_error = Some(error),
                copy => return copy,
            }
            tokio::time::sleep(backoff.next_wait(&*context.parts.entropy)).await;
        }
    };
    tokio::time::timeout(wait_max, copy).await.unwrap_or_else(|_| {
        let late = || Error::unavailable("the node did not answer in time; try again");
        Err(last_error.unwrap_or_else(late))
    })
}
