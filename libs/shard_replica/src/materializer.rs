//! The part that differs between shards: how the entries of a log become rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{Offset, Position, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::schema_set::SchemaSet;
use forebay_core::state_rows::FollowState;
use forebay_shard::{EventPosition, Shard, ShardWriter};
use forebay_tasks::block_in_place;

/// Row format of a store's shards.
pub trait Materializer: Send + Sync + Sized + 'static {
    /// State of an open shard that other tasks of the process share, in addition to the rows.
    type Shared: Default + Send + Sync;

    /// Whether the rows are the documents of the store. The fold then reads the rows, so each entry
    /// is written as soon as it is applied; and a shard can be loaded from a snapshot image. The
    /// entries of one read of the log are written together otherwise.
    const STORES_DOCUMENTS: bool = false;

    /// Returns whether a shard has the current format; a shard with another format is rebuilt from
    /// the log.
    ///
    /// # Errors
    /// As the shard.
    fn is_compatible(&self, shard: &Shard, schemas: &SchemaSet) -> Result<bool>;

    /// Writes the rows of a run of entries, and the state after it, in one step.
    ///
    /// # Errors
    /// As the shard; the shard is unchanged then.
    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()>;

    /// Drops the views of a shard that outlive a read, because the shard closes.
    fn release_views(&self, shard: &Arc<Shard>) {
        let _ = shard;
    }

    /// Drops views without a recent read; runs before each periodic flush.
    fn drop_idle_views(&self) {}
}

/// A shard and its writer.
pub struct WrittenShard<M: Materializer> {
    writer: ShardWriter,
    is_empty: bool,
    shared: Arc<M::Shared>,
}

/// Consecutive entries of a log, applied by the fold; a single one if the rows are documents.
pub struct EntryRun<'e> {
    /// Definitions of the store.
    pub schemas: &'e SchemaSet,
    /// The entries, in order.
    pub entries: &'e [BufferedEntry],
    /// State after the last entry.
    pub state: &'e PartitionState,
    /// Facts about the log after the last entry.
    pub follow_state: FollowState,
}

/// An applied entry that is not written yet.
pub struct BufferedEntry {
    /// Effects of the entry.
    pub effects: FoldEffects,
    /// Offset in the log.
    pub offset: Offset,
    /// Position after the entry.
    pub position: Position,
    /// Append time in the log of its origin.
    pub append_time: Timestamp,
    /// The partition's time after the entry.
    pub partition_time: Timestamp,
    /// Definition that the entry was written with.
    pub schema_version: SchemaVersion,
}

impl<M: Materializer> WrittenShard<M> {
    pub(crate) fn new(writer: ShardWriter, is_empty: bool) -> Self {
        Self { writer, is_empty, shared: Arc::default() }
    }

    /// Returns the shard.
    pub fn shard(&self) -> &Arc<Shard> {
        self.writer.shard()
    }

    /// Returns whether the shard has no rows yet.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns the shared state of the shard.
    pub fn shared(&self) -> &Arc<M::Shared> {
        &self.shared
    }

    pub(crate) fn writer(&self) -> &ShardWriter {
        &self.writer
    }

    pub(crate) fn writer_mut(&mut self) -> &mut ShardWriter {
        &mut self.writer
    }

    pub(crate) fn into_writer(self) -> ShardWriter {
        self.writer
    }

    /// Writes the documents of a run, which has a single entry, and the state after it.
    ///
    /// # Errors
    /// As the shard; the shard is unchanged then.
    pub fn write_documents(&mut self, run: &EntryRun<'_>) -> Result<()> {
        run.entries.iter().try_for_each(|entry| self.write(&[], &entry.effects, run))
    }

    /// Writes rows of a run of entries, and the state after it.
    ///
    /// # Errors
    /// As the shard; the shard is unchanged then.
    pub fn write_run(
        &mut self,
        run: &EntryRun<'_>,
        events: &[(EventPosition, Vec<u8>)],
        writes: Vec<(Key, Option<Vec<u8>>)>,
    ) -> Result<()> {
        let entries = run.entries;
        let clients: BTreeSet<_> = entries.iter().flat_map(|it| &it.effects.clients).collect();
        let sources: BTreeSet<_> = entries.iter().flat_map(|it| &it.effects.sources).collect();
        let effects = FoldEffects {
            writes,
            clients: clients.into_iter().copied().collect(),
            sources: sources.into_iter().copied().collect(),
            // A skipped record is always the last one of its run.
            skipped: entries.last().and_then(|last| last.effects.skipped.clone()),
            ..FoldEffects::default()
        };
        self.write(events, &effects, run)
    }

    /// Writes to the shard. A write stall of the engine blocks no thread that others need.
    fn write(
        &mut self,
        events: &[(EventPosition, Vec<u8>)],
        effects: &FoldEffects,
        run: &EntryRun<'_>,
    ) -> Result<()> {
        let EntryRun { state, follow_state, .. } = *run;
        if !self.writer.try_apply_events(events, effects, state, follow_state)? {
            block_in_place(|| self.writer.apply_events(events, effects, state, follow_state))?;
        }
        self.is_empty = false;
        Ok(())
    }
}
