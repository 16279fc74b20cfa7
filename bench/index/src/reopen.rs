//! Reopening: the time of a reader from its opening to its first correct get, over the files of
//! earlier readers, for each way in which those ended.
//!
//! Each reader is a separate process, over the readers' default directory. The pages of the files
//! are warm: they were written or read right before.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use forebay::reads::{CopyOut, FieldHandle, ReadOptions};
use forebay::schema::{FieldType, StoreId};
use forebay::status::Phase;
use forebay::{Client, ClientOptions, ErrorCode, Reader};
use forebay_bench_report::{Contender, Values};
use tokio::runtime::Runtime;

use crate::clock::nanos;
use crate::data::{Data, Keys, document_key, mix};
use crate::node::{FILL_BOUND, Place, runtime};
use crate::serve::{WorkerDescription, serve};
use crate::worker::Worker;

/// Longest time in which an ended reader may write its last checkpoints.
const END_BOUND: Duration = Duration::from_secs(60);
/// Documents that are read after each opening, to check the store.
const CHECKED: u64 = 200_000;
/// Time for which a reader retries at once; afterwards it leaves the core to the processes that it
/// waits for.
const ASKED_AT_ONCE: u64 = 20_000_000;
/// Openings of each kind in a round: a single opening meets any disturbance of the machine in its
/// millisecond, such as the work of a process that maintains the copy from then on.
const OPENED_EACH: usize = 11;
/// Pause between a kill and the next opening: the system cleans up the dead process, the node
/// closes its streams, and another reader takes over, all on the cores that the opening needs.
const CLEANUP_PAUSE: Duration = Duration::from_millis(250);
/// Bytes of a torn page.
const PAGE_BYTES: usize = 4_096;

/// Readers of one directory, opened and ended in many ways.
pub struct ReopenScenario {
    data: Data,
    place: Place,
    store: StoreId,
}

impl ReopenScenario {
    /// Lets a first reader fill the directory.
    ///
    /// # Errors
    /// Fails if the reader cannot be opened, or does not reach the end of the log.
    pub fn start(data: Data) -> Result<Self, String> {
        let place = Place::told()?;
        let mut opener = Self { data, place, store: StoreId(0) };
        let (first, words) = opener.open("first")?;
        // A number in JSON cannot hold 64 bits.
        let half_of = |name: &str| words.get(name).copied().unwrap_or(0.0) as u64;
        opener.store = StoreId(half_of("store, high") << 32 | half_of("store, low"));
        close(first)?;
        Ok(opener)
    }

    /// Opens a reader in a separate process; returns the process and its measurements.
    fn open(&self, way: &str) -> Result<(Worker, WorkerDescription), String> {
        let program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        let mut command = Command::new(program);
        let sizes = [self.data.entries, self.data.value_bytes as u64].map(|size| size.to_string());
        command.arg("opened").args(sizes).arg(way);
        let worker = Worker::start(&format!("the reader that opens {way}"), &mut command)?;
        let description = worker.about.clone();
        Ok((worker, description))
    }

    /// Opens a reader after each way to end, several times; returns the median of each way.
    ///
    /// # Errors
    /// Fails if a reader fails, or reads data that is not in the store.
    pub fn reopen(&mut self) -> Result<Values, String> {
        let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for _ in 0..OPENED_EACH {
            for (name, value) in self.reopen_once()? {
                all.entry(name).or_default().push(value);
            }
        }
        let median = |(name, mut values): (String, Vec<f64>)| {
            values.sort_by(f64::total_cmp);
            (name, values[values.len() / 2])
        };
        Ok(all.into_iter().map(median).collect())
    }

    fn reopen_once(&self) -> Result<Values, String> {
        let mut values = Vec::new();
        let mut note = |label: &str, description: &WorkerDescription| {
            for (name, value) in description.iter().filter(|(name, _)| name.ends_with("ms")) {
                values.push((format!("{label}: {name}"), *value));
            }
        };
        let (owner, description) = self.open("closed")?;
        note("closed", &description);
        let (other, description) = self.open("kept")?;
        note("kept by another", &description);
        owner.kill()?;
        thread::sleep(CLEANUP_PAUSE);
        let (third, description) = self.open("killed")?;
        note("killed next to another", &description);
        other.kill()?;
        third.kill()?;
        thread::sleep(CLEANUP_PAUSE);
        let (last, description) = self.open("killed")?;
        note("killed", &description);
        close(last)?;
        self.place.forget_copies(self.store);
        let (restored, description) = self.open("checkpoint")?;
        note("checkpoint", &description);
        close(restored)?;
        Ok(values)
    }

    /// Tears a page of every checkpoint while no copy is left, and opens a reader: the copy is
    /// rebuilt from the repaired checkpoints.
    ///
    /// # Errors
    /// Fails if a reader fails, serves wrong data, or needs the log to repair.
    pub fn torn(&mut self) -> Result<Values, String> {
        self.place.forget_copies(self.store);
        let files = self.place.checkpoints()?;
        if files.is_empty() {
            return Err("there is no checkpoint to tear".to_owned());
        }
        for path in &files {
            let tear_result = File::options().read(true).write(true).open(path).and_then(|file| {
                let middle = file.metadata()?.len() / 2;
                file.write_all_at(&[0x5a; PAGE_BYTES], middle / PAGE_BYTES as u64 * 4_096)
            });
            tear_result.map_err(|error| format!("tear {}: {error}", path.display()))?;
        }
        let (worker, description) = self.open("torn")?;
        close(worker)?;
        let nanos = description.get("open to all, ms").copied().unwrap_or(0.0) * 1e6;
        Ok(vec![
            ("torn: rebuild, per entry".to_owned(), nanos / self.data.entries as f64),
            ("torn: connect to first get, ms".to_owned(), description["connect to first get, ms"]),
            ("torn: blocks repaired".to_owned(), description["blocks repaired"]),
        ])
    }
}

/// Ends a reader in order, with its last checkpoints.
fn close(mut worker: Worker) -> Result<(), String> {
    worker.run("check")?;
    worker.run("close").map(|_| ())
}

/// A reader that was just opened.
struct OpenedReader {
    data: Data,
    runtime: Runtime,
    reader: Reader,
    value: FieldHandle,
}

/// Runs the process of one reader: opens it, reports the time, and ends as ordered.
///
/// # Errors
/// Fails if the reader cannot be opened, or reads data that is not in the store.
pub fn opened(entries: u64, value_bytes: usize, way: &str) -> Result<(), String> {
    let data = Data { entries, keys: Keys::Bytes16, value_bytes };
    let (place, runtime) = (Place::told()?, runtime()?);
    let words = |error: forebay::Error| error.to_string();
    let options = place.reader();
    let began = nanos();
    let reader = runtime.block_on(Reader::open(&place.address, options)).map_err(words)?;
    let opened_at = nanos();
    let value = reader.field_as("value", FieldType::BYTES).map_err(words)?;
    let opened_reader = OpenedReader { data, runtime, reader, value };
    opened_reader.await_first_get(&opened_reader.reader, began)?;
    let first_get_at = nanos();
    let ms = |from: u64, to: u64| (to - from) as f64 / 1e6;
    let mut description = WorkerDescription::from([
        ("connect and open, ms".to_owned(), ms(began, opened_at)),
        ("connect to first get, ms".to_owned(), ms(began, first_get_at)),
    ]);
    if matches!(way, "first" | "torn") {
        opened_reader.await_all(way)?;
        description.insert("open to all, ms".to_owned(), ms(began, nanos()));
    }
    opened_reader.follow_to_the_end()?;
    // The remaining time of an opening if catalog and connection exist already.
    let connection = Client::connect(&place.address, ClientOptions::default());
    let client = opened_reader.runtime.block_on(connection).map_err(words)?;
    let connected_reader =
        opened_reader.runtime.block_on(client.reader(place.reader())).map_err(words)?;
    let reopened_at = nanos();
    let reader = opened_reader.runtime.block_on(client.reader(place.reader())).map_err(words)?;
    opened_reader.await_first_get(&reader, reopened_at)?;
    drop(connected_reader);
    description.insert("open again to first get, ms".to_owned(), ms(reopened_at, nanos()));
    let store = opened_reader.reader.definition().store.0;
    description.insert("store, high".to_owned(), (store >> 32) as f64);
    description.insert("store, low".to_owned(), (store & 0xffff_ffff) as f64);
    let counts = opened_reader.reader.metrics().counts;
    let checkpoints = &counts.checkpoints;
    description.insert("blocks repaired".to_owned(), checkpoints.blocks_repaired as f64);
    let needed_log = checkpoints.damaged + counts.rebuilds > 0;
    if way == "torn" && (checkpoints.blocks_repaired == 0 || needed_log) {
        return Err(format!("the torn pages were not found, or not repaired: {counts:?}"));
    }
    let mut contenders = [
        Contender::several("check", || opened_reader.check().map(|()| Values::new())),
        Contender::several("close", || {
            let close_result =
                opened_reader.runtime.block_on(opened_reader.reader.close(END_BOUND));
            close_result.map(|()| Values::new()).map_err(|error| error.to_string())
        }),
    ];
    serve(&description, &mut contenders, std::io::stdin().lock(), std::io::stdout().lock())
}

impl OpenedReader {
    /// Reads a document; returns whether it may be read yet.
    ///
    /// # Errors
    /// Fails if the read data is not the data in the store.
    fn get(&self, reader: &Reader, number: u64, expected: &mut Vec<u8>) -> Result<bool, String> {
        self.data.value(number, expected);
        let (key, mut buffer) = (self.data.key(number), vec![0; self.data.value_bytes]);
        let key = document_key(&self.data, &key);
        let read = |view: &forebay::reads::View<'_>| view.get_bytes(&self.value, key, &mut buffer);
        match reader.read_local(None, read) {
            Ok(CopyOut::Length(length)) if buffer.get(..length) == Some(&expected[..]) => Ok(true),
            Ok(other) => Err(format!("document {number} was served as {other:?}, which is wrong")),
            Err(error) if error.code() == ErrorCode::Unavailable => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn await_first_get(&self, reader: &Reader, opened_at: u64) -> Result<(), String> {
        let (mut expected, number) = (Vec::new(), mix(opened_at) % self.data.entries);
        let began = nanos();
        while !self.get(reader, number, &mut expected)? {
            if nanos() - opened_at > ASKED_AT_ONCE {
                thread::sleep(Duration::from_millis(1));
            }
            if Duration::from_nanos(nanos() - began) > FILL_BOUND {
                return Err("no document could be read in time".to_owned());
            }
        }
        Ok(())
    }

    /// Reads any documents until all can be read, from copies that were built from repaired
    /// checkpoints; fails if a document is ever wrong.
    fn await_all(&self, way: &str) -> Result<(), String> {
        let (mut expected, mut number) = (Vec::new(), 1);
        let began = nanos();
        let is_served = |partition: &forebay::status::PartitionStatus| {
            let is_found = way != "torn" || partition.counts.checkpoints.blocks_repaired > 0;
            partition.phase == Phase::Serving && partition.rebuild.is_none() && is_found
        };
        while !self.reader.status().partitions.iter().all(is_served) {
            for _ in 0..16 {
                number = self.data.next(number);
                self.get(&self.reader, number, &mut expected)?;
            }
            thread::sleep(Duration::from_millis(1));
            if Duration::from_nanos(nanos() - began) > FILL_BOUND {
                return Err("the store was not there in time".to_owned());
            }
        }
        Ok(())
    }

    fn follow_to_the_end(&self) -> Result<(), String> {
        let partitions: Vec<_> = self.reader.definition().partitions.partitions().collect();
        let latest = ReadOptions::latest(FILL_BOUND);
        let outcome = self.runtime.block_on(self.reader.wait(&latest, &partitions));
        outcome.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Checks that all documents are present, and reads many of them.
    fn check(&self) -> Result<(), String> {
        let documents: u64 =
            self.reader.status().partitions.iter().map(|partition| partition.documents).sum();
        if documents != self.data.entries {
            return Err(format!("{documents} documents of {}", self.data.entries));
        }
        let (mut expected, mut number) = (Vec::new(), mix(nanos()) % self.data.entries);
        for _ in 0..CHECKED.min(self.data.entries) {
            if !self.get(&self.reader, number, &mut expected)? {
                return Err("a document cannot be read any more".to_owned());
            }
            number = self.data.next(number);
        }
        Ok(())
    }
}
