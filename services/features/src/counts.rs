//! Counters of the events of a view, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_sketch::EventAdmission;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// A day in microseconds; longer delays count as a day.
const AFTER_US_MAX: u64 = 86_400_000_000;

/// Counters of one view since this process opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewCounts {
    /// Events of the source that were read.
    pub seen: u64,
    /// Events that the filter dropped.
    pub filtered: u64,
    /// Events dropped because a required lookup found no document.
    pub not_found: u64,
    /// Events dropped because the name of their group is too long.
    pub oversized: u64,
    /// Events that were folded.
    pub folded: u64,
    /// Events without a group, because a column of `group_by` has no value.
    pub ungrouped: u64,
    /// Events later than the view's allowed lateness.
    pub late: u64,
    /// Events too far ahead of the log's time.
    pub ahead: u64,
    /// Events with a value that an aggregate cannot take in.
    pub refused: u64,
    /// Documents that were emitted.
    pub emitted: u64,
    /// Median, 99th percentile and maximum of the delay between the first unemitted change of a
    /// group and its emission, in microseconds.
    pub emitted_after_us: [u64; 3],
}

/// The live counters of [`ViewCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) seen: AtomicU64,
    pub(crate) filtered: AtomicU64,
    pub(crate) not_found: AtomicU64,
    pub(crate) oversized: AtomicU64,
    folded: AtomicU64,
    ungrouped: AtomicU64,
    late: AtomicU64,
    ahead: AtomicU64,
    refused: AtomicU64,
    emitted_after: Mutex<Option<Histogram<u64>>>,
}

/// Counters of a run of entries in the fold; [`ViewCounts`] has those of all entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Folds {
    folded: u64,
    pub(crate) ungrouped: u64,
    late: u64,
    ahead: u64,
    pub(crate) refused: u64,
}

impl Folds {
    /// Counts an event by its admission.
    pub(crate) fn note(&mut self, admission: EventAdmission) {
        *match admission {
            EventAdmission::Admitted => &mut self.folded,
            EventAdmission::Late { .. } => &mut self.late,
            EventAdmission::Ahead { .. } => &mut self.ahead,
        } += 1;
    }
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Adds the counters of a run, once its shard has written it.
    pub(crate) fn add(&self, folds: Folds) {
        let add = |counter: &AtomicU64, more| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.folded, folds.folded);
        add(&self.ungrouped, folds.ungrouped);
        add(&self.late, folds.late);
        add(&self.ahead, folds.ahead);
        add(&self.refused, folds.refused);
    }

    /// Counts an emitted document with its delay.
    pub(crate) fn emitted(&self, after_us: i64) {
        let mut histogram = self.emitted_after.lock();
        let made = || Histogram::new_with_bounds(1, AFTER_US_MAX, 3).ok();
        if histogram.is_none() {
            *histogram = made();
        }
        if let Some(histogram) = histogram.as_mut() {
            histogram.saturating_record(after_us.max(1).unsigned_abs());
        }
    }

    pub(crate) fn now(&self) -> ViewCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let histogram = self.emitted_after.lock();
        let after = |quantile| histogram.as_ref().map_or(0, |it| it.value_at_quantile(quantile));
        ViewCounts {
            seen: of(&self.seen),
            filtered: of(&self.filtered),
            not_found: of(&self.not_found),
            oversized: of(&self.oversized),
            folded: of(&self.folded),
            ungrouped: of(&self.ungrouped),
            late: of(&self.late),
            ahead: of(&self.ahead),
            refused: of(&self.refused),
            emitted: histogram.as_ref().map_or(0, Histogram::len),
            emitted_after_us: [0.5, 0.99, 1.0].map(after),
        }
    }
}
