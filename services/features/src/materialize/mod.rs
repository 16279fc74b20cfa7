//! Materialization: writes the values of a view as fields of documents, which embedded readers
//! read.
//!
//! The fold reports the groups that changed, by events or because time has passed. At the view's
//! interval the materializer appends all values of these groups to the logs of the store. Each
//! document carries its position and is applied only if the position is newer than the store's
//! (`tools/docs/src/semantics.md`, section 9). A process that takes over or restarts may therefore
//! materialize a group again without harm.

mod document;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::{ErrorCode, Result};
use forebay_replica::{ReadOptions, StoreReplica};
use forebay_tasks::block_in_place;
use tracing::{debug, warn};

use self::document::{DocumentBuilder, GroupDocument};
use self::target::TargetLogs;
use crate::dirty_groups::{DirtyGroups, GroupChange, MaterializedGroup};
use crate::fold::ViewShards;
use crate::parts::FeatureParts;
use crate::view_stats::Counters;

/// Number of groups that are materialized together.
const BATCH_GROUPS: usize = 500;
/// Number of batches of one partition before the next partition's turn.
const BATCHES_MAX: usize = 64;

/// Materializes the values of a view until the task is dropped.
pub(crate) async fn materialize(
    parts: FeatureParts,
    schema: Arc<SchemaAt>,
    follower: StoreReplica,
    shards: ViewShards,
    counters: Arc<Counters>,
) {
    let definition = &schema.definition;
    let Some(materialization) = definition.view().and_then(|view| view.materialization.clone())
    else {
        return;
    };
    let interval = Duration::from_micros(materialization.interval_us.unsigned_abs());
    let logs = TargetLogs::new(&parts, materialization.store);
    let cursors = BTreeMap::new();
    let mut materializer = ViewMaterializer { parts, follower, shards, counters, logs, cursors };
    loop {
        tokio::time::sleep(interval).await;
        let Err(error) = materializer.tick().await else { continue };
        let view = &definition.name;
        match error.code() {
            ErrorCode::Unavailable => debug!(%view, %error, "materialization restarted"),
            _ => warn!(%view, %error, "materialization failed; trying again"),
        }
        materializer.logs.forget();
    }
}

struct ViewMaterializer {
    parts: FeatureParts,
    follower: StoreReplica,
    shards: ViewShards,
    counters: Arc<Counters>,
    logs: TargetLogs,
    /// For each partition, the last group read from the shard's rows.
    cursors: BTreeMap<PartitionId, Vec<u8>>,
}

impl ViewMaterializer {
    /// Materializes all changed groups.
    async fn tick(&mut self) -> Result<()> {
        for (partition, dirty) in self.shards.replicas().shared() {
            // A partition that is being rebuilt is not complete yet.
            if self.follower.await_readable(&ReadOptions::local(), &[partition]).await.is_err() {
                continue;
            }
            for _ in 0..BATCHES_MAX {
                let groups = dirty.take(BATCH_GROUPS);
                if !groups.is_empty() {
                    self.materialize(partition, &dirty, groups).await?;
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

    async fn materialize(
        &mut self,
        partition: PartitionId,
        dirty: &DirtyGroups,
        groups: Vec<(Vec<u8>, GroupChange)>,
    ) -> Result<()> {
        let now = self.parts.context.clock.now();
        let names = groups.iter().map(|(group, _)| group.as_slice());
        let materialized = block_in_place(|| self.build_documents(partition, names, now));
        // After a failure, the shard's rows still list these groups.
        let materialized = materialized.inspect_err(|_| dirty.note_more())?;
        let (documents, moments): (Vec<_>, Vec<_>) = materialized
            .into_iter()
            .map(|GroupDocument { document, next }| (document, next))
            .unzip();
        let documents = documents.into_iter().flatten().collect();
        self.logs.append(documents).await.inspect_err(|_| dirty.note_more())?;
        let now = self.parts.context.clock.now();
        let materialized = groups.into_iter().zip(moments).map(|((group, changed), next)| {
            self.counters.note_materialized(now.micros_since(changed.time));
            MaterializedGroup { group, position: changed.position, next }
        });
        dirty.note_materialized(materialized.collect());
        Ok(())
    }

    fn build_documents<'g>(
        &self,
        partition: PartitionId,
        groups: impl Iterator<Item = &'g [u8]>,
        now: Timestamp,
    ) -> Result<Vec<GroupDocument>> {
        let plan = self.shards.plan();
        let shard = self.shards.replicas().shard(partition)?;
        let view = shard.view()?;
        let (at, position) = (view.partition_time(), view.position());
        let builder = DocumentBuilder { plan, position, at, now };
        groups.map(|group| builder.build(group, &self.shards.tiles(&view, group)?)).collect()
    }
}
