//! The programs of `make demo` in Rust, a loader and a reader, and their common parts: messages on
//! standard output and percentiles. `tools/demo/README.md` describes the messages.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// An error that ends a demo program; the program prints it and never handles it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

const NANOS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// Prints one message: a JSON object with one name and its details, in one line.
pub fn say(kind: &str, details: Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", json!({ kind: details }))?;
    stdout.flush()
}

/// Durations in a histogram with three exact digits.
pub struct Times(Histogram<u64>);

impl Times {
    /// Creates an empty histogram.
    pub fn new() -> Result<Self, Failure> {
        Ok(Self(Histogram::new_with_max(NANOS_MAX, DIGITS)?))
    }

    /// Records a duration.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns a quantile, in nanoseconds.
    pub fn nanos(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// Returns a quantile, in microseconds.
    pub fn micros(&self, quantile: f64) -> f64 {
        self.nanos(quantile) as f64 / 1_000.0
    }
}

/// Ends a program: a failure goes to standard error, with exit code 1.
pub fn exit_code(name: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_every_duration() {
        let mut times = Times::new().unwrap();
        (1..=100).for_each(|micros| times.record(Duration::from_micros(micros)));
        assert_eq!(times.count(), 100);
        assert!((times.micros(0.5) - 50.0).abs() < 0.1, "{}", times.micros(0.5));
        assert!((times.micros(1.0) - 100.0).abs() < 0.1, "{}", times.micros(1.0));
    }
}
