//! Counts of reads, exact and cheap: each thread adds to a line of its own.
//!
//! A thread takes a number at its first read and returns it when the thread ends; the number
//! selects the thread's line in every index of the process. Only that thread writes the line, so a
//! count is a load and a store, without a locked instruction. The taken numbers are bits of two
//! words and not guarded by a mutex: in a forked child a mutex could stay locked, by a thread that
//! the child does not have. Returning a number (release) and taking it (acquire) orders the last
//! counts of an ended thread before the first counts of the thread that gets its number. Threads
//! beyond the number of lines share the last line and pay for a locked add.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

const LINES: usize = 128;
const SHARED_LINE: usize = LINES - 1;

/// Number of reads that found a document, and that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads that found a document.
    pub hits: u64,
    /// Reads that found no document, or an expired one.
    pub misses: u64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The counters of one index.
#[derive(Debug)]
pub(crate) struct Counters {
    lines: Box<[Line]>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { lines: (0..LINES).map(|_| Line::default()).collect() }
    }

    /// Counts reads of the calling thread.
    pub(crate) fn add(&self, hits: u64, misses: u64) {
        // While a thread's locals are destroyed, the thread counts in the shared line.
        let place = NUMBER.try_with(ThreadNumber::get).unwrap_or(SHARED_LINE);
        let line = &self.lines[place.min(SHARED_LINE)];
        for (counter, increment) in [(&line.hits, hits), (&line.misses, misses)] {
            if increment == 0 {
                continue;
            }
            if place < SHARED_LINE {
                let count = counter.load(Ordering::Relaxed);
                counter.store(count.wrapping_add(increment), Ordering::Relaxed);
            } else {
                counter.fetch_add(increment, Ordering::Relaxed);
            }
        }
    }

    /// Returns the sums so far; counts that race with this call may be missing.
    pub(crate) fn counts(&self) -> ReadCounts {
        let mut counts = ReadCounts::default();
        for line in &self.lines {
            counts.hits += line.hits.load(Ordering::Relaxed);
            counts.misses += line.misses.load(Ordering::Relaxed);
        }
        counts
    }
}

/// The numbers that threads hold, a bit for each; the bit of the shared line is always set.
static USED_NUMBERS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(1 << (SHARED_LINE % 64))];
const _: () = assert!(LINES == 128, "a bit for each line");

struct ThreadNumber(Cell<Option<usize>>);

thread_local! {
    static NUMBER: ThreadNumber = const { ThreadNumber(Cell::new(None)) };
}

impl ThreadNumber {
    fn get(&self) -> usize {
        match self.0.get() {
            Some(number) => number,
            None => self.take(),
        }
    }

    #[cold]
    fn take(&self) -> usize {
        let free = |bits: u64| (!bits != 0).then(|| bits.trailing_ones());
        let number = USED_NUMBERS.iter().enumerate().find_map(|(word, bits)| {
            let with_next = |bits| free(bits).map(|bit| bits | 1 << bit);
            let previous = bits.fetch_update(Ordering::Acquire, Ordering::Relaxed, with_next);
            previous.ok().and_then(free).map(|bit| word * 64 + bit as usize)
        });
        let number = number.unwrap_or(SHARED_LINE);
        self.0.set(Some(number));
        number
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if let Some(number) = self.0.get().filter(|number| *number < SHARED_LINE) {
            USED_NUMBERS[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_lose_no_count_with_more_threads_than_lines() {
        let counters = Counters::new();
        const THREADS: u64 = 2 * LINES as u64;
        let all_alive = std::sync::Barrier::new(THREADS as usize);
        for _ in 0..2 {
            std::thread::scope(|scope| {
                let add = || {
                    all_alive.wait();
                    (0..1_000).for_each(|_| counters.add(1, 2));
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
                // The threads are joined one by one: ThreadSanitizer does not see how a scope waits
                // for its threads.
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
        }
        let expected = ReadCounts { hits: 2_000 * THREADS, misses: 4_000 * THREADS };
        assert_eq!(counters.counts(), expected);
    }
}
