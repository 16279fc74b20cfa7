//! Counts recovery paths by the product's own log records: a subscriber for `tracing` that knows
//! the messages of a few records and ignores all others.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::trace::Trace;

/// Messages of records, and the names under which they count.
const PATHS: [(&str, &str); 5] = [
    ("torn tail cut", "torn tail cut"),
    ("segment without frames recreated", "segment header made again"),
    ("building a new copy", "log replaced or cut under a reader"),
    ("embedded log stopped", "log stopped for good"),
    ("log tail stalled", "tail held up"),
];

/// A subscriber that counts in the trace of the run on this thread.
pub(crate) struct RecordCounter(Trace);

impl RecordCounter {
    pub(crate) fn new(trace: Trace) -> Self {
        Self(trace)
    }
}

impl Subscriber for RecordCounter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut MessageVisitor(&self.0));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct MessageVisitor<'a>(&'a Trace);

impl Visit for MessageVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            return;
        }
        let text = format!("{value:?}");
        let path = PATHS.iter().find(|(message, _)| *message == text);
        if let Some((_, name)) = path {
            self.0.count_event(name, 1);
        }
    }
}
