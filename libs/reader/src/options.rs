//! The options of a reader, and the parts that it is built from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::StoreId;
use forebay_core::limits::{
    CHECKPOINT_BYTES_MAX, CHECKPOINT_INTERVAL_MS, READER_OPEN_TIMEOUT_MS, READER_READY_AGE_MS,
};
use forebay_entries::CatalogFollower;
use forebay_index::SharedCopyDirectory;
use forebay_log::ChangeLog;
use forebay_log::disk::Disk;
use forebay_replica::{Barriers, PartitionFilter, ReplicaOptions, ReplicaParts};
use forebay_snapshot::SnapshotStore;
use tonic::transport::Channel;

/// Options for the directory and the frequency of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointOptions {
    /// Directory of the checkpoints; created if it is missing.
    pub dir: PathBuf,
    /// Whether other readers, in this process or another, may use the directory as well. Readers
    /// that share a directory answer from one copy of each partition, which one of them owns; if
    /// the owner ends, in whatever way, another reader takes the copy over. If this is false, or if
    /// the disk is not the host's, only one reader at a time uses a partition's files.
    pub is_shared: bool,
    /// Directory of a memory file system for the documents of shared copies. If there is no such
    /// directory, or if it has no space, the documents are in `dir`. Documents in memory outlive
    /// the last reader, so that the next reader resumes from them, until the machine restarts or a
    /// reader finds their `dir` removed.
    pub memory_dir: Option<PathBuf>,
    /// Time between two checkpoints of a partition. The time is longer if a write takes long, or
    /// while a partition of the reader starts from an image: no checkpoint is written during that
    /// time.
    pub interval: Duration,
    /// Largest partition, in bytes of its keys and rows, that gets checkpoints: the tail applies
    /// nothing while it writes one.
    pub bytes_max: u64,
}

impl CheckpointOptions {
    /// Returns options for shared checkpoints in this directory, every 10 s, for partitions of up
    /// to 4 GiB, with the documents in the host's shared memory (`/dev/shm`) if there is one.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let interval = Duration::from_millis(CHECKPOINT_INTERVAL_MS);
        let SharedCopyDirectory { dir, memory_dir } = SharedCopyDirectory::new(dir);
        Self { dir, is_shared: true, memory_dir, interval, bytes_max: CHECKPOINT_BYTES_MAX }
    }

    /// Sets the directory of the checkpoints.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// Sets whether other readers may use the directory as well.
    #[must_use]
    pub fn is_shared(mut self, is_shared: bool) -> Self {
        self.is_shared = is_shared;
        self
    }

    /// Sets the directory of a memory file system for the documents of shared copies.
    #[must_use]
    pub fn memory_dir(mut self, memory_dir: impl Into<Option<PathBuf>>) -> Self {
        self.memory_dir = memory_dir.into();
        self
    }

    /// Sets the time between two checkpoints of a partition.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the largest partition, in bytes of its keys and rows, that gets checkpoints.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }
}

/// The options of a reader: the defaults of [`ReaderOptions::new`], changed one by one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReaderOptions {
    /// Name of the store.
    pub store: String,
    /// Partitions of the store to follow.
    pub partitions: PartitionFilter,
    /// Whether partitions that have not caught up once answer reads; *absent* may then mean "not
    /// yet".
    pub allow_incomplete_reads: bool,
    /// Highest age at which the reader becomes ready; it stops being ready once the age is above
    /// twice this value for 5 s.
    pub ready_max_staleness: Duration,
    /// Longest wait of `open` for the store to appear in the catalog.
    pub open_timeout: Duration,
    /// Directory and frequency of checkpoints, which a restart resumes from; `None` writes none.
    pub checkpoint: Option<CheckpointOptions>,
    /// Snapshots that replicas start from, so that they need not read the whole log, nor the part
    /// that retention removed. The images are fetched into the directory of the checkpoints. `None`
    /// starts from the log.
    pub snapshots: Option<SnapshotStore>,
    /// Bytes of memory for the documents and their index. `None` is half of the smaller of the
    /// control group's limit and the host's memory, or less if half would leave less than 56 MiB
    /// plus 8 MiB for each partition. If an entry needs more than the limit, the reader spills
    /// documents to disk, if `spill_limit` permits; else it stops applying entries and reports
    /// this in its status, and its reads continue until they are stale by their bounds. A shared
    /// copy counts once, against the limit of the reader that owns it.
    pub memory_limit: Option<u64>,
    /// Bytes of disk, in the directory of the checkpoints, for documents that no longer fit into
    /// memory; 0 spills nothing. The reader spills the documents that were written longest ago;
    /// reading a spilled document blocks on disk I/O. The index stays in memory, and an entry is
    /// applied as a whole: the memory limit must have space for both.
    pub spill_limit: u64,
}

impl ReaderOptions {
    /// Returns the options of a reader of all partitions of this store.
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            partitions: PartitionFilter::All,
            allow_incomplete_reads: false,
            ready_max_staleness: Duration::from_millis(READER_READY_AGE_MS),
            open_timeout: Duration::from_millis(READER_OPEN_TIMEOUT_MS),
            checkpoint: None,
            snapshots: None,
            memory_limit: None,
            spill_limit: 0,
        }
    }

    /// Sets the partitions of the store to follow.
    #[must_use]
    pub fn partitions(mut self, partitions: PartitionFilter) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets whether partitions that have not caught up once answer reads.
    #[must_use]
    pub fn allow_incomplete_reads(mut self, allow_incomplete_reads: bool) -> Self {
        self.allow_incomplete_reads = allow_incomplete_reads;
        self
    }

    /// Sets the highest age at which the reader becomes ready.
    #[must_use]
    pub fn ready_max_staleness(mut self, ready_max_staleness: Duration) -> Self {
        self.ready_max_staleness = ready_max_staleness;
        self
    }

    /// Sets the longest wait of `open` for the store to appear in the catalog.
    #[must_use]
    pub fn open_timeout(mut self, open_timeout: Duration) -> Self {
        self.open_timeout = open_timeout;
        self
    }

    /// Sets the directory and frequency of checkpoints; `None` writes none.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: impl Into<Option<CheckpointOptions>>) -> Self {
        self.checkpoint = checkpoint.into();
        self
    }

    /// Sets the snapshots that replicas start from; `None` starts from the log.
    #[must_use]
    pub fn snapshots(mut self, snapshots: impl Into<Option<SnapshotStore>>) -> Self {
        self.snapshots = snapshots.into();
        self
    }

    /// Sets the bytes of memory for the documents and their index; `None` is the default.
    #[must_use]
    pub fn memory_limit(mut self, memory_limit: impl Into<Option<u64>>) -> Self {
        self.memory_limit = memory_limit.into();
        self
    }

    /// Sets the bytes of disk for documents that no longer fit into memory.
    #[must_use]
    pub fn spill_limit(mut self, spill_limit: u64) -> Self {
        self.spill_limit = spill_limit;
        self
    }

    /// Returns the options of the replica of a store version, next to the version `beside` that
    /// reads use until then.
    pub(crate) fn for_replica(&self, beside: Option<StoreId>) -> ReplicaOptions {
        ReplicaOptions {
            partitions: self.partitions.clone(),
            allow_incomplete_reads: self.allow_incomplete_reads,
            ready_max_staleness: self.ready_max_staleness,
            snapshots: self.snapshots.clone(),
            memory_limit: self.memory_limit,
            beside,
            ..ReplicaOptions::new(&self.store)
        }
    }
}

/// The parts that a reader is built from: everything that it uses besides its own memory.
#[derive(Clone)]
pub struct ReaderParts {
    /// The log to follow.
    pub log: Arc<dyn ChangeLog>,
    /// Follower of the control log; shared by the readers of one process.
    pub catalog: Arc<CatalogFollower>,
    /// The reader's clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the jitter of the back-off.
    pub entropy: Arc<dyn Entropy>,
    /// The way to append barriers.
    pub barriers: Arc<dyn Barriers>,
    /// The disk of the checkpoints; needed only with [`ReaderOptions::checkpoint`].
    pub disk: Option<Arc<dyn Disk>>,
    /// A connection to a replicator. If there is no snapshot, and the log is long or its start was
    /// removed by retention, replicas start from the replicator's shards; `None` starts from the
    /// log.
    pub replicator: Option<Channel>,
}

/// The parts of a reader without a disk, from those of any replica.
impl From<ReplicaParts> for ReaderParts {
    fn from(parts: ReplicaParts) -> Self {
        let ReplicaParts { log, catalog, clock, entropy, barriers, replicator } = parts;
        Self { log, catalog, clock, entropy, barriers, disk: None, replicator }
    }
}

impl ReaderParts {
    /// Returns the parts of the replica that the reader answers from.
    pub(crate) fn for_replica(&self) -> ReplicaParts {
        ReplicaParts {
            log: Arc::clone(&self.log),
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            barriers: Arc::clone(&self.barriers),
            replicator: self.replicator.clone(),
        }
    }
}
