//! The records of a log between two offsets.

use std::ops::Range;
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::limits::READER_READ_BYTES_MAX;
use forebay_core::{Error, Result};

use crate::change_log::{ChangeLog, LogRecord, ReadLimit};

/// Longest wait of a read for records that should exist.
const READ_WAIT: Duration = Duration::from_secs(5);

/// The rest of a range of records.
pub struct RecordRange<'l> {
    /// The log.
    pub log: &'l dyn ChangeLog,
    /// Partition of the range.
    pub at: PartitionRef,
    /// Offsets that were not read yet.
    pub offsets: Range<Offset>,
}

impl RecordRange<'_> {
    /// Returns the next records; none at the end of the range.
    ///
    /// # Errors
    /// - `TokenLost`: the log no longer stores the records.
    /// - `Unavailable`: the log ends before the range does.
    /// - The errors of the log.
    pub async fn next(&mut self) -> Result<Vec<LogRecord>> {
        let Range { start, end } = self.offsets;
        if start >= end {
            return Ok(Vec::new());
        }
        let limit = ReadLimit { bytes_max: READER_READ_BYTES_MAX, wait_max: READ_WAIT };
        let mut read = self.log.read(self.at, start, limit).await?;
        // Records that were received before later appends report an earlier end.
        if read.records.is_empty() && read.end < end {
            let message = "the log ends before the offset applied";
            return Err(Error::unavailable(message).with_partition(self.at.partition));
        }
        // After the last record there may be offsets without a record, as in Kafka.
        self.offsets.start = read.records.last().map_or(end, |last| last.offset.next());
        read.records.retain(|record| record.offset < end);
        Ok(read.records)
    }
}
