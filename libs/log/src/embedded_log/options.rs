//! Options of an embedded log.

use std::path::PathBuf;

/// Durability of an acknowledged entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The entry survives a power cut of the host, but not the loss of its disk.
    Fsync,
    /// The entry survives the end of the process, but not a power cut of the host.
    Buffered,
}

/// Threads or task that run the committers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// This many dedicated threads, at least one; partitions are spread over them. tokio's blocking
    /// threads read files.
    Threads(usize),
    /// A single tokio task; calls read files inline. For simulators, whose disk never blocks and
    /// whose runs must be deterministic.
    Task,
}

/// Part of the log that is verified at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenVerification {
    /// Every segment, so that all damage is found at open.
    AllSegments,
    /// The last segment of each partition in full; header, name and length of the sealed segments.
    /// Damage in a sealed segment is found by the first read of it, and then stops the log.
    ActiveSegments,
}

/// Options of an embedded log.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Data directory of the log; created if needed.
    pub data_dir: PathBuf,
    /// Durability of acknowledged entries; default `Fsync`.
    pub durability: Durability,
    /// Threads that commit; default one. The more appends share a sync, the fewer syncs are needed.
    pub commit: CommitMode,
    /// Size in bytes at which the log starts a new segment; default 64 MiB.
    pub segment_bytes: u64,
    /// Size of each committer's journal with [`Durability::Fsync`], in bytes; default 8 MiB. If a
    /// group does not fit into half of the journal (with 0 bytes, no group fits), the committer
    /// syncs each segment that the group touches.
    pub journal_bytes: u64,
    /// Limit of the newest entries that one partition caches in memory for readers at its tail, in
    /// bytes; default 1 MiB.
    pub tail_cache_bytes: usize,
    /// Limit of these caches for all partitions together, in bytes; default 64 MiB.
    pub tail_cache_total_bytes: usize,
    /// Part of the log that is verified at open; default the last segments.
    pub open_verification: OpenVerification,
}

impl EmbeddedOptions {
    /// Returns the default options for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            durability: Durability::Fsync,
            commit: CommitMode::Threads(1),
            segment_bytes: 64 * 1024 * 1024,
            journal_bytes: 8 * 1024 * 1024,
            tail_cache_bytes: 1024 * 1024,
            tail_cache_total_bytes: 64 * 1024 * 1024,
            open_verification: OpenVerification::ActiveSegments,
        }
    }
}
