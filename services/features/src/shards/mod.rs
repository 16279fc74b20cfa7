//! Shards that follow the logs of one store. There are two kinds: shards of a view's tiles, and
//! shards of a stream's events. They are opened and closed as partitions are assigned; a shard with
//! another format than the current one is rebuilt from the log.

mod copy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{Applied, PartitionState};
use forebay_core::id::{
    Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
};
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::outcome::OutcomeTable;
use forebay_core::state_rows::{Followed, Resumed as ResumedShard};
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{Following, Held, PartitionPhase, Resumed, SchemaSet};
use forebay_reader::{OpenedCopy, Storage};
use forebay_shard::{EventAt, Shard, ShardDirectory, ShardWriter};
use forebay_snapshot::in_place;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tracing::{info, warn};

use self::copy::Copy;

/// Interval between two flushes of the shards.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Row format of a store's shards.
pub(crate) trait Keeps: Send + Sync + Sized + 'static {
    /// State shared with other tasks of this process, in addition to the rows.
    type Told: Default + Send + Sync;

    /// Returns whether a shard has the current format.
    ///
    /// # Errors
    /// As the shard.
    fn is_kept_alike(&self, shard: &Shard, schemas: &SchemaSet) -> Result<bool>;

    /// Writes the rows of a run of entries, and the state after it, in one step.
    ///
    /// # Errors
    /// As the shard; the shard is unchanged then.
    fn write(&self, writing: &mut Writing<Self>, run: &Run<'_>) -> Result<()>;
}

/// A shard that is written.
pub(crate) struct Writing<K: Keeps> {
    pub(crate) writer: ShardWriter,
    /// Whether the shard has no rows yet.
    pub(crate) is_empty: bool,
    pub(crate) told: Arc<K::Told>,
}

/// Consecutive entries of a log, applied by the fold.
pub(crate) struct Run<'e> {
    pub(crate) schemas: &'e SchemaSet,
    pub(crate) entries: &'e [TakenEntry],
    /// State after the last entry.
    pub(crate) state: &'e PartitionState,
    pub(crate) followed: Followed,
}

/// An applied entry that is not written yet.
pub(crate) struct TakenEntry {
    pub(crate) applied: Applied,
    pub(crate) offset: Offset,
    pub(crate) position: Position,
    /// Append time in the log of its origin.
    pub(crate) append_time: Timestamp,
    /// The partition's time after the entry.
    pub(crate) partition_time: Timestamp,
    pub(crate) schema_version: SchemaVersion,
}

impl<K: Keeps> Writing<K> {
    /// Writes rows of a run of entries, and the state after it.
    ///
    /// # Errors
    /// As the shard; the shard is unchanged then.
    pub(crate) fn put(
        &mut self,
        run: &Run<'_>,
        events: &[(EventAt, Vec<u8>)],
        writes: Vec<(Key, Option<Vec<u8>>)>,
    ) -> Result<()> {
        let Run { entries, state, followed, .. } = *run;
        let clients: BTreeSet<_> = entries.iter().flat_map(|it| &it.applied.clients).collect();
        let sources: BTreeSet<_> = entries.iter().flat_map(|it| &it.applied.sources).collect();
        let folded = Applied {
            writes,
            clients: clients.into_iter().copied().collect(),
            sources: sources.into_iter().copied().collect(),
            // A skipped record is always the last one of its run.
            skipped: entries.last().and_then(|last| last.applied.skipped.clone()),
            ..Applied::default()
        };
        if !self.writer.try_apply_events(events, &folded, state, followed)? {
            in_place(|| self.writer.apply_events(events, &folded, state, followed))?;
        }
        self.is_empty = false;
        Ok(())
    }
}

/// The shards of one store in this process. Cheap to clone.
pub(crate) struct Shards<K: Keeps>(Arc<Inner<K>>);

struct Inner<K: Keeps> {
    keeps: K,
    schemas: SchemaSet,
    partitions: PartitionCount,
    order: KeyOrder,
    directory: ShardDirectory,
    /// The open shards, as readers see them.
    open: RwLock<BTreeMap<PartitionId, OpenShard<K>>>,
    /// Set once a disk has refused a write.
    failed: AtomicBool,
    /// Notified of the failure.
    reopen: Arc<Notify>,
}

/// An open shard, and its shared state.
struct OpenShard<K: Keeps> {
    shard: Arc<Shard>,
    told: Arc<K::Told>,
}

impl<K: Keeps> Clone for Shards<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Keeps> Shards<K> {
    /// Creates the set of a store's shards in a folder, with these definitions and this key order;
    /// no shard is open yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition.
    pub(crate) fn new(
        keeps: impl FnOnce(&SchemaAt) -> Result<K>,
        versions: Vec<Arc<SchemaAt>>,
        (directory, order): (ShardDirectory, impl FnOnce(&SchemaAt) -> KeyOrder),
        reopen: Arc<Notify>,
    ) -> Result<Self> {
        let schemas = SchemaSet::new(versions)?;
        let newest = schemas.newest();
        let inner = Inner {
            keeps: keeps(newest)?,
            partitions: newest.definition.written().partitions,
            order: order(newest),
            schemas,
            directory,
            open: RwLock::default(),
            failed: AtomicBool::new(false),
            reopen,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns all known definitions of the store.
    pub(crate) fn known(&self) -> &SchemaSet {
        &self.0.schemas
    }

    /// Returns the row format.
    pub(crate) fn keeps(&self) -> &K {
        &self.0.keeps
    }

    /// Returns the shard of a partition.
    ///
    /// # Errors
    /// `Unavailable` if the shard is not open here.
    pub(crate) fn shard(&self, partition: PartitionId) -> Result<Arc<Shard>> {
        let shard = self.0.open.read().get(&partition).map(|open| Arc::clone(&open.shard));
        let closed = || Error::unavailable("the partition is not open here yet; ask again");
        shard.ok_or_else(|| closed().with_partition(partition))
    }

    /// Returns the open shards.
    pub(crate) fn open_shards(&self) -> Vec<Arc<Shard>> {
        self.0.open.read().values().map(|open| Arc::clone(&open.shard)).collect()
    }

    /// Returns the shared state of each open partition.
    pub(crate) fn told(&self) -> Vec<(PartitionId, Arc<K::Told>)> {
        let open = self.0.open.read();
        open.iter().map(|(partition, open)| (*partition, Arc::clone(&open.told))).collect()
    }

    /// Flushes all shards.
    pub(crate) fn flush(&self) {
        for shard in self.open_shards() {
            if let Err(error) = shard.flush() {
                warn!(at = %shard.partition(), %error, "shard flush failed");
                self.note_failure(&error);
            }
        }
    }

    /// Returns whether a disk has refused a write, so that the shards must be reopened.
    pub(crate) fn have_failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    fn note_failure(&self, error: &Error) {
        if error.code() == ErrorCode::Unavailable {
            self.0.failed.store(true, Ordering::Release);
            self.0.reopen.notify_one();
        }
    }

    fn show(&self, writing: &Writing<K>) {
        let shard = Arc::clone(writing.writer.shard());
        let partition = shard.partition().partition;
        let open = OpenShard { shard, told: Arc::clone(&writing.told) };
        self.0.open.write().insert(partition, open);
    }

    /// Resumes the shard that an earlier process has left for a partition; removes a shard with
    /// another format, so that it is rebuilt.
    fn left(&self, at: PartitionRef) -> Result<Option<(ShardWriter, ResumedShard)>> {
        let Inner { keeps, schemas, directory, partitions, order, .. } = &*self.0;
        let Some((writer, resumed)) = directory.resume(at, *partitions, *order)? else {
            return Ok(None);
        };
        if keeps.is_kept_alike(writer.shard(), schemas)? {
            return Ok(Some((writer, resumed)));
        }
        info!(%at, "retention of events altered; reading the events again");
        directory.remove(writer)?;
        Ok(None)
    }
}

/// Flushes shards periodically; after a crash, unflushed entries are replayed from the log.
pub(crate) async fn keep_on_disk<K: Keeps>(shards: Shards<K>) {
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        let flushed = shards.clone();
        if tokio::task::spawn_blocking(move || flushed.flush()).await.is_err() {
            return;
        }
    }
}

impl<K: Keeps> Storage for Shards<K> {
    fn schemas(&self) -> &SchemaSet {
        &self.0.schemas
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedCopy> {
        let (writer, resumed) = match self.left(at)? {
            Some((writer, resumed)) => (writer, Some(resumed)),
            None => (self.0.directory.create(at, self.0.order)?, None),
        };
        let Some(resumed) = resumed else {
            let followed = Followed { copy: 1, ..Followed::default() };
            let writer = Box::new(Copy::new(self.clone(), writer, followed, true));
            return Ok(OpenedCopy::empty(writer));
        };
        let ResumedShard { state, followed, skipped, .. } = resumed;
        let following = Following {
            log_id: state.log_id,
            append_time: followed.append_time,
            clock_error_us: None,
            opened: followed.opened,
            drop_all_count: state.drop_all_count,
            copy: followed.copy,
        };
        let writer = Box::new(Copy::new(self.clone(), writer, followed, false));
        let resumed = Some(Resumed { state, following, phase: PartitionPhase::Serving });
        Ok(OpenedCopy { writer, resumed, outcomes: OutcomeTable::default(), skipped })
    }

    fn held(&self, partition: PartitionId) -> Held {
        let Ok(shard) = self.shard(partition) else { return Held::default() };
        let (documents, row_bytes) = shard.estimate();
        Held { documents, row_bytes, ..Held::default() }
    }
}
