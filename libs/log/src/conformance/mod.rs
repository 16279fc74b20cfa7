//! The conformance suite that every log passes:
//! [`change_log_conformance!`](crate::change_log_conformance).
//!
//! The suite is test code: a broken rule is an assertion that fails. The suite receives a log under
//! test as a [`Fixture`], which can reopen the log and administer a log that a remote log only
//! reads.

mod cases;
mod crash_cases;
mod wait_cases;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::ManualClock;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, ErrorCode};

pub use cases::*;
pub use crash_cases::*;
pub use wait_cases::*;

use crate::{Appended, ChangeLog, LogRecord, ReadLimit};

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
pub const STORE: StoreId = StoreId(0x5702_e0ff);

/// Longest wait for something that must happen: a guard against hanging, never a measurement.
const HANG_GUARD: Duration = Duration::from_secs(120);

/// Returns a partition of the suite's store.
fn partition(partition: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(partition) }
}

async fn create(fixture: &impl Fixture, partitions: u32) {
    let count = PartitionCount::new(partitions).unwrap();
    fixture.admin().create(STORE, count).await.unwrap();
}

/// Returns a distinct entry for each number: some long, some empty, some all zeros.
fn entry(number: u64) -> Bytes {
    let length = (number.wrapping_mul(2_654_435_761) % 700) as usize;
    match number % 7 {
        3 => Bytes::new(),
        5 => Bytes::from(vec![0; length]),
        _ => number.to_le_bytes().iter().copied().cycle().take(length + 8).collect(),
    }
}

fn at_once(bytes_max: usize) -> ReadLimit {
    ReadLimit { bytes_max, wait_max: Duration::ZERO }
}

async fn append(log: &dyn ChangeLog, at: PartitionRef, entry: Bytes) -> Appended {
    guarded(log.append(at, entry)).await.unwrap()
}

/// Reads every record from an offset to the end, by as many reads as that takes.
async fn read_all(log: &dyn ChangeLog, at: PartitionRef, from: Offset) -> Vec<LogRecord> {
    let mut records: Vec<LogRecord> = Vec::new();
    loop {
        let next = records.last().map_or(from, |record| record.offset.next());
        let read = guarded(log.read(at, next, at_once(10_000))).await.unwrap();
        if read.records.is_empty() {
            assert_eq!(read.end, next, "an empty read below the end of log {at}");
            return records;
        }
        records.extend(read.records);
    }
}

async fn guarded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANG_GUARD, future).await.expect("the log hangs")
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.expect_err("an error was expected").code()
}

/// Generates a module of tests that hold one log to every rule of [`ChangeLog`](crate::ChangeLog).
///
/// The macro takes a name and an async function that returns a [`Fixture`]. Further arguments go to
/// `#[tokio::test(...)]`; the default is two worker threads. The calling crate needs `tokio` with
/// `macros` and `time`.
///
/// ```text
/// change_log_conformance!(memory, MemoryFixture::new);
/// change_log_conformance!(simulated, SimFixture::new, start_paused = true);
/// ```
#[macro_export]
macro_rules! change_log_conformance {
    ($name:ident, $fixture:path) => {
        $crate::change_log_conformance!(
            $name, $fixture, flavor = "multi_thread", worker_threads = 2
        );
    };
    ($name:ident, $fixture:path, $($runtime:tt)+) => {
        mod $name {
            use super::*;
            $crate::__change_log_conformance_cases!(
                ($fixture) ($($runtime)+)
                entries_are_read_back_in_order
                a_read_returns_no_more_than_asked
                a_record_above_the_limit_comes_alone
                bounds_follow_appends
                a_place_outside_the_log_is_lost
                a_log_that_was_never_made_is_not_found
                create_and_delete_may_be_repeated
                a_log_that_only_reads_says_so
                the_control_log_always_exists
                trim_keeps_what_it_must
                partitions_are_isolated
                append_times_never_fall
                the_largest_entry_fits_and_a_larger_one_is_refused
                a_read_at_the_end_waits_for_an_append
                a_read_at_the_end_gives_up
                a_deleted_log_wakes_its_readers
                many_appenders_share_a_partition
                reopening_keeps_everything
                what_was_read_survives_a_crash
                appends_go_on_after_reopening
            );
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __change_log_conformance_cases {
    (($fixture:path) $runtime:tt $($case:ident)*) => {
        $( $crate::__change_log_conformance_case!($fixture, $runtime, $case); )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __change_log_conformance_case {
    ($fixture:path, ($($runtime:tt)+), $case:ident) => {
        #[tokio::test($($runtime)+)]
        async fn $case() {
            $crate::conformance::$case($fixture().await).await;
        }
    };
}
