//! Rows to select: rows from before the load, each once, in an order without pattern, so that
//! hardly any is in a cache.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay::schema::Timestamp;

use crate::data::Order;

/// A prime; the distance of neighbours in the order of selects.
const STEP: u64 = 7_368_787;

/// Inserted rows, by number from 0, and the number of rows that were handed out.
pub struct Older {
    at: Vec<Timestamp>,
    given: AtomicU64,
}

impl Older {
    /// Creates the rows from their event times, number by number.
    #[must_use]
    pub fn new(times: Vec<Timestamp>) -> Self {
        Self { at: times, given: AtomicU64::new(0) }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.at.len() as u64
    }

    /// Returns a row that was never returned before.
    ///
    /// # Errors
    /// Fails if no row is left.
    pub fn one(&self) -> Result<Order, String> {
        let order_number = self.given.fetch_add(1, Ordering::Relaxed);
        if order_number >= self.count() {
            return Err("every row was selected once; insert more before the load".to_owned());
        }
        let number = order_number.wrapping_mul(STEP) % self.count();
        Ok(Order { number, at: self.at[number as usize] })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn older_events_return_every_row_once() {
        let older_events = Older::new((0..1_000).map(Timestamp::from_micros).collect());
        let numbers: BTreeSet<u64> =
            (0..1_000).map(|_| older_events.one().unwrap().number).collect();
        assert_eq!(numbers.len(), 1_000);
        assert!(older_events.one().unwrap_err().contains("insert more"));
    }
}
