//! The status that a partition's writer publishes as one consistent set.

use forebay_core::replica_state::{LogCursor, PartitionUsage, Progress};

/// A consistent state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) progress: Progress,
    pub(crate) usage: PartitionUsage,
    pub(crate) cursor: LogCursor,
    /// Number of the space that the status belongs to; 0 in a process's own memory.
    pub(crate) generation: u64,
}

impl Status {
    pub(crate) const START: Self = Self {
        progress: Progress::START,
        usage: PartitionUsage { documents: 0, key_bytes: 0, row_bytes: 0, memory_bytes: 0 },
        cursor: LogCursor {
            log_id: None,
            append_time: None,
            clock_error_us: None,
            opened: None,
            drop_all_count: 0,
            copy: 0,
        },
        generation: 0,
    };
}
