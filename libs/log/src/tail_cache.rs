//! The newest records of one partition in memory, so that readers at the tail touch no file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::id::Offset;

use crate::LogRecord;

/// Bytes that a record costs in addition to its entry.
const RECORD_OVERHEAD_BYTES: usize = 96;

/// Byte limits of the caches of a log, for one partition and for all together.
#[derive(Debug)]
pub(crate) struct CacheBudget {
    partition_bytes_max: usize,
    bytes_max: usize,
    bytes: AtomicUsize,
}

impl CacheBudget {
    pub(crate) fn new(partition_bytes_max: usize, bytes_max: usize) -> Self {
        Self { partition_bytes_max, bytes_max, bytes: AtomicUsize::new(0) }
    }
}

/// The last records of a partition up to its end, without gaps.
#[derive(Debug)]
pub(crate) struct TailCache {
    budget: Arc<CacheBudget>,
    records: VecDeque<LogRecord>,
    bytes: usize,
}

impl TailCache {
    pub(crate) fn new(budget: Arc<CacheBudget>) -> Self {
        Self { budget, records: VecDeque::new(), bytes: 0 }
    }

    /// Adds the next record and evicts the oldest ones beyond the budget, if necessary the new one,
    /// too.
    pub(crate) fn push(&mut self, record: LogRecord) {
        let bytes = record.entry.len() + RECORD_OVERHEAD_BYTES;
        self.records.push_back(record);
        self.bytes += bytes;
        self.budget.bytes.fetch_add(bytes, Ordering::Relaxed);
        while self.bytes > self.budget.partition_bytes_max
            || self.budget.bytes.load(Ordering::Relaxed) > self.budget.bytes_max
        {
            let Some(oldest) = self.records.pop_front() else { break };
            self.release(oldest.entry.len() + RECORD_OVERHEAD_BYTES);
        }
    }

    /// Returns records from an offset on, as many as fit and at least one; `None` if the offset is
    /// not cached.
    pub(crate) fn read(&self, from: Offset, bytes_max: usize) -> Option<Vec<LogRecord>> {
        if self.records.front()?.offset > from {
            return None;
        }
        let skipped = self.records.partition_point(|record| record.offset < from);
        let mut records = Vec::new();
        let mut bytes = 0;
        for record in self.records.iter().skip(skipped) {
            bytes += record.entry.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record.clone());
        }
        (!records.is_empty()).then_some(records)
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.release(self.bytes);
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for TailCache {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use forebay_core::clock::Timestamp;

    use super::*;

    fn record(offset: u64) -> LogRecord {
        let entry = Bytes::from(vec![0; 100 - RECORD_OVERHEAD_BYTES]);
        LogRecord { offset: Offset(offset), append_time: Timestamp::default(), entry }
    }

    #[test]
    fn all_tail_caches_together_stay_within_the_budget() {
        let budget = Arc::new(CacheBudget::new(500, 800));
        let mut first = TailCache::new(budget.clone());
        let mut second = TailCache::new(budget.clone());
        for offset in 0..20 {
            first.push(record(offset));
        }
        assert_eq!(first.records.len(), 5);
        for offset in 0..20 {
            second.push(record(offset));
        }
        assert_eq!(second.records.len(), 3);
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 800);
        drop(first);
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 300);
        assert_eq!(second.read(Offset(16), 1_000), None);
        assert_eq!(second.read(Offset(18), 1_000).unwrap().len(), 2);
        assert_eq!(second.read(Offset(20), 1_000), None);
    }
}
