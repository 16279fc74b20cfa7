//! The clock of the benchmarks: monotonic, and the same for every process of one machine.

use rustix::time::{ClockId, clock_gettime};

/// Returns nanoseconds since the machine started.
#[must_use]
pub fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Runs a function; returns its seconds and its result.
pub fn seconds<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let began = nanos();
    let answer = run();
    ((nanos() - began).max(1) as f64 / 1e9, answer)
}
