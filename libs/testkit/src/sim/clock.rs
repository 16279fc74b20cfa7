//! The simulated wall clock: the runtime's paused time, plus a skew that faults move.

use std::sync::atomic::{AtomicI64, Ordering};

use forebay_core::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z; any day will do.
const START_US: i64 = 1_767_225_600_000_000;

/// A wall clock that goes with the runtime's time and can be moved against it.
#[derive(Debug)]
pub struct SimClock {
    started: Instant,
    skew_us: AtomicI64,
}

impl SimClock {
    /// A clock without skew; call it inside the runtime.
    pub fn start() -> Self {
        Self { started: Instant::now(), skew_us: AtomicI64::new(0) }
    }

    /// Moves the clock, backwards too, as an operator or a time server may.
    pub fn jump_micros(&self, micros: i64) {
        self.skew_us.fetch_add(micros, Ordering::SeqCst);
    }

    /// Microseconds of the runtime's time since the start, which nothing moves.
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.elapsed_us()).unwrap_or(i64::MAX);
        Timestamp::from_micros(START_US + elapsed + self.skew_us.load(Ordering::SeqCst))
    }
}
