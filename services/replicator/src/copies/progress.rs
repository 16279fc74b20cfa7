//! How far a copy has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::rows_digest::RowsDigest;
use forebay_shard::Import;
use tokio::time::Instant;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyProgress {
    /// What is durable.
    pub digest: RowsDigest,
    /// Bytes of keys and values that are durable.
    pub bytes: u64,
    /// Bytes of rows that have come since the copy was begun or gone on with here.
    pub bytes_received: u64,
    /// About how many rows there are in all.
    pub rows_in_all: u64,
    /// Bytes of keys and values in a second, since then.
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
        let digest = import.digest();
        let bytes: u64 = import.ranges().iter().map(|range| range.bytes).sum();
        let rows_in_all = import.plan().rows.max(digest.rows);
        let seconds = self.began.elapsed().as_secs_f64();
        let rows_per_second = (digest.rows - self.rows) as f64 / seconds;
        let left = (rows_in_all - digest.rows) as f64 / rows_per_second;
        CopyProgress {
            digest,
            bytes,
            bytes_received: self.received.load(Ordering::Relaxed),
            rows_in_all,
            bytes_per_second: (bytes - self.bytes) as f64 / seconds,
            left: Duration::try_from_secs_f64(left).ok(),
        }
    }
}
