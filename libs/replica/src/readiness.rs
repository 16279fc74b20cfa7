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
    Out,
    /// The partition serves, at this age.
    Aged(Duration),
}

impl ReadinessState {
    /// Returns the worse of the two.
    pub(crate) fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Aged(one), Self::Aged(two)) => Self::Aged(one.max(two)),
            _ => Self::Out,
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
            ReadinessState::Aged(age) if age <= bound => {
                self.is_ready = true;
                self.past_since = None;
            }
            ReadinessState::Aged(age) if age <= bound.saturating_mul(2) => self.past_since = None,
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

    fn aged(millis: u64) -> ReadinessState {
        ReadinessState::Aged(Duration::from_millis(millis))
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn ready_falls_back_past_twice_the_bound_for_the_grace_and_returns_inside_it() {
        let mut readiness = Readiness::new(BOUND);
        assert!(!readiness.observe(at(0), ReadinessState::Out));
        assert!(!readiness.observe(at(1), aged(101)));
        assert!(readiness.observe(at(2), aged(100)));
        assert!(readiness.observe(at(3), aged(200)));
        assert!(readiness.observe(at(10), aged(201)));
        assert!(readiness.observe(at(5_009), aged(201)));
        assert!(!readiness.observe(at(5_010), aged(201)));
        assert!(!readiness.observe(at(5_011), aged(150)));
        assert!(readiness.observe(at(5_012), aged(99)));
    }

    #[test]
    fn a_moment_inside_twice_the_bound_starts_the_grace_anew() {
        let mut readiness = Readiness::new(BOUND);
        assert!(readiness.observe(at(0), aged(0)));
        assert!(readiness.observe(at(10), aged(500)));
        assert!(readiness.observe(at(4_000), aged(150)));
        assert!(readiness.observe(at(5_500), aged(500)));
        assert!(readiness.observe(at(10_000), ReadinessState::Out));
        assert!(!readiness.observe(at(10_500), aged(500)));
    }

    #[test]
    fn the_worst_partition_counts() {
        assert_eq!(aged(3).worse(aged(5)), aged(5));
        assert_eq!(aged(3).worse(ReadinessState::Out), ReadinessState::Out);
    }
}
