//! Readiness: whether a process with this reader should receive traffic.
//!
//! A reader becomes ready once every followed partition serves with an age within the bound. A
//! ready reader falls back only if a partition does not serve, or its age is above twice the bound,
//! for a grace period; it becomes ready again within the bound. A short interruption of the log
//! therefore takes no process out of service.

use std::time::Duration;

use forebay_core::clock::Timestamp;
use forebay_core::limits::READER_READY_GRACE_MS;
use forebay_core::{Error, Result};

use crate::shared::Shared;

/// The state of the worst partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The partition does not answer, or its age is unknown.
    Out,
    /// The partition serves, at this age.
    Aged(Duration),
}

impl Standing {
    /// Returns the worse of the two.
    pub(crate) fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Aged(one), Self::Aged(two)) => Self::Aged(one.max(two)),
            _ => Self::Out,
        }
    }
}

/// The readiness of a reader, with the inputs of its next change.
#[derive(Debug)]
pub(crate) struct Readiness {
    bound: Duration,
    is_ready: bool,
    past_since: Option<Timestamp>,
}

impl Readiness {
    pub(crate) fn new(bound: Duration) -> Self {
        Self { bound, is_ready: false, past_since: None }
    }

    /// Notes the current state of the worst partition; returns whether the reader is ready.
    pub(crate) fn observe(&mut self, now: Timestamp, worst: Standing) -> bool {
        let bound = self.bound;
        match worst {
            Standing::Aged(age) if age <= bound => {
                self.is_ready = true;
                self.past_since = None;
            }
            Standing::Aged(age) if age <= bound.saturating_mul(2) => self.past_since = None,
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

impl Shared {
    /// Returns whether all followed partitions serve within the readiness bound.
    pub(crate) fn is_ready(&self) -> bool {
        self.closing.check().is_ok() && self.observe_readiness(self.parts.clock.now())
    }

    /// Waits until the reader is ready.
    ///
    /// # Errors
    /// Returns `Unavailable` with phase, percent and remaining time if the wait takes longer than
    /// `timeout`; the error for which a partition halted; `Closed`.
    pub(crate) async fn await_ready(&self, timeout: Duration) -> Result<()> {
        let wait = async {
            loop {
                let progressed = self.progressed.notified();
                if self.observe_readiness(self.parts.clock.now()) {
                    return Ok(());
                }
                if let Some(halted) = self.halted() {
                    return Err(halted.with_store(&self.name));
                }
                progressed.await;
            }
        };
        self.bounded(timeout, || self.not_ready(), wait).await
    }

    fn not_ready(&self) -> Error {
        let status = self.status();
        let remaining = match status.remaining {
            Some(remaining) => format!("about {} ms remain", remaining.as_millis()),
            None => "the remaining time is not known yet".to_owned(),
        };
        let age = match status.age {
            Some(age) => format!("age {} ms", age.as_millis()),
            None => "age unknown".to_owned(),
        };
        let trouble = status.partitions.iter().find_map(|partition| partition.trouble.as_ref());
        let trouble =
            trouble.map(|trouble| format!("; a replica stalled: {trouble}")).unwrap_or_default();
        let message = format!(
            "not ready in time: {}, {}%, {remaining}, {age}; wait longer, or look at the reader's \
             status{trouble}",
            status.phase.name(),
            status.percent,
        );
        Error::unavailable(message).with_store(&status.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(100);

    fn aged(millis: u64) -> Standing {
        Standing::Aged(Duration::from_millis(millis))
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn ready_falls_back_past_twice_the_bound_for_the_grace_and_returns_inside_it() {
        let mut readiness = Readiness::new(BOUND);
        assert!(!readiness.observe(at(0), Standing::Out));
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
        assert!(readiness.observe(at(10_000), Standing::Out));
        assert!(!readiness.observe(at(10_500), aged(500)));
    }

    #[test]
    fn the_worst_partition_counts() {
        assert_eq!(aged(3).worse(aged(5)), aged(5));
        assert_eq!(aged(3).worse(Standing::Out), Standing::Out);
    }
}
