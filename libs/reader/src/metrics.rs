//! A snapshot of a reader's counters, for programs that export metrics.

use forebay_index::{Index, MemoryUse, ReadCounts};
use forebay_replica::{Counts, ReaderStatus, ReplicaContext};

/// Counts and sizes of a reader since it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderMetrics {
    /// Documents found and not found.
    pub reads: ReadCounts,
    /// Counters of the records of all partitions together.
    pub records: Counts,
    /// Estimated memory of all documents, in bytes.
    pub memory_bytes: u64,
    /// Memory that the partitions owned by this reader use, and its bound: the memory budget.
    pub memory: MemoryUse,
    /// Status of the reader and of each of its partitions.
    pub status: ReaderStatus,
}

impl ReaderMetrics {
    pub(crate) fn of(context: &ReplicaContext, index: &Index) -> Self {
        let index = index.metrics();
        let status = context.status();
        let mut records = Counts::default();
        status.partitions.iter().for_each(|partition| records.add(&partition.counts));
        let (reads, memory_bytes) = (index.reads, index.memory_bytes());
        let memory = index.memory;
        Self { reads, records, memory_bytes, memory, status }
    }
}
