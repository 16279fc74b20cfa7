//! The conformance suite that every log passes:
//! [`change_log_conformance!`](crate::change_log_conformance).
//!
//! The suite is test code: a broken rule is an assertion that fails. The suite receives a log under
//! test as a [`Fixture`], which can reopen the log and administer a log that a remote log only
//! reads.

mod cases;
mod crash_cases;
mod fixture;
mod wait_cases;

pub use cases::*;
pub use crash_cases::*;
pub use fixture::Fixture;
pub use wait_cases::*;

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
                read_returns_no_more_than_requested
                record_above_the_limit_is_returned_alone
                bounds_follow_appends
                position_outside_the_log_is_lost
                uncreated_log_is_not_found
                create_and_delete_may_be_repeated
                read_only_log_refuses_administration
                control_log_always_exists
                trim_retains_records_at_or_above_its_offset
                partitions_are_isolated
                append_times_never_decrease
                largest_entry_is_accepted_and_a_larger_entry_is_refused
                read_at_the_end_waits_for_an_append
                read_at_the_end_is_empty_after_its_wait
                deleted_log_wakes_its_readers
                many_appenders_share_a_partition
                acknowledged_state_survives_a_reopen
                read_records_survive_a_crash
                appends_continue_after_a_reopen
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
