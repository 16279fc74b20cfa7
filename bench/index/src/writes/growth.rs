//! Growth: reads of the first documents on one core while many more are inserted on the other.
//!
//! A store grows in the same way each time: the same call moves the same data. The time of a call
//! is therefore the least of several growths, which excludes time that another process, or the host
//! of a virtual machine, took from a core in one of them, and includes the work of the call.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use forebay_bench_report::Values;
use forebay_index::MaintenanceTask;

use super::concurrent_reads::{Chain, SINGLES, WRITER_CORE};
use super::{Copy, DocumentForm, ENTRY, words};
use crate::clock::{stay_on, thread_nanos, use_any_core};
use crate::data::Data;
use crate::gets::percentiles;

/// Growths of a store in a round.
const GROWN: usize = 3;
/// Parts of a growth: undisturbed reads and reads concurrent with inserts alternate, so that both
/// meet the same mapping and the same machine.
const PARTS: u64 = 8;
/// Undisturbed reads of a part.
const STILL: usize = SINGLES / 2;
/// Untimed reads before the undisturbed ones: the writer has left its own lines in the caches.
const WARMED: usize = SINGLES / 20;

/// A store that grows from its first documents to all of its data.
pub struct Growth {
    data: Data,
    first: u64,
}

/// The measurements of one growth.
struct GrowthTimes {
    /// Times of reads without inserts, and with concurrent inserts.
    still: Vec<u64>,
    growing: Vec<u64>,
    /// Processor time of each call that applied an entry.
    calls: Vec<u64>,
    /// Most groups that one document moved.
    moved: u32,
}

impl Growth {
    /// Creates a growth from `first` documents to all.
    #[must_use]
    pub fn new(data: Data, first: u64) -> Self {
        Self { data, first }
    }

    /// Grows the store several times. The times of reads are those of the first growth.
    ///
    /// # Errors
    /// Fails if a document is missing, or there is no memory.
    pub fn grow(&self) -> Result<Values, String> {
        let GrowthTimes { still: still_times, growing, calls, moved } = self.grow_once()?;
        let mut least_calls = calls.clone();
        for _ in 1..GROWN {
            for (least_calls, second_call) in least_calls.iter_mut().zip(self.grow_once()?.calls) {
                *least_calls = second_call.min(*least_calls);
            }
        }
        let mut values = percentiles("still", &still_times)?;
        values.extend(percentiles("growing", &growing)?);
        let longest = |calls: &[u64]| calls.iter().copied().max().unwrap_or(0);
        let longest_least = longest(&least_calls);
        let place = least_calls.iter().position(|call| *call == longest_least).unwrap_or(0);
        let before = self.first + place as u64 * ENTRY;
        let slow_calls = calls.iter().filter(|call| **call > 1_000_000).count();
        let (all, inserted) = (calls.iter().sum::<u64>(), self.data.entries - self.first);
        let single_values = [
            ("longest apply, ms", longest_least as f64 / 1e6),
            ("documents before the longest apply, M", before as f64 / 1e6),
            ("longest apply of one growth, ms", longest(&calls) as f64 / 1e6),
            (
                "applies over 1 ms in a million, one growth",
                slow_calls as f64 * 1e6 / calls.len() as f64,
            ),
            ("groups moved by one change, most", moved.into()),
            ("insert", all as f64 / inserted as f64),
        ];
        values.extend(single_values.map(|(name, value)| (name.to_owned(), value)));
        Ok(values)
    }

    fn grow_once(&self) -> Result<GrowthTimes, String> {
        let small = Data { entries: self.first, ..self.data };
        let mut copy = Copy { data: self.data, ..Copy::fill(small).map_err(words)? };
        let mut reader = Chain::new(&copy, small)?;
        let (mut still_times, mut growing, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let entries = (self.data.entries - self.first) / ENTRY;
        let border = |part| self.first + entries * part / PARTS * ENTRY;
        for part in 0..PARTS {
            reader.read(WARMED, &AtomicBool::new(false))?;
            still_times.extend(reader.read(STILL, &AtomicBool::new(false))?);
            let end = if part + 1 == PARTS { self.data.entries } else { border(part + 1) };
            growing.extend(read_during_growth(
                &mut copy,
                &mut reader,
                border(part)..end,
                &mut calls,
            )?);
        }
        let found = copy.writer.usage().documents;
        if found != self.data.entries {
            return Err(format!("{found} documents of {}", self.data.entries));
        }
        Ok(GrowthTimes {
            still: still_times,
            growing,
            calls,
            moved: copy.writer.groups_moved_max(),
        })
    }
}

/// Reads while these documents are inserted; returns the time of each read.
fn read_during_growth(
    copy: &mut Copy,
    reader: &mut Chain,
    come: Range<u64>,
    calls: &mut Vec<u64>,
) -> Result<Vec<u64>, String> {
    let must_end = AtomicBool::new(false);
    let (times, inserted) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let inserted = insert(copy, come, calls);
            must_end.store(true, Ordering::Relaxed);
            inserted
        });
        (reader.read(usize::MAX, &must_end), writer.join())
    });
    inserted.map_err(|_| "the writer panicked".to_owned())??;
    times
}

/// Inserts documents, an entry in each call; records the time of each call.
fn insert(copy: &mut Copy, numbers: Range<u64>, calls: &mut Vec<u64>) -> Result<(), String> {
    stay_on(WRITER_CORE)?;
    let mut maintenance = None::<JoinHandle<()>>;
    for first in numbers.clone().step_by(ENTRY as usize) {
        let effect = copy.effect(first..numbers.end.min(first + ENTRY), DocumentForm::default());
        let effect = effect.map_err(words)?;
        let began = thread_nanos();
        copy.take(&effect).map_err(words)?;
        calls.push(thread_nanos() - began);
        // A reader's tail does this while it applies entries.
        if maintenance.as_ref().is_none_or(JoinHandle::is_finished) {
            maintenance = copy
                .writer
                .maintenance_task()
                .map(|maintenance| thread::spawn(move || prepare(maintenance)));
        }
    }
    // The undisturbed reads come next.
    maintenance.map_or(Ok(()), |maintenance| {
        maintenance.join().map_err(|_| "maintenance panicked".to_owned())
    })
}

/// Does maintenance on any free core: maintenance must not wait for the writer that waits for it.
fn prepare(maintenance: MaintenanceTask) {
    if let Err(problem) = use_any_core() {
        eprintln!("maintenance stays on the writer's core: {problem}");
    }
    while maintenance.run() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Keys;

    #[test]
    fn growth_reaches_all_documents() {
        let data = Data { entries: 10_100, keys: Keys::Bytes16, value_bytes: 50 };
        let values = Growth::new(data, 1_000).grow().unwrap();
        let value =
            |name_wanted: &str| values.iter().find(|(name, _)| name == name_wanted).unwrap().1;
        let (least_longest, longest_of_one) =
            (value("longest apply, ms"), value("longest apply of one growth, ms"));
        assert!(0.0 < least_longest && least_longest <= longest_of_one);
        assert_eq!(value("groups moved by one change, most"), 1.0);
        assert!(value("growing p50") > 0.0 && value("still p50") > 0.0);
    }
}
