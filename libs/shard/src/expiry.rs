//! Documents that have expired leave the disk when it is compacted anyway, and so does what events
//! were found by that are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use forebay_core::clock::Timestamp;
use forebay_core::key_order::DOCUMENTS;
use forebay_core::row::row_expires_at;
use rocksdb::CompactionDecision;

/// A partition time that a restart cannot fall behind.
///
/// What a kill leaves is an older state, of an earlier partition time, and the entries behind it
/// are applied once more: they must find each document that was there at that time. So a document
/// may only go once it has expired at a partition time that lies on disk.
#[derive(Clone, Debug)]
pub(crate) struct DurableTime(Arc<AtomicI64>);

impl DurableTime {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(Timestamp::MIN.as_micros())))
    }

    /// Notes that a state of this partition time is on disk.
    pub(crate) fn note(&self, time: Timestamp) {
        self.0.fetch_max(time.as_micros(), Ordering::AcqRel);
    }

    /// Decides what becomes of a row that is compacted.
    pub(crate) fn decide(&self, key: &[u8], row: &[u8]) -> CompactionDecision {
        let durable = Timestamp::from_micros(self.0.load(Ordering::Acquire));
        let is_document = key.first() == Some(&DOCUMENTS);
        match row_expires_at(row) {
            Some(at) if is_document && at <= durable => CompactionDecision::Remove,
            _ => CompactionDecision::Keep,
        }
    }
}
