//! The tail of one partition: the records that its follower received last, for all readers near the
//! end.
//!
//! The follower pushes records; readers take them or wait. A tail breaks if its follower cannot
//! continue (the topic is gone, or the log moved under it). A broken tail wakes all readers, and
//! the next read opens a new tail, after fetching the log's bounds again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::LogRecord;
use crate::append_notifier::AppendNotifier;
use crate::change_log::{Bounds, Records};
use crate::remote::now;
use crate::tail_cache::{CacheBudget, TailCache};

/// Time for which a recreated log fails with `TokenLost`, so that every reader receives the error
/// and not only the one that happened to wait.
const LOST_FOR: Duration = Duration::from_secs(2);

/// Error message for readers of a tail that another one has replaced.
pub(super) const OPENED_ANEW: &str = "the log's tail was reopened; read again";

/// The tail of one partition.
pub(super) struct PartitionTail {
    pub(super) at: PartitionRef,
    state: Mutex<TailState>,
    end: AppendNotifier,
    readers: AtomicUsize,
}

struct TailState {
    cache: TailCache,
    /// First offset of the log, as last reported.
    start: Offset,
    /// Next offset that the follower receives.
    next: Offset,
    /// End of the log, as last reported; never below `next`.
    end: Offset,
    failure: Option<FollowerFailure>,
    used_at: Instant,
}

/// End of a tail's follower.
struct FollowerFailure {
    error: Error,
    failed_at: Instant,
    /// Whether the log did not cover the next offset of the follower.
    has_lost_place: bool,
}

/// Result of a lookup of an offset in a tail.
pub(super) enum TailLookup {
    Here(Records),
    /// The offset is older than the cached records.
    Below,
    /// The follower has not received the offset; `end` is the end of the log as known.
    Ahead {
        end: Offset,
    },
}

/// Guard of a reader: while a guard exists, the tail is not idle.
pub(super) struct Reading(Arc<PartitionTail>);

impl PartitionTail {
    pub(super) fn new(at: PartitionRef, bounds: Bounds, budget: Arc<CacheBudget>) -> Self {
        let state = TailState {
            cache: TailCache::new(budget),
            start: bounds.start,
            next: bounds.end,
            end: bounds.end,
            failure: None,
            used_at: now(),
        };
        let end = AppendNotifier::new(bounds.end);
        Self { at, state: Mutex::new(state), end, readers: AtomicUsize::new(0) }
    }

    /// Adds the next records of the log.
    pub(super) fn push(&self, records: impl Iterator<Item = LogRecord>) {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return;
        }
        for record in records {
            if record.offset >= state.next {
                state.next = record.offset.next();
                state.cache.push(record);
            }
        }
        let next = state.next;
        state.end = state.end.max(next);
        drop(state);
        self.end.advance(next);
    }

    /// Ends this tail; its readers receive the error.
    pub(super) fn break_off(&self, error: Error) {
        self.end_with(error, false);
    }

    /// Ends this tail like [`PartitionTail::break_off`], because the log does not cover the
    /// follower's offset.
    pub(super) fn lose_place(&self, error: Error) {
        self.end_with(error, true);
    }

    fn end_with(&self, error: Error, has_lost_place: bool) {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            state.failure = Some(FollowerFailure { error, failed_at: now(), has_lost_place });
            state.cache.clear();
        }
        drop(state);
        self.end.note_deleted();
    }

    /// Returns whether the next access must open a new tail.
    pub(super) fn is_spent(&self) -> bool {
        let state = self.state.lock();
        state.failure.as_ref().is_some_and(|FollowerFailure { error, failed_at, .. }| {
            error.code() != ErrorCode::TokenLost || failed_at.elapsed() > LOST_FOR
        })
    }

    /// Returns whether the follower has lost its position, for any reason.
    pub(super) fn has_lost_place(&self) -> bool {
        self.state.lock().failure.as_ref().is_some_and(|failure| failure.has_lost_place)
    }

    /// Marks the tail as spent if its follower lost its position because the log was trimmed to
    /// `start`, past that position. Returns whether this was the case: readers further on have then
    /// lost nothing.
    pub(super) fn spend_if_outrun(&self, start: Offset) -> bool {
        let mut state = self.state.lock();
        let is_passed = state.next < start;
        let Some(failure) = state.failure.as_mut().filter(|failure| failure.has_lost_place) else {
            return false;
        };
        if is_passed {
            let partition = self.at.partition;
            failure.error = Error::unavailable(OPENED_ANEW).with_partition(partition);
        }
        is_passed
    }

    pub(super) fn find(&self, from: Offset, bytes_max: usize) -> Result<TailLookup> {
        let state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.error.clone());
        }
        if from < state.start {
            state.bounds().check(self.at, from)?;
        }
        if from >= state.next {
            return Ok(TailLookup::Ahead { end: state.end });
        }
        Ok(match state.cache.read(from, bytes_max) {
            Some(records) => TailLookup::Here(Records { records, end: state.end }),
            None => TailLookup::Below,
        })
    }

    /// Returns the known bounds of the log.
    pub(super) fn bounds(&self) -> Bounds {
        self.state.lock().bounds()
    }

    /// Updates the end of the log from an acknowledgement.
    pub(super) fn learn_end(&self, end: Offset) {
        let mut state = self.state.lock();
        state.end = state.end.max(end);
    }

    /// Updates the bounds of the log, which were requested when the follower was at `next`. A
    /// broken tail ignores them: it has reported its error and knows nothing of the current log.
    ///
    /// # Errors
    /// `TokenLost` if the log ends below the records received from it; the tail then breaks.
    pub(super) fn learn(&self, bounds: Bounds, next: Offset) -> Result<()> {
        if self.state.lock().failure.is_some() {
            return Ok(());
        }
        if let Err(lost) = bounds.check(self.at, next)
            && bounds.end < next
        {
            self.break_off(lost.clone());
            return Err(lost);
        }
        let mut state = self.state.lock();
        state.start = state.start.max(bounds.start);
        state.end = state.end.max(bounds.end);
        Ok(())
    }

    /// Returns the next offset that the follower receives.
    pub(super) fn next(&self) -> Offset {
        self.state.lock().next
    }

    /// Returns when the follower has passed `from`, when the tail broke, or after `wait_max`.
    pub(super) async fn wait_past(&self, from: Offset, wait_max: Duration) {
        self.end.wait_past(from, wait_max).await;
    }

    pub(super) fn reading(self: &Arc<Self>) -> Reading {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reading(self.clone())
    }

    /// Returns whether the tail was not read for `idle_timeout`.
    pub(super) fn is_idle(&self, idle_timeout: Duration) -> bool {
        self.readers.load(Ordering::Relaxed) == 0
            && self.state.lock().used_at.elapsed() > idle_timeout
    }
}

impl TailState {
    fn bounds(&self) -> Bounds {
        Bounds { start: self.start, end: self.end, server_time: None }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state.lock().used_at = now();
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}
