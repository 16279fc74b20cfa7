//! The tail of one partition: what its follower received last, for all readers near the end.
//!
//! The follower pushes, readers look or wait. A tail breaks when its follower cannot go on (the
//! topic is gone, the log moved under it); it then wakes everybody and is opened anew by the next
//! read, which looks at the log's bounds again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::LogRecord;
use crate::change_log::{Bounds, Records};
use crate::end_signal::EndSignal;
use crate::remote::now;
use crate::tail_cache::{CacheBudget, TailCache};

/// How long a log that was made anew stays lost to all who ask for it, so that each of its readers
/// hears of it and not only the one that happened to wait.
const LOST_FOR: Duration = Duration::from_secs(2);

/// What readers of a tail hear in whose place another one is opened.
pub(super) const OPENED_ANEW: &str = "the log's tail was opened anew; read again";

/// One partition's tail.
pub(super) struct Tail {
    pub(super) at: PartitionRef,
    state: Mutex<State>,
    end: EndSignal,
    readers: AtomicUsize,
}

struct State {
    cache: TailCache,
    /// First offset that the log holds, as last heard.
    start: Offset,
    /// The offset that the follower receives next.
    next: Offset,
    /// The log's end as last heard; never below `next`.
    end: Offset,
    broken: Option<Broken>,
    used: Instant,
}

/// How a tail's follower went.
struct Broken {
    error: Error,
    since: Instant,
    /// The log does not hold what the follower was to receive next.
    has_lost_place: bool,
}

/// What a tail holds at an offset.
pub(super) enum Found {
    Here(Records),
    /// Older than what is held.
    Below,
    /// The follower has not received it; `end` is the log's end as known.
    Ahead {
        end: Offset,
    },
}

/// Somebody who reads: a tail is kept while there is one.
pub(super) struct Reading(Arc<Tail>);

impl Tail {
    pub(super) fn new(at: PartitionRef, bounds: Bounds, budget: Arc<CacheBudget>) -> Self {
        let state = State {
            cache: TailCache::new(budget),
            start: bounds.start,
            next: bounds.end,
            end: bounds.end,
            broken: None,
            used: now(),
        };
        let end = EndSignal::new(bounds.end);
        Self { at, state: Mutex::new(state), end, readers: AtomicUsize::new(0) }
    }

    /// Takes the next records of the log.
    pub(super) fn push(&self, records: impl Iterator<Item = LogRecord>) {
        let mut state = self.state.lock();
        if state.broken.is_some() {
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
        self.end.publish(next);
    }

    /// Ends this tail: those who read it hear the error.
    pub(super) fn break_off(&self, error: Error) {
        self.end_with(error, false);
    }

    /// As [`Tail::break_off`], of a follower that asks for what the log does not hold.
    pub(super) fn lose_place(&self, error: Error) {
        self.end_with(error, true);
    }

    fn end_with(&self, error: Error, has_lost_place: bool) {
        let mut state = self.state.lock();
        if state.broken.is_none() {
            state.broken = Some(Broken { error, since: now(), has_lost_place });
            state.cache.clear();
        }
        drop(state);
        self.end.publish_deleted();
    }

    /// Whether it is to be opened anew.
    pub(super) fn is_spent(&self) -> bool {
        let state = self.state.lock();
        state.broken.as_ref().is_some_and(|Broken { error, since, .. }| {
            error.code() != ErrorCode::TokenLost || since.elapsed() > LOST_FOR
        })
    }

    /// Whether its follower has lost its place, for whatever reason.
    pub(super) fn has_lost_place(&self) -> bool {
        self.state.lock().broken.as_ref().is_some_and(|broken| broken.has_lost_place)
    }

    /// Makes it spent if its follower lost its place because the log, which starts there now, was
    /// trimmed past it; whether it was: readers that are further on have lost nothing then.
    pub(super) fn spend_if_outrun(&self, start: Offset) -> bool {
        let mut state = self.state.lock();
        let is_passed = state.next < start;
        let Some(broken) = state.broken.as_mut().filter(|broken| broken.has_lost_place) else {
            return false;
        };
        if is_passed {
            let partition = self.at.partition;
            broken.error = Error::unavailable(OPENED_ANEW).with_partition(partition);
        }
        is_passed
    }

    pub(super) fn find(&self, from: Offset, bytes_max: usize) -> Result<Found> {
        let state = self.state.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.error.clone());
        }
        if from < state.start {
            state.bounds().check(self.at, from)?;
        }
        if from >= state.next {
            return Ok(Found::Ahead { end: state.end });
        }
        Ok(match state.cache.read(from, bytes_max) {
            Some(records) => Found::Here(Records { records, end: state.end }),
            None => Found::Below,
        })
    }

    /// What is known of the log's bounds.
    pub(super) fn bounds(&self) -> Bounds {
        self.state.lock().bounds()
    }

    /// Learns from an acknowledgement where the log ends.
    pub(super) fn learn_end(&self, end: Offset) {
        let mut state = self.state.lock();
        state.end = state.end.max(end);
    }

    /// Learns the log's bounds, asked for when the follower was at `next`. A tail that broke has
    /// said so, and knows nothing of the log that is there now.
    ///
    /// # Errors
    /// `TokenLost` when the log ends below what was received from it; the tail then breaks.
    pub(super) fn learn(&self, bounds: Bounds, next: Offset) -> Result<()> {
        if self.state.lock().broken.is_some() {
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

    /// The offset that the follower receives next.
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

    /// Whether nobody has read it for a while.
    pub(super) fn is_idle(&self, idle_timeout: Duration) -> bool {
        self.readers.load(Ordering::Relaxed) == 0 && self.state.lock().used.elapsed() > idle_timeout
    }
}

impl State {
    fn bounds(&self) -> Bounds {
        Bounds { start: self.start, end: self.end, server_time: None }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state.lock().used = now();
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}
