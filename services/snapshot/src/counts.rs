//! Counters of the snapshot service.

use forebay_core::Result;
use forebay_snapshot::GcStats;

/// Counters since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Snapshots that were built and verified.
    pub snapshots_built: u64,
    /// Builds that found no changes.
    pub builds_unchanged: u64,
    /// Builds that failed.
    pub builds_failed: u64,
    /// Snapshots that expired, because there are too many or nobody has verified them.
    pub snapshots_expired: u64,
    /// Snapshots that were removed completely.
    pub snapshots_removed: u64,
    /// Chunks that were removed.
    pub chunks_removed: u64,
    /// Trims of a log.
    pub log_trims: u64,
}

impl SnapshotCounts {
    /// Counts the result of a build: whether there were changes.
    pub(crate) fn note_build(&mut self, built: &Result<bool>) {
        match built {
            Ok(true) => self.snapshots_built += 1,
            Ok(false) => self.builds_unchanged += 1,
            Err(_) => self.builds_failed += 1,
        }
    }

    /// Counts the result of a garbage collection.
    pub(crate) fn note_collection(&mut self, stats: &GcStats) {
        self.snapshots_expired += stats.expired;
        self.snapshots_removed += stats.snapshots;
        self.chunks_removed += stats.chunks;
    }
}
