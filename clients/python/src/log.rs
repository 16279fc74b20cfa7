//! Passes records of the native side to Python's `logging`.
//!
//! A thread that emits a record, with or without the interpreter, appends its text to a bounded
//! list and continues. A single Python thread takes the records out, and waits for them without the
//! interpreter. No thread holds the list's lock while it waits for anything else, so no native
//! thread can wait for the interpreter. A log statement whose level is off costs one relaxed load.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay::environment::{Clock, SystemClock};
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{CallError, native_call};
use crate::schema::duration_of;

/// Most records that wait for Python; further records are counted and lost.
const RECORDS_MAX: usize = 1_024;
/// Prefix of the targets of this project's crates.
const OURS: &str = "forebay";

/// Level of the recorded records: 0 is nothing, 1 errors, 5 everything.
static LEVEL: AtomicU8 = AtomicU8::new(0);
static RECORDS: ArcSwapOption<Records> = ArcSwapOption::const_empty();

/// A record for Python: level, target, text, microseconds since 1970, file, line.
type Record = (u8, &'static str, String, i64, Option<&'static str>, u32);

#[derive(Default)]
struct Records {
    queue: Mutex<RecordQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct RecordQueue {
    records: VecDeque<Record>,
    lost_records: u64,
    is_closed: bool,
}

impl Records {
    /// Returns the records of this process.
    fn of_process() -> Arc<Self> {
        if let Some(records) = RECORDS.load_full() {
            return records;
        }
        RECORDS.compare_and_swap(&None::<Arc<Self>>, Some(Arc::default()));
        RECORDS.load_full().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, RecordQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, record: Record) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        if queue.records.len() == RECORDS_MAX {
            queue.lost_records += 1;
            return;
        }
        queue.records.push_back(record);
        self.changed.notify_one();
    }

    /// Returns all records so far and the number of lost records, once there are any; `None` when
    /// closed.
    fn take(&self, timeout: Duration) -> Option<(VecDeque<Record>, u64)> {
        let queue = self.lock();
        let is_idle = |queue: &mut RecordQueue| queue.records.is_empty() && !queue.is_closed;
        let wait_result = self.changed.wait_timeout_while(queue, timeout, is_idle);
        let (mut queue, _) = wait_result.unwrap_or_else(PoisonError::into_inner);
        if queue.records.is_empty() && queue.is_closed {
            return None;
        }
        Some((std::mem::take(&mut queue.records), std::mem::take(&mut queue.lost_records)))
    }
}

/// Abandons the parent's records, whose lock may be held by a thread that the fork did not copy.
pub(crate) fn after_fork_in_child() {
    std::mem::forget(RECORDS.swap(Some(Arc::default())));
}

/// Starts the delivery of records: starts the Python thread, and takes the level of its logger.
pub(crate) fn start(py: Python<'_>) -> PyResult<()> {
    py.import("forebay._logging")?.call_method0("start").map(drop)
}

/// Installs the subscriber; called once, when the module is loaded.
pub(crate) fn install() {
    // The call fails if another subscriber came first, and no other code links this copy of
    // `tracing`.
    let _ = tracing::subscriber::set_global_default(Sink);
}

/// Sets the recorded level from now on: 0 nothing, 1 errors, 2 warnings, 3, 4, 5 everything.
#[pyfunction]
pub(crate) fn set_log_level(py: Python<'_>, level: u8) {
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        py.detach(tracing::callsite::rebuild_interest_cache);
    }
}

/// Waits for records, at most the given seconds; returns the records and the number of lost ones,
/// or None once `close_log` was called and all are taken.
#[pyfunction]
pub(crate) fn next_records(
    py: Python<'_>,
    timeout: f64,
) -> Result<Option<(Vec<Record>, u64)>, CallError> {
    native_call(|| {
        let (records, timeout) = (Records::of_process(), duration_of(timeout)?);
        let batch = py.detach(|| records.take(timeout));
        Ok(batch.map(|(records, lost)| (records.into(), lost)))
    })
}

/// Closes the records: remaining records can still be taken.
#[pyfunction]
pub(crate) fn close_log() {
    LEVEL.store(0, Ordering::Relaxed);
    let records = Records::of_process();
    records.lock().is_closed = true;
    records.changed.notify_all();
}

/// The subscriber that stores the records of the native side.
struct Sink;

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

impl Subscriber for Sink {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = LEVEL.load(Ordering::Relaxed);
        number(*metadata.level()) <= level
            && metadata.is_event()
            && metadata.target().starts_with(OURS)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let levels = [
            LevelFilter::OFF,
            LevelFilter::ERROR,
            LevelFilter::WARN,
            LevelFilter::INFO,
            LevelFilter::DEBUG,
        ];
        let level = usize::from(LEVEL.load(Ordering::Relaxed));
        Some(levels.get(level).copied().unwrap_or(LevelFilter::TRACE))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut text = Text::default();
        event.record(&mut text);
        let now_us = SystemClock.now().as_micros();
        let (level, line) = (number(*metadata.level()), metadata.line().unwrap_or(0));
        let record = (level, metadata.target(), text.finish(), now_us, metadata.file(), line);
        Records::of_process().put(record);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of a record: its message, and its fields in brackets.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        if !self.fields.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(self.message, " ({})", self.fields);
        }
        self.message
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let write_result = if field.name() == "message" {
            self.message.write_fmt(value)
        } else {
            let separator = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{separator}{}={value}", field.name())
        };
        debug_assert!(write_result.is_ok(), "writing to a string cannot fail");
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }
}
