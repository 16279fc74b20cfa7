//! Shards that follow the logs of one store, of which there are two kinds: those of a view's tiles
//! and those of a stream's events. They are opened and closed with the partitions that this process
//! has; what was kept otherwise than it would be now is made anew of the log.

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

/// How often shards are put on disk.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// What is kept of a store's entries in its shards.
pub(crate) trait Keeps: Send + Sync + Sized + 'static {
    /// What is told of a shard beside its rows, in this process alone.
    type Told: Default + Send + Sync;

    /// Whether a shard was kept as it would be now.
    ///
    /// # Errors
    /// Those of the shard.
    fn is_kept_alike(&self, shard: &Shard, schemas: &SchemaSet) -> Result<bool>;

    /// Writes what a run of entries adds to a shard, and the state behind them, in one step.
    ///
    /// # Errors
    /// Those of the shard; nothing has changed then.
    fn write(&self, writing: &mut Writing<Self>, run: &Run<'_>) -> Result<()>;
}

/// A shard that is written.
pub(crate) struct Writing<K: Keeps> {
    pub(crate) writer: ShardWriter,
    /// Whether nothing was written to it.
    pub(crate) is_empty: bool,
    pub(crate) told: Arc<K::Told>,
}

/// Entries that follow each other in a log, as its fold has them.
pub(crate) struct Run<'e> {
    pub(crate) schemas: &'e SchemaSet,
    pub(crate) entries: &'e [TakenEntry],
    /// Behind the last of them.
    pub(crate) state: &'e PartitionState,
    pub(crate) followed: Followed,
}

/// An entry that was taken and is not written yet.
pub(crate) struct TakenEntry {
    pub(crate) applied: Applied,
    pub(crate) offset: Offset,
    pub(crate) position: Position,
    /// When it was appended to the log that it comes from.
    pub(crate) append_time: Timestamp,
    /// Of the partition, behind it.
    pub(crate) partition_time: Timestamp,
    pub(crate) schema_version: SchemaVersion,
}

impl<K: Keeps> Writing<K> {
    /// Writes rows that a run of entries makes, and the state behind it.
    ///
    /// # Errors
    /// Those of the shard; nothing has changed then.
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
            // A record that is skipped ends its run.
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
    /// Those that are open, as readers see them.
    open: RwLock<BTreeMap<PartitionId, OpenShard<K>>>,
    /// Set once a disk has refused a write.
    failed: AtomicBool,
    /// Told of that.
    reopen: Arc<Notify>,
}

/// A shard that is open, and what is told of it.
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
    /// The shards of the store of these definitions in a folder, whose keys are ordered so; none is
    /// open yet.
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

    /// Every definition of the store that is known.
    pub(crate) fn known(&self) -> &SchemaSet {
        &self.0.schemas
    }

    /// What it keeps.
    pub(crate) fn keeps(&self) -> &K {
        &self.0.keeps
    }

    /// The shard of a partition.
    ///
    /// # Errors
    /// `Unavailable` for one that is not open here.
    pub(crate) fn shard(&self, partition: PartitionId) -> Result<Arc<Shard>> {
        let shard = self.0.open.read().get(&partition).map(|open| Arc::clone(&open.shard));
        let closed = || Error::unavailable("the partition is not open here yet; ask again");
        shard.ok_or_else(|| closed().with_partition(partition))
    }

    /// Those that are open.
    pub(crate) fn open_shards(&self) -> Vec<Arc<Shard>> {
        self.0.open.read().values().map(|open| Arc::clone(&open.shard)).collect()
    }

    /// Of each partition what is told of it.
    pub(crate) fn told(&self) -> Vec<(PartitionId, Arc<K::Told>)> {
        let open = self.0.open.read();
        open.iter().map(|(partition, open)| (*partition, Arc::clone(&open.told))).collect()
    }

    /// Puts all that was written on disk.
    pub(crate) fn flush(&self) {
        for shard in self.open_shards() {
            if let Err(error) = shard.flush() {
                warn!(at = %shard.partition(), %error, "a shard was not put on disk");
                self.note_failure(&error);
            }
        }
    }

    /// Whether a disk has refused a write: the shards are to be opened again then.
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

    /// What an earlier process has left of a partition, unless that was kept otherwise: then it is
    /// made anew.
    fn left(&self, at: PartitionRef) -> Result<Option<(ShardWriter, ResumedShard)>> {
        let Inner { keeps, schemas, directory, partitions, order, .. } = &*self.0;
        let Some((writer, resumed)) = directory.resume(at, *partitions, *order)? else {
            return Ok(None);
        };
        if keeps.is_kept_alike(writer.shard(), schemas)? {
            return Ok(Some((writer, resumed)));
        }
        info!(%at, "it was altered what is kept of the retained events: they are read again");
        directory.remove(writer)?;
        Ok(None)
    }
}

/// Puts shards on disk now and then: what a kill loses of them is made of the log again.
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
