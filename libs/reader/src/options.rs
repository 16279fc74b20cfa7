//! The options of a reader, and the parts that it is built from.

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

/// The partitions of its store that a reader follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PartitionFilter {
    /// All partitions.
    #[default]
    All,
    /// These partitions only; reads of other partitions return `InvalidArgument`.
    Only(BTreeSet<PartitionId>),
}

impl PartitionFilter {
    /// Returns whether the reader follows this partition.
    pub fn follows(&self, partition: PartitionId) -> bool {
        match self {
            Self::All => true,
            Self::Only(partitions) => partitions.contains(&partition),
        }
    }

    /// Refuses a filter that names no partition, or a partition that the store does not have.
    pub(crate) fn check(&self, count: PartitionCount) -> Result<()> {
        let Self::Only(partitions) = self else { return Ok(()) };
        let Some(last) = partitions.last() else {
            return Err(Error::invalid_argument(
                "the filter names no partition; name at least one",
            ));
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

/// The options of a reader.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Name of the store.
    pub store: String,
    /// Partitions of the store to follow.
    pub partitions: PartitionFilter,
    /// Whether partitions that have not caught up once answer reads; *absent* may then mean "not
    /// yet".
    pub serve_partial: bool,
    /// Highest age at which the reader becomes ready; it stops being ready once the age is above
    /// twice this value for 5 s.
    pub ready_age_max: Duration,
    /// Longest wait of `open` for the store to appear in the catalog.
    pub open_timeout: Duration,
    /// Whether the reader stores the outcomes of conditional changes; for the replica that a writer
    /// queries.
    pub keep_outcomes: bool,
    /// Directory and frequency of checkpoints, which a restart resumes from; `None` writes none.
    pub checkpoint: Option<CheckpointOptions>,
    /// Snapshots that replicas start from, so that they need not read the whole log, nor the part
    /// that retention removed. The images are fetched into the directory of the checkpoints. `None`
    /// starts from the log.
    pub snapshots: Option<SnapshotStore>,
    /// Bytes of memory for the documents and their index. `None` is half of the smaller of the
    /// control group's limit and the host's memory, or less if half would leave less than 56 MiB
    /// plus 8 MiB for each partition. If an entry needs more than the budget, the reader spills
    /// documents to disk, if `spill_bytes_max` permits; else it stops applying entries and reports
    /// this in its status, and its reads continue until they are stale by their bounds. A shared
    /// copy counts once, against the budget of the reader that owns it.
    pub memory_budget: Option<u64>,
    /// Bytes of disk, in the directory of the checkpoints, for documents that no longer fit into
    /// memory; 0 spills nothing. The reader spills the documents that were written longest ago;
    /// reading a spilled document blocks on disk I/O. The index stays in memory, and an entry is
    /// applied as a whole: the budget must have space for both.
    pub spill_bytes_max: u64,
}

impl ReaderOptions {
    /// Returns the options of a reader of all partitions of this store.
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

    /// Refuses options that a store of this definition cannot fulfil.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for such options.
    pub(crate) fn check(&self, definition: &Definition) -> Result<()> {
        self.partitions.check(definition.partitions)?;
        check_bound(self.ready_age_max, &definition.options)
    }
}

/// A record that was skipped; every replica skips it.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Partition of the record.
    pub at: PartitionRef,
    /// Offset of the record in the partition's log.
    pub offset: Offset,
    /// Log that the partition follows; `None` before its first well-formed entry.
    pub log_id: Option<LogId>,
    /// Append time of the record.
    pub append_time: Timestamp,
    /// Bytes of the record.
    pub entry: Bytes,
    /// Error that explains the skip.
    pub reason: Error,
}

/// A callback that receives each skipped record before the position moves past it. The partition's
/// tail calls it and waits for it: the callback must be quick and must not block. A rebuild of the
/// partition calls it again for the same offset.
pub type OnSkipped = Arc<dyn Fn(&Skipped) + Send + Sync>;

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
    /// Callback for skipped records.
    pub on_skipped: Option<OnSkipped>,
    /// The disk of the checkpoints; needed only with [`ReaderOptions::checkpoint`].
    pub disk: Option<Arc<dyn Disk>>,
    /// A connection to a replicator. If there is no snapshot, and the log is long or its start was
    /// removed by retention, replicas start from the replicator's shards; `None` starts from the
    /// log.
    pub replicator: Option<Channel>,
}
