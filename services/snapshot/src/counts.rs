//! What a keeper of snapshots has done.

use forebay_core::Result;
use forebay_snapshot::Collected;

/// What was done since the process has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Snapshots that were built and verified.
    pub built: u64,
    /// Builds that found nothing new.
    pub unchanged: u64,
    /// Builds that came to nothing.
    pub failed: u64,
    /// Snapshots that expired, by their number or since nobody has verified them.
    pub expired: u64,
    /// Snapshots of which nothing is left.
    pub removed: u64,
    /// Chunks that were removed.
    pub chunks_removed: u64,
    /// Times that a log was trimmed.
    pub trimmed: u64,
}

impl SnapshotCounts {
    /// Counts what a build came to: whether there was anything new.
    pub(crate) fn note_build(&mut self, built: &Result<bool>) {
        match built {
            Ok(true) => self.built += 1,
            Ok(false) => self.unchanged += 1,
            Err(_) => self.failed += 1,
        }
    }

    pub(crate) fn note_collected(&mut self, collected: &Collected) {
        self.expired += collected.given_up;
        self.removed += collected.snapshots;
        self.chunks_removed += collected.chunks;
    }
}
