//! Reads on one core while a writer is at work on the other.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay_bench_report::Values;
use forebay_core::fold::Applied;
use forebay_index::{CopyOut, DocumentKey, FieldHandle, Index, Upkeep};

use super::{Copy, ENTRY, Kept, words};
use crate::clock::{nanos, stay_on, thread_nanos, use_any_core};
use crate::data::{Data, KeyBytes};
use crate::gets::percentiles;

/// The cores of readers, and of the writer beside them.
pub const READER_CORE: usize = 1;
const WRITER_CORE: usize = 0;
/// Reads of one round.
const SINGLES: usize = 500_000;
/// Changes of one entry of a paced writer, and how many different ones there are.
const PACED: u64 = 100;
const PREPARED: u64 = 2_000;
/// Parts of a round of growth: reads that nothing disturbs and reads beside inserts alternate, so
/// that both meet the same mapping and the same machine.
const PARTS: u64 = 8;
/// Reads between two looks at whether the writer is done.
const GLANCE: usize = 1_024;

/// A reader that follows the chain of keys.
struct Chain {
    data: Data,
    index: Index,
    value: FieldHandle,
    at: KeyBytes,
    buffer: Vec<u8>,
}

impl Chain {
    fn new(copy: &Copy, data: Data) -> Result<Self, String> {
        let value = copy.handle().map_err(words)?;
        let buffer = vec![0; data.value_bytes];
        Ok(Self { data, index: copy.index.clone(), value, at: data.key(0), buffer })
    }

    /// Reads until it is told to end, at most so often; what each read took.
    fn read(&mut self, most: usize, ends: &AtomicBool) -> Result<Vec<u64>, String> {
        let mut times = Vec::with_capacity(most.min(SINGLES * 4));
        let began_at = self.data.number(&self.at);
        while times.len() < most && !ends.load(Ordering::Relaxed) {
            // That the list of times grows is no read's time.
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

/// Reads beside a writer that updates existing documents at a rate.
pub struct Beside {
    copy: Copy,
    effects: Vec<Applied>,
    reader: Chain,
}

impl Beside {
    /// Fills the store.
    ///
    /// # Errors
    /// There is no memory.
    pub fn fill(data: Data) -> Result<Self, String> {
        let copy = Copy::fill(data).map_err(words)?;
        let mut numbers = copy.chain(1);
        let effect = |_| copy.effect(numbers.by_ref().take(PACED as usize), Kept::default());
        let effects = (0..PREPARED).map(effect).collect::<forebay_core::Result<_>>();
        let (effects, reader) = (effects.map_err(words)?, Chain::new(&copy, data)?);
        Ok(Self { copy, effects, reader })
    }

    /// Reads that nobody disturbs.
    ///
    /// # Errors
    /// A document is missing.
    pub fn idle(&mut self) -> Result<Values, String> {
        let times = self.reader.read(SINGLES, &AtomicBool::new(false))?;
        percentiles("idle", &times)
    }

    /// Reads beside so many updates a second.
    ///
    /// # Errors
    /// A document is missing, or a write fails.
    pub fn beside(&mut self, name: &str, per_second: u64) -> Result<Values, String> {
        let (copy, effects, reader) = (&mut self.copy, &self.effects, &mut self.reader);
        let ends = AtomicBool::new(false);
        let (times, wrote) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_paced(copy, effects, per_second, &ends));
            let times = reader.read(SINGLES, &AtomicBool::new(false));
            ends.store(true, Ordering::Relaxed);
            (times, writer.join())
        });
        let wrote = wrote.map_err(|_| "the writer panicked".to_owned())??;
        let mut values = percentiles(name, &times?)?;
        values.push((format!("{name} achieved, %"), 100.0 * wrote / per_second as f64));
        Ok(values)
    }
}

/// Writes until it is told to end, each entry when it is due; answers updates per second.
fn write_paced(
    copy: &mut Copy,
    effects: &[Applied],
    per_second: u64,
    ends: &AtomicBool,
) -> Result<f64, String> {
    stay_on(WRITER_CORE)?;
    let (began, mut written) = (nanos(), 0_u64);
    while !ends.load(Ordering::Relaxed) {
        let due = began + written * 1_000_000_000 / per_second;
        let now = nanos();
        if now < due {
            // Sleeps are late by tens of microseconds; what is late is made up for.
            thread::sleep(Duration::from_nanos((due - now).min(1_000_000)));
            continue;
        }
        let effect = &effects[(written / PACED) as usize % effects.len()];
        copy.take(effect).map_err(words)?;
        written += PACED;
    }
    Ok(written as f64 * 1e9 / (nanos() - began).max(1) as f64)
}

/// Reads of the first documents while many more come.
pub struct Growth {
    copy: Copy,
    reader: Chain,
    first: u64,
    documents: u64,
    each: u64,
}

impl Growth {
    /// Fills the first documents; the others come in so many rounds.
    ///
    /// # Errors
    /// There is no memory.
    pub fn fill(data: Data, first: u64, rounds: u64) -> Result<Self, String> {
        let small = Data { entries: first, ..data };
        let copy = Copy { data, ..Copy::fill(small).map_err(words)? };
        let reader = Chain::new(&copy, small)?;
        let each = (data.entries - first) / rounds.max(1);
        Ok(Self { copy, reader, first, documents: first, each })
    }

    /// Reads while nothing comes, then while the next documents do, in turns.
    ///
    /// # Errors
    /// A document is missing, or there is no memory.
    pub fn grow(&mut self) -> Result<Values, String> {
        let (mut idle, mut times, mut wrote) = (Vec::new(), Vec::new(), Inserted::default());
        let (from, till) = (self.documents, self.documents + self.each);
        for part in 0..PARTS {
            idle.extend(self.reader.read(SINGLES / PARTS as usize, &AtomicBool::new(false))?);
            let border = |part| from + self.each * part / PARTS;
            times.extend(self.read_beside(border(part)..border(part + 1), &mut wrote)?);
        }
        self.documents = till;
        let found = self.copy.writer.held().documents;
        if found != till {
            return Err(format!("{found} documents of {till}, {} at first", self.first));
        }
        let mut values = percentiles("still", &idle)?;
        values.extend(percentiles("growing", &times)?);
        values.push(("longest apply, ms".to_owned(), wrote.longest as f64 / 1e6));
        let at = wrote.longest_at as f64 / 1e6;
        values.push(("documents before the longest apply, M".to_owned(), at));
        let over = wrote.over_a_millisecond as f64;
        values.push(("applies over 1 ms in a million".to_owned(), over * 1e6 / wrote.calls as f64));
        let moved = self.copy.writer.groups_moved_max();
        values.push(("groups moved by one change, most".to_owned(), moved.into()));
        values.push(("insert".to_owned(), wrote.nanos as f64 / self.each as f64));
        Ok(values)
    }

    /// Reads while these documents come; what each read took.
    fn read_beside(&mut self, come: Range<u64>, wrote: &mut Inserted) -> Result<Vec<u64>, String> {
        let (copy, reader, ends) = (&mut self.copy, &mut self.reader, AtomicBool::new(false));
        let (times, inserted) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let inserted = insert(copy, come, wrote);
                ends.store(true, Ordering::Relaxed);
                inserted
            });
            (reader.read(usize::MAX, &ends), writer.join())
        });
        inserted.map_err(|_| "the writer panicked".to_owned())??;
        times
    }
}

/// What inserts took, in processor time of their thread.
#[derive(Default)]
struct Inserted {
    calls: u64,
    nanos: u64,
    longest: u64,
    /// Documents before the longest call.
    longest_at: u64,
    over_a_millisecond: u64,
}

/// Does upkeep where there is a core for it: it is not to wait for the writer that waits for it.
fn prepare(upkeep: Upkeep) {
    if let Err(problem) = use_any_core() {
        eprintln!("upkeep stays on the writer's core: {problem}");
    }
    upkeep.run();
}

/// Inserts documents, an entry in each call.
fn insert(copy: &mut Copy, numbers: Range<u64>, all: &mut Inserted) -> Result<(), String> {
    stay_on(WRITER_CORE)?;
    let mut upkeep = None::<thread::JoinHandle<()>>;
    for first in numbers.clone().step_by(ENTRY as usize) {
        let effect = copy.effect(first..numbers.end.min(first + ENTRY), Kept::default());
        let effect = effect.map_err(words)?;
        let began = thread_nanos();
        copy.take(&effect).map_err(words)?;
        let took = thread_nanos() - began;
        // As a reader's tail does beside what it applies.
        if upkeep.as_ref().is_none_or(thread::JoinHandle::is_finished) {
            upkeep = copy.writer.upkeep().map(|upkeep| thread::spawn(move || prepare(upkeep)));
        }
        if took > all.longest {
            (all.longest, all.longest_at) = (took, first);
        }
        all.over_a_millisecond += u64::from(took > 1_000_000);
        all.calls += 1;
        all.nanos += took;
    }
    // Reads that nothing disturbs come next.
    upkeep.map_or(Ok(()), |upkeep| upkeep.join().map_err(|_| "upkeep panicked".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Keys;

    const DATA: Data = Data { entries: 10_000, keys: Keys::Bytes16, value_bytes: 50 };

    #[test]
    fn reads_beside_a_writer_find_their_documents() {
        let mut beside = Beside::fill(DATA).unwrap();
        assert!(beside.idle().unwrap().iter().any(|(name, p50)| name == "idle p50" && *p50 > 0.0));
        let values = beside.beside("10K/s", 10_000).unwrap();
        assert!(values.iter().any(|(name, rate)| name == "10K/s achieved, %" && *rate > 0.0));
    }

    #[test]
    fn growth_comes_to_all_documents() {
        let mut growth = Growth::fill(DATA, 1_000, 2).unwrap();
        growth.grow().unwrap();
        let values = growth.grow().unwrap();
        let value = |of: &str| values.iter().find(|(name, _)| name == of).unwrap().1;
        assert!(value("longest apply, ms") > 0.0);
        assert_eq!(value("groups moved by one change, most"), 1.0);
        assert_eq!(growth.copy.writer.held().documents, 10_000);
    }
}
