//! Time as an argument: a point in time, and the clock that a caller hands in.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before every other timestamp; the partition time of an empty partition.
    pub const MIN: Self = Self(i64::MIN);

    /// The point this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This point plus a duration in microseconds; stays inside the range.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this point; negative when it is later.
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// Where a component reads the time. Production uses [`SystemClock`], tests and the simulator bring
/// their own.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // The one place that reads the host's clock.
    fn now(&self) -> Timestamp {
        let micros = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        };
        Timestamp(micros)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Makes the clock show this time, earlier ones included.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    /// Moves the clock by this many microseconds.
    pub fn advance_micros(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stays_inside_its_range() {
        let (start, end) = (Timestamp::MIN, Timestamp::from_micros(i64::MAX));
        assert_eq!(end.plus_micros(1), end);
        assert_eq!(start.plus_micros(-1), start);
        assert_eq!(end.micros_since(start), i64::MAX);
        assert_eq!(start.micros_since(end), i64::MIN);
    }

    #[test]
    fn a_manual_clock_moves_when_it_is_moved() {
        let clock = ManualClock::at(Timestamp::from_micros(5));
        clock.advance_micros(-7);
        assert_eq!(clock.now(), Timestamp::from_micros(-2));
        clock.set(Timestamp::from_micros(9));
        assert_eq!(clock.now(), Timestamp::from_micros(9));
    }
}
