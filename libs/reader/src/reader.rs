//! The reader itself: opens, waits, tells how it is, and closes.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::Guard;
use forebay_core::catalog::SchemaAt;
use forebay_core::id::{
    ClientId, LogId, PartitionId, PartitionRef, Position, SchemaVersion, Sequence, StoreId,
};
use forebay_core::limits::{READER_AHEAD_MS_MAX, READER_LOG_TIMEOUT_MS, READER_READY_CHECK_MS};
use forebay_core::outcome::Outcome;
use forebay_core::{Error, Result};
use forebay_index::{Beginning, Index, LiveDirectory, MemoryLines};
use forebay_log::disk::Disk;
use forebay_wire::token::Token;
use tokio::task::JoinSet;

use crate::begin::{Ahead, Begun, begin, named_by};
use crate::budget::MemoryBudget;
use crate::checkpoint::CheckpointDirectory;
use crate::closing::closed;
use crate::follow::Follower;
use crate::metrics::ReaderMetrics;
use crate::options::{ReaderOptions, ReaderParts};
use crate::partition::Partition;
use crate::read::Read;
use crate::shared::{OnSchemaChange, Shared};
use crate::status::ReaderStatus;
use crate::tail::{Tail, reader_backoff};
use crate::versions::{Followed, Versions, change_versions};

/// An embedded replica of some or all partitions of one store. Cheap to clone, safe to share
/// between threads; the last clone that goes closes it.
///
/// Reads are local, take no lock and need no runtime. Waits are futures, and every one of them has
/// a bound. The position that is served never falls; see `semantics.md` 5 for what a read promises.
#[derive(Clone)]
pub struct Reader {
    handle: Arc<Handle>,
}

/// Closes when the last reader that shares it goes.
struct Handle {
    /// Name of its store.
    name: String,
    versions: Arc<Versions>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.versions.close();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("store", &self.store()).finish_non_exhaustive()
    }
}

impl Reader {
    /// Finds the store in the catalog and starts to follow its partitions, one task for each on the
    /// current runtime. Returns before anything is read; see [`Reader::await_ready`].
    ///
    /// # Errors
    /// `NotFound` for a store that the control log does not define, `Unavailable` when that could
    /// not be told in time, `InvalidArgument` for a filter that the store cannot fulfil or a
    /// readiness bound below twice its heartbeat interval; `Conflict` when another reader uses the
    /// directory of the checkpoints, `Unavailable` when it cannot be used.
    pub async fn open(options: ReaderOptions, parts: ReaderParts) -> Result<Self> {
        let disk = parts.disk.clone();
        Self::open_with(options, disk, async { Ok(parts) }).await
    }

    /// As [`Reader::open`], with parts that are still to be had, by a connection for example: that
    /// goes on by a task of its own. What lies in the directory of the checkpoints is looked at on
    /// this disk meanwhile, which must be that of the parts.
    ///
    /// # Errors
    /// Those of `parts`, and those of [`Reader::open`].
    pub async fn open_with(
        options: ReaderOptions,
        disk: Option<Arc<dyn Disk>>,
        parts: impl Future<Output = Result<ReaderParts>> + Send + 'static,
    ) -> Result<Self> {
        let name = options.store.clone();
        let at_store = |error: Error| error.with_store(&name);
        let Found { parts, versions, ahead } = find_store(&options, disk, parts).await?;
        let directory = match &ahead {
            Some(ahead) => Some(Arc::clone(&ahead.directory)),
            None => {
                let disk = parts.disk.as_ref();
                CheckpointDirectory::open(&options, disk).map_err(at_store)?
            }
        };
        let opening = Opening { options, parts, directory };
        let followed = opening.open(versions, ahead, None, None).await.map_err(at_store)?;
        let reader = Self::over(followed);
        tokio::spawn(change_versions(Arc::downgrade(&reader.handle.versions), opening));
        Ok(reader)
    }

    /// The reader of what is set up already.
    pub(crate) fn over(followed: Followed) -> Self {
        let name = followed.shared.name.clone();
        Self { handle: Arc::new(Handle { name, versions: Arc::new(Versions::of(followed)) }) }
    }

    /// The version of the documents that a call answers from, all of it.
    #[inline]
    pub(crate) fn now(&self) -> Guard<Arc<Followed>> {
        self.handle.versions.now()
    }

    /// As [`Reader::now`], for what is no read: it may wait.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.now().shared)
    }

    /// Name of its store.
    pub fn store(&self) -> &str {
        &self.handle.name
    }

    /// The definition at the newest schema version that any of its partitions has seen; before the
    /// first entry the newest that the catalog told at open.
    pub fn schema(&self) -> Arc<SchemaAt> {
        self.shared().schema()
    }

    /// Newest schema version that any of its partitions has seen; 0 before the first entry.
    pub fn schema_version(&self) -> SchemaVersion {
        self.shared().schema_version()
    }

    /// Calls back with each schema version that the reader comes to from now on, in their order.
    /// The callback runs on a tail, which waits for it: it must be quick, and must not panic.
    pub fn on_schema_change(&self, callback: OnSchemaChange) {
        self.shared().schema.register(callback);
    }

    /// Waits until every followed partition serves inside the readiness bound.
    ///
    /// # Errors
    /// `Unavailable` with phase, percent and remaining time when that takes longer than `timeout`;
    /// why a partition halted; `Closed`.
    pub async fn await_ready(&self, timeout: Duration) -> Result<()> {
        self.shared().await_ready(timeout).await
    }

    /// Whether the reader is ready at this moment.
    pub fn is_ready(&self) -> bool {
        self.shared().is_ready()
    }

    /// How the reader and each of its partitions are at this moment. Works after `close` too.
    pub fn status(&self) -> ReaderStatus {
        self.shared().status()
    }

    /// Counts and sizes since the reader was opened.
    pub fn metrics(&self) -> ReaderMetrics {
        let now = self.now();
        ReaderMetrics::of(&now.shared, &now.index)
    }

    /// Calls `with` with the memory of the documents, for measuring what an access to it costs.
    ///
    /// # Errors
    /// `Unavailable` when a shared copy cannot be mapped.
    #[doc(hidden)]
    pub fn with_memory_lines<T>(&self, with: impl FnOnce(MemoryLines<'_>) -> T) -> Result<T> {
        self.now().index.memory_lines().map(with)
    }

    /// Waits until everything that the token speaks of is applied here, at most `timeout` long.
    /// Positions of partitions that this reader does not follow are not waited for.
    ///
    /// # Errors
    /// `TokenLost` when a log of the token is no longer served; `InvalidArgument` for a token of
    /// another store; `DeadlineExceeded`, or `Unavailable` with its progress while a partition
    /// bootstraps; `Closed`.
    pub async fn wait_token(&self, token: &Token, timeout: Duration) -> Result<()> {
        let followed = self.shared();
        let followed: Vec<_> = followed.followed().map(|it| it.at.partition).collect();
        self.wait(&Read::after_token(token.clone(), timeout), &followed).await
    }

    /// Whether the documents moved to other partitions a moment ago: whoever found out before where
    /// a key belongs may still ask for it there.
    pub(crate) fn has_just_moved(&self) -> bool {
        let now = self.shared().parts.clock.now();
        self.handle.versions.has_just_moved(now)
    }

    /// Waits until the partition has applied this position, whatever its log.
    ///
    /// # Errors
    /// As [`Reader::wait_token`].
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.shared().wait_applied(partition, position, timeout).await
    }

    /// What a conditional change came to; `None` when it was not applied here, had no condition, or
    /// is no longer kept.
    ///
    /// # Errors
    /// `Unsupported` when the reader was not opened to keep outcomes.
    pub fn outcome(
        &self,
        partition: PartitionId,
        client: ClientId,
        sequence: Sequence,
    ) -> Result<Option<Outcome>> {
        self.shared().partition(partition)?.outcome(client, sequence)
    }

    /// Id of the log that a partition is served from; `None` before its first entry.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition that the reader does not follow.
    pub fn log_id(&self, partition: PartitionId) -> Result<Option<LogId>> {
        Ok(self.shared().partition(partition)?.board.picture().served.log_id)
    }

    /// Ends the reader: reads in flight end, later ones and all waits answer `Closed`, its tasks
    /// stop. Waits for nothing: a reader that keeps checkpoints writes a last one of each partition
    /// meanwhile, see [`Reader::shut_down`]. A second call changes nothing.
    pub fn close(&self) {
        self.handle.versions.close();
    }

    /// Closes, and waits until its tasks have ended: the last checkpoints are durable then, where
    /// it keeps any, and their directory is free for another reader. A second call waits again.
    ///
    /// A last checkpoint is written where something has changed since the one before, in at most
    /// 5 s per partition; one that cannot be had leaves the one before.
    ///
    /// # Errors
    /// `DeadlineExceeded` when they have not ended in this time; the reader is closed all the same.
    pub async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.handle.versions.shut_down(timeout).await
    }
}

/// What a version of the documents is followed with.
pub(crate) struct Opening {
    pub options: ReaderOptions,
    pub parts: ReaderParts,
    pub directory: Option<Arc<CheckpointDirectory>>,
}

impl Opening {
    /// Begins to follow the version of these definitions, in so many bytes of memory, if that is
    /// told, beside the one that readers have until then.
    ///
    /// # Errors
    /// Those of [`Reader::open`].
    pub(crate) async fn open(
        &self,
        versions: Vec<Arc<SchemaAt>>,
        ahead: Option<Ahead>,
        memory: Option<u64>,
        beside: Option<StoreId>,
    ) -> Result<Followed> {
        let (mut options, parts) = (self.options.clone(), self.parts.clone());
        options.memory_budget = memory.or(options.memory_budget);
        let (shared, index) = match self.directory.clone() {
            Some(directory) if directory.is_shared() && !options.keep_outcomes => {
                open_shared(options, parts, versions, directory, ahead, beside).await
            }
            directory => open_alone(options, parts, versions, directory),
        }?;
        Ok(Followed { shared, index })
    }
}

/// Starts a reader that has its copies for itself.
fn open_alone(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    directory: Option<Arc<CheckpointDirectory>>,
) -> Result<(Arc<Shared>, Index)> {
    let budget = MemoryBudget::new(options.memory_budget);
    let (shared, index) = share(options, parts, versions, None, budget)?;
    let tail = |partition: &Arc<Partition>| {
        let kept = directory.as_ref().map(|directory| directory.keep(partition.at)).transpose()?;
        Tail::new(Arc::clone(&shared), Arc::clone(partition), kept)
    };
    let tails = shared.followed().map(tail).collect::<Result<Vec<_>>>()?;
    if let Some(directory) = directory.filter(|directory| directory.is_of_host()) {
        // Nobody goes on with a copy that readers shared before: it would stay as it was.
        let followed = shared.followed().map(|partition| partition.at.partition);
        directory.live().remove(shared.store, followed);
    }
    for tail in tails {
        tokio::spawn(tail.run());
    }
    tokio::spawn(watch_readiness(Arc::clone(&shared), index.clone()));
    Ok((shared, index))
}

/// Starts a reader whose copies other readers of the directory answer from too.
async fn open_shared(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    directory: Arc<CheckpointDirectory>,
    ahead: Option<Ahead>,
    beside: Option<StoreId>,
) -> Result<(Arc<Shared>, Index)> {
    let named = named_by(&versions)?;
    options.partitions.check(named.partitions)?;
    let followed = named.partitions.partitions();
    let followed = followed.filter(|id| options.partitions.follows(*id)).collect();
    let seed = parts.entropy.next_u64()?;
    let is_noted = ahead.as_ref().is_some_and(|ahead| ahead.named == named);
    let budget = match &ahead {
        Some(ahead) => ahead.budget.clone(),
        None => MemoryBudget::new(options.memory_budget),
    };
    let beginning = begin(&directory, &versions, followed, seed, ahead);
    let begun = tokio::time::timeout(options.open_timeout, beginning).await.unwrap_or_else(|_| {
        let message = "another reader has the directory, and no copy that can be shared; close it, \
                       or use another directory";
        Err(Error::conflict(message))
    })?;
    let Begun { beginnings, mut kept } = begun;
    let live = Some(SharedCopies { live: directory.live(), beginnings, beside });
    let (shared, index) = share(options, parts, versions, live, budget)?;
    let follower = |partition: &Arc<Partition>| {
        let (at, directory) = (Arc::clone(partition), Arc::clone(&directory));
        let kept = kept.remove(&partition.at.partition);
        (Follower::new(Arc::clone(&shared), index.clone(), at, directory), kept)
    };
    let followers: Vec<_> = shared.followed().map(follower).collect();
    let (behind, of_behind) = (Arc::clone(&shared), index.clone());
    // One task starts all others: each that is started wakes threads, which take cores from the
    // first reads.
    tokio::spawn(async move {
        for (follower, kept) in followers {
            tokio::spawn(follower.run(kept));
        }
        tokio::spawn(watch_readiness(Arc::clone(&behind), of_behind.clone()));
        // A thread may have to be started for it.
        drop(tokio::task::spawn_blocking(move || {
            if !is_noted {
                directory.note_store(&behind.name, named);
            }
            of_behind.prepare();
        }));
    });
    Ok((shared, index))
}

/// What is known of the store before it is opened.
struct Found {
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    ahead: Option<Ahead>,
}

/// Asks what the store's name stands for; while the question is on its way, or the connection that
/// it needs, looks where the store begins for which it stood last.
async fn find_store(
    options: &ReaderOptions,
    disk: Option<Arc<dyn Disk>>,
    parts: impl Future<Output = Result<ReaderParts>> + Send + 'static,
) -> Result<Found> {
    let (name, open_timeout) = (options.store.clone(), options.open_timeout);
    let mut asking = Box::pin(async move {
        let parts = parts.await?;
        let versions =
            tokio::time::timeout(open_timeout, ask_for_store(&name, &parts, open_timeout)).await;
        let versions = versions.unwrap_or_else(|_| {
            let message = "the control log was not read in time; see whether the log is reachable";
            Err(Error::unavailable(message))
        });
        Ok::<_, Error>((parts, versions.map_err(|error| error.with_store(&name))?))
    });
    let answer = futures::poll!(asking.as_mut());
    // It is on its way, and goes on by a task of its own, which ends with this call.
    let mut asked = JoinSet::new();
    if answer.is_pending() {
        asked.spawn(asking);
    }
    let mut ahead = Ahead::look(options, disk.as_ref());
    let (parts, versions) = match answer {
        Poll::Ready(answer) => answer?,
        Poll::Pending => {
            let soon = Duration::from_millis(READER_AHEAD_MS_MAX);
            let soon = tokio::time::timeout(soon, asked.join_next()).await;
            let answer = match soon {
                Ok(answer) => answer,
                Err(_) => {
                    ahead = None;
                    asked.join_next().await
                }
            };
            match answer {
                Some(Ok(answer)) => answer?,
                // As if it had been asked here.
                Some(Err(ended)) if ended.is_panic() => resume_unwind(ended.into_panic()),
                _ => {
                    let message = "the runtime ended while a reader was opened; open it again";
                    return Err(Error::closed(message));
                }
            }
        }
    };
    Ok(Found { parts, versions, ahead })
}

async fn ask_for_store(
    name: &str,
    parts: &ReaderParts,
    wait_max: Duration,
) -> Result<Vec<Arc<SchemaAt>>> {
    if let Ok(schema) = parts.catalog.catalog().by_name(name) {
        // Known already: an unreachable log keeps nobody from opening.
        schema.definition.check_is_of_documents()?;
        let live = schema.definition.versions.live().kept_as;
        return Ok(versions_of(parts, live));
    }
    let mut backoff = reader_backoff();
    let end = loop {
        let silence_max = Duration::from_millis(READER_LOG_TIMEOUT_MS);
        let bounds = parts.log.bounds(PartitionRef::CONTROL);
        match tokio::time::timeout(silence_max, bounds).await {
            Ok(Ok(bounds)) => break bounds.end,
            Ok(Err(error)) if !error.code().is_retryable() => return Err(error),
            _ => tokio::time::sleep(backoff.next_wait(&*parts.entropy)).await,
        }
    };
    parts.catalog.wait_applied(end, wait_max).await?;
    let live = parts.catalog.catalog().of_documents(name)?.definition.versions.live().kept_as;
    Ok(versions_of(parts, live))
}

pub(crate) fn versions_of(parts: &ReaderParts, store: StoreId) -> Vec<Arc<SchemaAt>> {
    let catalog = parts.catalog.catalog();
    catalog.store(store).into_iter().flat_map(|history| history.versions().cloned()).collect()
}

/// Copies that other readers of a directory answer from too.
pub(crate) struct SharedCopies {
    live: LiveDirectory,
    beginnings: BTreeMap<PartitionId, Beginning>,
    /// The version of the documents that readers have until this one takes its place.
    beside: Option<StoreId>,
}

/// What the parts of a reader share, and its index, before anything follows a log.
pub(crate) fn share(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    copies: Option<SharedCopies>,
    budget: Option<MemoryBudget>,
) -> Result<(Arc<Shared>, Index)> {
    let newest = versions.last().ok_or_else(closed)?;
    options.check(&newest.definition)?;
    let followed = newest.definition.partitions.partitions();
    let followed: Vec<_> =
        followed.filter(|partition| options.partitions.follows(*partition)).collect();
    let count = followed.len();
    let (of_index, seed) = (versions.iter().cloned(), parts.entropy.next_u64()?);
    let (index, beside) = match copies {
        Some(SharedCopies { live, beginnings, beside }) => {
            (Index::begin(of_index, beginnings, seed, live)?, beside)
        }
        None => (Index::new(of_index, followed, seed)?, None),
    };
    if let Some(budget) = budget {
        let bytes = budget.bytes(count);
        index.limit_memory(bytes);
        let source = budget.source;
        tracing::debug!(store = %options.store, bytes, %source, "memory budget");
    }
    spill_to_disk(&index, &options, &parts)?;
    let shared = Shared::over(options, parts, &newest.definition, Arc::new(index.clone()))?;
    Ok((Arc::new(Shared { beside, ..shared }), index))
}

/// Says where documents are spilled, also those that a checkpoint holds of a reader that could.
fn spill_to_disk(index: &Index, options: &ReaderOptions, parts: &ReaderParts) -> Result<()> {
    let is_of_host = parts.disk.as_ref().is_some_and(|disk| disk.is_of_host());
    match options.checkpoint.as_ref().filter(|_| is_of_host) {
        Some(checkpoint) => index.spill_to(&checkpoint.dir, options.spill_bytes_max),
        None if options.spill_bytes_max > 0 => {
            let message = "documents are spilled to the directory of the checkpoints, on the \
                host's own disk; set one, or spill nothing";
            return Err(Error::invalid_argument(message));
        }
        None => {}
    }
    Ok(())
}

/// Looks at the readiness from time to time, so that a fall is seen while nobody asks.
async fn watch_readiness(shared: Arc<Shared>, index: Index) {
    let looks = async {
        let mut is_warned = false;
        loop {
            shared.observe_readiness(shared.parts.clock.now());
            let memory = index.memory();
            let is_scarce = memory.is_scarce();
            if is_scarce && !is_warned {
                let (used, limit) = (memory.used, memory.limit);
                let name = &shared.name;
                tracing::warn!(store = %name, used, limit, "the memory budget is nearly used up");
            }
            is_warned = is_scarce;
            tokio::time::sleep(Duration::from_millis(READER_READY_CHECK_MS)).await;
        }
    };
    tokio::select! {
        biased;
        () = shared.closing.closed() => {}
        () = looks => {}
    }
}
