//! A log under test, and the calls that the rules make on it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::ManualClock;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, ErrorCode};

use crate::{AppendReceipt, ChangeLog, LogRecord, ReadLimit};

/// A log under test.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// The log under test.
    fn log(&self) -> Arc<dyn ChangeLog>;

    /// The log that creates, deletes and trims logs, if [`log`](Self::log) itself does not.
    fn admin(&self) -> Arc<dyn ChangeLog> {
        self.log()
    }

    /// Whether [`log`](Self::log) itself creates, deletes and trims; if not, these calls return
    /// `Unsupported`.
    fn administers(&self) -> bool {
        true
    }

    /// The clock of append times, if a test can set it.
    fn clock(&self) -> Option<Arc<ManualClock>>;

    /// Stops the log as a crash would and opens the log again on the remaining data; returns
    /// `false` if the log does not outlive its process.
    async fn reopen(&mut self) -> bool;
}

/// Store of the suite.
pub(super) const STORE: StoreId = StoreId(0x5702_e0ff);

/// Longest wait for something that must happen: a guard against hanging, never a measurement.
const HANG_GUARD: Duration = Duration::from_secs(120);

/// Returns a partition of the suite's store.
pub(super) fn partition(partition: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(partition) }
}

pub(super) async fn create(fixture: &impl Fixture, partitions: u32) {
    let count = PartitionCount::new(partitions).unwrap();
    fixture.admin().create(STORE, count).await.unwrap();
}

/// Returns a distinct entry for each number: some long, some empty, some all zeros.
pub(super) fn entry(number: u64) -> Bytes {
    let length = (number.wrapping_mul(2_654_435_761) % 700) as usize;
    match number % 7 {
        3 => Bytes::new(),
        5 => Bytes::from(vec![0; length]),
        _ => number.to_le_bytes().iter().copied().cycle().take(length + 8).collect(),
    }
}

pub(super) fn at_once(bytes_max: usize) -> ReadLimit {
    ReadLimit { bytes_max, wait_max: Duration::ZERO }
}

pub(super) async fn append(log: &dyn ChangeLog, at: PartitionRef, entry: Bytes) -> AppendReceipt {
    await_guarded(log.append(at, entry)).await.unwrap()
}

/// Reads every record from an offset to the end, by as many reads as that takes.
pub(super) async fn read_all(
    log: &dyn ChangeLog,
    at: PartitionRef,
    from: Offset,
) -> Vec<LogRecord> {
    let mut records: Vec<LogRecord> = Vec::new();
    loop {
        let next = records.last().map_or(from, |record| record.offset.next());
        let read = await_guarded(log.read(at, next, at_once(10_000))).await.unwrap();
        if read.records.is_empty() {
            assert_eq!(read.end, next, "an empty read below the end of log {at}");
            return records;
        }
        records.extend(read.records);
    }
}

pub(super) async fn await_guarded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANG_GUARD, future).await.expect("the log hangs")
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.expect_err("an error was expected").code()
}
