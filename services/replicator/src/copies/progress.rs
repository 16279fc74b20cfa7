//! Progress of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::rows_digest::RowsDigest;
use forebay_shard::Import;
use tokio::time::Instant;

/// The content of a copy, and how much of it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMoved {
    /// The copy moves rows.
    Rows {
        /// The durable rows.
        digest: RowsDigest,
        /// Approximate number of all rows.
        in_all: u64,
    },
    /// The copy moves files; the number of their rows is unknown.
    Files {
        /// Number of completely durable files.
        ended: u64,
        /// Number of all files.
        in_all: u64,
        /// Number of bytes of all files.
        bytes_in_all: u64,
    },
}

impl Default for CopyMoved {
    /// Returns a copy of no rows.
    fn default() -> Self {
        Self::Rows { digest: RowsDigest::default(), in_all: 0 }
    }
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyProgress {
    /// The content of the copy, and how much of it is durable.
    pub moved: CopyMoved,
    /// Durable bytes: of keys and values, or of files.
    pub bytes: u64,
    /// Bytes received since this process began or resumed the copy.
    pub bytes_received: u64,
    /// Bytes per second that have become durable since then.
    pub bytes_per_second: f64,
    /// Estimated remaining time at this speed; unknown at first.
    pub left: Option<Duration>,
}

/// Measures a copy from its start in this process.
pub(super) struct Meter {
    began: Instant,
    /// Bytes that were durable at the start.
    bytes: u64,
    rows: u64,
    received: Arc<AtomicU64>,
}

impl Meter {
    pub fn start(import: &Import, received: &Arc<AtomicU64>) -> Self {
        let bytes = import.ranges().iter().map(|range| range.bytes).sum();
        let (rows, received) = (import.digest().rows, Arc::clone(received));
        Self { began: Instant::now(), bytes, rows, received }
    }

    /// Returns the current progress of the copy.
    pub fn look(&self, import: &Import) -> CopyProgress {
        let (ranges, plan) = (import.ranges(), import.plan());
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        // `remaining` and `newly_durable` are amounts of rows or of bytes.
        let (moved, remaining, newly_durable) = if plan.files.is_empty() {
            let digest = import.digest();
            let in_all = plan.rows.max(digest.rows);
            let (remaining, newly_durable) = (in_all - digest.rows, digest.rows - self.rows);
            (CopyMoved::Rows { digest, in_all }, remaining, newly_durable)
        } else {
            let ended = ranges.iter().filter(|range| range.is_ended).count() as u64;
            let bytes_in_all: u64 = plan.files.iter().map(|file| file.bytes).sum();
            let moved = CopyMoved::Files { ended, in_all: plan.files.len() as u64, bytes_in_all };
            (moved, bytes_in_all - bytes, bytes - self.bytes)
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let remaining = remaining as f64 * seconds / newly_durable as f64;
        CopyProgress {
            moved,
            bytes,
            bytes_received: self.received.load(Ordering::Relaxed),
            bytes_per_second: (bytes - self.bytes) as f64 / seconds,
            left: Duration::try_from_secs_f64(remaining).ok(),
        }
    }
}
