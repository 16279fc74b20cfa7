//! How an embedded log is opened.

use std::path::PathBuf;

/// What an acknowledgement of the embedded log promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The entry survives a power cut of the host; not the loss of its disk.
    Fsync,
    /// The entry survives the end of the process; not that of the host.
    Buffered,
}

/// Where committing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// On this many threads of their own, at least one; partitions are spread over them. Files are
    /// read on tokio's blocking threads.
    Threads(usize),
    /// On one tokio task, and files are read where the call runs: for simulators, whose disk never
    /// blocks, and whose runs must repeat exactly.
    Task,
}

/// What is read when a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckAtOpen {
    /// Every segment, so that all damage is found at once.
    Everything,
    /// The last segment of each partition wholly, of the sealed ones header, name and length;
    /// damage in one of them is found when it is first read, and stops the log then.
    LastSegments,
}

/// How an embedded log is opened.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Where the log's files lie; made if need be.
    pub data_dir: PathBuf,
    /// What an acknowledgement promises; `Fsync` unless set.
    pub durability: Durability,
    /// Where committing runs; one thread unless set: the more wait for a sync together, the fewer
    /// there are.
    pub commit: CommitMode,
    /// Size at which a segment is followed by a new one, in bytes; 64 MiB unless set.
    pub segment_bytes: u64,
    /// Size of the journal that each committer has with [`Durability::Fsync`], in bytes; 8 MiB
    /// unless set. A group of appends that does not fit into half of it, as into that of 0 bytes,
    /// is made durable by a sync of each segment that it touches.
    pub journal_bytes: u64,
    /// Newest entries that one partition keeps in memory for readers at its tail, in bytes; 1 MiB
    /// unless set.
    pub tail_cache_bytes: usize,
    /// The same for all partitions together, in bytes; 64 MiB unless set.
    pub tail_cache_total_bytes: usize,
    /// What is read when the log is opened; the last segments unless set.
    pub check_at_open: CheckAtOpen,
}

impl EmbeddedOptions {
    /// The usual options for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            durability: Durability::Fsync,
            commit: CommitMode::Threads(1),
            segment_bytes: 64 * 1024 * 1024,
            journal_bytes: 8 * 1024 * 1024,
            tail_cache_bytes: 1024 * 1024,
            tail_cache_total_bytes: 64 * 1024 * 1024,
            check_at_open: CheckAtOpen::LastSegments,
        }
    }
}
