//! Counters of the events of a view, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_sketch::EventAdmission;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// A day in microseconds; longer delays count as a day.
const DELAY_US_MAX: u64 = 86_400_000_000;

/// Counters of one view since this process opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewStats {
    /// Events of the source stream that were read.
    pub input_events: u64,
    /// Events that the filter dropped.
    pub filter_dropped: u64,
    /// Events dropped because a required join found no document.
    pub join_dropped: u64,
    /// Events dropped because the name of their group is too long.
    pub oversized_dropped: u64,
    /// Events that were folded.
    pub folded_events: u64,
    /// Events without a group, because a column of `entity` has no value.
    pub ungrouped_dropped: u64,
    /// Events later than the view's allowed lateness.
    pub late_dropped: u64,
    /// Events more than one day in the future of the partition time.
    pub future_dropped: u64,
    /// Events with a value that an aggregate cannot take in.
    pub invalid_dropped: u64,
    /// Documents that were written with values of the view.
    pub materialized_documents: u64,
    /// Median, 99th percentile and maximum of the delay between the first unwritten change of a
    /// group and its materialization, in microseconds.
    pub materialize_delay_us: [u64; 3],
}

/// The live counters of [`ViewStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) input_events: AtomicU64,
    pub(crate) filter_dropped: AtomicU64,
    pub(crate) join_dropped: AtomicU64,
    pub(crate) oversized_dropped: AtomicU64,
    folded_events: AtomicU64,
    ungrouped_dropped: AtomicU64,
    late_dropped: AtomicU64,
    future_dropped: AtomicU64,
    invalid_dropped: AtomicU64,
    materialize_delay: Mutex<Option<Histogram<u64>>>,
}

/// Counters of a run of entries in the fold; [`ViewStats`] has those of all entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoldCounts {
    folded_events: u64,
    pub(crate) ungrouped_dropped: u64,
    late_dropped: u64,
    future_dropped: u64,
    pub(crate) invalid_dropped: u64,
}

impl FoldCounts {
    /// Counts an event by its admission.
    pub(crate) fn note(&mut self, admission: EventAdmission) {
        *match admission {
            EventAdmission::Admitted => &mut self.folded_events,
            EventAdmission::Late { .. } => &mut self.late_dropped,
            EventAdmission::Future { .. } => &mut self.future_dropped,
        } += 1;
    }
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Adds the counters of a run, once its shard has written it.
    pub(crate) fn add(&self, counts: FoldCounts) {
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        add(&self.folded_events, counts.folded_events);
        add(&self.ungrouped_dropped, counts.ungrouped_dropped);
        add(&self.late_dropped, counts.late_dropped);
        add(&self.future_dropped, counts.future_dropped);
        add(&self.invalid_dropped, counts.invalid_dropped);
    }

    /// Counts a materialized document with its delay.
    pub(crate) fn note_materialized(&self, delay_us: i64) {
        let mut histogram = self.materialize_delay.lock();
        if histogram.is_none() {
            *histogram = Histogram::new_with_bounds(1, DELAY_US_MAX, 3).ok();
        }
        if let Some(histogram) = histogram.as_mut() {
            histogram.saturating_record(delay_us.max(1).unsigned_abs());
        }
    }

    /// Returns the counters of all entries so far.
    pub(crate) fn stats(&self) -> ViewStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let histogram = self.materialize_delay.lock();
        let delay = |quantile| histogram.as_ref().map_or(0, |it| it.value_at_quantile(quantile));
        ViewStats {
            input_events: load(&self.input_events),
            filter_dropped: load(&self.filter_dropped),
            join_dropped: load(&self.join_dropped),
            oversized_dropped: load(&self.oversized_dropped),
            folded_events: load(&self.folded_events),
            ungrouped_dropped: load(&self.ungrouped_dropped),
            late_dropped: load(&self.late_dropped),
            future_dropped: load(&self.future_dropped),
            invalid_dropped: load(&self.invalid_dropped),
            materialized_documents: histogram.as_ref().map_or(0, Histogram::len),
            materialize_delay_us: [0.5, 0.99, 1.0].map(delay),
        }
    }
}
