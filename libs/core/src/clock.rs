//! Time as an argument: a point in time, and the clock that a caller hands in.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The timestamp before every other; partition time of an empty partition.
    pub const MIN: Self = Self(i64::MIN);

    /// Returns the point this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this point plus a duration in microseconds; saturates at the ends of the range.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Returns the microseconds from `earlier` to this point; negative if `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// Source of time for a component. Production uses [`SystemClock`]; tests and the simulator supply
/// their own.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // The one place that reads the host's clock.
    fn now(&self) -> Timestamp {
        let micros = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(duration) => i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        };
        Timestamp(micros)
    }
}

/// A clock that stops until a caller moves it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Creates a clock that shows this time.
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Sets the clock to this time, which may be earlier than the present one.
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
    fn manual_clock_moves_only_on_request() {
        let clock = ManualClock::at(Timestamp::from_micros(5));
        clock.advance_micros(-7);
        assert_eq!(clock.now(), Timestamp::from_micros(-2));
        clock.set(Timestamp::from_micros(9));
        assert_eq!(clock.now(), Timestamp::from_micros(9));
    }
}
