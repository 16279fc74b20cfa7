//! How long to wait before a failed step is tried again: longer each time, and never in step with
//! other readers.

use std::time::Duration;

use forebay_core::entropy::Entropy;
use forebay_core::limits::{READER_BACKOFF_MS_MAX, READER_BACKOFF_MS_MIN};

/// The waits of one task between attempts.
#[derive(Debug)]
pub(crate) struct Backoff {
    next_ms: u64,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next_ms: READER_BACKOFF_MS_MIN }
    }

    /// The next wait: a random point in the upper half of a bound that doubles up to its limit.
    pub(crate) fn next_wait(&mut self, entropy: &dyn Entropy) -> Duration {
        let bound_ms = self.next_ms;
        self.next_ms = (bound_ms * 2).min(READER_BACKOFF_MS_MAX);
        let half = bound_ms / 2;
        // Without randomness the wait is the longest one, which is still a correct wait.
        let jitter = entropy.next_u64().map_or(half, |bits| bits % (half + 1));
        Duration::from_millis(half + jitter)
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.next_ms = READER_BACKOFF_MS_MIN;
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::entropy::SeededEntropy;

    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_start_over() {
        let entropy = SeededEntropy::new(7);
        let mut backoff = Backoff::new();
        let mut bound = READER_BACKOFF_MS_MIN;
        for _ in 0..20 {
            let wait = backoff.next_wait(&entropy).as_millis() as u64;
            assert!(wait >= bound / 2 && wait <= bound, "{wait} of {bound}");
            bound = (bound * 2).min(READER_BACKOFF_MS_MAX);
        }
        assert_eq!(bound, READER_BACKOFF_MS_MAX);
        backoff.reset();
        assert!(backoff.next_wait(&entropy).as_millis() as u64 <= READER_BACKOFF_MS_MIN);
    }
}
