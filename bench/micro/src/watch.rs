//! The watcher process of the freshness benchmark: an embedded reader that polls some documents
//! again and again, and reports each new value.
//!
//! The process prints `ready`, then one line for each sighting: key, value, nanoseconds of the
//! clock that all processes of the machine share. The process ends when its standard input ends.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::reads::FieldHandle;
use forebay::schema::FieldType;
use forebay::{Reader, ReaderOptions};
use tokio::runtime::Runtime;

use crate::clock::nanos;
use crate::{Failure, runtime, say};

/// First argument of a program that is to watch.
pub const WATCH: &str = "watch";
/// Pause between two polls if the freshness of writes is measured: a document is seen at most this
/// pause and one poll after it became visible.
pub const REST: Duration = Duration::from_micros(500);
const READY_WAIT: Duration = Duration::from_secs(60);

/// A document that was seen with a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Number of the watched key.
    pub key: u64,
    /// New value.
    pub value: u64,
    /// Time of the sighting.
    pub nanos: u64,
}

impl Sighting {
    /// Parses a line of the watcher.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let (key, value, nanos) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Self { key, value, nanos })
    }
}

/// Returns the watched key with this number.
#[must_use]
pub fn key(number: u64) -> String {
    format!("watched{number:05}")
}

/// The documents to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTarget<'a> {
    /// Name of the store.
    pub store: &'a str,
    /// Field of 64-bit integers whose values are reported.
    pub field: &'a str,
    /// Number of keys.
    pub keys: u64,
    /// Pause between two polls.
    pub rest: Duration,
}

impl WatchTarget<'_> {
    /// Returns the arguments that [`run`] takes.
    #[must_use]
    pub fn arguments(&self, address: &str) -> [String; 5] {
        let (store, field) = (self.store.to_owned(), self.field.to_owned());
        let (keys, rest) = (self.keys.to_string(), self.rest.as_micros().to_string());
        [address.to_owned(), store, field, keys, rest]
    }
}

/// Watches until standard input ends. Arguments: those of [`WatchTarget::arguments`].
///
/// # Errors
/// Fails if the reader fails, or no process reads the output.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let [address, store, field, keys, rest] = arguments else {
        return Err("watch needs an address, a store, a field, a number of keys and a rest".into());
    };
    let rest = Duration::from_micros(rest.parse()?);
    let watch_target = WatchTarget { store, field, keys: keys.parse()?, rest };
    let runtime = runtime()?;
    let watch_target = watch(&runtime, address, watch_target);
    // The shutdown does not wait: the task that reads standard input may never end.
    runtime.shutdown_background();
    watch_target
}

fn watch(runtime: &Runtime, address: &str, watch_target: WatchTarget<'_>) -> Result<(), Failure> {
    let reader = runtime.block_on(async {
        let reader = Reader::open(address, ReaderOptions::new(watch_target.store)).await?;
        reader.await_ready(READY_WAIT).await?;
        Ok::<_, Failure>(reader)
    })?;
    let field = reader.field_as(watch_target.field, FieldType::INT64)?;
    say("ready\n")?;
    let has_ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&has_ended);
    runtime.spawn_blocking(move || {
        // An error ends the watch as the end of the input does.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let keys: Vec<String> = (0..watch_target.keys).map(key).collect();
    let mut values_seen = BTreeMap::new();
    while !has_ended.load(Ordering::Relaxed) {
        let lines = look(&reader, &field, &keys, &mut values_seen)?;
        if !lines.is_empty() {
            say(&lines)?;
        }
        runtime.block_on(async { tokio::time::sleep(watch_target.rest).await });
    }
    Ok(())
}

/// Polls every key once; prints a line for each key with a new value.
fn look(
    reader: &Reader,
    field: &FieldHandle,
    keys: &[String],
    values_seen: &mut BTreeMap<usize, i64>,
) -> forebay::Result<String> {
    reader.read_local(None, |view| {
        let mut lines = String::new();
        for (number, key) in keys.iter().enumerate() {
            let Some(value) = view.get_scalar::<i64>(field, key)?.value() else { continue };
            if values_seen.insert(number, value) != Some(value) {
                lines.push_str(&format!("{number} {value} {}\n", nanos()));
            }
        }
        Ok(lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_line_parses_to_a_sighting_or_nothing() {
        let expected = Sighting { key: 3, value: 40, nanos: 500 };
        assert_eq!(Sighting::parse("3 40 500\n"), Some(expected));
        for invalid_line in ["", "ready", "3 40", "3 x 500"] {
            assert_eq!(Sighting::parse(invalid_line), None);
        }
    }
}
