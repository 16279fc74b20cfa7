//! Emission: writes the values of a view as fields of documents, which embedded readers read.
//!
//! The fold reports the groups that changed, by events or because time has passed. At the view's
//! cadence the emitter appends all values of these groups to the logs of the store. Each document
//! carries its position and is applied only if the position is newer than the store's
//! (`tools/docs/src/semantics.md`, section 9). A process that takes over or restarts may therefore
//! emit a group again without harm.

mod document;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::{ErrorCode, Result};
use forebay_replica::{Read, StoreReplica};
use forebay_tasks::block_in_place;
use tracing::{debug, warn};

use self::document::{DocumentBuilder, GroupEmission};
use self::target::EmitLogs;
use crate::counts::Counters;
use crate::dirty_groups::{DirtyGroups, EmittedGroup, GroupChange};
use crate::fold::ViewShards;
use crate::parts::FeatureParts;

/// Number of groups that are emitted together.
const BATCH_GROUPS: usize = 500;
/// Number of batches of one partition before the next partition's turn.
const BATCHES_MAX: usize = 64;

/// Emits the values of a view until the task is dropped.
pub(crate) async fn emit(
    parts: FeatureParts,
    schema: Arc<SchemaAt>,
    follower: StoreReplica,
    shards: ViewShards,
    counters: Arc<Counters>,
) {
    let definition = &schema.definition;
    let Some(emission) = definition.view().and_then(|view| view.emission.clone()) else { return };
    let cadence = Duration::from_micros(emission.cadence_us.unsigned_abs());
    let logs = EmitLogs::new(&parts, emission.store);
    let cursors = BTreeMap::new();
    let mut emitter = Emitter { parts, follower, shards, counters, logs, cursors };
    loop {
        tokio::time::sleep(cadence).await;
        let Err(error) = emitter.tick().await else { continue };
        let view = &definition.name;
        match error.code() {
            ErrorCode::Unavailable => debug!(%view, %error, "materialization restarted"),
            _ => warn!(%view, %error, "materialization failed; trying again"),
        }
        emitter.logs.forget();
    }
}

struct Emitter {
    parts: FeatureParts,
    follower: StoreReplica,
    shards: ViewShards,
    counters: Arc<Counters>,
    logs: EmitLogs,
    /// For each partition, the last group read from the shard's rows.
    cursors: BTreeMap<PartitionId, Vec<u8>>,
}

impl Emitter {
    /// Emits all changed groups.
    async fn tick(&mut self) -> Result<()> {
        for (partition, dirty) in self.shards.replicas().shared() {
            // A partition that is being rebuilt is not complete yet.
            if self.follower.admit(&Read::local(), &[partition]).await.is_err() {
                continue;
            }
            for _ in 0..BATCHES_MAX {
                let taken = dirty.take(BATCH_GROUPS);
                if !taken.is_empty() {
                    self.emit(partition, &dirty, taken).await?;
                } else if !self.refill(partition, &dirty)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads more changed groups from the shard's rows; returns whether there may be some.
    fn refill(&mut self, partition: PartitionId, dirty: &DirtyGroups) -> Result<bool> {
        if !dirty.take_more() {
            return Ok(false);
        }
        let cursor = self.cursors.entry(partition).or_default();
        let found = block_in_place(|| self.shards.changed_groups(partition, cursor, BATCH_GROUPS));
        let found = found.inspect_err(|_| dirty.note_more())?;
        for (group, changed) in &found {
            dirty.note(group, *changed);
        }
        let last = found.into_iter().nth(BATCH_GROUPS - 1);
        match last {
            Some((group, _)) => {
                *cursor = group;
                dirty.note_more();
            }
            None => cursor.clear(),
        }
        Ok(true)
    }

    async fn emit(
        &mut self,
        partition: PartitionId,
        dirty: &DirtyGroups,
        groups: Vec<(Vec<u8>, GroupChange)>,
    ) -> Result<()> {
        let now = self.parts.context.clock.now();
        let names = groups.iter().map(|(group, _)| group.as_slice());
        let emitted = block_in_place(|| self.emitted(partition, names, now));
        // After a failure, the shard's rows still list these groups.
        let emitted = emitted.inspect_err(|_| dirty.note_more())?;
        let (documents, moments): (Vec<_>, Vec<_>) =
            emitted.into_iter().map(|GroupEmission { document, next }| (document, next)).unzip();
        let documents = documents.into_iter().flatten().collect();
        self.logs.append(documents).await.inspect_err(|_| dirty.note_more())?;
        let now = self.parts.context.clock.now();
        let emitted = groups.into_iter().zip(moments).map(|((group, changed), next)| {
            self.counters.emitted(now.micros_since(changed.since));
            EmittedGroup { group, position: changed.position, next }
        });
        dirty.note_emitted(emitted.collect());
        Ok(())
    }

    fn emitted<'g>(
        &self,
        partition: PartitionId,
        groups: impl Iterator<Item = &'g [u8]>,
        now: Timestamp,
    ) -> Result<Vec<GroupEmission>> {
        let plan = self.shards.plan();
        let shard = self.shards.replicas().shard(partition)?;
        let view = shard.view()?;
        let (at, position) = (view.partition_time(), view.position());
        let making = DocumentBuilder { plan, position, at, now };
        groups.map(|group| making.of(group, &self.shards.tiles(&view, group)?)).collect()
    }
}
