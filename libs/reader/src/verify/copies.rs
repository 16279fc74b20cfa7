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
use forebay_index::PartitionWriter;
use forebay_snapshot::{FrozenShard, PastPartition, in_place};
use tonic::transport::Channel;

use super::{BeginPass, Pass, VerifiedCopy};
use crate::checkpoint::CheckpointDirectory;
use crate::closing::closed;
use crate::reader::Reader;

/// A shard that a replicator has frozen.
pub struct ShardCopy {
    shard: FrozenShard,
    order: KeyOrder,
    state: PartitionState,
}

impl ShardCopy {
    /// Freezes a replicator's shard of a partition, of the store version with this storage id.
    ///
    /// # Errors
    /// Returns the errors of [`FrozenShard::freeze`] and [`FrozenShard::state`].
    pub async fn freeze(
        replicator: Channel,
        definition: &Definition,
        kept_as: StoreId,
        partition: PartitionId,
    ) -> Result<Self> {
        let (name, order) = (&definition.name, KeyOrder::of(definition));
        let mut shard = FrozenShard::freeze(replicator, name, Some(kept_as), partition, 0).await?;
        let state = shard.state().await?.state;
        Ok(Self { shard, order, state })
    }
}

#[async_trait]
impl VerifiedCopy for ShardCopy {
    fn moves(&self) -> bool {
        false
    }

    async fn state(&mut self) -> Result<PartitionState> {
        Ok(self.state.clone())
    }

    async fn read(&mut self, _: Position, begin: BeginPass) -> Result<(Pass, PartitionState)> {
        let (mut pass, order) = (begin(&self.state), self.order);
        let mut last = Vec::new();
        let take = |key: &[u8], row: &[u8]| {
            // Rows arrive in key order; after an interrupted stream some arrive again.
            if key.first() != Some(&DOCUMENTS) || key <= &last[..] {
                return Ok(());
            }
            last.clear();
            last.extend_from_slice(key);
            pass.take(order.identity(key)?.as_bytes(), row);
            Ok(())
        };
        self.shard.read(take).await?;
        Ok((pass, self.state.clone()))
    }

    async fn end(self: Box<Self>) {
        self.shard.end().await;
    }
}

/// A snapshot, or the checkpoint of a reader: the past state of a partition.
pub struct PastCopy(PastPartition);

impl PastCopy {
    /// Returns the copy of a snapshot.
    pub fn of_snapshot(past: PastPartition) -> Self {
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
        PastPartition::of_image(&image, head, definitions, u64::MAX).map(Self)
    }
}

#[async_trait]
impl VerifiedCopy for PastCopy {
    fn moves(&self) -> bool {
        false
    }

    async fn state(&mut self) -> Result<PartitionState> {
        Ok(self.0.state().clone())
    }

    async fn read(&mut self, _: Position, begin: BeginPass) -> Result<(Pass, PartitionState)> {
        let mut pass = begin(self.0.state());
        in_place(|| {
            self.0.visit_rows(|key, row| {
                pass.take(key, row);
                Ok(())
            })
        })?;
        Ok((pass, self.0.state().clone()))
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

    async fn at_rest<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PartitionState, &PartitionWriter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.reader.shared();
        let at_rest = &shared.partition(self.partition)?.at_rest;
        tokio::select! {
            biased;
            () = shared.closing.closed() => Err(closed()),
            done = at_rest.done(work) => done,
        }
    }
}

#[async_trait]
impl VerifiedCopy for ReaderCopy {
    fn moves(&self) -> bool {
        true
    }

    async fn state(&mut self) -> Result<PartitionState> {
        self.at_rest(|state, _| Ok(state.clone())).await
    }

    async fn read(&mut self, passed: Position, begin: BeginPass) -> Result<(Pass, PartitionState)> {
        self.reader.wait_applied(self.partition, passed, self.wait_max).await?;
        let read = |state: &PartitionState, writer: &PartitionWriter| {
            let mut pass = begin(state);
            writer.visit_rows(|key, row| {
                pass.take(key, row);
                Ok(())
            })?;
            Ok((pass, state.clone()))
        };
        self.at_rest(read).await
    }
}
