//! The options of a replica, and the parts that it is built from.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::limits::READER_READY_AGE_MS;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;
use forebay_log::ChangeLog;
use forebay_snapshot::SnapshotStore;
use tonic::transport::Channel;

use crate::age::check_bound;
use crate::barrier::Barriers;

/// The partitions of its store that a replica follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PartitionFilter {
    /// All partitions.
    #[default]
    All,
    /// These partitions only; reads of other partitions return `InvalidArgument`.
    Only(BTreeSet<PartitionId>),
}

impl PartitionFilter {
    /// Returns whether the replica follows this partition.
    pub fn follows(&self, partition: PartitionId) -> bool {
        match self {
            Self::All => true,
            Self::Only(partitions) => partitions.contains(&partition),
        }
    }

    /// Refuses a filter that names no partition, or a partition that the store does not have.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for such a filter.
    pub fn check(&self, count: PartitionCount) -> Result<()> {
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
                let shown_ids: Vec<_> =
                    partitions.iter().take(16).map(ToString::to_string).collect();
                let ellipsis = if partitions.len() > shown_ids.len() { ", ..." } else { "" };
                write!(f, "partitions {}{ellipsis}", shown_ids.join(", "))
            }
        }
    }
}

/// The options of a replica.
#[derive(Clone)]
pub struct ReplicaOptions {
    /// Name of the store.
    pub store: String,
    /// Partitions of the store to follow.
    pub partitions: PartitionFilter,
    /// Whether partitions that have not caught up once answer reads; *absent* may then mean "not
    /// yet".
    pub allow_incomplete_reads: bool,
    /// Highest age at which the replica becomes ready; it stops being ready once the age is above
    /// twice this value for 5 s.
    pub ready_max_staleness: Duration,
    /// Whether the replica stores the outcomes of conditional changes, for writers that query them.
    pub keep_outcomes: bool,
    /// Callback for skipped records.
    pub on_skipped: Option<OnSkipped>,
    /// Snapshots that partitions start from, so that they need not read the whole log, nor the part
    /// that retention removed; `None` starts from the log.
    pub snapshots: Option<SnapshotStore>,
    /// Bytes of memory for an image that is built from a replicator's shard; `None` sets no bound.
    pub memory_limit: Option<u64>,
    /// Storage id of the store version that reads use until this version replaces it: the replica
    /// may share that version's equal records.
    pub beside: Option<StoreId>,
}

impl ReplicaOptions {
    /// Returns the options of a replica of all partitions of this store.
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            partitions: PartitionFilter::All,
            allow_incomplete_reads: false,
            ready_max_staleness: Duration::from_millis(READER_READY_AGE_MS),
            keep_outcomes: false,
            on_skipped: None,
            snapshots: None,
            memory_limit: None,
            beside: None,
        }
    }

    /// Refuses options that a store of this definition cannot fulfil.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for such options.
    pub fn check(&self, definition: &Definition) -> Result<()> {
        self.partitions.check(definition.partitions)?;
        check_bound(self.ready_max_staleness, &definition.options)
    }
}

/// A record that was skipped; every replica skips it.
#[derive(Clone, Debug)]
pub struct SkippedLogRecord {
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
pub type OnSkipped = Arc<dyn Fn(&SkippedLogRecord) + Send + Sync>;

/// The parts that a replica is built from: everything that it uses besides its storage.
#[derive(Clone)]
pub struct ReplicaParts {
    /// The log to follow.
    pub log: Arc<dyn ChangeLog>,
    /// Follower of the control log; shared by the replicas of one process.
    pub catalog: Arc<CatalogFollower>,
    /// The replica's clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the jitter of the back-off.
    pub entropy: Arc<dyn Entropy>,
    /// The way to append barriers.
    pub barriers: Arc<dyn Barriers>,
    /// A connection to a replicator. If there is no snapshot, and the log is long or its start was
    /// removed by retention, partitions start from the replicator's shards; `None` starts from the
    /// log.
    pub replicator: Option<Channel>,
}
