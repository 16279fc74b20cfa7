//! The clock of the build tool, which times stages and bounds waits. Only this module reads a
//! clock.

use std::time::{Duration, Instant};

/// A started stopwatch.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the build tool is not simulated")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the build tool is not simulated")]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
