//! The simulated wall clock: the runtime's paused time, plus a skew that faults move.

use std::sync::Mutex;

use forebay_core::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, an arbitrary day.
const START_US: i64 = 1_767_225_600_000_000;

/// A wall clock that follows the runtime's time and can be moved against it.
#[derive(Debug)]
pub struct SimClock {
    started_at: Instant,
    skew: Mutex<ClockSkew>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClockSkew {
    skew_us: i64,
    /// Highest time shown before a jump backwards.
    high_us: i64,
    /// Sum of all jumps backwards.
    fallen_us: i64,
}

/// The clock's state that the checker needs to bound the time of an append.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time that the clock shows.
    pub now: Timestamp,
    /// Highest time that the clock has ever shown: no append time is above it.
    pub high: Timestamp,
    /// Total of all jumps backwards so far, in microseconds.
    pub fallen_us: i64,
}

impl SimClock {
    /// Returns a clock without skew; call it inside the runtime.
    pub fn start() -> Self {
        Self { started_at: Instant::now(), skew: Mutex::default() }
    }

    /// Moves the clock, forwards or backwards, as an operator or a time server may.
    pub fn jump_micros(&self, micros: i64) {
        let mut skew = self.skew.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        skew.high_us = skew.high_us.max(self.runtime_us() + skew.skew_us);
        skew.fallen_us += (-micros).max(0);
        skew.skew_us += micros;
    }

    /// Returns the clock's time and its history.
    pub fn moment(&self) -> Moment {
        let skew = *self.skew.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Timestamp::from_micros(self.runtime_us() + skew.skew_us);
        let high = now.max(Timestamp::from_micros(skew.high_us));
        Moment { now, high, fallen_us: skew.fallen_us }
    }

    /// Returns the microseconds of the runtime's time since the start, which nothing moves.
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn runtime_us(&self) -> i64 {
        START_US + i64::try_from(self.elapsed_us()).unwrap_or(i64::MAX - START_US)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.moment().now
    }
}
