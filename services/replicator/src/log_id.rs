//! The id of a partition's log, as its first records tell, and the opening of one that has none.

use std::time::Duration;

use forebay_core::change::{Entry, EntryBody};
use forebay_core::entropy::Entropy;
use forebay_core::id::{Epoch, LogId, PartitionRef, SchemaVersion};
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{Bounds, ChangeLog, LogRecord, ReadLimit};
use forebay_wire::entry::{encode_entry, log_id_told};

const SEARCH_READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
/// Enough for one record, which is nearly always the opening.
const FIRST_READ: ReadLimit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };

/// Id of a log, as its first records tell; `None` for one that nobody has opened.
pub(crate) async fn log_id(
    log: &dyn ChangeLog,
    at: PartitionRef,
    bounds: Bounds,
) -> Result<Option<LogId>> {
    let mut from = bounds.start;
    while from < bounds.end {
        let limit = if from == bounds.start { FIRST_READ } else { SEARCH_READ };
        let records = log.read(at, from, limit).await?.records;
        let told = |record: &LogRecord| log_id_told(&record.entry, bounds.start);
        if let Some(log_id) = records.iter().find_map(told) {
            return Ok(Some(log_id));
        }
        let Some(last) = records.last() else { return Ok(None) };
        from = last.offset.next();
    }
    Ok(None)
}

/// Id of a log; opens it when nobody has.
///
/// # Errors
/// Those of the log; `Unavailable` when somebody must look again.
pub(crate) async fn open(
    log: &dyn ChangeLog,
    entropy: &dyn Entropy,
    at: PartitionRef,
) -> Result<LogId> {
    if let Some(log_id) = log_id(log, at, log.bounds(at).await?).await? {
        return Ok(log_id);
    }
    let entry = Entry {
        log_id: entropy.log_id()?,
        epoch: Epoch(0),
        schema_version: SchemaVersion(0),
        source: None,
        body: EntryBody::Opening,
    };
    match log.append(at, encode_entry(&entry)?).await {
        // Whether it was appended, and first, shows when the log is looked at again.
        Err(error) if error.code() != ErrorCode::UnknownOutcome => return Err(error),
        _ => {}
    }
    let found = log_id(log, at, log.bounds(at).await?).await?;
    found.ok_or_else(|| {
        Error::unavailable("the log has no opening entry yet").with_partition(at.partition)
    })
}
