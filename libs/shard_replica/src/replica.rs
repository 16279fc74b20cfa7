//! The replica of one partition: the shard that readers use, and the shard that is rebuilt next to
//! it.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{Offset, PartitionRef, StoreId};
use forebay_core::key::Key;
use forebay_core::replica_state::{LogCursor, Phase};
use forebay_core::state_rows::FollowState;
use forebay_core::{Error, ErrorCode, Result};
use forebay_replica::ReplicaWriter;
use forebay_shard::{BulkLoad, ShardWriter};
use forebay_snapshot::{Image, ImageState, PointInTimePartition, WRITES_AT_ONCE};
use forebay_tasks::block_in_place;
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::materializer::{BufferedEntry, EntryRun, Materializer, WrittenShard};
use crate::open_shards::OpenShards;

/// The replica of one partition in a shard.
pub(crate) struct ShardReplica<M: Materializer> {
    shards: Arc<OpenShards<M>>,
    at: PartitionRef,
    follow_state: FollowState,
    served_shard: WrittenShard<M>,
    /// A bulk load that the rebuilt shard begins with, while it is incomplete.
    loading: Option<BulkLoad>,
    /// The shard that is rebuilt while the served one answers.
    rebuilt_shard: Option<WrittenShard<M>>,
    /// Shards whose readers have not finished yet.
    retired_writers: Vec<ShardWriter>,
    /// Entries that are not written yet: at most those of one read of the log.
    entries: Vec<BufferedEntry>,
    /// Damage or a gap found in the written shard, since it was created.
    damage: Mutex<Option<Error>>,
}

impl<M: Materializer> ShardReplica<M> {
    /// Creates the replica with the shard that readers use from now on.
    pub(crate) fn open(
        shards: Arc<OpenShards<M>>,
        served_shard: WrittenShard<M>,
        follow_state: FollowState,
    ) -> Self {
        shards.publish(&served_shard);
        Self {
            at: served_shard.shard().partition(),
            shards,
            follow_state,
            served_shard,
            loading: None,
            rebuilt_shard: None,
            retired_writers: Vec::new(),
            entries: Vec::new(),
            damage: Mutex::default(),
        }
    }

    /// Writes the buffered entries to the shard that follows the log. The entries stay buffered.
    fn write_entries(&mut self, state: &PartitionState) -> Result<()> {
        let follow_state = FollowState { is_served: !self.is_beside(), ..self.follow_state };
        self.end_load()?;
        let target = self.rebuilt_shard.as_mut().unwrap_or(&mut self.served_shard);
        let schemas = &self.shards.schemas;
        let run = EntryRun { schemas, entries: &self.entries, state, follow_state };
        self.shards.materializer.write(target, &run)
    }

    /// Returns whether a new shard is being built while an older one is served.
    fn is_beside(&self) -> bool {
        self.loading.is_some() || self.rebuilt_shard.is_some()
    }

    /// Discards the shard that is being built, and the entries that are not written yet.
    fn clear(&mut self) {
        *self.damage.lock() = None;
        self.entries.clear();
        if let Some(loading) = self.loading.take() {
            block_in_place(|| give_up(self.at, loading));
        }
        self.retired_writers.extend(self.rebuilt_shard.take().map(WrittenShard::into_writer));
        self.sweep();
    }

    /// Converts a complete bulk load into a shard, if that was not done yet.
    fn end_load(&mut self) -> Result<()> {
        if let Some(loading) = self.loading.take() {
            let result = block_in_place(|| loading.end());
            let writer = result.inspect_err(|error| self.note_unfinished(error))?;
            self.rebuilt_shard = Some(WrittenShard::new(writer, false));
        }
        Ok(())
    }

    /// Records that the initial content of a shard is incomplete, so that it accepts no entry.
    fn note_unfinished(&self, error: &Error) {
        self.shards.note_failure(error);
        *self.damage.lock() = Some(error.clone());
    }

    /// Removes shards that no thread reads any more.
    fn sweep(&mut self) {
        let writers = std::mem::take(&mut self.retired_writers).into_iter();
        let (read, free): (Vec<_>, Vec<_>) = writers.partition(ShardWriter::has_readers);
        self.retired_writers = read;
        for writer in free {
            match block_in_place(|| self.shards.folder.directory.remove(writer)) {
                Ok(still_read) => self.retired_writers.extend(still_read),
                // The shard is removed when the shards are reopened.
                Err(error) => debug!(at = %self.at, %error, "replaced shard not removed"),
            }
        }
    }
}

/// Loads all rows of an image.
fn load_all(loading: &mut BulkLoad, rows: &PointInTimePartition) -> Result<()> {
    let mut writes = Vec::with_capacity(WRITES_AT_ONCE);
    rows.visit_rows(|key, row| {
        writes.push((Key::from_identity_bytes(key), Some(row.to_vec())));
        match writes.len() < WRITES_AT_ONCE {
            true => Ok(()),
            false => loading.load(&std::mem::take(&mut writes)),
        }
    })?;
    loading.load(&writes)
}

/// Discards a bulk load.
fn give_up(at: PartitionRef, loading: BulkLoad) {
    if let Err(error) = loading.give_up() {
        debug!(%at, %error, "abandoned bulk load not removed");
    }
}

impl<M: Materializer> RowLookup for ShardReplica<M> {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        if !M::STORES_DOCUMENTS {
            return Ok(None);
        }
        let row = match (&self.loading, &self.rebuilt_shard) {
            (Some(loading), _) => loading.row(key),
            (None, Some(rebuilt_shard)) => rebuilt_shard.writer().row(key),
            (None, None) => self.served_shard.writer().row(key),
        };
        row.inspect_err(|error| {
            if error.code() == ErrorCode::Corrupt {
                *self.damage.lock() = Some(error.clone());
            }
        })
    }
}

impl<M: Materializer> ReplicaWriter for ShardReplica<M> {
    fn start_rebuild(&mut self) -> Result<()> {
        let writer = self.shards.folder.create(self.at)?;
        self.clear();
        self.rebuilt_shard = Some(WrittenShard::new(writer, true));
        Ok(())
    }

    fn start_rebuild_from_image(
        &mut self,
        image: &Image,
        state: &PartitionState,
        _beside: Option<StoreId>,
    ) -> Result<()> {
        if !M::STORES_DOCUMENTS {
            return Err(Error::unsupported("this replica cannot start from a snapshot image"));
        }
        let schemas = &self.shards.schemas;
        let definitions: Vec<_> =
            schemas.all().map(|schema| (*schema.definition).clone()).collect();
        let state = ImageState::unopened(state.clone(), None);
        // The image is mapped read-only.
        let rows = PointInTimePartition::of_image(image, state, &definitions, u64::MAX)?;
        let mut loading = self.shards.folder.begin_load(self.at)?;
        let result = load_all(&mut loading, &rows);
        if let Err(error) = result.inspect_err(|error| self.shards.note_failure(error)) {
            give_up(self.at, loading);
            return Err(error);
        }
        self.clear();
        self.loading = Some(loading);
        Ok(())
    }

    fn apply_delta(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        _state: &PartitionState,
    ) -> Result<()> {
        let Some(loading) = &mut self.loading else {
            return Err(Error::internal(
                "a replica that already serves cannot take documents of a snapshot",
            ));
        };
        // The load has no head yet, so a crash leaves no shard behind.
        let result = loading.load(&writes);
        result.inspect_err(|error| self.note_unfinished(error))
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.clear();
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        self.end_load()?;
        let Some(rebuilt_shard) = &mut self.rebuilt_shard else { return Ok(()) };
        // The new shard is durable before the old one is removed.
        rebuilt_shard.writer_mut().mark_served()?;
        rebuilt_shard.shard().flush()?;
        self.shards.publish(rebuilt_shard);
        if let Some(rebuilt_shard) = self.rebuilt_shard.take() {
            let replaced = std::mem::replace(&mut self.served_shard, rebuilt_shard);
            self.retired_writers.push(replaced.into_writer());
        }
        self.sweep();
        Ok(())
    }

    // The follower of the log, not the shard, decides whether a partition answers.
    fn set_phase(&mut self, _phase: Phase) {}

    fn apply(&mut self, effects: &mut FoldEffects, state: &PartitionState) -> Result<()> {
        // The row of a skipped record is written with the state right after the record.
        let is_written_now = M::STORES_DOCUMENTS || effects.skipped.is_some();
        self.entries.push(BufferedEntry {
            effects: std::mem::take(effects),
            offset: Offset(state.offset_applied.0.saturating_sub(1)),
            position: state.position,
            append_time: self.follow_state.append_time.unwrap_or(state.partition_time),
            partition_time: state.partition_time,
            schema_version: state.schema_version,
        });
        if is_written_now {
            self.write_buffered(state).inspect_err(|_| {
                *effects = self.entries.pop().map(|entry| entry.effects).unwrap_or_default();
            })?;
        }
        if !self.retired_writers.is_empty() {
            self.sweep();
        }
        Ok(())
    }

    fn write_buffered(&mut self, state: &PartitionState) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let result = self.write_entries(state);
        result.inspect_err(|error| self.shards.note_failure(error))?;
        self.entries.clear();
        Ok(())
    }

    fn check_integrity(&self) -> Result<()> {
        self.damage.lock().clone().map_or(Ok(()), Err)
    }

    fn note_cursor(&mut self, cursor: LogCursor) {
        let LogCursor { append_time, opened, copy, .. } = cursor;
        self.follow_state = FollowState { append_time, opened, copy, ..self.follow_state };
    }
}

impl<M: Materializer> Drop for ShardReplica<M> {
    fn drop(&mut self) {
        self.shards.withdraw(self.at.partition);
        // A shard can be reopened only when no thread reads it.
        self.shards.materializer.release_views(self.served_shard.shard());
        let writers = self.retired_writers.iter();
        writers.for_each(|writer| self.shards.materializer.release_views(writer.shard()));
        if let Err(error) = self.served_shard.shard().flush() {
            warn!(at = %self.at, %error, "shard flush failed; rebuilding the shard from the log");
        }
    }
}
