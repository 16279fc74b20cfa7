//! How long calls of one kind took, window by window of a load.

use std::time::Duration;

use forebay_bench_micro::latency::Latency;

/// The calls of one kind.
pub struct Stretch {
    window: u64,
    windows: Vec<Latency>,
}

impl Stretch {
    /// None yet; windows are as long as this.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window: (window.as_nanos() as u64).max(1), windows: Vec::new() }
    }

    /// Takes in a call that was due so long after the load began, in nanoseconds.
    ///
    /// # Errors
    /// None in practice.
    pub fn record(&mut self, due_after: u64, took: u64) -> Result<(), String> {
        let place = (due_after / self.window) as usize;
        while self.windows.len() <= place {
            self.windows.push(Latency::new()?);
        }
        self.windows[place].record(took);
        Ok(())
    }

    /// All of them.
    ///
    /// # Errors
    /// None in practice.
    pub fn all(&self) -> Result<Latency, String> {
        let mut all = Latency::new()?;
        self.windows.iter().try_for_each(|window| all.add(window))?;
        Ok(all)
    }

    /// Of the window that was the worst at this share of its calls; one of a few calls only, at the
    /// end, is passed over.
    #[must_use]
    pub fn worst(&self, quantile: f64) -> Option<&Latency> {
        let most = self.windows.iter().map(Latency::count).max()?;
        let full = self.windows.iter().filter(|window| window.count() > most / 2);
        let at = |latency: &&Latency| latency.at(quantile, forebay_bench_report::Unit::Nanoseconds);
        full.max_by(|one, other| at(one).total_cmp(&at(other)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_bench_report::Unit;

    use super::*;

    #[test]
    fn the_worst_window_is_told_from_all() {
        let mut stretch = Stretch::new(Duration::from_nanos(100));
        for due in 0..300 {
            stretch.record(due, if due / 100 == 1 { 50 } else { 10 }).unwrap();
        }
        // The beginning of a window that the load did not come to the end of.
        stretch.record(301, 9_000).unwrap();
        assert_eq!(stretch.all().unwrap().at(0.5, Unit::Nanoseconds), 10.0);
        assert_eq!(stretch.worst(0.99).unwrap().at(0.99, Unit::Nanoseconds), 50.0);
        assert_eq!(stretch.all().unwrap().count(), 301);
    }
}
