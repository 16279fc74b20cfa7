//! The bound up to which compaction removes expired documents.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use forebay_core::clock::Timestamp;
use forebay_core::key_order::DOCUMENTS;
use forebay_core::row::row_expires_at;
use rocksdb::CompactionDecision;

/// A lower bound of the partition time that a restart resumes at.
///
/// A kill leaves an older state with an earlier partition time, and the shard applies the entries
/// after that state once more. These entries must find each document that existed at that time.
/// Therefore compaction may remove a document only if it has expired at a partition time that is on
/// disk.
#[derive(Clone, Debug)]
pub(crate) struct DurableWatermark(Arc<AtomicI64>);

impl DurableWatermark {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(Timestamp::MIN.as_micros())))
    }

    /// Notes that a state of this partition time is on disk.
    pub(crate) fn note(&self, time: Timestamp) {
        self.0.fetch_max(time.as_micros(), Ordering::AcqRel);
    }

    /// Decides whether compaction removes a row.
    pub(crate) fn decide(&self, key: &[u8], row: &[u8]) -> CompactionDecision {
        let durable = Timestamp::from_micros(self.0.load(Ordering::Acquire));
        let is_document = key.first() == Some(&DOCUMENTS);
        match row_expires_at(row) {
            Some(at) if is_document && at <= durable => CompactionDecision::Remove,
            _ => CompactionDecision::Keep,
        }
    }
}
