//! A session of a tail: it reads the log and applies the records until an event ends it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::clock::Timestamp;
use forebay_core::limits::{READER_READ_WAIT_MS, VERSION_DETACH_RETRY_MS};
use forebay_tasks::block_in_place;
use tokio::task::JoinHandle;

use super::{SessionEnd, Tail};
use crate::checkpoint::wait_until_due;
use crate::connect::{check_continues, connect, read};

impl Tail {
    /// Follows the log until an event ends the session.
    pub(super) async fn run_session(&mut self) -> Result<Infallible, SessionEnd> {
        self.connect().await?;
        self.report_skipped_before().await?;
        self.replica.write_pending().map_err(|error| self.session_end(error))?;
        let mut clock_check = self.next_clock_check();
        self.start_maintenance();
        loop {
            // Batch reads and scans that hit a damaged block do not notify the tail, so check for
            // damage on every iteration.
            self.replica.writer().check_integrity().map_err(SessionEnd::Rebuild)?;
            self.note_repaired_blocks();
            self.detach_shared_records();
            let (context, partition) = (Arc::clone(&self.context), Arc::clone(&self.partition));
            let wait_max = Duration::from_millis(READER_READ_WAIT_MS);
            let from = self.replica.state().offset_applied;
            let records = tokio::select! {
                biased;
                () = partition.board.asked() => {
                    self.connect().await?;
                    if !self.needs_barrier_clock {
                        // The connect measured the clock as well.
                        clock_check = self.next_clock_check();
                    }
                    continue;
                }
                () = &mut clock_check => {
                    self.connect().await?;
                    self.measure_clock_by_barrier().await;
                    clock_check = self.next_clock_check();
                    continue;
                }
                () = wait_until_due(&mut self.checkpoints) => {
                    self.checkpoint_due();
                    continue;
                }
                () = partition.quiesced.asked() => {
                    block_in_place(|| partition.quiesced.run(&self.replica));
                    continue;
                }
                records = read(&*context.parts.log, partition.at, from, wait_max) => records,
            };
            let records = records.map_err(SessionEnd::Retry)?;
            self.replay(&records.records).await?;
            self.backoff.reset();
            self.publish(|progress| progress.end_offset = records.end);
            self.start_maintenance();
            if !self.is_clock_measured {
                self.measure_clock_by_barrier().await;
                clock_check = self.next_clock_check();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Starts the pending maintenance of the replica's memory, unless some is running. The
    /// maintenance continues until nothing is left to do, because the next record may be far away.
    fn start_maintenance(&mut self) {
        if self.maintenance.as_ref().is_none_or(JoinHandle::is_finished) {
            let task = self.replica.writer().maintenance();
            let close_signal = Arc::clone(&self.context.close_signal);
            self.maintenance = task.map(|mut task| {
                tokio::task::spawn_blocking(move || while close_signal.check().is_ok() && task() {})
            });
        }
    }

    /// Copies all records that this replica shares with another version, if requested. Only one
    /// partition does so at a time. The tail applies no entries during the copy.
    fn detach_shared_records(&mut self) {
        if !self.context.must_detach.load(Ordering::Relaxed) || !self.replica.shares_records() {
            return;
        }
        let (context, now) = (Arc::clone(&self.context), self.context.parts.clock.now());
        let retry_us = VERSION_DETACH_RETRY_MS * 1_000;
        let is_soon = |tried_at: Timestamp| now.micros_since(tried_at).unsigned_abs() < retry_us;
        let Some(_turn) = context.detaching.try_lock() else { return };
        if self.detach_failed.is_some_and(is_soon) {
            return;
        }
        match block_in_place(|| self.replica.detach_shared_records()) {
            Ok(()) => {
                let (at, name) = (self.partition.at, &context.name);
                tracing::info!(store = %name, partition = %at.partition, "record sharing ended");
            }
            Err(error) => {
                self.detach_failed = Some(now);
                self.note_error(error);
            }
        }
    }

    /// Checks that the replica follows this log, and measures the log's clock.
    pub(super) async fn connect(&mut self) -> Result<(), SessionEnd> {
        // A read that finds damage requests this check.
        self.replica.writer().check_integrity().map_err(SessionEnd::Rebuild)?;
        self.note_repaired_blocks();
        let checks_asked = self.partition.board.checks_asked();
        let parts = &self.context.parts;
        let connected = connect(&*parts.log, self.partition.at, &*parts.clock).await;
        let mut connected = connected.map_err(SessionEnd::Retry)?;
        if self.replica.is_empty() && self.bootstrap(&connected).await? {
            // The start took time, and the log has advanced.
            let (at, parts) = (self.partition.at, &self.context.parts);
            let reconnected = connect(&*parts.log, at, &*parts.clock).await;
            connected = reconnected.map_err(SessionEnd::Retry)?;
        }
        self.note_clock(&connected);
        let continues = if self.replica.is_empty() {
            Ok(())
        } else {
            check_continues(&connected, self.replica.state()).map_err(SessionEnd::Rebuild)
        };
        let continues = match continues {
            Ok(()) => self.replica.open(connected.bounds).map_err(SessionEnd::Retry),
            rebuild => rebuild,
        };
        self.publish(|progress| {
            progress.end_offset = connected.bounds.end;
            progress.checked = checks_asked;
            progress.checked_log_id = connected.log_id;
        });
        continues
    }
}
