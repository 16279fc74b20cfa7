//! Passes `tracing` records of the native core to the caller's logger. Until a caller requests
//! records, no subscriber exists; an unwanted record costs one relaxed load.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use forebay::{Error, Result};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::abi::{FbError, FbSink};
use crate::error::ffi_call;
use crate::event::Sink;
use crate::output::{LOG_LEVELS, packed_record};

/// Target of this project's records; records of other libraries are passed on at `INFO` and above
/// only.
const OURS: &str = "forebay";

static WANTED: AtomicU32 = AtomicU32::new(0);
static SINK: ArcSwapOption<Sink> = ArcSwapOption::const_empty();
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Sets the sink of log records from this level up; level 0 stops the records.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_log_to(level: u32, sink: *const FbSink, error: *mut FbError) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let sink = if level == 0 { None } else { Some(unsafe { Sink::of(sink)? }) };
        Ok(log_to(level, sink)?)
    })
}

fn log_to(level: u32, sink: Option<Sink>) -> Result<()> {
    if level as usize >= LOG_LEVELS.len() {
        return Err(Error::invalid_argument("no such level; see FB_LOG in forebay.h"));
    }
    if level > 0 {
        let install = || tracing::subscriber::set_global_default(Records).is_ok();
        if !*INSTALLED.get_or_init(install) {
            return Err(Error::internal("another subscriber receives this library's records"));
        }
    }
    SINK.store(sink.map(Arc::new));
    WANTED.store(level, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

fn level_limit() -> LevelFilter {
    LOG_LEVELS.get(WANTED.load(Ordering::Relaxed) as usize).copied().unwrap_or(LevelFilter::OFF)
}

/// A subscriber that passes each record to the sink, and ignores spans.
struct Records;

impl Subscriber for Records {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        metadata.is_event()
            && level <= level_limit()
            && (level <= Level::INFO || metadata.target().starts_with(OURS))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level_limit())
    }

    fn event(&self, event: &Event<'_>) {
        let Some(sink) = &*SINK.load() else { return };
        let mut words = Words::default();
        event.record(&mut words);
        let metadata = event.metadata();
        sink.tell_record(packed_record(*metadata.level(), metadata.target(), &words.text()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A record's message, followed by its fields as `name=value`.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Words {
    fn text(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => self.message.write_str(value),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::FbText;
    use parking_lot::Mutex;
    use std::ffi::c_void;

    static HEARD: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

    extern "C" fn receive(_: *mut c_void, event: FbText) {
        // SAFETY: an event lives during the call.
        let bytes = unsafe { event.bytes() }.unwrap();
        HEARD.lock().push(bytes.to_vec());
    }

    #[test]
    fn sink_receives_records_from_its_level_up_and_none_at_level_0() {
        let sink =
            FbSink { callback: Some(receive), context: std::ptr::null_mut(), inbox: 0, ticket: 0 };
        // SAFETY: the sink is a live struct, and the error null.
        let ask = |level| unsafe { fb_log_to(level, &sink, std::ptr::null_mut()) };
        let say = || {
            tracing::warn!(target: "forebay_test", partition = 3, name = "n", "held up");
            tracing::debug!(target: "forebay_test", "a detail");
            tracing::debug!(target: "another", "a detail of others");
        };
        say();
        assert_eq!(ask(2), 0);
        say();
        let record = packed_record(Level::WARN, "forebay_test", "held up partition=3 name=n");
        assert_eq!(std::mem::take(&mut *HEARD.lock()), [record]);
        assert_eq!(ask(4), 0);
        say();
        assert_eq!(std::mem::take(&mut *HEARD.lock()).len(), 2);
        assert_eq!(ask(0), 0);
        say();
        assert!(HEARD.lock().is_empty());
        assert_ne!(ask(6), 0);
    }
}
