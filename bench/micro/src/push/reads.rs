//! The reader process of the push benchmark: an embedded reader with a directory, whose documents
//! are read all the time, from one thread.
//!
//! The process takes commands on its standard input, one per line, and answers on its output.
//! `version N` announces the next version; the process answers `flip NANOS` when a read first finds
//! that version, and a second later the reads around that moment. `stretch` returns all reads since
//! the last such command. The process ends when its input ends.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use forebay::reads::{CheckpointOptions, SnapshotStore};
use forebay::schema::{PartitionId, Value};
use forebay::{Reader, ReaderOptions};
use forebay_bench_report::Unit;
use forebay_core::id::{FieldId, Offset};
use forebay_core::partition::xxh3_64;
use tokio::runtime::Runtime;

use super::documents;
use crate::clock::nanos;
use crate::latency::Latency;
use crate::{Failure, runtime, say};

/// First argument of a program that is to read.
pub const READ: &str = "read";
/// Pause between two groups of reads.
const REST: Duration = Duration::from_millis(1);
/// Reads of a group.
const LOT: u64 = 16;
/// Groups between two polls of the partitions' positions.
const LOTS_PER_LOOK: u64 = 5;
/// Time around a flip: this long before and after it, divided into parts.
const AROUND_NANOS: u64 = 1_000_000_000;
const PARTS: u64 = 4;
/// Time limit of the start.
const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Reads over some time, and the lag of their partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Number of reads.
    pub reads: u64,
    /// Reads that failed, or found a wrong value.
    pub failed: u64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Longest read, in microseconds.
    pub longest_us: f64,
    /// Longest time in which a partition applied nothing, in milliseconds.
    pub held_up_ms: f64,
    /// Highest age of the reader, in milliseconds.
    pub age_ms: f64,
    /// Bytes that the index of the answering version has in use, at the end.
    pub used: f64,
}

/// A line of output of the reader process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReaderLine {
    /// The reader answers.
    Ready,
    /// The next version answers, since this time.
    Flip(u64),
    /// The reads around a flip.
    Around(Stretch),
    /// The reads since the last query.
    Since(Stretch),
}

impl ReaderLine {
    fn line(&self) -> String {
        let (name, stretch) = match self {
            Self::Ready => return "ready\n".to_owned(),
            Self::Flip(nanos) => return format!("flip {nanos}\n"),
            Self::Around(stretch) => ("around", stretch),
            Self::Since(stretch) => ("since", stretch),
        };
        format!(
            "{name} {} {} {} {} {} {} {}\n",
            stretch.reads,
            stretch.failed,
            stretch.p99_us,
            stretch.longest_us,
            stretch.held_up_ms,
            stretch.age_ms,
            stretch.used
        )
    }

    /// Parses a line of the reader process; `None` for a line of a library.
    #[must_use]
    pub fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "ready" => Some(Self::Ready),
            "flip" => words.next()?.parse().ok().map(Self::Flip),
            "around" => Stretch::of(words).map(Self::Around),
            "since" => Stretch::of(words).map(Self::Since),
            _ => None,
        }
    }
}

impl Stretch {
    fn of<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<Self> {
        fn next<'w, T: FromStr>(words: &mut impl Iterator<Item = &'w str>) -> Option<T> {
            words.next()?.parse().ok()
        }
        let words = &mut words;
        let (reads, failed_reads) = (next(words)?, next(words)?);
        let (p99_us, longest_us) = (next(words)?, next(words)?);
        let (held_up_ms, age_ms, used_bytes) = (next(words)?, next(words)?, next(words)?);
        Some(Self {
            reads,
            failed: failed_reads,
            p99_us,
            longest_us,
            held_up_ms,
            age_ms,
            used: used_bytes,
        })
    }
}

/// Reads until standard input ends. Arguments: address, store, URL of the snapshots, directory,
/// number of documents.
///
/// # Errors
/// Fails if the reader does not start, or no process reads the output.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let [address, store, snapshots, directory, documents] = arguments else {
        return Err("read needs an address, a store, snapshots, a directory and a number".into());
    };
    let options = ReaderOptions::new(store)
        .checkpoint(CheckpointOptions::new(directory))
        .snapshots(SnapshotStore::open(snapshots)?);
    let (runtime, documents) = (runtime()?, documents.parse()?);
    let read = read(&runtime, address, options, documents);
    runtime.shutdown_background();
    read
}

fn read(
    runtime: &Runtime,
    address: &str,
    options: ReaderOptions,
    documents: u64,
) -> Result<(), Failure> {
    let reader = runtime.block_on(async {
        let reader = Reader::open(address, options).await?;
        reader.await_ready(PATIENCE).await?;
        Ok::<_, Failure>(reader)
    })?;
    say(&ReaderLine::Ready.line())?;
    let commands = listen();
    let mut reads = Reads::new(reader, documents)?;
    loop {
        reads.lot()?;
        match commands.try_recv() {
            Ok(ReaderCommand::Version(version)) => reads.next = Some(version),
            Ok(ReaderCommand::Stretch) => {
                let stretch = reads.since.stretch(&reads.reader)?;
                reads.since = ReadTally::new()?;
                say(&ReaderLine::Since(stretch).line())?;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        thread::sleep(REST);
    }
}

/// A command that this process has received.
enum ReaderCommand {
    Version(u64),
    Stretch,
}

/// Returns the commands; the channel ends with standard input.
fn listen() -> Receiver<ReaderCommand> {
    let (sender, commands) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let command = match line.strip_prefix("version ").map(str::parse) {
                Some(Ok(version)) => ReaderCommand::Version(version),
                _ => ReaderCommand::Stretch,
            };
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    commands
}

/// The reads of a span of time.
struct ReadTally {
    latency: Latency,
    failed: u64,
    held_up: u64,
    age: Duration,
    /// Applied offset of each partition, and the time since which it has not changed.
    positions: BTreeMap<PartitionId, (Offset, u64)>,
}

impl ReadTally {
    fn new() -> Result<Self, String> {
        let (held_up, age, positions) = (0, Duration::ZERO, BTreeMap::new());
        Ok(Self { latency: Latency::new()?, failed: 0, held_up, age, positions })
    }

    /// Records a read.
    fn count(&mut self, duration: u64, is_right: bool) {
        self.latency.record(duration);
        self.failed += u64::from(!is_right);
    }

    fn add(&mut self, other: &Self) -> Result<(), String> {
        self.failed += other.failed;
        self.latency.add(&other.latency)
    }

    /// Polls the positions of the partitions.
    fn look(&mut self, reader: &Reader) {
        let (status, now) = (reader.status(), nanos());
        self.age = self.age.max(status.age.unwrap_or_default());
        for partition in status.partitions {
            let applied = partition.offset_applied;
            let known_position =
                self.positions.entry(partition.partition).or_insert((applied, now));
            self.held_up = self.held_up.max(now - known_position.1);
            if known_position.0 != applied {
                *known_position = (applied, now);
            }
        }
    }

    fn stretch(&self, reader: &Reader) -> Result<Stretch, String> {
        Ok(Stretch {
            reads: self.latency.count(),
            failed: self.failed,
            p99_us: self.latency.at(0.99, Unit::Microseconds),
            longest_us: self.latency.at(1.0, Unit::Microseconds),
            held_up_ms: self.held_up as f64 / 1e6,
            age_ms: self.age.as_secs_f64() * 1e3,
            used: reader.metrics().memory.used as f64,
        })
    }
}

/// A part of the time around a flip.
struct Part {
    until: u64,
    tally: ReadTally,
}

/// The reads and their results.
struct Reads {
    reader: Reader,
    documents: u64,
    lots: u64,
    since: ReadTally,
    /// The latest parts of the time, the current one last.
    parts: VecDeque<Part>,
    /// The announced version, until it answers.
    next: Option<u64>,
    /// Remaining parts before the reads around a flip are reported.
    parts_left: Option<u64>,
}

impl Reads {
    fn new(reader: Reader, documents: u64) -> Result<Self, String> {
        let (lots, tally, parts) = (0, ReadTally::new()?, VecDeque::new());
        Ok(Self { reader, documents, lots, since: tally, parts, next: None, parts_left: None })
    }

    /// Makes a group of reads, and checks for the next version.
    fn lot(&mut self) -> Result<(), Failure> {
        self.turn()?;
        for number in 0..LOT {
            let key = self.key(number);
            let began = nanos();
            let found = text_of(&self.reader, key);
            let duration = nanos() - began;
            let is_right = found.is_some_and(|text| text.starts_with(&format!("{key}.")));
            let part = self.parts.back_mut().map(|part| &mut part.tally);
            std::iter::once(&mut self.since)
                .chain(part)
                .for_each(|tally| tally.count(duration, is_right));
        }
        self.lots += 1;
        if self.lots.is_multiple_of(LOTS_PER_LOOK) {
            self.since.look(&self.reader);
        }
        let Some(version) = self.next else { return Ok(()) };
        let (key, began) = (documents::probe(version), nanos());
        let expected = documents::beginning(version, key);
        if text_of(&self.reader, key).is_some_and(|text| text.starts_with(&expected)) {
            (self.next, self.parts_left) = (None, Some(PARTS));
            say(&ReaderLine::Flip(began).line())?;
        }
        Ok(())
    }

    /// Returns a document that every version has, in an order without pattern.
    fn key(&self, number: u64) -> u64 {
        let random_key = xxh3_64(&(self.lots * LOT + number).to_le_bytes()) % self.documents;
        let lasting = (random_key % documents::GONE_ONE_IN).max(documents::MORE_MAX);
        random_key / documents::GONE_ONE_IN * documents::GONE_ONE_IN + lasting
    }

    /// Starts the next part of the time if the current one is over.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = nanos();
        if self.parts.back().is_some_and(|part| now < part.until) {
            return Ok(());
        }
        self.parts_left = self.parts_left.map(|parts_left| parts_left.saturating_sub(1));
        if self.parts_left == Some(0) {
            let mut tally = ReadTally::new()?;
            self.parts.iter().try_for_each(|part| tally.add(&part.tally))?;
            self.parts_left = None;
            say(&ReaderLine::Around(tally.stretch(&self.reader)?).line())?;
        }
        let part_end = now + AROUND_NANOS / PARTS;
        self.parts.push_back(Part { until: part_end, tally: ReadTally::new()? });
        if self.parts.len() as u64 > 2 * PARTS {
            self.parts.pop_front();
        }
        Ok(())
    }
}

/// Returns a document's text.
fn text_of(reader: &Reader, key: u64) -> Option<String> {
    let document = reader.get_document(key as i64).ok()??;
    match document.value(FieldId(1)) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_lines_round_trip() {
        let stretch =
            Stretch { reads: 3, failed: 1, p99_us: 2.5, longest_us: 9.0, ..Stretch::default() };
        for reader_line in [
            ReaderLine::Ready,
            ReaderLine::Flip(7),
            ReaderLine::Around(stretch),
            ReaderLine::Since(stretch),
        ] {
            assert_eq!(ReaderLine::of(&reader_line.line()), Some(reader_line));
        }
        for other in ["", "flip", "flip x", "since 1 2 3", "hello"] {
            assert_eq!(ReaderLine::of(other), None, "{other}");
        }
    }
}
