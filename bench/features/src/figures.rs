//! Figures of a load, by name.

use forebay_bench_micro::latency::{Latency, measure};
use forebay_bench_report::{Rounds, Row, Unit};

use crate::load::LoadResults;

/// Price of two cores and 16 GiB for an hour: r5.large on demand, Linux, us-east-1, as AWS listed
/// it.
const DOLLARS_PER_HOUR: f64 = 0.126;

const SHARES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Figures of one run, in the order in which they were taken.
#[derive(Default)]
pub struct Figures {
    rounds: Rounds,
    names: Vec<(String, Unit)>,
}

impl Figures {
    /// Adds a figure.
    pub fn add(&mut self, name: &str, unit: Unit, value: f64) {
        let measure = match unit.symbol() {
            "" => name.to_owned(),
            symbol => format!("{name}, {symbol}"),
        };
        self.rounds.record(&measure, value);
        self.names.push((measure, unit));
    }

    /// Adds the percentiles of calls, in milliseconds.
    ///
    /// # Errors
    /// Fails if there was no call.
    pub fn add_latency(&mut self, name: &str, latency: &Latency) -> Result<(), String> {
        if latency.count() == 0 {
            return Err(format!("'{name}' has no sample"));
        }
        for (label, share) in SHARES {
            let value = latency.at(share, Unit::Milliseconds);
            self.rounds.record(&measure(name, label, Unit::Milliseconds), value);
            self.names.push((measure(name, label, Unit::Milliseconds), Unit::Milliseconds));
        }
        Ok(())
    }

    /// Adds the figures of a load; `allowed` is the p99 that inserts and selects may have, in
    /// milliseconds.
    ///
    /// # Errors
    /// Fails if the load has made no inserts, or no selects.
    pub fn add_load(
        &mut self,
        name: &str,
        load: &LoadResults,
        allowed: (f64, f64),
    ) -> Result<(), String> {
        let mut calls = 0;
        for (call_kind, windows, allowed) in
            [("inserts", &load.inserts, allowed.0), ("selects", &load.selects, allowed.1)]
        {
            let all = windows.all()?;
            let name = format!("{name}, {call_kind}");
            self.add_latency(&name, &all)?;
            let p99 = all.at(0.99, Unit::Milliseconds);
            self.add(&format!("{name}, p99 / what it may be"), Unit::Count, p99 / allowed);
            let worst = windows.worst(0.99).ok_or("a load without a window")?;
            let worst = worst.at(0.99, Unit::Milliseconds);
            self.add(&format!("{name}, p99 of the worst window"), Unit::Milliseconds, worst);
            self.add(&name, Unit::PerSecond, all.count() as f64 / load.seconds);
            calls += all.count();
        }
        let rate = calls as f64 / load.seconds;
        self.add(&format!("{name}, rows"), Unit::PerSecond, rate);
        self.add(&format!("{name}, calls left out"), Unit::Count, load.left_out as f64);
        let cores = |seconds: f64| seconds / load.seconds;
        self.add(&format!("{name}, cores of the node"), Unit::Count, cores(load.node.cpu_seconds));
        self.add(&format!("{name}, cores of the clients"), Unit::Count, cores(load.clients_cpu));
        self.add(&format!("{name}, node's own memory"), Unit::Bytes, load.node.own_bytes);
        let read = load.node.disk_bytes / calls as f64;
        self.add(&format!("{name}, read from the device per row"), Unit::Bytes, read);
        let dollars = DOLLARS_PER_HOUR / 3_600.0 / rate * 1e6;
        self.add(&format!("{name}, dollars per million rows"), Unit::Count, dollars);
        Ok(())
    }

    /// Returns a row for each figure.
    ///
    /// # Errors
    /// Fails if a figure is not finite.
    pub fn rows(mut self) -> Result<Vec<Row>, String> {
        self.rounds.close();
        let row = |(name, unit): &(String, Unit)| Row::alone(name, *unit, &self.rounds, name);
        self.names.iter().map(row).collect()
    }
}
