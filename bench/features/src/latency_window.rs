//! Latencies of calls of one kind, window by window of a load.

use std::time::Duration;

use forebay_bench_micro::latency::Latency;

/// The calls of one kind.
pub struct LatencyWindows {
    window: u64,
    windows: Vec<Latency>,
}

impl LatencyWindows {
    /// Creates an empty set of windows of this length.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window: (window.as_nanos() as u64).max(1), windows: Vec::new() }
    }

    /// Records a call by its due time since the beginning of the load, in nanoseconds.
    ///
    /// # Errors
    /// No error in practice.
    pub fn record(&mut self, due_after: u64, duration: u64) -> Result<(), String> {
        let place = (due_after / self.window) as usize;
        while self.windows.len() <= place {
            self.windows.push(Latency::new()?);
        }
        self.windows[place].record(duration);
        Ok(())
    }

    /// Returns the latencies of all windows.
    ///
    /// # Errors
    /// No error in practice.
    pub fn all(&self) -> Result<Latency, String> {
        let mut all = Latency::new()?;
        self.windows.iter().try_for_each(|window| all.add(window))?;
        Ok(all)
    }

    /// Returns the window that is the worst at this quantile; skips an incomplete window of a few
    /// calls at the end.
    #[must_use]
    pub fn worst(&self, quantile: f64) -> Option<&Latency> {
        let count_max = self.windows.iter().map(Latency::count).max()?;
        let full = self.windows.iter().filter(|window| window.count() > count_max / 2);
        let latency_at =
            |latency: &&Latency| latency.at(quantile, forebay_bench_report::Unit::Nanoseconds);
        full.max_by(|first, second| latency_at(first).total_cmp(&latency_at(second)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_bench_report::Unit;

    use super::*;

    #[test]
    fn worst_window_is_the_slowest_complete_window() {
        let mut windows = LatencyWindows::new(Duration::from_nanos(100));
        for due in 0..300 {
            windows.record(due, if due / 100 == 1 { 50 } else { 10 }).unwrap();
        }
        // The start of a window that the load did not complete.
        windows.record(301, 9_000).unwrap();
        assert_eq!(windows.all().unwrap().at(0.5, Unit::Nanoseconds), 10.0);
        assert_eq!(windows.worst(0.99).unwrap().at(0.99, Unit::Nanoseconds), 50.0);
        assert_eq!(windows.all().unwrap().count(), 301);
    }
}
