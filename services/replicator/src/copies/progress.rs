//! How far a copy has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::rows_digest::RowsDigest;
use forebay_shard::Import;
use tokio::time::Instant;

/// What a copy moves, and how much of it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMoved {
    /// Rows.
    Rows {
        /// Those that are durable.
        digest: RowsDigest,
        /// About how many there are in all.
        in_all: u64,
    },
    /// Files as they are; what rows they hold is not known.
    Files {
        /// How many are durable as a whole.
        ended: u64,
        /// How many there are in all.
        in_all: u64,
        /// How many bytes there are in all.
        bytes_in_all: u64,
    },
}

impl Default for CopyMoved {
    /// No rows.
    fn default() -> Self {
        Self::Rows { digest: RowsDigest::default(), in_all: 0 }
    }
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyProgress {
    /// What is durable, and of how much.
    pub moved: CopyMoved,
    /// Bytes that are durable: of keys and values, or of files.
    pub bytes: u64,
    /// Such bytes that have come since the copy was begun or gone on with here.
    pub bytes_received: u64,
    /// Such bytes that became durable in a second, since then.
    pub bytes_per_second: f64,
    /// About how long it takes from now on, at this speed; unknown at first.
    pub left: Option<Duration>,
}

/// Measures a copy from one moment on.
pub(super) struct Meter {
    began: Instant,
    /// What was durable then.
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

    /// How far the copy is now.
    pub fn look(&self, import: &Import) -> CopyProgress {
        let (ranges, plan) = (import.ranges(), import.plan());
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        // What is left, and what has become durable since: of rows, or of bytes.
        let (moved, left, since) = if plan.files.is_empty() {
            let digest = import.digest();
            let in_all = plan.rows.max(digest.rows);
            let (left, since) = (in_all - digest.rows, digest.rows - self.rows);
            (CopyMoved::Rows { digest, in_all }, left, since)
        } else {
            let ended = ranges.iter().filter(|range| range.is_ended).count() as u64;
            let bytes_in_all: u64 = plan.files.iter().map(|file| file.bytes).sum();
            let moved = CopyMoved::Files { ended, in_all: plan.files.len() as u64, bytes_in_all };
            (moved, bytes_in_all - bytes, bytes - self.bytes)
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let left = left as f64 * seconds / since as f64;
        CopyProgress {
            moved,
            bytes,
            bytes_received: self.received.load(Ordering::Relaxed),
            bytes_per_second: (bytes - self.bytes) as f64 / seconds,
            left: Duration::try_from_secs_f64(left).ok(),
        }
    }
}
