//! The queries that a tail sends to its log before it follows it: the log's bounds, its id, and the
//! distance of its clock from the clock of this process.

use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::clock::Clock;
use forebay_core::fold::PartitionState;
use forebay_core::id::{LogId, Offset, PartitionRef};
use forebay_core::limits::{
    READER_BACKOFF_MS_MAX, READER_BACKOFF_MS_MIN, READER_LOG_TIMEOUT_MS, READER_READ_BYTES_MAX,
};
use forebay_core::{Error, Result};
use forebay_entries::find_log_id;
use forebay_log::{Bounds, ChangeLog, LogRecord, ReadLimit, Records};

use crate::age::clock_error_us;

/// The answer of a log to a new connection.
#[derive(Clone, Copy, Debug)]
pub struct LogConnection {
    /// Start and end of the log.
    pub bounds: Bounds,
    /// Id of the log, from its first records; `None` before its log header entry.
    pub log_id: Option<LogId>,
    /// Largest possible distance of the clocks, in microseconds; `None` if the log does not report
    /// its time.
    pub clock_error_us: Option<i64>,
    /// Duration of the exchange that measured the clock, in microseconds.
    pub exchange_us: i64,
}

/// Queries the log for its bounds, its id and its clock.
///
/// # Errors
/// Returns the errors of the log, and `Unavailable` if the log does not answer in time.
pub async fn connect(
    log: &dyn ChangeLog,
    at: PartitionRef,
    clock: &dyn Clock,
) -> Result<LogConnection> {
    let before = clock.now();
    let bounds = in_time(Duration::ZERO, log.bounds(at)).await?;
    let after = clock.now();
    let clock_error_us = bounds.server_time.map(|time| clock_error_us(before, time, after));
    let log_id = in_time(Duration::ZERO, find_log_id(log, at, bounds)).await?;
    let exchange_us = after.micros_since(before);
    Ok(LogConnection { bounds, log_id, clock_error_us, exchange_us })
}

/// Reads records, with a bound on how long the log may stay silent.
pub(crate) async fn read(
    log: &dyn ChangeLog,
    at: PartitionRef,
    from: Offset,
    wait_max: Duration,
) -> Result<Records> {
    let limit = ReadLimit { bytes_max: READER_READ_BYTES_MAX, wait_max };
    in_time(wait_max, log.read(at, from, limit)).await
}

/// Reads the one record at an offset; `None` if the log has no record there.
pub(crate) async fn read_one(
    log: &dyn ChangeLog,
    at: PartitionRef,
    offset: Offset,
) -> Result<Option<LogRecord>> {
    let limit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };
    let records = in_time(Duration::ZERO, log.read(at, offset, limit)).await?.records;
    Ok(records.into_iter().next().filter(|record| record.offset == offset))
}

/// Bounds a call to the log that itself may wait for `wait_max`.
///
/// # Errors
/// Returns the errors of the call, and `Unavailable` if the log does not answer in time.
pub(crate) async fn in_time<T>(
    wait_max: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let silence_max = wait_max + Duration::from_millis(READER_LOG_TIMEOUT_MS);
    tokio::time::timeout(silence_max, call)
        .await
        .unwrap_or_else(|_| Err(Error::unavailable("the log did not answer in time; try again")))
}

/// Returns the back-off of a replica between attempts.
pub fn replica_backoff() -> Backoff {
    let (first, longest) = (READER_BACKOFF_MS_MIN, READER_BACKOFF_MS_MAX);
    Backoff::new(Duration::from_millis(first), Duration::from_millis(longest))
}

/// Checks that a replica may continue with this log from its position.
///
/// # Errors
/// Returns `TokenLost` with the reason for a rebuild: another log id, a start above the replica's
/// offset, or an end below it.
pub(crate) fn check_continues(connected: &LogConnection, state: &PartitionState) -> Result<()> {
    let Bounds { start, end, .. } = connected.bounds;
    let local_offset = state.offset_applied;
    let reason = match (state.log_id, connected.log_id) {
        (Some(local_log_id), Some(found)) if local_log_id != found => {
            format!("the log was replaced: its id is {found:016x}, not {local_log_id:016x}")
        }
        // The replica's log had a log header entry, and this log has none.
        (Some(_), None) if start == Offset(0) => {
            "the log was replaced, and the new log has no log header entry".to_owned()
        }
        _ if start > local_offset => {
            format!("the log starts at {start}, above offset {local_offset}")
        }
        _ if end < local_offset => format!("the log ends at {end}, below offset {local_offset}"),
        _ => return Ok(()),
    };
    Err(Error::token_lost(reason).with_partition(state.partition.partition))
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::id::{PartitionCount, PartitionId, StoreId};

    use super::*;

    fn connected(start: u64, end: u64, log_id: Option<u64>) -> LogConnection {
        let bounds = Bounds { start: Offset(start), end: Offset(end), server_time: None };
        LogConnection { bounds, log_id: log_id.map(LogId), clock_error_us: None, exchange_us: 0 }
    }

    #[test]
    fn copy_continues_only_within_its_own_log() {
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let mut state = PartitionState::new(at, PartitionCount(1));
        assert!(check_continues(&connected(0, 0, None), &state).is_ok());
        assert!(check_continues(&connected(0, 9, Some(5)), &state).is_ok());
        state.log_id = Some(LogId(5));
        state.offset_applied = Offset(7);
        assert!(check_continues(&connected(7, 7, None), &state).is_ok());
        assert!(check_continues(&connected(3, 9, Some(5)), &state).is_ok());
        for connection in [
            connected(0, 9, Some(6)),
            connected(8, 9, Some(5)),
            connected(0, 6, Some(5)),
            connected(0, 0, None),
            connected(0, 9, None),
        ] {
            let error = check_continues(&connection, &state).unwrap_err();
            assert_eq!(error.code(), ErrorCode::TokenLost);
        }
    }
}
