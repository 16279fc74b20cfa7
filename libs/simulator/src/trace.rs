//! The trace of a run: a digest that two runs of one seed share, the last events for the analysis
//! of a failure, and counters of the fired faults and recovery paths.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use forebay_core::partition::xxh3_64;

/// Number of events in a failure's report.
const EVENTS_KEPT: usize = 60;

/// The trace of one run; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    inner: Arc<Mutex<TraceState>>,
    is_printed: bool,
}

#[derive(Debug, Default)]
struct TraceState {
    digest: u64,
    events: VecDeque<String>,
    event_counts: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Returns a trace that also prints each event.
    pub fn printed() -> Self {
        Self { inner: Arc::default(), is_printed: true }
    }

    /// Records an event at a time of the run, in microseconds.
    pub fn event(&self, at_us: u64, text: String) {
        let mut inner = self.lock();
        let line = format!("{at_us:>10} us  {text}");
        if self.is_printed {
            println!("{line}");
        }
        let mut bytes = inner.digest.to_le_bytes().to_vec();
        bytes.extend_from_slice(line.as_bytes());
        inner.digest = xxh3_64(&bytes);
        if inner.events.len() == EVENTS_KEPT {
            inner.events.pop_front();
        }
        inner.events.push_back(line);
    }

    /// Counts a fault or a recovery path.
    pub fn count_event(&self, event: &'static str, times: u64) {
        if times > 0 {
            *self.lock().event_counts.entry(event).or_default() += times;
        }
    }

    /// Returns the digest, which is equal for two runs of one seed.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    /// Returns the last events.
    pub fn last_events(&self) -> Vec<String> {
        self.lock().events.iter().cloned().collect()
    }

    /// Returns the number of times that each fault and recovery path fired.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().event_counts.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TraceState> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
