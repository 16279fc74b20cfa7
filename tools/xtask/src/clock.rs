//! The only place of the workshop that reads a clock: it times stages and bounds waits.

use std::time::{Duration, Instant};

/// A started stop watch.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the workshop's rim: nothing here is simulated")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the workshop's rim: nothing here is simulated")]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
