//! What a reader is asked to be, and the parts that it is made of.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionId, PartitionRef};
use forebay_core::limits::{READER_OPEN_TIMEOUT_MS, READER_READY_AGE_MS};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_log::disk::Disk;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_snapshot::SnapshotStore;
use tonic::transport::Channel;

use crate::age::check_bound;
use crate::barrier::Barriers;
use crate::checkpoint::CheckpointOptions;

/// Which partitions of its store a reader follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PartitionFilter {
    /// All of them.
    #[default]
    All,
    /// Just these; reads of other partitions are `InvalidArgument`.
    Only(BTreeSet<PartitionId>),
}

impl PartitionFilter {
    /// Whether the reader follows this partition.
    pub fn follows(&self, partition: PartitionId) -> bool {
        match self {
            Self::All => true,
            Self::Only(partitions) => partitions.contains(&partition),
        }
    }

    /// Refuses a filter that names no partition, or one that the store does not have.
    pub(crate) fn check(&self, count: PartitionCount) -> Result<()> {
        let Self::Only(partitions) = self else { return Ok(()) };
        let Some(last) = partitions.last() else {
            return Err(Error::invalid_argument("the filter names no partition; name one or more"));
        };
        if last.0 < count.0 {
            return Ok(());
        }
        let message = format!("the store has partitions 0 to {}; correct the filter", count.0 - 1);
        Err(Error::invalid_argument(message).with_partition(*last))
    }
}

impl fmt::Display for PartitionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all partitions"),
            Self::Only(partitions) => {
                let shown: Vec<_> = partitions.iter().take(16).map(ToString::to_string).collect();
                let more = if partitions.len() > shown.len() { ", ..." } else { "" };
                write!(f, "partitions {}{more}", shown.join(", "))
            }
        }
    }
}

/// What a reader is asked to be.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Name of the store.
    pub store: String,
    /// Which of its partitions to follow.
    pub partitions: PartitionFilter,
    /// Answers from partitions that have not caught up once, where absent may mean "not yet".
    pub serve_partial: bool,
    /// Oldest age at which the reader becomes ready; it falls back past twice this for 5 s.
    pub ready_age_max: Duration,
    /// Longest wait of `open` for the store to appear in the catalog.
    pub open_timeout: Duration,
    /// Keeps the outcomes of conditional changes; for the replica that a writer asks.
    pub keep_outcomes: bool,
    /// Where and how often to write checkpoints, from which a restart goes on; `None` writes none.
    pub checkpoint: Option<CheckpointOptions>,
    /// Where the snapshots lie that copies begin with, which spares reading the whole log, and
    /// takes the place of what was trimmed of it. Their images are fetched into the directory of
    /// the checkpoints. `None` begins with the log.
    pub snapshots: Option<SnapshotStore>,
    /// Bytes of memory that the documents and their index may take; `None` is half of the smaller
    /// of the control group's limit and the host's memory, and less where that would leave below
    /// 56 MiB and 8 for each partition. Where an entry needs more, the reader spills, if it may;
    /// else it stops applying and says so in its status; it answers on, and turns stale by its
    /// bounds. Readers that share a copy count it once: by the budget of the one that keeps it.
    pub memory_budget: Option<u64>,
    /// Bytes of disk, in the directory of the checkpoints, that documents may take which have no
    /// room in memory any more; 0 spills nothing. Those go there that were written longest ago, and
    /// a read of one waits for the disk. The index stays in memory, and an entry is taken in whole:
    /// the budget must have room for both.
    pub spill_bytes_max: u64,
}

impl ReaderOptions {
    /// A reader of all partitions of this store.
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            partitions: PartitionFilter::All,
            serve_partial: false,
            ready_age_max: Duration::from_millis(READER_READY_AGE_MS),
            open_timeout: Duration::from_millis(READER_OPEN_TIMEOUT_MS),
            keep_outcomes: false,
            checkpoint: None,
            snapshots: None,
            memory_budget: None,
            spill_bytes_max: 0,
        }
    }

    /// Refuses what a store of this definition cannot be asked for.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check(&self, definition: &Definition) -> Result<()> {
        self.partitions.check(definition.partitions)?;
        check_bound(self.ready_age_max, &definition.options)
    }
}

/// One record that was skipped, as every replica skips it.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Where it stands.
    pub at: PartitionRef,
    /// Its offset there.
    pub offset: Offset,
    /// Log that the partition follows; `None` before its first well-formed entry.
    pub log_id: Option<LogId>,
    /// When the log appended it.
    pub append_time: Timestamp,
    /// Its bytes.
    pub entry: Bytes,
    /// Why it was skipped.
    pub reason: Error,
}

/// Told of each skipped record, before the position moves past it. Called from the partition's
/// tail, which waits for it: it must be quick and must not block. Called again for the same offset
/// when a partition is built anew.
pub type OnSkipped = Arc<dyn Fn(&Skipped) + Send + Sync>;

/// What a reader is made of: everything that it reads beside its own memory.
#[derive(Clone)]
pub struct ReaderParts {
    /// The log to follow.
    pub log: Arc<dyn ChangeLog>,
    /// Follower of the control log; shared by the readers of one process.
    pub catalog: Arc<CatalogFollower>,
    /// The reader's clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Appends barriers.
    pub barriers: Arc<dyn Barriers>,
    /// Told of skipped records.
    pub on_skipped: Option<OnSkipped>,
    /// The disk of the checkpoints; needed with [`ReaderOptions::checkpoint`] only.
    pub disk: Option<Arc<dyn Disk>>,
    /// A connection to a replicator whose shards copies begin with where there is no snapshot and
    /// the log is long, or was trimmed; `None` begins with the log.
    pub replicator: Option<Channel>,
}
