//! D: the cost of one dependent line of memory, the unit of the goals.
//!
//! The lines are those of the mapping that contains the records, read by the process and on the
//! core of the measured reads. The next address is a hash of the bytes just loaded, so no two loads
//! overlap.

use forebay_index::CacheLineProbe;

use crate::clock::{median, nanos};
use crate::data::mix;

/// Loads of one chunk, and chunks of one round.
const CHUNK: u64 = 512;
const CHUNKS: usize = 400;

/// A chain of loads, which continues from round to round.
#[derive(Debug, Default)]
pub struct LoadChain {
    at: u64,
    /// Number of loads so far. The number is part of each address; otherwise chains would run into
    /// each other and then into a circle that fits into the caches.
    loads: u64,
}

impl LoadChain {
    /// Returns nanoseconds of one dependent line of this memory: the median over chunks.
    ///
    /// # Errors
    /// Fails if there is no line.
    pub fn measure(&mut self, lines: &CacheLineProbe<'_>) -> Result<f64, String> {
        let counts = lines.counts();
        let (mut key, mut chunks) = (self.at, Vec::with_capacity(CHUNKS));
        for _ in 0..CHUNKS {
            let began = nanos();
            for _ in 0..CHUNK {
                self.loads += 1;
                let hash = mix(key.wrapping_add(self.loads));
                // Partitions have about the same size.
                let place = ((hash & 0xffff_ffff) as usize * counts.len()) >> 32;
                let count = counts.get(place).copied().unwrap_or(0);
                let line = ((u128::from(hash) * u128::from(count)) >> 64) as u64;
                key = lines.load(place, line).ok_or("the memory to load from is missing")?;
            }
            chunks.push(nanos() - began);
        }
        self.at = std::hint::black_box(key);
        Ok(median(chunks) / CHUNK as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Keys};
    use crate::gets::Store;

    #[test]
    fn load_chain_visits_the_memory_of_the_records() {
        let data = Data { entries: 5_000, keys: Keys::Bytes16, value_bytes: 50 };
        let store = Store::fill(data).unwrap();
        let lines_seen = store.with_lines(|lines| {
            let all: u64 = lines.counts().iter().sum();
            assert!(all * 64 >= store.memory_bytes(), "{all} lines");
            // The store is small: most of its first blocks were never written.
            assert!((0..lines.counts()[0]).any(|at| lines.load(0, at).unwrap() != 0));
            let mut line = LoadChain::default();
            for round in 1..=2 {
                assert!(line.measure(&lines).unwrap() > 0.0);
                assert_eq!(line.loads, round * CHUNK * CHUNKS as u64);
            }
        });
        lines_seen.unwrap();
    }
}
