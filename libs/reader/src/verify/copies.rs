//! The copies that can be compared: a replicator's shard, a snapshot or a checkpoint, a reader's
//! replica.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::fold::PartitionState;
use forebay_core::id::{PartitionId, PartitionRef, Position, StoreId};
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_replica::{ReplicaWriter, closed};
use forebay_snapshot::{PointInTimePartition, RemoteShardExport};
use forebay_tasks::block_in_place;
use tonic::transport::Channel;

use super::{DigestScan, StartScan, VerifiedCopy};
use crate::checkpoint_directory::CheckpointDirectory;
use crate::reader::Reader;

/// A shard that a replicator has frozen.
pub struct ShardCopy {
    shard: RemoteShardExport,
    order: KeyOrder,
    state: PartitionState,
}

impl ShardCopy {
    /// Freezes a replicator's shard of a partition, of the store version with this storage id.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteShardExport::freeze`] and [`RemoteShardExport::state`].
    pub async fn freeze(
        replicator: Channel,
        definition: &Definition,
        storage_id: StoreId,
        partition: PartitionId,
    ) -> Result<Self> {
        let (name, order) = (&definition.name, KeyOrder::of(definition));
        let mut shard =
            RemoteShardExport::freeze(replicator, name, Some(storage_id), partition, 0).await?;
        let state = shard.state().await?.state;
        Ok(Self { shard, order, state })
    }
}

#[async_trait]
impl VerifiedCopy for ShardCopy {
    fn follows_log(&self) -> bool {
        false
    }

    async fn state(&mut self) -> Result<PartitionState> {
        Ok(self.state.clone())
    }

    async fn read(
        &mut self,
        _: Position,
        begin: StartScan,
    ) -> Result<(DigestScan, PartitionState)> {
        let (mut scan, order) = (begin(&self.state), self.order);
        let mut last = Vec::new();
        let take = |key: &[u8], row: &[u8]| {
            // Rows arrive in key order; after an interrupted stream some arrive again.
            if key.first() != Some(&DOCUMENTS) || key <= &last[..] {
                return Ok(());
            }
            last.clear();
            last.extend_from_slice(key);
            scan.take(order.identity(key)?.as_bytes(), row);
            Ok(())
        };
        self.shard.read(take).await?;
        Ok((scan, self.state.clone()))
    }

    async fn end(self: Box<Self>) {
        self.shard.end().await;
    }
}

/// A snapshot, or the checkpoint of a reader: the past state of a partition.
pub struct OfflineCopy(PointInTimePartition);

impl OfflineCopy {
    /// Returns the copy of a snapshot.
    pub fn of_snapshot(past: PointInTimePartition) -> Self {
        Self(past)
    }

    /// Returns the newest checkpoint of a partition in this directory, whether or not a reader of
    /// it runs; of the store version of these definitions.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no checkpoint, `InvalidArgument` without a definition, the
    /// errors of the disk, `Corrupt` and `Unsupported`.
    pub fn of_checkpoint(
        dir: &Path,
        definitions: &[Definition],
        partition: PartitionId,
    ) -> Result<Self> {
        let newest = definitions.last();
        let newest =
            newest.ok_or_else(|| Error::invalid_argument("the store has no definition"))?;
        let at = PartitionRef { store: newest.store, partition };
        let (image, head) = CheckpointDirectory::newest_in(dir, at, newest.partitions)?;
        // The image is mapped read-only.
        PointInTimePartition::of_image(&image, head, definitions, u64::MAX).map(Self)
    }
}

#[async_trait]
impl VerifiedCopy for OfflineCopy {
    fn follows_log(&self) -> bool {
        false
    }

    async fn state(&mut self) -> Result<PartitionState> {
        Ok(self.0.state().clone())
    }

    async fn read(
        &mut self,
        _: Position,
        begin: StartScan,
    ) -> Result<(DigestScan, PartitionState)> {
        let mut scan = begin(self.0.state());
        block_in_place(|| {
            self.0.visit_rows(|key, row| {
                scan.take(key, row);
                Ok(())
            })
        })?;
        Ok((scan, self.0.state().clone()))
    }
}

/// The replica that a reader of this process answers from.
pub struct ReaderCopy {
    reader: Reader,
    partition: PartitionId,
    wait_max: Duration,
}

impl ReaderCopy {
    /// Returns the reader's copy of a partition; a comparison waits at most `wait_max` until the
    /// reader has reached the other copy's position.
    pub fn new(reader: Reader, partition: PartitionId, wait_max: Duration) -> Self {
        Self { reader, partition, wait_max }
    }

    async fn quiesced<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PartitionState, &dyn ReplicaWriter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let context = self.reader.context();
        let quiesced = &context.partition(self.partition)?.quiesced;
        tokio::select! {
            biased;
            () = context.close_signal.closed() => Err(closed()),
            done = quiesced.run_when_quiesced(work) => done,
        }
    }
}

#[async_trait]
impl VerifiedCopy for ReaderCopy {
    fn follows_log(&self) -> bool {
        true
    }

    async fn state(&mut self) -> Result<PartitionState> {
        self.quiesced(|state, _| Ok(state.clone())).await
    }

    async fn read(
        &mut self,
        min_position: Position,
        begin: StartScan,
    ) -> Result<(DigestScan, PartitionState)> {
        self.reader.wait_applied(self.partition, min_position, self.wait_max).await?;
        let read = |state: &PartitionState, writer: &dyn ReplicaWriter| {
            let mut scan = begin(state);
            writer.visit_rows(&mut |key, row| {
                scan.take(key, row);
                Ok(())
            })?;
            Ok((scan, state.clone()))
        };
        self.quiesced(read).await
    }
}
