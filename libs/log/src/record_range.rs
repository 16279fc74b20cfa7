//! The records of a log between two offsets.

use std::ops::Range;
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::limits::READER_READ_BYTES_MAX;
use forebay_core::{Error, Result};

use crate::change_log::{ChangeLog, LogRecord, ReadLimit};

/// What a read of the log waits for records that should be there.
const READ_WAIT: Duration = Duration::from_secs(5);

/// What is left to read.
pub struct RecordRange<'l> {
    /// The log.
    pub log: &'l dyn ChangeLog,
    /// Which partition.
    pub at: PartitionRef,
    /// What is left.
    pub offsets: Range<Offset>,
}

impl RecordRange<'_> {
    /// The records that come next; none where there are no more.
    ///
    /// # Errors
    /// `TokenLost` where the log does not hold them any more, `Unavailable` where it ends before
    /// the range does; else those of the log.
    pub async fn next(&mut self) -> Result<Vec<LogRecord>> {
        let Range { start, end } = self.offsets;
        if start >= end {
            return Ok(Vec::new());
        }
        let limit = ReadLimit { bytes_max: READER_READ_BYTES_MAX, wait_max: READ_WAIT };
        let mut read = self.log.read(self.at, start, limit).await?;
        // Records that were received before others came tell of an earlier end.
        if read.records.is_empty() && read.end < end {
            let message = "the log ends before what was applied of it";
            return Err(Error::unavailable(message).with_partition(self.at.partition));
        }
        // Behind the last record there may be offsets without one, as Kafka has them.
        self.offsets.start = read.records.last().map_or(end, |last| last.offset.next());
        read.records.retain(|record| record.offset < end);
        Ok(read.records)
    }
}
