//! The start of a followed store version: its index, its sources, and the tasks that follow it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::limits::READER_READY_CHECK_MS;
use forebay_core::{Error, Result};
use forebay_index::{Index, InitialSource, SharedCopyDirectory};
use forebay_replica::{Checkpoints, Partition, ReplicaContext, Tail, closed};

use crate::checkpoint_directory::CheckpointDirectory;
use crate::followed_version::FollowedVersion;
use crate::index_storage::IndexStorage;
use crate::local_open::{OpenedPartitions, SpeculativeOpen, choose_sources, named_by};
use crate::memory_limit::MemoryLimit;
use crate::options::{ReaderOptions, ReaderParts};
use crate::standby::Standby;

/// The arguments to open a store version.
pub(crate) struct VersionOpener {
    pub options: ReaderOptions,
    pub parts: ReaderParts,
    pub directory: Option<Arc<CheckpointDirectory>>,
}

impl VersionOpener {
    /// Starts to follow the store version of these definitions, within this memory if a limit is
    /// given, next to the version that readers use until then.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::open`](crate::Reader::open).
    pub(crate) async fn open(
        &self,
        versions: Vec<Arc<SchemaAt>>,
        speculative: Option<SpeculativeOpen>,
        memory: Option<u64>,
        beside: Option<StoreId>,
    ) -> Result<FollowedVersion> {
        let (mut options, parts) = (self.options.clone(), self.parts.clone());
        options.memory_limit = memory.or(options.memory_limit);
        let (context, index) = match self.directory.clone() {
            Some(directory) if directory.is_shared() => {
                open_shared(options, parts, versions, directory, speculative, beside).await
            }
            directory => open_alone(options, parts, versions, directory),
        }?;
        Ok(FollowedVersion { context, index })
    }
}

/// Starts a reader that shares its replicas with no other reader.
fn open_alone(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    directory: Option<Arc<CheckpointDirectory>>,
) -> Result<(Arc<ReplicaContext>, Index)> {
    let memory_limit = MemoryLimit::new(options.memory_limit);
    let (context, index) = open_index(options, parts, versions, None, memory_limit)?;
    let tail = |partition: &Arc<Partition>| {
        let checkpoints = directory
            .as_ref()
            .map(|directory| Checkpoints::lock(directory.folder(), partition.at))
            .transpose()?;
        Tail::new(Arc::clone(&context), Arc::clone(partition), checkpoints)
    };
    let tails = context.followed().map(tail).collect::<Result<Vec<_>>>()?;
    if let Some(directory) = directory.filter(|directory| directory.is_of_host()) {
        // No reader continues a formerly shared copy: it would never advance.
        let followed = context.followed().map(|partition| partition.at.partition);
        directory.live().remove(context.store, followed);
    }
    for tail in tails {
        tokio::spawn(tail.run());
    }
    tokio::spawn(watch_readiness(Arc::clone(&context), index.clone()));
    Ok((context, index))
}

/// Starts a reader whose copies other readers of the directory use as well.
async fn open_shared(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    directory: Arc<CheckpointDirectory>,
    speculative: Option<SpeculativeOpen>,
    beside: Option<StoreId>,
) -> Result<(Arc<ReplicaContext>, Index)> {
    let named = named_by(&versions)?;
    options.partitions.check(named.partitions)?;
    let followed = named.partitions.partitions();
    let followed = followed.filter(|id| options.partitions.follows(*id)).collect();
    let seed = parts.entropy.next_u64()?;
    let is_noted = speculative.as_ref().is_some_and(|speculative| speculative.named == named);
    let memory_limit = match &speculative {
        Some(speculative) => speculative.memory_limit.clone(),
        None => MemoryLimit::new(options.memory_limit),
    };
    let choice = choose_sources(&directory, &versions, followed, seed, speculative);
    let opened_partitions =
        tokio::time::timeout(options.open_timeout, choice).await.unwrap_or_else(|_| {
            let message = "another reader uses the directory and has no shared copy; close that \
                reader, or use another directory";
            Err(Error::conflict(message))
        })?;
    let OpenedPartitions { sources, mut locks } = opened_partitions;
    let live = Some(SharedCopies { live: directory.live(), sources, beside });
    let (context, index) = open_index(options, parts, versions, live, memory_limit)?;
    let standby = |partition: &Arc<Partition>| {
        let (at, directory) = (Arc::clone(partition), Arc::clone(&directory));
        let lock = locks.remove(&partition.at.partition);
        (Standby::new(Arc::clone(&context), index.clone(), at, directory), lock)
    };
    let standbys: Vec<_> = context.followed().map(standby).collect();
    let (ready_context, of_behind) = (Arc::clone(&context), index.clone());
    // A single task starts all others: each spawn wakes threads, which take cores from the first
    // reads.
    tokio::spawn(async move {
        for (standby, lock) in standbys {
            tokio::spawn(standby.run(lock));
        }
        tokio::spawn(watch_readiness(Arc::clone(&ready_context), of_behind.clone()));
        // This spawn may have to start a thread.
        drop(tokio::task::spawn_blocking(move || {
            if !is_noted {
                directory.note_store(&ready_context.name, named);
            }
            of_behind.prepare();
        }));
    });
    Ok((context, index))
}

/// Replicas that other readers of a directory use as well.
pub(crate) struct SharedCopies {
    live: SharedCopyDirectory,
    sources: BTreeMap<PartitionId, InitialSource>,
    /// Storage id of the store version that readers use until this version replaces it.
    beside: Option<StoreId>,
}

/// Creates the shared state of a reader and its index, before anything follows a log.
pub(crate) fn open_index(
    options: ReaderOptions,
    parts: ReaderParts,
    versions: Vec<Arc<SchemaAt>>,
    copies: Option<SharedCopies>,
    memory_limit: Option<MemoryLimit>,
) -> Result<(Arc<ReplicaContext>, Index)> {
    let newest = versions.last().ok_or_else(closed)?;
    options.for_replica(None).check(&newest.definition)?;
    let followed = newest.definition.partitions.partitions();
    let followed: Vec<_> =
        followed.filter(|partition| options.partitions.follows(*partition)).collect();
    let count = followed.len();
    let (of_index, seed) = (versions.iter().cloned(), parts.entropy.next_u64()?);
    let (index, beside) = match copies {
        Some(SharedCopies { live, sources, beside }) => {
            (Index::open_from_sources(of_index, sources, seed, live)?, beside)
        }
        None => (Index::new(of_index, followed, seed)?, None),
    };
    if let Some(memory_limit) = memory_limit {
        let bytes = memory_limit.bytes(count);
        index.limit_memory(bytes);
        let source = memory_limit.source;
        tracing::debug!(store = %options.store, bytes, %source, "memory limit set");
    }
    spill_to_disk(&index, &options, &parts)?;
    let storage = Arc::new(IndexStorage(index.clone()));
    let (options, parts) = (options.for_replica(beside), parts.for_replica());
    let context = ReplicaContext::new(options, parts, &newest.definition, storage)?;
    Ok((Arc::new(context), index))
}

/// Sets the directory for spilled documents, including those of a checkpoint of an earlier reader
/// that spilled.
fn spill_to_disk(index: &Index, options: &ReaderOptions, parts: &ReaderParts) -> Result<()> {
    let is_of_host = parts.disk.as_ref().is_some_and(|disk| disk.is_of_host());
    match options.checkpoint.as_ref().filter(|_| is_of_host) {
        Some(checkpoint) => index.spill_to(&checkpoint.dir, options.spill_limit),
        None if options.spill_limit > 0 => {
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
async fn watch_readiness(context: Arc<ReplicaContext>, index: Index) {
    let looks = async {
        let mut is_warned = false;
        loop {
            context.observe_readiness(context.parts.clock.now());
            let memory = index.memory();
            let is_under_pressure = memory.is_under_pressure();
            if is_under_pressure && !is_warned {
                let (used, limit) = (memory.used, memory.limit);
                let name = &context.name;
                tracing::warn!(store = %name, used, limit, "memory limit nearly reached");
            }
            is_warned = is_under_pressure;
            tokio::time::sleep(Duration::from_millis(READER_READY_CHECK_MS)).await;
        }
    };
    tokio::select! {
        biased;
        () = context.close_signal.closed() => {}
        () = looks => {}
    }
}
