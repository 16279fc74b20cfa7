//! Readiness: whether a process with this replica should receive traffic.
//!
//! A replica becomes ready once every followed partition serves with an age within the bound. A
//! ready replica falls back only if a partition does not serve, or its age is above twice the
//! bound, for a grace period; it becomes ready again within the bound. A short interruption of the
//! log therefore takes no process out of service.

use std::time::Duration;

use forebay_core::clock::Timestamp;
use forebay_core::limits::READER_READY_GRACE_MS;

/// The state of the worst partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadinessState {
    /// The partition does not answer, or its age is unknown.
    Unavailable,
    /// The partition serves, at this age.
    Serving(Duration),
}

impl ReadinessState {
    /// Returns the worse of the two.
    pub(crate) fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Serving(first_bound), Self::Serving(second_bound)) => {
                Self::Serving(first_bound.max(second_bound))
            }
            _ => Self::Unavailable,
        }
    }
}

/// The readiness of a replica, with the inputs of its next change.
#[derive(Debug)]
pub struct Readiness {
    bound: Duration,
    is_ready: bool,
    past_since: Option<Timestamp>,
}

impl Readiness {
    /// Returns the readiness of a replica that is not ready yet, with this bound on the age.
    pub fn new(bound: Duration) -> Self {
        Self { bound, is_ready: false, past_since: None }
    }

    /// Notes the current state of the worst partition; returns whether the replica is ready.
    pub(crate) fn observe(&mut self, now: Timestamp, worst: ReadinessState) -> bool {
        let bound = self.bound;
        match worst {
            ReadinessState::Serving(age) if age <= bound => {
                self.is_ready = true;
                self.past_since = None;
            }
            ReadinessState::Serving(age) if age <= bound.saturating_mul(2) => {
                self.past_since = None
            }
            _ => {
                let since = *self.past_since.get_or_insert(now);
                // If the clock was set back, the grace period starts again.
                let past_us = now.micros_since(since);
                if past_us < 0 {
                    self.past_since = Some(now);
                }
                self.is_ready &= past_us < READER_READY_GRACE_MS as i64 * 1_000;
            }
        }
        self.is_ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(100);

    fn serving(millis: u64) -> ReadinessState {
        ReadinessState::Serving(Duration::from_millis(millis))
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn readiness_ends_after_the_grace_past_twice_the_bound_and_returns_within_it() {
        let mut readiness = Readiness::new(BOUND);
        assert!(!readiness.observe(at(0), ReadinessState::Unavailable));
        assert!(!readiness.observe(at(1), serving(101)));
        assert!(readiness.observe(at(2), serving(100)));
        assert!(readiness.observe(at(3), serving(200)));
        assert!(readiness.observe(at(10), serving(201)));
        assert!(readiness.observe(at(5_009), serving(201)));
        assert!(!readiness.observe(at(5_010), serving(201)));
        assert!(!readiness.observe(at(5_011), serving(150)));
        assert!(readiness.observe(at(5_012), serving(99)));
    }

    #[test]
    fn moment_within_twice_the_bound_restarts_the_grace() {
        let mut readiness = Readiness::new(BOUND);
        assert!(readiness.observe(at(0), serving(0)));
        assert!(readiness.observe(at(10), serving(500)));
        assert!(readiness.observe(at(4_000), serving(150)));
        assert!(readiness.observe(at(5_500), serving(500)));
        assert!(readiness.observe(at(10_000), ReadinessState::Unavailable));
        assert!(!readiness.observe(at(10_500), serving(500)));
    }

    #[test]
    fn worst_partition_decides_readiness() {
        assert_eq!(serving(3).worse(serving(5)), serving(5));
        assert_eq!(serving(3).worse(ReadinessState::Unavailable), ReadinessState::Unavailable);
    }
}
