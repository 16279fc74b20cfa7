//! The reader: opens, waits, reports its status, and closes.

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

/// An embedded replica of some or all partitions of one store. Cheap to clone and safe to share
/// between threads; the drop of the last clone closes it.
///
/// Reads are local, take no lock and need no runtime. Waits are futures, and each has a bound. The
/// position that is served never falls; `tools/docs/src/semantics.md` 5 defines what a read
/// promises.
#[derive(Clone)]
pub struct Reader {
    handle: Arc<Handle>,
}

/// The handle that all clones share; its drop closes the reader.
struct Handle {
    /// Name of the store.
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
    /// Finds the store in the catalog and starts to follow its partitions, with one task for each
    /// on the current runtime. Returns before any entry is read; see [`Reader::await_ready`].
    ///
    /// # Errors
    /// - `NotFound` for a store that the control log does not define.
    /// - `Unavailable` if the control log does not answer in time, or if the directory of the
    ///   checkpoints cannot be used.
    /// - `InvalidArgument` for a filter that the store cannot fulfil or a readiness bound below
    ///   twice its heartbeat interval.
    /// - `Conflict` if another reader uses the directory of the checkpoints.
    pub async fn open(options: ReaderOptions, parts: ReaderParts) -> Result<Self> {
        let disk = parts.disk.clone();
        Self::open_with(options, disk, async { Ok(parts) }).await
    }

    /// Opens a reader as [`Reader::open`] does, from parts that are not complete yet, for example
    /// because a connection is being established. A task of its own completes the parts. During
    /// that time the reader opens the directory of the checkpoints on this disk, which must be the
    /// disk of the parts.
    ///
    /// # Errors
    /// Returns the errors of `parts`, and those of [`Reader::open`].
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

    /// Returns the reader of a store version that is set up already.
    pub(crate) fn over(followed: Followed) -> Self {
        let name = followed.shared.name.clone();
        Self { handle: Arc::new(Handle { name, versions: Arc::new(Versions::of(followed)) }) }
    }

    /// Returns the store version that a call answers from; the whole call uses it.
    #[inline]
    pub(crate) fn now(&self) -> Guard<Arc<Followed>> {
        self.handle.versions.now()
    }

    /// Returns the shared state as of [`Reader::now`], for calls other than reads, which may wait.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.now().shared)
    }

    /// Returns the name of the store.
    pub fn store(&self) -> &str {
        &self.handle.name
    }

    /// Returns the definition at the newest schema version that any partition has seen; before the
    /// first entry, the newest that the catalog returned at open.
    pub fn schema(&self) -> Arc<SchemaAt> {
        self.shared().schema()
    }

    /// Returns the newest schema version that any partition has seen; 0 before the first entry.
    pub fn schema_version(&self) -> SchemaVersion {
        self.shared().schema_version()
    }

    /// Calls `callback` with each schema version that the reader reaches from now on, in order. The
    /// callback runs on a tail, which waits for it: it must be quick, and must not panic.
    pub fn on_schema_change(&self, callback: OnSchemaChange) {
        self.shared().schema.register(callback);
    }

    /// Waits until every followed partition serves within the readiness bound.
    ///
    /// # Errors
    /// Returns `Unavailable` with phase, percent and remaining time if the wait takes longer than
    /// `timeout`; the error for which a partition halted; `Closed`.
    pub async fn await_ready(&self, timeout: Duration) -> Result<()> {
        self.shared().await_ready(timeout).await
    }

    /// Returns whether the reader is ready at this moment.
    pub fn is_ready(&self) -> bool {
        self.shared().is_ready()
    }

    /// Returns the status of the reader and of each partition. Works after `close`, too.
    pub fn status(&self) -> ReaderStatus {
        self.shared().status()
    }

    /// Returns counters and sizes since the reader was opened.
    pub fn metrics(&self) -> ReaderMetrics {
        let now = self.now();
        ReaderMetrics::of(&now.shared, &now.index)
    }

    /// Calls `with` with the memory of the documents, to measure the cost of an access.
    ///
    /// # Errors
    /// Returns `Unavailable` if a shared copy cannot be mapped.
    #[doc(hidden)]
    pub fn with_memory_lines<T>(&self, with: impl FnOnce(MemoryLines<'_>) -> T) -> Result<T> {
        self.now().index.memory_lines().map(with)
    }

    /// Waits, for at most `timeout`, until every position of the token is applied here. The call
    /// ignores positions of partitions that this reader does not follow.
    ///
    /// # Errors
    /// Returns `TokenLost` if a log of the token is no longer served; `InvalidArgument` for a token
    /// of another store; `DeadlineExceeded`, or `Unavailable` with its progress while a partition
    /// bootstraps; `Closed`.
    pub async fn wait_token(&self, token: &Token, timeout: Duration) -> Result<()> {
        let followed = self.shared();
        let followed: Vec<_> = followed.followed().map(|it| it.at.partition).collect();
        self.wait(&Read::after_token(token.clone(), timeout), &followed).await
    }

    /// Returns whether the store was repartitioned a moment ago: a caller that resolved a key's
    /// partition before may still read it there.
    pub(crate) fn has_just_moved(&self) -> bool {
        let now = self.shared().parts.clock.now();
        self.handle.versions.has_just_moved(now)
    }

    /// Waits until the partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::wait_token`].
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.shared().wait_applied(partition, position, timeout).await
    }

    /// Returns the outcome of a conditional change; `None` if the change was not applied here, had
    /// no condition, or its outcome is no longer stored.
    ///
    /// # Errors
    /// Returns `Unsupported` if the reader was not opened to store outcomes.
    pub fn outcome(
        &self,
        partition: PartitionId,
        client: ClientId,
        sequence: Sequence,
    ) -> Result<Option<Outcome>> {
        self.shared().partition(partition)?.outcome(client, sequence)
    }

    /// Returns the id of the log that a partition is served from; `None` before its first entry.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a partition that the reader does not follow.
    pub fn log_id(&self, partition: PartitionId) -> Result<Option<LogId>> {
        Ok(self.shared().partition(partition)?.board.picture().served.log_id)
    }

    /// Closes the reader: reads in flight complete, later reads and all waits return `Closed`, and
    /// the tasks stop. Returns at once; a reader with checkpoints writes a last one of each
    /// partition in the background, see [`Reader::shut_down`]. A second call changes nothing.
    pub fn close(&self) {
        self.handle.versions.close();
    }

    /// Closes the reader, and waits until its tasks have ended: the last checkpoints, if enabled,
    /// are durable then, and their directory is free for another reader. A second call waits again.
    ///
    /// A last checkpoint is written if the partition has changed since the previous one, in at most
    /// 5 s per partition; if it cannot be written, the previous one stays.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tasks have not ended within `timeout`; the reader is
    /// closed nevertheless.
    pub async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.handle.versions.shut_down(timeout).await
    }
}

/// The arguments to open a store version.
pub(crate) struct Opening {
    pub options: ReaderOptions,
    pub parts: ReaderParts,
    pub directory: Option<Arc<CheckpointDirectory>>,
}

impl Opening {
    /// Starts to follow the store version of these definitions, within this memory if a budget is
    /// given, next to the version that readers use until then.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::open`].
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

/// Starts a reader that shares its replicas with no other reader.
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
        // No reader continues a formerly shared copy: it would never advance.
        let followed = shared.followed().map(|partition| partition.at.partition);
        directory.live().remove(shared.store, followed);
    }
    for tail in tails {
        tokio::spawn(tail.run());
    }
    tokio::spawn(watch_readiness(Arc::clone(&shared), index.clone()));
    Ok((shared, index))
}

/// Starts a reader whose copies other readers of the directory use as well.
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
    let begun =
        tokio::time::timeout(options.open_timeout, beginning).await.unwrap_or_else(|_| {
            let message = "another reader uses the directory and has no shared copy; close that \
                reader, or use another directory";
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
    // A single task starts all others: each spawn wakes threads, which take cores from the first
    // reads.
    tokio::spawn(async move {
        for (follower, kept) in followers {
            tokio::spawn(follower.run(kept));
        }
        tokio::spawn(watch_readiness(Arc::clone(&behind), of_behind.clone()));
        // This spawn may have to start a thread.
        drop(tokio::task::spawn_blocking(move || {
            if !is_noted {
                directory.note_store(&behind.name, named);
            }
            of_behind.prepare();
        }));
    });
    Ok((shared, index))
}

/// The facts about the store that are known before it is opened.
struct Found {
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    ahead: Option<Ahead>,
}

/// Queries the store that the name stands for. While the query, or the connection that it needs, is
/// in progress, opens local files of the store that the name last stood for.
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
            let message = "the control log was not read in time; check that the log is reachable";
            Err(Error::unavailable(message))
        });
        Ok::<_, Error>((parts, versions.map_err(|error| error.with_store(&name))?))
    });
    let answer = futures::poll!(asking.as_mut());
    // The query is in progress, and continues in a task of its own, which ends with this call.
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
                // Propagates the panic as if the query had run here.
                Some(Err(ended)) if ended.is_panic() => resume_unwind(ended.into_panic()),
                _ => {
                    let message =
                        "the runtime ended while the reader was opening; open the reader again";
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
        // The store is known already, so an unreachable log does not prevent the open.
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

/// Replicas that other readers of a directory use as well.
pub(crate) struct SharedCopies {
    live: LiveDirectory,
    beginnings: BTreeMap<PartitionId, Beginning>,
    /// Storage id of the store version that readers use until this version replaces it.
    beside: Option<StoreId>,
}

/// Creates the shared state of a reader and its index, before anything follows a log.
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
        tracing::debug!(store = %options.store, bytes, %source, "memory budget set");
    }
    spill_to_disk(&index, &options, &parts)?;
    let shared = Shared::over(options, parts, &newest.definition, Arc::new(index.clone()))?;
    Ok((Arc::new(Shared { beside, ..shared }), index))
}

/// Sets the directory for spilled documents, including those of a checkpoint of an earlier reader
/// that spilled.
fn spill_to_disk(index: &Index, options: &ReaderOptions, parts: &ReaderParts) -> Result<()> {
    let is_of_host = parts.disk.as_ref().is_some_and(|disk| disk.is_of_host());
    match options.checkpoint.as_ref().filter(|_| is_of_host) {
        Some(checkpoint) => index.spill_to(&checkpoint.dir, options.spill_bytes_max),
        None if options.spill_bytes_max > 0 => {
            let message = "documents spill only to the directory of the checkpoints, on the host's \
                own disk; set that directory, or spill nothing";
            return Err(Error::invalid_argument(message));
        }
        None => {}
    }
    Ok(())
}

/// Observes the readiness periodically, so that a loss of readiness is noticed even if no caller
/// queries it.
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
                tracing::warn!(store = %name, used, limit, "memory budget nearly used up");
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
