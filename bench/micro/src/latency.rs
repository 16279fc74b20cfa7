//! Latencies of one contender in one round, kept as counts, and the values that a row needs.

use std::time::Duration;

use forebay_bench_report::{Rounds, Row, Unit, Values};
use futures::future::try_join_all;
use hdrhistogram::Histogram;

use crate::clock::nanos;

/// Longest latency that is told from a longer one: ten minutes.
const NANOS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// The percentiles that are reported.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Steps that follow each other, from a moment on for so long, at least one.
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

/// Many durations, kept as counts; three digits are exact.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Latency {
    /// None yet.
    ///
    /// # Errors
    /// None in practice: the bounds are constants.
    pub fn new() -> Result<Self, String> {
        let counts = Histogram::new_with_max(NANOS_MAX, DIGITS);
        counts.map(Self).map_err(|error| format!("make a histogram: {error}"))
    }

    /// Takes one in, in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.max(1));
    }

    /// Takes in all of another.
    ///
    /// # Errors
    /// None in practice: all have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), String> {
        self.0.add(&other.0).map_err(|error| format!("add histograms: {error}"))
    }

    /// Of steps that follow each other, from this moment on for so long, at least one.
    ///
    /// # Errors
    /// That of a step.
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

    /// As [`Latency::of_steps`], of steps that are awaited; each is told how many were before it.
    ///
    /// # Errors
    /// That of a step.
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

    /// Of calls from so many clients at once, which wait for every answer and share a thread; how
    /// many there were in a second, too. Each call is told its client, and how many were before it.
    ///
    /// # Errors
    /// That of a call.
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

    /// How many of them there were in a second, since this moment.
    #[must_use]
    pub fn rate_since(&self, began: u64) -> f64 {
        self.count() as f64 * 1e9 / (nanos() - began).max(1) as f64
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of them stays within, in this unit (`Nanoseconds` if it is none of
    /// time).
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

    /// A value per percentile, named `NAME, p50, UNIT` and so on.
    ///
    /// # Errors
    /// There is no sample: nothing was measured.
    pub fn values(&self, name: &str, unit: Unit) -> Result<Values, String> {
        if self.count() == 0 {
            return Err(format!("'{name}' has no sample"));
        }
        let value = |(label, quantile)| (measure(name, label, unit), self.at(quantile, unit));
        Ok(QUANTILES.into_iter().map(value).collect())
    }
}

/// The measure of a percentile.
#[must_use]
pub fn measure(name: &str, label: &str, unit: Unit) -> String {
    format!("{name}, {label}, {}", unit.symbol())
}

/// The rows of the percentiles of `name`, beside those of a peer if there is one.
///
/// # Errors
/// A round lacks them.
pub fn rows(
    name: &str,
    peer: Option<&str>,
    unit: Unit,
    rounds: &Rounds,
) -> Result<Vec<Row>, String> {
    let row = |(label, _)| {
        let ours = measure(name, label, unit);
        match peer.map(|peer| measure(peer, label, unit)) {
            Some(peer) => Row::against(&ours, unit, rounds, &ours, &peer),
            None => Row::alone(&ours, unit, rounds, &ours),
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
    fn nothing_measured_is_an_error() {
        let latency = Latency::new().unwrap();
        assert!(latency.values("ours", Unit::Nanoseconds).unwrap_err().contains("no sample"));
    }
}
