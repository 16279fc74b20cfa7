//! Emission: writes the values of a view as fields of documents, which embedded readers read.
//!
//! The fold reports the groups that changed, by events or because time has passed. At the view's
//! cadence the emitter appends all values of these groups to the logs of the store. Each document
//! carries its position and is applied only if the position is newer than the store's
//! (`tools/docs/src/semantics.md`, section 9). A process that takes over or restarts may therefore
//! emit a group again without harm.

mod document;
mod pending;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::{ErrorCode, Result};
use forebay_reader::{Read, StoreFollower};
use forebay_snapshot::in_place;
use tracing::{debug, warn};

pub(crate) use self::pending::{Changed, Pending, Settled};

use self::document::{Emitted, EmittedDocument};
use self::target::EmitLogs;
use crate::counts::Counters;
use crate::fold::ViewShards;
use crate::parts::FeatureParts;

/// Number of groups that are emitted together.
const TOGETHER: usize = 500;
/// Number of batches of one partition before the next partition's turn.
const TURNS_MAX: usize = 64;

/// Emits the values of a view until the task is dropped.
pub(crate) async fn emit(
    parts: FeatureParts,
    schema: Arc<SchemaAt>,
    follower: StoreFollower,
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
    follower: StoreFollower,
    shards: ViewShards,
    counters: Arc<Counters>,
    logs: EmitLogs,
    /// For each partition, the last group read from the shard's rows.
    cursors: BTreeMap<PartitionId, Vec<u8>>,
}

impl Emitter {
    /// Emits all changed groups.
    async fn tick(&mut self) -> Result<()> {
        for (partition, pending) in self.shards.told() {
            // A partition that is being rebuilt is not complete yet.
            if self.follower.admit(&Read::local(), &[partition]).await.is_err() {
                continue;
            }
            for _ in 0..TURNS_MAX {
                let taken = pending.take(TOGETHER);
                if !taken.is_empty() {
                    self.emit(partition, &pending, taken).await?;
                } else if !self.refill(partition, &pending)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads more changed groups from the shard's rows; returns whether there may be some.
    fn refill(&mut self, partition: PartitionId, pending: &Pending) -> Result<bool> {
        if !pending.take_more() {
            return Ok(false);
        }
        let cursor = self.cursors.entry(partition).or_default();
        let told = in_place(|| self.shards.changed_groups(partition, cursor, TOGETHER));
        let told = told.inspect_err(|_| pending.note_more())?;
        for (group, changed) in &told {
            pending.note(group, *changed);
        }
        let last = told.into_iter().nth(TOGETHER - 1);
        match last {
            Some((group, _)) => {
                *cursor = group;
                pending.note_more();
            }
            None => cursor.clear(),
        }
        Ok(true)
    }

    async fn emit(
        &mut self,
        partition: PartitionId,
        pending: &Pending,
        groups: Vec<(Vec<u8>, Changed)>,
    ) -> Result<()> {
        let now = self.parts.clock.now();
        let names = groups.iter().map(|(group, _)| group.as_slice());
        let emitted = in_place(|| self.emitted(partition, names, now));
        // After a failure, the shard's rows still list these groups.
        let emitted = emitted.inspect_err(|_| pending.note_more())?;
        let (documents, moments): (Vec<_>, Vec<_>) =
            emitted.into_iter().map(|Emitted { document, next }| (document, next)).unzip();
        let documents = documents.into_iter().flatten().collect();
        self.logs.append(documents).await.inspect_err(|_| pending.note_more())?;
        let now = self.parts.clock.now();
        let settled = groups.into_iter().zip(moments).map(|((group, changed), next)| {
            self.counters.emitted(now.micros_since(changed.since));
            Settled { group, position: changed.position, next }
        });
        pending.settle(settled.collect());
        Ok(())
    }

    fn emitted<'g>(
        &self,
        partition: PartitionId,
        groups: impl Iterator<Item = &'g [u8]>,
        now: Timestamp,
    ) -> Result<Vec<Emitted>> {
        let plan = self.shards.plan();
        let shard = self.shards.shard(partition)?;
        let view = shard.view()?;
        let (at, position) = (view.partition_time(), view.position());
        let making = EmittedDocument { plan, position, at, now };
        groups.map(|group| making.of(group, &self.shards.tiles(&view, group)?)).collect()
    }
}
