//! The distance between the clock of this process and the clock of the log.

use std::pin::Pin;
use std::time::Duration;

use forebay_core::limits::{
    READER_CLOCK_CHECK_MS, READER_CLOCK_CHECK_SOON_MS, READER_CLOCK_EXCHANGE_SLOW_US,
};
use tokio::time::Sleep;

use super::Tail;
use crate::age::clock_error_us;
use crate::barrier::barrier_entry;
use crate::connect::LogConnection;

impl Tail {
    pub(super) fn note_clock(&mut self, connected: &LogConnection) {
        self.needs_barrier_clock = connected.clock_error_us.is_none();
        if let Some(micros) = connected.clock_error_us {
            self.set_clock_error(micros, connected.exchange_us);
        }
    }

    /// Returns the timer of the next clock measurement: soon if the last exchange was slow, as
    /// exchanges in an outage are, and therefore imprecise.
    pub(super) fn next_clock_check(&self) -> Pin<Box<Sleep>> {
        let was_slow = self.clock_exchange_us > READER_CLOCK_EXCHANGE_SLOW_US;
        let wait_ms = if was_slow { READER_CLOCK_CHECK_SOON_MS } else { READER_CLOCK_CHECK_MS };
        Box::pin(tokio::time::sleep(Duration::from_millis(wait_ms)))
    }

    fn set_clock_error(&mut self, micros: i64, exchange_us: i64) {
        self.clock_exchange_us = exchange_us;
        self.partition.board.set_clock_error(micros);
        self.replica.note_clock_error(micros);
        self.is_clock_measured = true;
    }

    /// Measures the clock error by the append time of a barrier, if the log does not report its
    /// time. A failure leaves the error as it was, known or unknown.
    pub(super) async fn measure_clock_by_barrier(&mut self) {
        let state = self.replica.state();
        let Some(log_id) = state.log_id.filter(|_| self.needs_barrier_clock) else { return };
        let barrier = barrier_entry(log_id, state.position, state.schema_version);
        let parts = &self.context.parts;
        let before = parts.clock.now();
        match self.context.append_barrier(self.partition.at, &barrier).await {
            Ok(receipt) => {
                let after = parts.clock.now();
                let micros = clock_error_us(before, receipt.append_time, after);
                self.set_clock_error(micros, after.micros_since(before));
            }
            Err(error) => tracing::debug!(
                store = %self.context.name, partition = %self.partition.at.partition, %error,
                "clock error not measured"
            ),
        }
    }
}
