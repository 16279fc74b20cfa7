//! Reads in Rust: single reads, each key from the last value; batches; and the standard map for
//! comparison, filled with the same data in the same process.

use std::any::Any;
use std::collections::HashMap;

use forebay::Reader;
use forebay::reads::{CopyOut, FieldHandle, PackedKeys, PackedValues, ReadOptions};
use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay_bench_report::{Contender, Values};
use forebay_index::CacheLineProbe;
use futures::executor::block_on;
use hdrhistogram::Histogram;

use crate::cache_line::LoadChain;
use crate::clock::{median, nanos};
use crate::data::{Data, KeyBytes, Keys, PARTITIONS, document_key};
use crate::node::{FILL_BOUND, Place, runtime};

/// Gets of one chunk, and chunks of one round.
const CHUNK: u64 = 512;
const CHUNKS: u64 = 400;
/// Gets of a round that are timed one by one.
const SINGLES: u64 = 100_000;
/// Batches of one round.
const BATCHES: u64 = 400;
/// Keys of the batch that is judged.
pub const BATCH: usize = 500;
/// Documents written together.
const WRITTEN_TOGETHER: u64 = 2_000;
/// Separator between a name and the end of a part of its histogram, in nanoseconds.
pub const HISTOGRAM: &str = " histogram to ";
/// End of the first part of a histogram, and of the last but one, as powers of two; longer times
/// are in the last part.
const HISTOGRAM_NANOS_LOG2: std::ops::Range<u32> = 5..25;
/// The longest time that a histogram distinguishes.
const NANOS_MAX: u64 = 60_000_000_000;

/// A reader of a data set: in memory, or over files.
pub struct Store {
    /// Prefix of the names of its values.
    name: &'static str,
    data: Data,
    reader: Reader,
    /// Source of the reader's changes, which runs as long as this lives.
    _source: Box<dyn Any>,
    value: FieldHandle,
    at: KeyBytes,
    line: LoadChain,
}

impl Store {
    /// Fills a store in memory.
    ///
    /// # Errors
    /// Fails if a write is refused.
    pub fn fill(data: Data) -> Result<Self, String> {
        Self::try_fill(data).map_err(|error| error.to_string())
    }

    fn try_fill(data: Data) -> forebay::Result<Self> {
        let key_type = if data.keys == Keys::Int64 { KeyType::Int64 } else { KeyType::Bytes };
        let reader =
            Reader::in_memory(&StoreSpec::key_value("read", key_type).partitions(PARTITIONS), [])?;
        let mut value = Vec::new();
        for first in (0..data.entries).step_by(WRITTEN_TOGETHER as usize) {
            let mut batch = reader.as_store().batch();
            for number in first..data.entries.min(first + WRITTEN_TOGETHER) {
                data.value(number, &mut value);
                let key = data.key(number);
                let write = reader.put(document_key(&data, &key)).set("value", value.as_slice());
                batch.add(write)?;
            }
            block_on(batch.send()).map_err(forebay::Error::from)?.require_complete()?;
        }
        Self::over("rust", data, Reader::clone(&reader), Box::new(reader))
    }

    /// Opens a reader over this worker's directory, as readers do by default: the reader shares its
    /// copy with all other readers there.
    ///
    /// # Errors
    /// Fails if there is no directory, or the reader does not reach the end of the log.
    pub fn open(data: Data) -> Result<Self, String> {
        let (place, runtime) = (Place::told()?, runtime()?);
        let open_result = runtime.block_on(async {
            let reader = Reader::open(&place.address, place.reader()).await?;
            reader.await_ready(FILL_BOUND).await?;
            let partitions: Vec<_> = reader.definition().partitions.partitions().collect();
            reader.wait(&ReadOptions::latest(FILL_BOUND), &partitions).await?;
            Ok(reader)
        });
        let reader_over = |reader| Self::over("rust-files", data, reader, Box::new(runtime));
        open_result.and_then(reader_over).map_err(|error: forebay::Error| error.to_string())
    }

    fn over(
        name: &'static str,
        data: Data,
        reader: Reader,
        source: Box<dyn Any>,
    ) -> forebay::Result<Self> {
        let value = reader.field_as("value", FieldType::BYTES)?;
        let (key, line) = (data.key(0), LoadChain::default());
        Ok(Self { name, data, reader, _source: source, value, at: key, line })
    }

    /// Returns the bytes of the documents and their index, as the reader counts them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.reader.metrics().memory_bytes
    }

    /// Calls `visit` with the memory of the documents.
    ///
    /// # Errors
    /// Fails if the memory cannot be mapped.
    pub fn with_lines<T>(&self, visit: impl FnOnce(CacheLineProbe<'_>) -> T) -> Result<T, String> {
        self.reader.with_memory_lines(visit).map_err(|error| error.to_string())
    }

    /// Returns nanoseconds of one dependent line of that memory.
    fn line(&mut self) -> Result<f64, String> {
        let (reader, line) = (&self.reader, &mut self.line);
        let measured = reader.with_memory_lines(|lines| line.measure(&lines));
        measured.map_err(|error| error.to_string())?
    }

    /// Makes one get into a buffer, which then contains the next key.
    #[inline]
    fn step(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        let key = document_key(&self.data, &self.at);
        let read = |view: &forebay::reads::View<'_>| view.get_bytes(&self.value, key, buffer);
        let copied = self.reader.read_local(None, read).map_err(|error| error.to_string())?;
        let bytes = self.data.key_bytes();
        match copied {
            CopyOut::Length(_) => self.at[..bytes].copy_from_slice(&buffer[..bytes]),
            other => return Err(format!("a document is {other:?}")),
        }
        Ok(())
    }

    /// Returns nanoseconds of one dependent get with its copy: the median over chunks.
    fn get(&mut self) -> Result<f64, String> {
        let mut buffer = vec![0; self.data.value_bytes];
        let began_at = self.data.number(&self.at);
        let mut chunks = Vec::with_capacity(CHUNKS as usize);
        for _ in 0..CHUNKS {
            let began = nanos();
            for _ in 0..CHUNK {
                self.step(&mut buffer)?;
            }
            chunks.push(nanos() - began);
        }
        self.check_end(began_at, CHUNK * CHUNKS)?;
        Ok(median(chunks) / CHUNK as f64)
    }

    /// Returns the times of the same gets, each timed by itself.
    fn latencies(&mut self) -> Result<Values, String> {
        let mut buffer = vec![0; self.data.value_bytes];
        let began_at = self.data.number(&self.at);
        let mut times = Vec::with_capacity(SINGLES as usize);
        let mut before = nanos();
        for _ in 0..SINGLES {
            self.step(&mut buffer)?;
            let now = nanos();
            times.push(now - before);
            before = now;
        }
        self.check_end(began_at, SINGLES)?;
        percentiles(&format!("{} get", self.name), &times)
    }

    fn check_end(&self, began_at: u64, steps: u64) -> Result<(), String> {
        let (expected, found) = (self.data.after(began_at, steps), self.data.number(&self.at));
        if expected == found {
            return Ok(());
        }
        Err(format!("a chain from {began_at} ended at {found}, not at {expected}"))
    }

    /// Writes the keys of the next batch, concatenated.
    fn batch_keys(&self, from: &mut u64, keys: usize, packed: &mut Vec<u8>) {
        packed.clear();
        for _ in 0..keys {
            packed.extend_from_slice(&self.data.key(*from)[..self.data.key_bytes()]);
            *from = self.data.next(*from);
        }
    }

    /// Returns nanoseconds per key of batches of `keys` keys: the median over batches.
    fn batches(&mut self, keys: usize) -> Result<f64, String> {
        let bytes = self.data.key_bytes();
        let key_ends: Vec<u64> = (1..=keys).map(|end| (end * bytes) as u64).collect();
        let (mut packed, mut packed_values) = (Vec::new(), PackedValues::default());
        let mut from = self.data.number(&self.at);
        let mut times = Vec::with_capacity(BATCHES as usize);
        for _ in 0..BATCHES {
            self.batch_keys(&mut from, keys, &mut packed);
            let list = PackedKeys::bytes(&packed, &key_ends).map_err(|error| error.to_string())?;
            let began = nanos();
            let read = |view: &forebay::reads::View<'_>| {
                view.get_packed(&list, &self.value, &mut packed_values)
            };
            self.reader.read_local(None, read).map_err(|error| error.to_string())?;
            times.push(nanos() - began);
            if packed_values.value(keys - 1).map(|value| self.data.number(value)) != Some(from) {
                return Err("a batch's last value is another's".to_owned());
            }
        }
        self.at = self.data.key(from);
        Ok(median(times) / keys as f64)
    }

    /// Returns nanoseconds per key of as many single gets with known keys: the cost of a loop
    /// without prefetching.
    fn loops(&mut self, keys: usize) -> Result<f64, String> {
        let bytes = self.data.key_bytes();
        let (mut packed, mut buffer) = (Vec::new(), vec![0; keys * self.data.value_bytes]);
        let mut from = self.data.number(&self.at);
        let mut times = Vec::with_capacity(BATCHES as usize);
        for _ in 0..BATCHES {
            self.batch_keys(&mut from, keys, &mut packed);
            let began = nanos();
            for (key, value) in
                packed.chunks_exact(bytes).zip(buffer.chunks_exact_mut(self.data.value_bytes))
            {
                let key = document_key(&self.data, key);
                let read =
                    |view: &forebay::reads::View<'_>| view.get_bytes(&self.value, key, value);
                match self.reader.read_local(None, read).map_err(|error| error.to_string())? {
                    CopyOut::Length(_) => {}
                    other => return Err(format!("a document is {other:?}")),
                }
            }
            times.push(nanos() - began);
        }
        self.at = self.data.key(from);
        Ok(median(times) / keys as f64)
    }
}

/// Returns the percentiles of single times and their histogram, under their name.
///
/// # Errors
/// Fails if there are no times.
pub fn percentiles(name: &str, times: &[u64]) -> Result<Values, String> {
    let problem = |error| format!("make a histogram: {error}");
    let mut counts = Histogram::<u64>::new_with_max(NANOS_MAX, 3).map_err(problem)?;
    times.iter().for_each(|time| counts.saturating_record((*time).max(1)));
    if counts.is_empty() {
        return Err(format!("'{name}' has no sample"));
    }
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    let value =
        |(label, quantile)| (format!("{name} {label}"), counts.value_at_quantile(quantile) as f64);
    Ok(quantiles.into_iter().map(value).chain(histogram(name, times)).collect())
}

/// Returns the percentage of the times in each part of the histogram. A part ends at a power of two
/// or half way between two, and starts at the end of the previous part.
fn histogram(name: &str, times: &[u64]) -> impl Iterator<Item = (String, f64)> {
    let bounds = HISTOGRAM_NANOS_LOG2.map(|power| 1_u64 << power);
    let bounds: Vec<u64> = bounds.flat_map(|bound| [bound, bound + bound / 2]).collect();
    let mut counts = vec![0_u64; bounds.len()];
    for time in times {
        let part = bounds.partition_point(|bound| bound < time);
        counts[part.min(bounds.len() - 1)] += 1;
    }
    let share = 100.0 / times.len().max(1) as f64;
    let parts = bounds.into_iter().zip(counts);
    parts.map(move |(bound, count)| (format!("{name}{HISTOGRAM}{bound}"), count as f64 * share))
}

/// Returns the contenders of this module for a filled store.
pub fn contenders(store: &std::cell::RefCell<Store>) -> Vec<Contender<'_>> {
    let called = |way: &str| format!("{} {way}", store.borrow().name);
    let mut contenders = vec![
        Contender::new("D", || store.borrow_mut().line()),
        Contender::new(&called("get"), || store.borrow_mut().get()),
        Contender::several(&called("latencies"), || store.borrow_mut().latencies()),
        Contender::new(&called("loop 500"), || store.borrow_mut().loops(BATCH)),
    ];
    for keys in [10, 50, 100, BATCH] {
        let name = called(&format!("batch {keys}"));
        contenders.push(Contender::new(&name, move || store.borrow_mut().batches(keys)));
    }
    contenders
}

/// The standard map with the same data.
pub struct Map {
    data: Data,
    values: HashMap<KeyBytes, Box<[u8]>>,
    at: KeyBytes,
}

impl Map {
    /// Fills a map.
    #[must_use]
    pub fn fill(data: Data) -> Self {
        let mut value = Vec::new();
        let entry = |number| {
            data.value(number, &mut value);
            (data.key(number), value.clone().into_boxed_slice())
        };
        Self { data, values: (0..data.entries).map(entry).collect(), at: data.key(0) }
    }

    /// Returns nanoseconds of one dependent get with its copy.
    ///
    /// # Errors
    /// Fails if a document is missing.
    pub fn get(&mut self) -> Result<f64, String> {
        let mut buffer = vec![0; self.data.value_bytes];
        let bytes = self.data.key_bytes();
        let mut chunks = Vec::with_capacity(CHUNKS as usize);
        for _ in 0..CHUNKS {
            let began = nanos();
            for _ in 0..CHUNK {
                let value = self.values.get(&self.at).ok_or("a document is missing")?;
                buffer.copy_from_slice(value);
                self.at[..bytes].copy_from_slice(&buffer[..bytes]);
            }
            chunks.push(nanos() - began);
        }
        Ok(median(chunks) / CHUNK as f64)
    }

    /// Returns nanoseconds per key of a loop over known keys that copies each value.
    ///
    /// # Errors
    /// Fails if a document is missing.
    pub fn loops(&mut self, keys: usize) -> Result<f64, String> {
        let mut buffer = vec![0; keys * self.data.value_bytes];
        let mut from = self.data.number(&self.at);
        let mut times = Vec::with_capacity(BATCHES as usize);
        let mut requested_keys = Vec::with_capacity(keys);
        for _ in 0..BATCHES {
            requested_keys.clear();
            for _ in 0..keys {
                requested_keys.push(self.data.key(from));
                from = self.data.next(from);
            }
            let began = nanos();
            for (key, value) in
                requested_keys.iter().zip(buffer.chunks_exact_mut(self.data.value_bytes))
            {
                value.copy_from_slice(self.values.get(key).ok_or("a document is missing")?);
            }
            times.push(nanos() - began);
        }
        self.at = self.data.key(from);
        Ok(median(times) / keys as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_contender_measures_every_kind_of_key() {
        for (keys, value_bytes) in [(Keys::Bytes16, 50), (Keys::Int64, 16), (Keys::Bytes4, 32)] {
            let data = Data { entries: 2_000, keys, value_bytes };
            let store = RefCell::new(Store::fill(data).unwrap());
            assert!(store.borrow().memory_bytes() > data.payload_bytes());
            for mut contender in contenders(&store) {
                if keys == Keys::Int64 && contender.name.starts_with("rust batch") {
                    continue;
                }
                let values = (contender.run)().unwrap();
                let mut times = values.iter().filter(|(name, _)| !name.contains(HISTOGRAM));
                assert!(times.all(|(_, time)| *time > 0.0), "{}", contender.name);
            }
        }
    }

    #[test]
    fn map_contains_the_same_documents() {
        let data = Data { entries: 2_000, keys: Keys::Bytes16, value_bytes: 50 };
        let mut map = Map::fill(data);
        assert!(map.get().unwrap() > 0.0 && map.loops(10).unwrap() > 0.0);
        assert_eq!(data.number(&map.at), data.after(data.after(0, CHUNK * CHUNKS), 10 * BATCHES));
    }

    #[test]
    fn percentiles_are_named() {
        let values = percentiles("get", &[1, 2, 3, 1_000]).unwrap();
        assert_eq!(values[0], ("get p50".to_owned(), 2.0));
        assert_eq!(values[4], ("get max".to_owned(), 1_000.0));
        assert!(percentiles("get", &[]).is_err());
    }

    #[test]
    fn histogram_counts_each_time_in_one_part() {
        let values = percentiles("get", &[1, 32, 33, 48, 49, 1_000, 1 << 40, 1 << 40]).unwrap();
        let share = |end: u64| {
            let name = format!("get{HISTOGRAM}{end}");
            values.iter().find(|(part_name, _)| *part_name == name).map(|(_, share)| *share)
        };
        assert_eq!([32, 48, 64, 1_024].map(share), [25.0, 25.0, 12.5, 12.5].map(Some));
        assert_eq!(
            share((1 << 24) + (1 << 23)),
            Some(25.0),
            "the last one holds all that is longer"
        );
        let parts = values.iter().filter(|(name, _)| name.contains(HISTOGRAM));
        assert_eq!(parts.map(|(_, share)| share).sum::<f64>(), 100.0);
    }
}
