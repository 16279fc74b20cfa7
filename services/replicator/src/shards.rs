//! The shards of one store in this process, for the tails that follow its logs and for readers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::catalog::SchemaAt;
use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::outcome::OutcomeTable;
use forebay_core::state_rows::Followed;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{
    Following, Held, Image, Index, PartitionPhase, PartitionWriter, Resumed, SchemaSet,
};
use forebay_reader::{CopyWriter, OpenedCopy, Storage};
use forebay_shard::{Shard, ShardDirectory, ShardLoad, ShardWriter};
use forebay_snapshot::{WRITES_AT_ONCE, in_place};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::ordered::HeldViews;

/// The shards of one store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StoreShards(Arc<Inner>);

struct Inner {
    schemas: SchemaSet,
    order: KeyOrder,
    partitions: PartitionCount,
    directory: ShardDirectory,
    /// The open shards, as readers see them.
    open: RwLock<BTreeMap<PartitionId, Arc<Shard>>>,
    /// The views that scans resume.
    views: HeldViews,
    /// Set once a disk has refused a write: no shard accepts another write before it is reopened.
    failed: AtomicBool,
    /// Notified of the failure.
    reopen: Arc<Notify>,
}

impl StoreShards {
    /// Creates the set of a store's shards in a folder, with these definitions; no shard is open
    /// yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition.
    pub fn new(
        versions: Vec<Arc<SchemaAt>>,
        directory: ShardDirectory,
        reopen: Arc<Notify>,
    ) -> Result<Self> {
        let schemas = SchemaSet::new(versions)?;
        let definition = &schemas.newest().definition;
        let (order, partitions) = (KeyOrder::of(definition), definition.partitions);
        let (open, views) = (RwLock::default(), HeldViews::default());
        let failed = AtomicBool::new(false);
        let inner = Inner { schemas, order, partitions, directory, open, views, failed, reopen };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the shard of a partition, if it is open here.
    pub fn shard(&self, partition: PartitionId) -> Option<Arc<Shard>> {
        self.0.open.read().get(&partition).cloned()
    }

    /// Returns the views that scans resume.
    pub fn views(&self) -> &HeldViews {
        &self.0.views
    }

    /// Flushes all shards; each shard waits only for its own disk writes.
    pub fn flush(&self) {
        let open: Vec<_> = self.0.open.read().values().cloned().collect();
        for shard in open {
            if let Err(error) = shard.flush() {
                warn!(at = %shard.partition(), %error, "shard flush failed");
                self.note_failure(&error);
            }
        }
    }

    /// Returns whether a disk has refused a write. The shards must then be reopened: the data on
    /// disk is consistent, and the rest is in the log.
    pub fn have_failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    fn note_failure(&self, error: &Error) {
        if error.code() == ErrorCode::Unavailable {
            self.0.failed.store(true, Ordering::Release);
            self.0.reopen.notify_one();
        }
    }

    /// Forgets the records that a partition skipped up to this offset, whose dead letters are
    /// durable.
    pub fn settle_skipped(&self, partition: PartitionId, until: Offset) {
        let Some(shard) = self.shard(partition) else { return };
        if let Err(error) = shard.settle_skipped(until) {
            // The replica reports the records again, and the copier finds them copied.
            debug!(at = %shard.partition(), %error, "dead letters not recorded");
        }
    }

    fn show(&self, shard: &Arc<Shard>) {
        self.0.open.write().insert(shard.partition().partition, Arc::clone(shard));
    }
}

impl Storage for StoreShards {
    fn schemas(&self) -> &SchemaSet {
        &self.0.schemas
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedCopy> {
        let Inner { directory, partitions, order, .. } = &*self.0;
        let (writer, resumed) = match directory.resume(at, *partitions, *order)? {
            Some((writer, resumed)) => (writer, Some(resumed)),
            None => (directory.create(at, *order)?, None),
        };
        self.show(writer.shard());
        let mut followed = Followed { copy: 1, ..Followed::default() };
        let (mut outcomes, mut skipped) = (OutcomeTable::default(), BTreeMap::new());
        let resumed = resumed.map(|resumed| {
            (followed, outcomes, skipped) = (resumed.followed, resumed.outcomes, resumed.skipped);
            let following = Following {
                log_id: resumed.state.log_id,
                append_time: followed.append_time,
                clock_error_us: None,
                opened: followed.opened,
                drop_all_count: resumed.state.drop_all_count,
                copy: followed.copy,
            };
            Resumed { state: resumed.state, following, phase: PartitionPhase::Serving }
        });
        let writer = Copy {
            shards: self.clone(),
            at,
            followed,
            served: writer,
            loading: None,
            rebuilt: None,
            retired: Vec::new(),
            damage: Mutex::default(),
        };
        Ok(OpenedCopy { writer: Box::new(writer), resumed, outcomes, skipped })
    }

    fn held(&self, partition: PartitionId) -> Held {
        let Some(shard) = self.shard(partition) else { return Held::default() };
        let (documents, row_bytes) = shard.estimate();
        Held { documents, row_bytes, ..Held::default() }
    }
}

/// The replica of one partition.
struct Copy {
    shards: StoreShards,
    at: PartitionRef,
    followed: Followed,
    served: ShardWriter,
    /// A bulk load that the rebuilt shard begins with, while it is incomplete.
    loading: Option<ShardLoad>,
    /// The shard that is rebuilt while the served one answers.
    rebuilt: Option<ShardWriter>,
    /// Shards whose readers have not finished yet.
    retired: Vec<ShardWriter>,
    /// Damage or a gap found in the written shard, since it was created.
    damage: Mutex<Option<Error>>,
}

impl Copy {
    /// Writes to the shard that follows the log. A write stall of the engine blocks no thread that
    /// others need.
    fn write(
        &mut self,
        applied: &Applied,
        state: &PartitionState,
        followed: Followed,
    ) -> Result<()> {
        let target = self.rebuilt.as_mut().unwrap_or(&mut self.served);
        match target.try_apply(applied, state, followed)? {
            true => Ok(()),
            false => in_place(|| target.apply(applied, state, followed)),
        }
    }

    /// Returns whether a new shard is being built while an older one is served.
    fn is_beside(&self) -> bool {
        self.loading.is_some() || self.rebuilt.is_some()
    }

    /// Discards the shard that is being built.
    fn clear(&mut self) {
        *self.damage.lock() = None;
        if let Some(loading) = self.loading.take() {
            in_place(|| give_up(self.at, loading));
        }
        self.retired.extend(self.rebuilt.take());
        self.sweep();
    }

    /// Converts a complete bulk load into a shard, if that was not done yet.
    fn end_load(&mut self) -> Result<()> {
        if let Some(loading) = self.loading.take() {
            let ended = in_place(|| loading.end());
            self.rebuilt = Some(ended.inspect_err(|error| self.note_unfinished(error))?);
        }
        Ok(())
    }

    /// Records that the initial content of a shard is incomplete, so that it accepts no entry.
    fn note_unfinished(&self, error: &Error) {
        self.shards.note_failure(error);
        *self.damage.lock() = Some(error.clone());
    }

    /// Removes shards that nobody reads any more.
    fn sweep(&mut self) {
        let retired = std::mem::take(&mut self.retired).into_iter();
        let (read, free): (Vec<_>, Vec<_>) = retired.partition(ShardWriter::is_read);
        self.retired = read;
        for writer in free {
            match in_place(|| self.shards.0.directory.remove(writer)) {
                Ok(still_read) => self.retired.extend(still_read),
                // The shard is removed when the shards are reopened.
                Err(error) => debug!(at = %self.at, %error, "older copy not removed"),
            }
        }
    }
}

/// Loads all rows of an index.
fn load_all(loading: &mut ShardLoad, rows: &PartitionWriter) -> Result<()> {
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
fn give_up(at: PartitionRef, loading: ShardLoad) {
    if let Err(error) = loading.give_up() {
        debug!(%at, %error, "abandoned copy not removed");
    }
}

impl Documents for Copy {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let row = match (&self.loading, &self.rebuilt) {
            (Some(loading), _) => loading.row(key),
            (None, Some(rebuilt)) => rebuilt.row(key),
            (None, None) => self.served.row(key),
        };
        row.inspect_err(|error| {
            if error.code() == ErrorCode::Corrupt {
                *self.damage.lock() = Some(error.clone());
            }
        })
    }
}

impl CopyWriter for Copy {
    fn start_rebuild(&mut self) -> Result<()> {
        let Inner { directory, order, .. } = &*self.shards.0;
        let fresh = directory.create(self.at, *order)?;
        self.clear();
        self.rebuilt = Some(fresh);
        Ok(())
    }

    fn start_rebuild_of(
        &mut self,
        image: &Image,
        state: &PartitionState,
        _beside: Option<StoreId>,
    ) -> Result<()> {
        let Inner { directory, order, schemas, .. } = &*self.shards.0;
        let index = Index::new(schemas.all().cloned(), [self.at.partition], 0)?;
        let mut rows = index.writer(self.at.partition)?;
        rows.start_rebuild_of(image, state)?;
        let mut loading = directory.begin_load(self.at, *order)?;
        let loaded = load_all(&mut loading, &rows);
        if let Err(error) = loaded.inspect_err(|error| self.shards.note_failure(error)) {
            give_up(self.at, loading);
            return Err(error);
        }
        self.clear();
        self.loading = Some(loading);
        Ok(())
    }

    fn lay_over(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        _state: &PartitionState,
    ) -> Result<()> {
        let Some(loading) = &mut self.loading else {
            return Err(Error::internal(
                "a copy that already serves cannot take documents of a snapshot",
            ));
        };
        // The load has no head yet, so a crash leaves no shard behind.
        let loaded = loading.load(&writes);
        loaded.inspect_err(|error| self.note_unfinished(error))
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.clear();
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        self.end_load()?;
        let Some(rebuilt) = &mut self.rebuilt else { return Ok(()) };
        // The new shard is durable before the old one is removed.
        rebuilt.mark_served()?;
        rebuilt.shard().flush()?;
        self.shards.show(rebuilt.shard());
        let rebuilt =
            self.rebuilt.take().map(|rebuilt| std::mem::replace(&mut self.served, rebuilt));
        self.retired.extend(rebuilt);
        self.sweep();
        Ok(())
    }

    // The tail, not the shard, decides whether a partition answers.
    fn set_phase(&mut self, _phase: PartitionPhase) {}

    fn apply(&mut self, applied: &mut Applied, state: &PartitionState) -> Result<()> {
        let followed = Followed { is_served: !self.is_beside(), ..self.followed };
        let written = self.end_load().and_then(|()| self.write(applied, state, followed));
        written.inspect_err(|error| self.shards.note_failure(error))?;
        if !self.retired.is_empty() {
            self.sweep();
        }
        Ok(())
    }

    fn check_sound(&self) -> Result<()> {
        self.damage.lock().clone().map_or(Ok(()), Err)
    }

    fn note_following(&mut self, following: Following) {
        let Following { append_time, opened, copy, .. } = following;
        self.followed = Followed { append_time, opened, copy, ..self.followed };
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.shards.0.open.write().remove(&self.at.partition);
        // A shard can be reopened only when nobody reads it.
        self.shards.views().release(self.served.shard());
        self.retired.iter().for_each(|copy| self.shards.views().release(copy.shard()));
        if let Err(error) = self.served.shard().flush() {
            warn!(at = %self.at, %error, "shard flush failed; rebuilding the shard from the log");
        }
    }
}
