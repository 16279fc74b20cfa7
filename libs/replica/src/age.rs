//! Age: how old the data that a read sees may be, and the refusal of data that is older than
//! requested.
//!
//! Age is this process's clock minus the append time of the last applied entry, plus the measured
//! clock error: the furthest that this process's clock may be from the clock that stamps the log.
//! Age can be overstated, never understated. Age rises without new entries, which is why heartbeats
//! exist.

use std::time::Duration;

use forebay_core::clock::Timestamp;
use forebay_core::schema::StoreOptions;
use forebay_core::{Error, Result};

/// The inputs of an age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Append time of the last applied entry.
    pub append_time: Option<Timestamp>,
    /// Largest possible distance between the two clocks, in microseconds.
    pub clock_error_us: Option<i64>,
}

impl Freshness {
    /// Returns the age at this time of this process's clock; `None` while an input is unknown.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let (append_time, error) = self.append_time.zip(self.clock_error_us)?;
        Some(micros(now.micros_since(append_time).saturating_add(error)))
    }

    /// Returns the largest possible distance between the two clocks; `None` until it is measured.
    pub(crate) fn clock_error(&self) -> Option<Duration> {
        self.clock_error_us.map(micros)
    }

    /// Refuses an age above the bound.
    ///
    /// # Errors
    /// Returns `Stale` with the reason: `clock` if the clock error alone is above half the bound or
    /// is not measured yet, else `age`.
    #[inline]
    pub fn check(&self, now: Timestamp, bound: Duration) -> Result<()> {
        let Some(error) = self.clock_error() else {
            let message = "reason clock: the clock of the log has not been measured yet; try again";
            return Err(Error::stale(message));
        };
        if error > bound / 2 {
            let message = format!(
                "reason clock: this clock may be {} ms off the log's, more than half of the bound \
                 of {} ms; synchronise the clocks, or raise the bound",
                error.as_millis(),
                bound.as_millis()
            );
            return Err(Error::stale(message));
        }
        let Some(age) = self.age(now) else {
            return Err(Error::stale("reason age: the replica has applied nothing yet; try again"));
        };
        if age <= bound {
            return Ok(());
        }
        let message = format!(
            "reason age: the newest applied entry is {} ms old, above the bound of {} ms; try \
             again, raise the bound, or look at the status",
            age.as_millis(),
            bound.as_millis()
        );
        Err(Error::stale(message))
    }
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Refuses a bound that heartbeats cannot meet.
pub fn check_bound(bound: Duration, options: &StoreOptions) -> Result<()> {
    let lowest = Duration::from_millis(2 * u64::from(options.heartbeat_ms));
    if bound >= lowest {
        return Ok(());
    }
    let message = format!(
        "a bound of {} ms is below twice the heartbeat interval of {} ms; raise the bound, or \
         lower the store's heartbeat_ms",
        bound.as_millis(),
        options.heartbeat_ms
    );
    Err(Error::invalid_argument(message))
}

/// Returns the clock error that one exchange shows, in microseconds: the log's clock was read
/// somewhere between `before` and `after` of this process's clock.
pub(crate) fn clock_error_us(before: Timestamp, log: Timestamp, after: Timestamp) -> i64 {
    let distance = |local_time: Timestamp| log.micros_since(local_time).saturating_abs();
    distance(before).max(distance(after))
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    const fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn freshness(append_us: i64, error_us: i64) -> Freshness {
        Freshness { append_time: Some(at(append_us)), clock_error_us: Some(error_us) }
    }

    #[test]
    fn age_adds_the_clock_error_and_is_never_negative() {
        assert_eq!(freshness(1_000, 50).age(at(3_000)), Some(Duration::from_micros(2_050)));
        assert_eq!(freshness(9_000, 50).age(at(3_000)), Some(Duration::ZERO));
        assert_eq!(Freshness::default().age(at(3_000)), None);
    }

    #[test]
    fn bound_is_exact_to_the_microsecond() {
        let bound = Duration::from_micros(2_000);
        assert!(freshness(1_000, 0).check(at(3_000), bound).is_ok());
        let error = freshness(1_000, 0).check(at(3_001), bound).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Stale);
        assert!(error.message().contains("reason age"));
    }

    #[test]
    fn clock_error_above_half_the_bound_is_stale() {
        let bound = Duration::from_micros(2_000);
        assert!(freshness(3_000, 1_000).check(at(3_000), bound).is_ok());
        let error = freshness(3_000, 1_001).check(at(3_000), bound).unwrap_err();
        assert!(error.message().contains("reason clock"), "{error}");
        let unmeasured = Freshness { append_time: Some(at(3_000)), clock_error_us: None };
        let error = unmeasured.check(at(3_000), bound).unwrap_err();
        assert!(error.message().contains("reason clock"), "{error}");
    }

    #[test]
    fn clock_error_is_the_largest_that_an_exchange_allows() {
        assert_eq!(clock_error_us(at(100), at(150), at(200)), 50);
        assert_eq!(clock_error_us(at(100), at(500), at(200)), 400);
        assert_eq!(clock_error_us(at(100), at(0), at(200)), 200);
        assert_eq!(clock_error_us(at(i64::MIN), at(i64::MAX), at(0)), i64::MAX);
    }

    #[test]
    fn bound_below_two_heartbeats_is_refused() {
        let options = StoreOptions { heartbeat_ms: 100, ..StoreOptions::default() };
        assert!(check_bound(Duration::from_millis(200), &options).is_ok());
        let error = check_bound(Duration::from_millis(199), &options).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}
