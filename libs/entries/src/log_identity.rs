//! The id of a log, which its log header entry carries.

use std::time::Duration;

use forebay_core::change::{Entry, EntryBody};
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion};
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{Bounds, ChangeLog, LogRecord, ReadLimit};
use forebay_wire::entry::{encode_entry, peek_log_id};

/// Limit for one record, which is nearly always the log header entry.
const FIRST_READ: ReadLimit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };
/// Most lookups of a log that is trimmed concurrently.
const LOOKS_MAX: usize = 4;
const NEXT_READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Returns the id of a log within these bounds; `None` if the log has no log header entry. Nearly
/// always one read suffices; foreign records before the log header entry cost more reads.
///
/// # Errors
/// The errors of [`ChangeLog::read`].
pub async fn find_log_id(
    log: &dyn ChangeLog,
    at: PartitionRef,
    bounds: Bounds,
) -> Result<Option<LogId>> {
    let mut from = bounds.start;
    while from < bounds.end {
        let limit = if from == bounds.start { FIRST_READ } else { NEXT_READ };
        let records = log.read(at, from, limit).await?.records;
        let entry_log_id = |record: &LogRecord| peek_log_id(&record.entry, bounds.start);
        if let Some(log_id) = records.iter().find_map(entry_log_id) {
            return Ok(Some(log_id));
        }
        let Some(last) = records.last() else { return Ok(None) };
        from = last.offset.next();
    }
    Ok(None)
}

/// Appends a log header entry with a new id. If a log has several header entries, the first one
/// counts, so the caller must read the log again; also after an unknown outcome, which is no error
/// here.
///
/// # Errors
/// The errors of [`ChangeLog::append`] that mean that nothing was appended. `Unavailable` if the
/// start of the log was trimmed: such a log has an id, which snapshots and tokens name, and must
/// get no other.
pub async fn append_log_header(
    log: &dyn ChangeLog,
    entropy: &dyn Entropy,
    at: PartitionRef,
) -> Result<()> {
    let start = log.bounds(at).await?.start;
    if start > Offset(0) {
        let message = format!(
            "log {at} starts at {start} and is empty, so the log id is unknown; restore the log"
        );
        return Err(Error::unavailable(message).with_partition(at.partition));
    }
    let entry = Entry::original(entropy.log_id()?, SchemaVersion(0), EntryBody::LogHeader);
    match log.append(at, encode_entry(&entry)?).await {
        Err(error) if error.code() == ErrorCode::UnknownOutcome => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Returns the current id of a log; looks it up again if the log is trimmed during a lookup.
async fn log_id_now(log: &dyn ChangeLog, at: PartitionRef) -> Result<Option<LogId>> {
    for _ in 1..LOOKS_MAX {
        match find_log_id(log, at, log.bounds(at).await?).await {
            Err(error) if error.code() == ErrorCode::TokenLost => {}
            found => return found,
        }
    }
    find_log_id(log, at, log.bounds(at).await?).await
}

/// Returns the id of a log, and appends a log header entry if the log has none.
///
/// # Errors
/// The errors of the log; `Unavailable` if the caller must try again.
pub async fn open_log(
    log: &dyn ChangeLog,
    entropy: &dyn Entropy,
    at: PartitionRef,
) -> Result<LogId> {
    if let Some(log_id) = log_id_now(log, at).await? {
        return Ok(log_id);
    }
    append_log_header(log, entropy, at).await?;
    let found = log_id_now(log, at).await?;
    found.ok_or_else(|| {
        let message = "the log has no log header entry yet; try again";
        Error::unavailable(message).with_partition(at.partition)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use forebay_core::clock::{ManualClock, Timestamp};
    use forebay_core::entropy::SeededEntropy;
    use forebay_core::id::{PartitionCount, PartitionId, StoreId};
    use forebay_log::MemoryLog;

    use super::*;

    const AT: PartitionRef = PartitionRef { store: StoreId(9), partition: PartitionId(0) };

    #[tokio::test]
    async fn first_log_header_after_foreign_records_names_the_log() {
        let log = MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1))));
        let entropy = SeededEntropy::new(1);
        log.create(AT.store, PartitionCount(1)).await.unwrap();
        for garbage in [&b""[..], b"garbage", &[0; 5_000]] {
            log.append(AT, Bytes::copy_from_slice(garbage)).await.unwrap();
        }
        let bounds = log.bounds(AT).await.unwrap();
        assert_eq!(find_log_id(&log, AT, bounds).await.unwrap(), None);
        let log_id = open_log(&log, &entropy, AT).await.unwrap();
        append_log_header(&log, &entropy, AT).await.unwrap();
        assert_eq!(open_log(&log, &entropy, AT).await.unwrap(), log_id);
    }

    #[tokio::test]
    async fn fully_trimmed_log_gets_no_new_id() {
        let log = MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1))));
        let entropy = SeededEntropy::new(1);
        log.create(AT.store, PartitionCount(1)).await.unwrap();
        let log_id = open_log(&log, &entropy, AT).await.unwrap();
        let end = log.bounds(AT).await.unwrap().end;
        log.trim(AT, end).await.unwrap();
        let error = open_log(&log, &entropy, AT).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error} of {log_id:?}");
        assert_eq!(log.bounds(AT).await.unwrap().end, end, "nothing was appended");
    }
}
