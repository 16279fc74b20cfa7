//! The progress of one partition: published by its tail, read by every other task.
//!
//! The tail is the only writer. Every read uses only atomics and writes nothing that another core
//! reads; a watch channel holds the whole progress, for waits and status. The tail stores (1) the
//! documents, (2) the atomics, (3) the progress: a task that sees a position therefore finds the
//! documents of that position.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use forebay_core::Error;
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, Position, SchemaVersion};
use forebay_core::replica_state::Phase;
use tokio::sync::{Notify, watch};

use crate::age::Freshness;

/// The part of a log that a replica reads before it has caught up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatchUp {
    /// Offset at which the replica started.
    pub start: Offset,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// End of the log when the replica was opened.
    pub target: Offset,
}

impl CatchUp {
    /// Returns the completed part, 0 to 100; below 100 until the replica has caught up.
    pub fn percent(&self) -> u8 {
        percent(self.done(), self.total())
    }

    pub(crate) fn done(&self) -> u64 {
        self.offset_applied.0.min(self.target.0).saturating_sub(self.start.0)
    }

    pub(crate) fn total(&self) -> u64 {
        self.target.0.saturating_sub(self.start.0)
    }
}

pub(crate) fn percent(done: u64, total: u64) -> u8 {
    if total == 0 {
        return 100;
    }
    (u128::from(done.min(total)) * 100 / u128::from(total)) as u8
}

/// The progress of the download of a snapshot's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDownload {
    /// Bytes that are present.
    pub bytes: u64,
    /// Bytes of the whole image.
    pub bytes_in_all: u64,
}

/// The part of its log that a partition's documents come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedState {
    /// Id of the log; `None` before its first well-formed entry.
    pub log_id: Option<LogId>,
    /// Position of the last entry applied; `None` before the first.
    pub position: Option<Position>,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Append time of the last entry applied.
    pub append_time: Option<Timestamp>,
    /// Newest schema version that the partition has seen.
    pub schema_version: SchemaVersion,
}

impl ServedState {
    /// Returns whether the entry at this position of this log is applied.
    pub fn covers(&self, log_id: LogId, position: Position) -> bool {
        let entry = |position: Position| (position.epoch, position.offset);
        self.log_id == Some(log_id)
            && self
                .position
                .is_some_and(|served_position| entry(served_position) >= entry(position))
    }
}

/// The progress of a new replica that is built next to the one that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Number of the replica.
    pub generation: u32,
    /// Id of the log that the replica follows.
    pub log_id: Option<LogId>,
    /// Progress of the replica.
    pub catch_up: CatchUp,
    /// Reason for the rebuild.
    pub reason: Error,
}

/// Counters of the records of a partition since the replica was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records applied.
    pub records_applied: u64,
    /// Bytes of the records read.
    pub log_bytes_read: u64,
    /// Records skipped; all replicas skip them.
    pub records_skipped: u64,
    /// Duplicate changes skipped: their client sent them before.
    pub duplicates_skipped: u64,
    /// Changes skipped because their document would have grown above the limit.
    pub oversized_skipped: u64,
    /// Failed calls to the log.
    pub log_errors: u64,
    /// Replicas started after the first one.
    pub rebuilds: u64,
    /// Replicas started from a snapshot.
    pub bootstraps: u64,
    /// Snapshots that could not be fetched or used.
    pub bootstraps_failed: u64,
    /// Counters of checkpoints.
    pub checkpoints: CheckpointCounts,
}

/// Counters of the checkpoints of a partition since the replica was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// Checkpoints written durably.
    pub written: u64,
    /// Checkpoints not written, because the disk refused or the partition is too large.
    pub failed: u64,
    /// Checkpoints restored: 0 or 1 for each partition.
    pub restored: u64,
    /// Checkpoints ignored at open because of damage, or discarded later because of damage.
    pub damaged: u64,
    /// Checkpoints ignored at open for another reason, such as the format of another build.
    pub ignored: u64,
    /// Damaged blocks of restored checkpoints that were repaired: reads are correct, but an
    /// operator should check the disk.
    pub blocks_repaired: u64,
}

impl CheckpointCounts {
    fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.failed += other.failed;
        self.restored += other.restored;
        self.damaged += other.damaged;
        self.ignored += other.ignored;
        self.blocks_repaired += other.blocks_repaired;
    }
}

impl Counts {
    /// Adds the counters of another partition.
    pub fn add(&mut self, other: &Self) {
        self.records_applied += other.records_applied;
        self.log_bytes_read += other.log_bytes_read;
        self.records_skipped += other.records_skipped;
        self.duplicates_skipped += other.duplicates_skipped;
        self.oversized_skipped += other.oversized_skipped;
        self.log_errors += other.log_errors;
        self.rebuilds += other.rebuilds;
        self.bootstraps += other.bootstraps;
        self.bootstraps_failed += other.bootstraps_failed;
        self.checkpoints.add(&other.checkpoints);
    }
}

/// The whole progress of one partition.
#[derive(Clone, Debug, Default)]
pub struct ReplicaProgress {
    /// Phase, which decides whether reads are answered.
    pub phase: Phase,
    /// Number of the replica that serves, from 1.
    pub generation: u32,
    /// State that reads see.
    pub served: ServedState,
    /// Catch-up of the first replica.
    pub catch_up: CatchUp,
    /// End of the log, as last received.
    pub end_offset: Offset,
    /// Download of the snapshot that the replica will start from, while it runs or waits for its
    /// turn.
    pub snapshot_download: Option<SnapshotDownload>,
    /// Replica that is built next to the serving one, if any.
    pub rebuild: Option<RebuildProgress>,
    /// Number of the last completed request for a check of the log id.
    pub checked: u64,
    /// Log id that the last check found.
    pub checked_log_id: Option<LogId>,
    /// Error for which the partition applies nothing until a restart.
    pub fatal_error: Option<Error>,
    /// Error for which the partition applies nothing at the moment.
    pub last_error: Option<Error>,
    /// Counters of the records.
    pub counts: Counts,
}

impl ReplicaProgress {
    /// Returns whether the two states are equal in everything that waits and reads use.
    pub fn is_like(&self, other: &Self) -> bool {
        let compared_state = |progress: &Self| {
            let Self { phase, generation, served, catch_up, end_offset, .. } = *progress;
            (phase, generation, served, catch_up, end_offset)
        };
        compared_state(self) == compared_state(other) && self.last_error == other.last_error
    }
}

/// The atomics that every read uses.
#[derive(Debug)]
struct Hot {
    phase: AtomicU8,
    append_time_us: AtomicI64,
    clock_error_us: AtomicI64,
}

const UNKNOWN: i64 = i64::MIN;

/// The board that the tail publishes to.
#[derive(Debug)]
pub struct ProgressBoard {
    hot: Hot,
    progress: watch::Sender<ReplicaProgress>,
    checks_asked: AtomicU64,
    ask: Notify,
}

impl Default for ProgressBoard {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgressBoard {
    /// Returns the board of a partition that has not started.
    pub fn new() -> Self {
        let hot = Hot {
            phase: AtomicU8::new(Phase::Bootstrapping as u8),
            append_time_us: AtomicI64::new(UNKNOWN),
            clock_error_us: AtomicI64::new(UNKNOWN),
        };
        let (checks_asked, ask) = (AtomicU64::new(0), Notify::new());
        Self { hot, progress: watch::Sender::new(ReplicaProgress::default()), checks_asked, ask }
    }

    /// Returns the phase, which decides whether reads are answered.
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase::from_word(self.hot.phase.load(Ordering::Acquire).into())
    }

    /// Returns the inputs of the served replica's age.
    #[inline]
    pub fn freshness(&self) -> Freshness {
        let known_value = |micros: i64| (micros != UNKNOWN).then_some(micros);
        let append_time = known_value(self.hot.append_time_us.load(Ordering::Acquire));
        let clock_error_us = known_value(self.hot.clock_error_us.load(Ordering::Acquire));
        Freshness { append_time: append_time.map(Timestamp::from_micros), clock_error_us }
    }

    /// Returns the whole progress at this moment.
    pub fn current(&self) -> ReplicaProgress {
        self.progress.borrow().clone()
    }

    /// Returns the newest schema version that the served replica has seen.
    pub fn schema_version(&self) -> SchemaVersion {
        self.progress.borrow().served.schema_version
    }

    /// Returns a channel of the progress from now on.
    pub fn watch(&self) -> watch::Receiver<ReplicaProgress> {
        self.progress.subscribe()
    }

    /// Returns whether a task waits for progress.
    pub fn is_watched(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    /// Changes the progress and the atomics derived from it. Only the tail calls this method.
    pub fn publish(&self, change: impl FnOnce(&mut ReplicaProgress)) {
        self.progress.send_modify(|progress| {
            change(progress);
            let append_time = progress.served.append_time.map_or(UNKNOWN, Timestamp::as_micros);
            self.hot.append_time_us.store(append_time, Ordering::Release);
            self.hot.phase.store(progress.phase as u8, Ordering::Release);
        });
    }

    /// Notes the largest possible distance of this process's clock and the log's.
    pub fn set_clock_error(&self, micros: i64) {
        self.hot.clock_error_us.store(micros, Ordering::Release);
    }

    /// Requests another check of the log id from the tail; returns the number to wait for in
    /// [`ReplicaProgress::checked`].
    pub fn ask_for_check(&self) -> u64 {
        let number = self.checks_asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.ask.notify_one();
        number
    }

    /// Returns the number of requested checks; a check that starts now completes all of them.
    pub fn checks_asked(&self) -> u64 {
        self.checks_asked.load(Ordering::Acquire)
    }

    /// Returns when a check is requested.
    pub async fn asked(&self) {
        self.ask.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::Epoch;

    use super::*;

    #[test]
    fn every_phase_is_read_back_from_the_board() {
        let board = ProgressBoard::new();
        for phase in [Phase::Bootstrapping, Phase::Serving, Phase::Poisoned] {
            board.publish(|progress| progress.phase = phase);
            assert_eq!(board.phase(), phase);
        }
    }

    #[test]
    fn position_is_covered_at_any_index_in_its_entry() {
        let at = |offset, index_in_entry| Position {
            epoch: Epoch(1),
            offset: Offset(offset),
            index_in_entry,
        };
        let served = ServedState {
            log_id: Some(LogId(5)),
            position: Some(at(7, 0)),
            ..ServedState::default()
        };
        assert!(served.covers(LogId(5), at(7, 9)));
        assert!(!served.covers(LogId(5), at(8, 0)));
        assert!(!served.covers(LogId(6), at(7, 0)));
        assert!(!ServedState::default().covers(LogId(5), at(0, 0)));
    }

    #[test]
    fn hundred_percent_means_the_target_is_reached() {
        let catch_up = |applied| CatchUp {
            start: Offset(10),
            offset_applied: Offset(applied),
            target: Offset(1_010),
        };
        assert_eq!(catch_up(10).percent(), 0);
        assert_eq!(catch_up(1_009).percent(), 99);
        assert_eq!(catch_up(1_010).percent(), 100);
        assert_eq!(catch_up(9_999).percent(), 100);
        assert_eq!(CatchUp::default().percent(), 100);
    }
}
