//! Retry with back-off: the waits between attempts grow, and random jitter keeps tasks that failed
//! at the same moment out of step.

use std::time::Duration;

use crate::entropy::Entropy;

/// Back-off of one task: the waits between its attempts.
///
/// ```
/// use std::time::Duration;
/// use forebay_core::backoff::Backoff;
/// use forebay_core::entropy::SeededEntropy;
/// let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));
/// let wait = backoff.next_wait(&SeededEntropy::new(1));
/// assert!(wait >= Duration::from_millis(5) && wait <= Duration::from_millis(10));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a back-off whose first wait is at most `first`; the bound doubles up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    /// Returns the next wait: a random point in the upper half of a bound that doubles up to its
    /// limit.
    pub fn next_wait(&mut self, entropy: &dyn Entropy) -> Duration {
        let bound = self.next;
        self.next = (bound * 2).min(self.longest);
        let half_us = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX) / 2;
        // If the entropy source fails, the wait is the longest one, which is still a correct wait.
        let jitter_us = entropy.next_u64().map_or(half_us, |bits| bits % (half_us + 1));
        Duration::from_micros(half_us + jitter_us)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    #[test]
    fn waits_grow_to_their_limit_and_restart_after_a_reset() {
        let (first, longest) = (Duration::from_millis(10), Duration::from_secs(1));
        let entropy = SeededEntropy::new(7);
        let mut backoff = Backoff::new(first, longest);
        let mut bound = first;
        let mut waits = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let wait = backoff.next_wait(&entropy);
            assert!(wait >= bound / 2 && wait <= bound, "{wait:?} of {bound:?}");
            waits.insert(wait);
            bound = (bound * 2).min(longest);
        }
        assert!(waits.len() > 10 && bound == longest);
        backoff.reset();
        assert!(backoff.next_wait(&entropy) <= first);
    }
}
