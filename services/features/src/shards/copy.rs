//! Replica of one partition in a shard, and the shard that is rebuilt next to it. Entries of one
//! read are folded and written together.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::Offset;
use forebay_core::state_rows::Followed;
use forebay_index::{Following, PartitionPhase};
use forebay_reader::CopyWriter;
use forebay_shard::ShardWriter;
use forebay_snapshot::in_place;
use tracing::{debug, warn};

use super::{Keeps, Run, Shards, TakenEntry, Writing};

/// Writer of a partition's shard.
pub(super) struct Copy<K: Keeps> {
    shards: Shards<K>,
    followed: Followed,
    served: Writing<K>,
    /// The shard that is rebuilt while the served one answers.
    rebuilt: Option<Writing<K>>,
    /// Entries that are not written yet: at most those of one read of the log.
    taken: Vec<TakenEntry>,
}

impl<K: Keeps> Copy<K> {
    pub(super) fn new(
        shards: Shards<K>,
        writer: ShardWriter,
        followed: Followed,
        is_empty: bool,
    ) -> Self {
        let served = Writing { writer, is_empty, told: Arc::default() };
        shards.show(&served);
        Self { shards, followed, served, rebuilt: None, taken: Vec::new() }
    }

    fn write_taken(&mut self, state: &PartitionState) -> Result<()> {
        let inner = &*self.shards.0;
        let followed = Followed { is_served: self.rebuilt.is_none(), ..self.followed };
        let target = self.rebuilt.as_mut().unwrap_or(&mut self.served);
        let run = Run { schemas: &inner.schemas, entries: &self.taken, state, followed };
        inner.keeps.write(target, &run)?;
        self.taken.clear();
        Ok(())
    }

    fn remove(&self, writing: Writing<K>) {
        let removed = in_place(|| self.shards.0.directory.remove(writing.writer));
        if let Err(error) = removed {
            // The shard is removed when the shards are reopened.
            debug!(%error, "older copy of a partition not removed");
        }
    }
}

impl<K: Keeps> Documents for Copy<K> {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

impl<K: Keeps> CopyWriter for Copy<K> {
    fn start_rebuild(&mut self) -> Result<()> {
        let at = self.served.writer.shard().partition();
        let writer = self.shards.0.directory.create(at, self.shards.0.order)?;
        self.abandon_rebuild()?;
        self.rebuilt = Some(Writing { writer, is_empty: true, told: Arc::default() });
        Ok(())
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.taken.clear();
        if let Some(rebuilt) = self.rebuilt.take() {
            self.remove(rebuilt);
        }
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        let Some(rebuilt) = &mut self.rebuilt else { return Ok(()) };
        // The new shard is durable before the old one is removed.
        rebuilt.writer.mark_served()?;
        rebuilt.writer.shard().flush()?;
        self.shards.show(rebuilt);
        if let Some(rebuilt) = self.rebuilt.take() {
            let before = std::mem::replace(&mut self.served, rebuilt);
            self.remove(before);
        }
        Ok(())
    }

    // The tail, not the shard, decides whether a partition answers.
    fn set_phase(&mut self, _phase: PartitionPhase) {}

    fn apply(&mut self, applied: &mut Applied, state: &PartitionState) -> Result<()> {
        let is_skipped = applied.skipped.is_some();
        self.taken.push(TakenEntry {
            applied: std::mem::take(applied),
            offset: Offset(state.offset_applied.0.saturating_sub(1)),
            position: state.position,
            append_time: self.followed.append_time.unwrap_or(state.partition_time),
            partition_time: state.partition_time,
            schema_version: state.schema_version,
        });
        if !is_skipped {
            return Ok(());
        }
        // The row of a skipped record is written with the state right after the record.
        self.settle(state).inspect_err(|_| {
            *applied = self.taken.pop().map(|taken| taken.applied).unwrap_or_default();
        })
    }

    fn settle(&mut self, state: &PartitionState) -> Result<()> {
        if self.taken.is_empty() {
            return Ok(());
        }
        self.write_taken(state).inspect_err(|error| self.shards.note_failure(error))
    }

    fn note_following(&mut self, following: Following) {
        let Following { append_time, opened, copy, .. } = following;
        self.followed = Followed { append_time, opened, copy, ..self.followed };
    }
}

impl<K: Keeps> Drop for Copy<K> {
    fn drop(&mut self) {
        let shard = self.served.writer.shard();
        self.shards.0.open.write().remove(&shard.partition().partition);
        if let Err(error) = shard.flush() {
            let at = shard.partition();
            warn!(%at, %error, "shard flush failed; rebuilding the shard from the log");
        }
    }
}
