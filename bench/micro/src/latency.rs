//! Latencies of one contender in one round, in a histogram, and the values that a row needs.

use std::time::Duration;

use forebay_bench_report::{Rounds, Row, Unit, Values};
use futures::future::try_join_all;
use hdrhistogram::Histogram;

use crate::clock::nanos;

/// Longest latency that the histogram distinguishes: ten minutes.
const NANOS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// Percentiles that are reported.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Consecutive steps from a moment on, for a duration, at least one.
struct Steps {
    latency: Latency,
    began: u64,
    turn_nanos: u64,
    last: u64,
}

impl Steps {
    fn new(began: u64, turn: Duration) -> Result<Self, String> {
        let (latency, turn_nanos) = (Latency::new()?, turn.as_nanos() as u64);
        Ok(Self { latency, began, turn_nanos, last: nanos() })
    }

    fn go_on(&self) -> bool {
        self.latency.count() == 0 || self.last - self.began < self.turn_nanos
    }

    fn note(&mut self) {
        let now = nanos();
        self.latency.record(now - self.last);
        self.last = now;
    }
}

/// Durations in a histogram with three exact digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Latency {
    /// Creates an empty histogram.
    ///
    /// # Errors
    /// No error in practice: the bounds are constants.
    pub fn new() -> Result<Self, String> {
        let counts = Histogram::new_with_max(NANOS_MAX, DIGITS);
        counts.map(Self).map_err(|error| format!("make a histogram: {error}"))
    }

    /// Records a duration, in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.max(1));
    }

    /// Adds all durations of another histogram.
    ///
    /// # Errors
    /// No error in practice: all histograms have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), String> {
        self.0.add(&other.0).map_err(|error| format!("add histograms: {error}"))
    }

    /// Measures consecutive steps from `began` on for `turn`, at least one.
    ///
    /// # Errors
    /// The error of a step.
    pub fn of_steps(
        began: u64,
        turn: Duration,
        mut step: impl FnMut() -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut steps = Steps::new(began, turn)?;
        while steps.go_on() {
            step()?;
            steps.note();
        }
        Ok(steps.latency)
    }

    /// Measures steps as [`Latency::of_steps`] does, for steps that are awaited; each step receives
    /// the number of steps before it.
    ///
    /// # Errors
    /// The error of a step.
    pub async fn of_calls(
        began: u64,
        turn: Duration,
        call: impl AsyncFn(u64) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut steps = Steps::new(began, turn)?;
        while steps.go_on() {
            call(steps.latency.count()).await?;
            steps.note();
        }
        Ok(steps.latency)
    }

    /// Measures calls from `clients` clients at once, which wait for every answer and share a
    /// thread; returns calls per second, too. Each call receives its client, and the number of
    /// calls before it.
    ///
    /// # Errors
    /// The error of a call.
    pub async fn of_clients(
        clients: u64,
        turn: Duration,
        call: impl AsyncFn(u64, u64) -> Result<(), String>,
    ) -> Result<(f64, Self), String> {
        let (began, call) = (nanos(), &call);
        let client =
            |place| Self::of_calls(began, turn, async move |count| call(place, count).await);
        let mut latency = Self::new()?;
        for of_client in try_join_all((0..clients).map(client)).await? {
            latency.add(&of_client)?;
        }
        Ok((latency.rate_since(began), latency))
    }

    /// Returns the number of durations per second since this moment.
    #[must_use]
    pub fn rate_since(&self, began: u64) -> f64 {
        self.count() as f64 * 1e9 / (nanos() - began).max(1) as f64
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns a quantile in this unit (`Nanoseconds` for a unit that is not of time).
    #[must_use]
    pub fn at(&self, quantile: f64, unit: Unit) -> f64 {
        let nanos = self.0.value_at_quantile(quantile) as f64;
        match unit {
            Unit::Microseconds => nanos / 1e3,
            Unit::Milliseconds => nanos / 1e6,
            Unit::Seconds => nanos / 1e9,
            _ => nanos,
        }
    }

    /// Returns a value per percentile, named `NAME, p50, UNIT` and so on.
    ///
    /// # Errors
    /// Fails if nothing was measured.
    pub fn values(&self, name: &str, unit: Unit) -> Result<Values, String> {
        if self.count() == 0 {
            return Err(format!("'{name}' has no sample"));
        }
        let value = |(label, quantile)| (measure(name, label, unit), self.at(quantile, unit));
        Ok(QUANTILES.into_iter().map(value).collect())
    }
}

/// Returns the measure of a percentile.
#[must_use]
pub fn measure(name: &str, label: &str, unit: Unit) -> String {
    format!("{name}, {label}, {}", unit.symbol())
}

/// Returns the rows of the percentiles of `name`, compared with those of a peer if there is a peer.
///
/// # Errors
/// Fails if a round lacks the values.
pub fn rows(
    name: &str,
    peer: Option<&str>,
    unit: Unit,
    rounds: &Rounds,
) -> Result<Vec<Row>, String> {
    let row = |(label, _)| {
        let own_measure = measure(name, label, unit);
        match peer.map(|peer| measure(peer, label, unit)) {
            Some(peer) => Row::against(&own_measure, unit, rounds, &own_measure, &peer),
            None => Row::alone(&own_measure, unit, rounds, &own_measure),
        }
    };
    QUANTILES.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_percentile_and_unit() {
        let mut latency = Latency::new().unwrap();
        (1..=1_000).for_each(|micros| latency.record(micros * 1_000));
        let mut rounds = Rounds::default();
        for name in ["ours", "peer"] {
            let values = latency.values(name, Unit::Microseconds).unwrap();
            values.iter().for_each(|(name, value)| rounds.record(name, *value));
        }
        rounds.close();
        let rows = rows("ours", Some("peer"), Unit::Microseconds, &rounds).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.measure.as_str()).collect();
        assert_eq!(names, ["ours, p50, us", "ours, p90, us", "ours, p99, us", "ours, p99.9, us"]);
        assert!((rows[0].value.median - 500.0).abs() < 1.0, "{:?}", rows[0]);
        assert_eq!(rows[3].ratio.unwrap().median, 1.0);
    }

    #[test]
    fn latency_without_samples_is_an_error() {
        let latency = Latency::new().unwrap();
        assert!(latency.values("ours", Unit::Nanoseconds).unwrap_err().contains("no sample"));
    }
}
