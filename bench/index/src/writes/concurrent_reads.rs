//! Reads on one core while a writer works on the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay_bench_report::Values;
use forebay_core::fold::FoldEffects;
use forebay_index::{CopyOut, DocumentKey, FieldHandle, Index};

use super::{Copy, DocumentForm, words};
use crate::clock::{nanos, stay_on};
use crate::data::{Data, KeyBytes};
use crate::gets::percentiles;

/// Cores of readers, and of the concurrent writer.
pub const READER_CORE: usize = 1;
pub(super) const WRITER_CORE: usize = 0;
/// Reads of one round.
pub(super) const SINGLES: usize = 500_000;
/// Changes of one entry of a paced writer, and number of different entries.
const PACED: u64 = 100;
const PREPARED: u64 = 2_000;
/// Reads between two checks whether the writer is done.
const GLANCE: usize = 1_024;

/// A reader that follows the chain of keys.
pub(super) struct Chain {
    data: Data,
    index: Index,
    value: FieldHandle,
    at: KeyBytes,
    buffer: Vec<u8>,
}

impl Chain {
    pub(super) fn new(copy: &Copy, data: Data) -> Result<Self, String> {
        let value = copy.handle().map_err(words)?;
        let buffer = vec![0; data.value_bytes];
        Ok(Self { data, index: copy.index.clone(), value, at: data.key(0), buffer })
    }

    /// Reads until `must_end` is set, at most `reads_max` times; returns the time of each read.
    pub(super) fn read(
        &mut self,
        reads_max: usize,
        must_end: &AtomicBool,
    ) -> Result<Vec<u64>, String> {
        let mut times = Vec::with_capacity(reads_max.min(SINGLES * 4));
        let began_at = self.data.number(&self.at);
        while times.len() < reads_max && !must_end.load(Ordering::Relaxed) {
            // Growing the list of times must not count as a read's time.
            times.reserve(GLANCE);
            let mut before = nanos();
            for _ in 0..GLANCE {
                self.step()?;
                let now = nanos();
                times.push(now - before);
                before = now;
            }
        }
        let expected = self.data.after(began_at, times.len() as u64);
        if expected != self.data.number(&self.at) {
            return Err("a read found another document".to_owned());
        }
        Ok(times)
    }

    fn step(&mut self) -> Result<(), String> {
        let bytes = self.data.key_bytes();
        let key = DocumentKey::from(&self.at[..bytes]);
        let view = self.index.view(Copy::now());
        match view.get_bytes(&self.value, key, &mut self.buffer).map_err(words)? {
            CopyOut::Length(_) => self.at[..bytes].copy_from_slice(&self.buffer[..bytes]),
            other => return Err(format!("a document is {other:?}")),
        }
        Ok(())
    }
}

/// Reads concurrent with a writer that updates existing documents at a rate.
pub struct ConcurrentReads {
    copy: Copy,
    effects: Vec<FoldEffects>,
    reader: Chain,
}

impl ConcurrentReads {
    /// Fills the store.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn fill(data: Data) -> Result<Self, String> {
        let copy = Copy::fill(data).map_err(words)?;
        let mut numbers = copy.chain(1);
        let effect =
            |_| copy.effect(numbers.by_ref().take(PACED as usize), DocumentForm::default());
        let effects = (0..PREPARED).map(effect).collect::<forebay_core::Result<_>>();
        let (effects, reader) = (effects.map_err(words)?, Chain::new(&copy, data)?);
        Ok(Self { copy, effects, reader })
    }

    /// Reads without a writer.
    ///
    /// # Errors
    /// Fails if a document is missing.
    pub fn idle(&mut self) -> Result<Values, String> {
        let times = self.reader.read(SINGLES, &AtomicBool::new(false))?;
        percentiles("idle", &times)
    }

    /// Reads concurrent with `per_second` updates a second.
    ///
    /// # Errors
    /// Fails if a document is missing, or a write fails.
    pub fn concurrent(&mut self, name: &str, per_second: u64) -> Result<Values, String> {
        let (copy, effects, reader) = (&mut self.copy, &self.effects, &mut self.reader);
        let must_end = AtomicBool::new(false);
        let (times, write_rate) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_paced(copy, effects, per_second, &must_end));
            let times = reader.read(SINGLES, &AtomicBool::new(false));
            must_end.store(true, Ordering::Relaxed);
            (times, writer.join())
        });
        let write_rate = write_rate.map_err(|_| "the writer panicked".to_owned())??;
        let mut values = percentiles(name, &times?)?;
        values.push((format!("{name} achieved, %"), 100.0 * write_rate / per_second as f64));
        Ok(values)
    }
}

/// Writes until `must_end` is set, each entry at its due time; returns updates per second.
fn write_paced(
    copy: &mut Copy,
    effects: &[FoldEffects],
    per_second: u64,
    must_end: &AtomicBool,
) -> Result<f64, String> {
    stay_on(WRITER_CORE)?;
    let (began, mut entries_written) = (nanos(), 0_u64);
    while !must_end.load(Ordering::Relaxed) {
        let due_at = began + entries_written * 1_000_000_000 / per_second;
        let now = nanos();
        if now < due_at {
            // Sleeps are late by tens of microseconds; the writer makes up for late entries.
            thread::sleep(Duration::from_nanos((due_at - now).min(1_000_000)));
            continue;
        }
        let effect = &effects[(entries_written / PACED) as usize % effects.len()];
        copy.take(effect).map_err(words)?;
        entries_written += PACED;
    }
    Ok(entries_written as f64 * 1e9 / (nanos() - began).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Keys;

    const DATA: Data = Data { entries: 10_000, keys: Keys::Bytes16, value_bytes: 50 };

    #[test]
    fn concurrent_reads_find_their_documents() {
        let mut reads = ConcurrentReads::fill(DATA).unwrap();
        assert!(reads.idle().unwrap().iter().any(|(name, p50)| name == "idle p50" && *p50 > 0.0));
        let values = reads.concurrent("10K/s", 10_000).unwrap();
        assert!(values.iter().any(|(name, rate)| name == "10K/s achieved, %" && *rate > 0.0));
    }
}
