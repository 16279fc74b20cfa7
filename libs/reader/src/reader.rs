//! The reader: opens, waits, reports its status, and closes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use forebay_core::id::{LogId, PartitionId, Position, SchemaVersion};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_index::{CacheLineProbe, Index, MemoryUse, ReadCounts};
use forebay_log::disk::Disk;
use forebay_replica::{Counts, OnSchemaChange, ReadOptions, ReaderStatus, ReplicaContext};
use forebay_wire::token::Token;
use futures::future::BoxFuture;

use crate::checkpoint_directory::CheckpointDirectory;
use crate::followed_version::FollowedVersion;
use crate::options::{ReaderOptions, ReaderParts};
use crate::store_lookup::{StoreFacts, find_store};
use crate::version_opener::VersionOpener;
use crate::versions::{Versions, change_versions};

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

/// Counts and sizes of a reader since it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderMetrics {
    /// Documents found and not found.
    pub reads: ReadCounts,
    /// Counters of all partitions together.
    pub counts: Counts,
    /// Estimated memory of all documents, in bytes.
    pub memory_bytes: u64,
    /// Memory that the partitions owned by this reader use, and its bound: the memory limit.
    pub memory: MemoryUse,
    /// Status of the reader and of each of its partitions.
    pub status: ReaderStatus,
}

impl ReaderMetrics {
    fn of(context: &ReplicaContext, index: &Index) -> Self {
        let index = index.metrics();
        let status = context.status();
        let mut counts = Counts::default();
        status.partitions.iter().for_each(|partition| counts.add(&partition.counts));
        let (reads, memory_bytes) = (index.reads, index.memory_bytes());
        let memory = index.memory;
        Self { reads, counts, memory_bytes, memory, status }
    }
}

/// The handle that all clones share; its drop closes the reader.
struct Handle {
    /// Name of the store.
    name: String,
    versions: Arc<Versions>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.versions.begin_close();
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
        Self::open_with(options, disk, Box::pin(async { Ok(parts) })).await
    }

    /// Opens a reader as [`Reader::open`] does, from parts that are not complete yet, for example
    /// because a connection is being established. A task of its own completes the parts. During
    /// that time the reader opens the directory of the checkpoints on this disk, which must be the
    /// disk of the parts.
    ///
    /// # Errors
    /// Returns the errors of `parts`, and those of [`Reader::open`].
    pub fn open_with(
        options: ReaderOptions,
        disk: Option<Arc<dyn Disk>>,
        parts: BoxFuture<'static, Result<ReaderParts>>,
    ) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let name = options.store.clone();
            let at_store = |error: Error| error.with_store(&name);
            let StoreFacts { parts, versions, speculative_open: speculative } =
                find_store(&options, disk, parts).await?;
            let directory = match &speculative {
                Some(speculative) => Some(Arc::clone(&speculative.directory)),
                None => {
                    let disk = parts.disk.as_ref();
                    CheckpointDirectory::open(&options, disk).map_err(at_store)?
                }
            };
            let opener = VersionOpener { options, parts, directory };
            let followed =
                opener.open(versions, speculative, None, None).await.map_err(at_store)?;
            let reader = Self::over(followed);
            tokio::spawn(change_versions(Arc::downgrade(&reader.handle.versions), opener));
            Ok(reader)
        })
    }

    /// Returns the reader of a store version that is set up already.
    pub(crate) fn over(followed: FollowedVersion) -> Self {
        let name = followed.context.name.clone();
        Self { handle: Arc::new(Handle { name, versions: Arc::new(Versions::of(followed)) }) }
    }

    /// Returns the store version that a call answers from; the whole call uses it.
    #[inline]
    pub(crate) fn current(&self) -> Guard<Arc<FollowedVersion>> {
        self.handle.versions.current()
    }

    /// Returns the version as of [`Reader::current`], for calls that wait.
    pub(crate) fn version(&self) -> Arc<FollowedVersion> {
        Guard::into_inner(self.current())
    }

    /// Returns the shared state as of [`Reader::current`], for calls other than reads, which may
    /// wait.
    pub(crate) fn context(&self) -> Arc<ReplicaContext> {
        Arc::clone(&self.current().context)
    }

    /// Returns the name of the store.
    pub fn store(&self) -> &str {
        &self.handle.name
    }

    /// Returns the definition at the newest schema version that any partition has seen; before the
    /// first entry, the newest that the catalog returned at open.
    pub fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.context().schema().definition)
    }

    /// Returns the newest schema version that any partition has seen; 0 before the first entry.
    pub fn schema_version(&self) -> SchemaVersion {
        self.context().schema_version()
    }

    /// Calls `callback` with each schema version that the reader reaches from now on, in order. The
    /// callback runs on a tail, which waits for it: it must be quick, and must not panic.
    pub fn on_schema_change(&self, callback: OnSchemaChange) {
        self.context().schema.register(callback);
    }

    /// Waits until every followed partition serves within the readiness bound.
    ///
    /// # Errors
    /// Returns `Unavailable` with phase, percent and remaining time if the wait takes longer than
    /// `timeout`; the error for which a partition halted; `Closed`.
    pub async fn await_ready(&self, timeout: Duration) -> Result<()> {
        self.context().await_ready(timeout).await
    }

    /// Returns whether the reader is ready at this moment.
    pub fn is_ready(&self) -> bool {
        self.context().is_ready()
    }

    /// Returns the status of the reader and of each partition. Works after `close`, too.
    pub fn status(&self) -> ReaderStatus {
        self.context().status()
    }

    /// Returns counters and sizes since the reader was opened.
    pub fn metrics(&self) -> ReaderMetrics {
        let current = self.current();
        ReaderMetrics::of(&current.context, &current.index)
    }

    /// Calls `visit` with the memory of the documents, to measure the cost of an access.
    ///
    /// # Errors
    /// Returns `Unavailable` if a shared copy cannot be mapped.
    #[doc(hidden)]
    pub fn with_memory_lines<T>(&self, visit: impl FnOnce(CacheLineProbe<'_>) -> T) -> Result<T> {
        self.current().index.memory_lines().map(visit)
    }

    /// Waits, for at most `timeout`, until every position of the token is applied here. The call
    /// ignores positions of partitions that this reader does not follow.
    ///
    /// # Errors
    /// Returns `TokenLost` if a log of the token is no longer served; `InvalidArgument` for a token
    /// of another store; `DeadlineExceeded`, or `Unavailable` with its progress while a partition
    /// bootstraps; `Closed`.
    pub async fn await_token(&self, token: &Token, timeout: Duration) -> Result<()> {
        let followed = self.context();
        let followed: Vec<_> =
            followed.followed().map(|version_partition| version_partition.at.partition).collect();
        self.wait(&ReadOptions::after(token.clone(), timeout), &followed).await
    }

    /// Returns whether the store was repartitioned a moment ago: a caller that resolved a key's
    /// partition before may still read it there.
    pub(crate) fn is_just_repartitioned(&self) -> bool {
        let now = self.context().parts.clock.now();
        self.handle.versions.is_just_repartitioned(now)
    }

    /// Waits until the partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::await_token`].
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.context().wait_applied(partition, position, timeout).await
    }

    /// Returns the id of the log that a partition is served from; `None` before its first entry.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a partition that the reader does not follow.
    pub fn log_id(&self, partition: PartitionId) -> Result<Option<LogId>> {
        Ok(self.context().partition(partition)?.board.current().served.log_id)
    }

    /// Closes the reader without a wait: reads in flight complete, later reads and all waits return
    /// `Closed`, and the tasks stop. A reader with checkpoints writes a last one of each partition
    /// in the background, see [`Reader::close`]. A second call changes nothing.
    pub fn begin_close(&self) {
        self.handle.versions.begin_close();
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
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        self.handle.versions.close(timeout).await
    }
}
