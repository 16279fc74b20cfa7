//! Clocks: nanoseconds, processor time of a thread, and pinning a thread to a core.

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns nanoseconds since the machine started.
#[must_use]
pub fn nanos() -> u64 {
    count(clock_gettime(ClockId::Monotonic))
}

/// Returns nanoseconds that the calling thread has run.
#[must_use]
pub fn thread_nanos() -> u64 {
    count(clock_gettime(ClockId::ThreadCPUTime))
}

fn count(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Pins the calling thread, and the threads that it starts, to one core.
///
/// # Errors
/// Fails if the machine has no such core, or does not allow this process to use it.
pub fn stay_on(core: usize) -> Result<(), String> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| format!("stay on core {core}: {error}"))
}

/// Lets the calling thread use any core again, also if the thread that started it has called
/// [`stay_on`].
///
/// # Errors
/// Fails if the machine does not allow this process to choose.
pub fn use_any_core() -> Result<(), String> {
    let mut cores = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| cores.set(core));
    sched_setaffinity(None, &cores).map_err(|error| format!("use any core: {error}"))
}

/// Returns the median time of chunks of equal work: a chunk in which the thread lost its core drops
/// out.
#[must_use]
pub fn median(mut chunks: Vec<u64>) -> f64 {
    chunks.sort_unstable();
    chunks.get(chunks.len() / 2).map_or(0.0, |nanos| *nanos as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_a_preempted_sample() {
        assert_eq!(median(vec![5, 4_000_000, 4]), 5.0);
    }

    #[test]
    fn busy_thread_uses_cpu_time() {
        let before = thread_nanos();
        std::hint::black_box((0..1_000_000_u64).fold(1_u64, |sum, n| sum.wrapping_mul(31 ^ n)));
        assert!(thread_nanos() > before);
    }
}
