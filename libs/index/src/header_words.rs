//! The words of a partition's header and the status in them, which a single writer stores and any
//! number of readers load.
//!
//! Neither side waits. The words that every read needs (phase, space, schema version, partition
//! time) stand alone; each is stored with release after the rows that it describes. The status must
//! be consistent in itself, so the status is in two sets of words that take turns, like a seqlock:
//! the writer fills the set that is not current and then increments the turn. A reader copies the
//! current set and keeps the copy if the turn has not moved. A reader retries only when the writer
//! made progress, so a writer that stops in the middle blocks no reader.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, LogId, Offset, Position, SchemaVersion};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase, Progress};

use crate::schedule;

const STATUS_WORDS: usize = 17;

/// The status that a partition's writer publishes as one consistent set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) progress: Progress,
    pub(crate) usage: PartitionUsage,
    pub(crate) cursor: LogCursor,
    /// Number of the space that the status belongs to; 0 in a process's own memory.
    pub(crate) generation: u64,
}

impl Status {
    pub(crate) const START: Self = Self {
        progress: Progress::START,
        usage: PartitionUsage { documents: 0, key_bytes: 0, row_bytes: 0, memory_bytes: 0 },
        cursor: LogCursor {
            log_id: None,
            append_time: None,
            clock_error_us: None,
            opened: None,
            drop_all_count: 0,
            copy: 0,
        },
        generation: 0,
    };
}

/// The words of a header, on cache lines of their own, so that partitions do not slow each other.
/// The words that every read loads are on the first line. The words are in the process's own
/// memory, or in a file that all processes map which read the partition.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Words {
    pub(crate) partition_time: AtomicI64,
    generation: AtomicU64,
    pub(crate) schema_version: AtomicU32,
    phase: AtomicU32,
    _line: [u64; 5],
    turn: AtomicU64,
    sets: [[AtomicU64; STATUS_WORDS]; 2],
}

impl Words {
    /// Creates the words of a partition without any applied entry.
    pub(crate) fn new() -> Self {
        let words = Self::default();
        words.publish(&Status::START);
        words
    }

    pub(crate) fn store_phase_release(&self, phase: Phase) {
        schedule::store();
        self.phase.store(phase as u32, Ordering::Release);
    }

    #[inline]
    pub(crate) fn load_phase_acquire(&self) -> Phase {
        schedule::load();
        Phase::from_word(self.phase.load(Ordering::Acquire))
    }

    /// Loads the number of the space that readers see.
    #[inline]
    pub(crate) fn load_generation(&self) -> u64 {
        schedule::load();
        self.generation.load(Ordering::SeqCst)
    }

    /// Switches readers to another space.
    pub(crate) fn store_generation(&self, generation: u64) {
        schedule::store();
        self.generation.store(generation, Ordering::SeqCst);
    }

    /// Publishes the result of one entry; its rows, and the root that leads to them, were stored
    /// before. Only the writer calls this.
    ///
    /// A reader loads in the opposite order (schema version, then space, root and row), so a reader
    /// that sees the new schema version also sees the new rows.
    pub(crate) fn publish(&self, status: &Status) {
        let turn = self.prepare(status);
        self.take_turn(turn);
    }

    /// Fills the set that is not current; returns the turn that makes this set current.
    pub(crate) fn prepare(&self, status: &Status) -> u64 {
        let turn = self.turn.load(Ordering::Relaxed) + 1;
        // A reader that sees one of the words below also sees that the previous turn was taken, and
        // therefore discards its copy of the set that is overwritten now.
        fence(Ordering::Release);
        for (word, value) in self.set(turn).iter().zip(pack(status)) {
            schedule::store();
            word.store(value, Ordering::Relaxed);
        }
        turn
    }

    /// Makes the set of a turn current.
    pub(crate) fn take_turn(&self, turn: u64) {
        let progress = unpack(self.load_set(turn)).progress;
        schedule::store();
        self.schema_version.store(progress.schema_version.0, Ordering::Release);
        schedule::store();
        self.partition_time.store(progress.partition_time.as_micros(), Ordering::Release);
        schedule::store();
        self.turn.store(turn, Ordering::Release);
    }

    /// The turn that was taken last.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// Returns the set of a turn, without validation.
    pub(crate) fn status_of(&self, turn: u64) -> Status {
        unpack(self.load_set(turn))
    }

    fn set(&self, turn: u64) -> &[AtomicU64; STATUS_WORDS] {
        &self.sets[(turn & 1) as usize]
    }

    fn load_set(&self, turn: u64) -> [u64; STATUS_WORDS] {
        let set = self.set(turn);
        std::array::from_fn(|place| {
            schedule::load();
            set[place].load(Ordering::Relaxed)
        })
    }

    /// Returns the status as one entry left it.
    pub(crate) fn status(&self) -> Status {
        loop {
            schedule::load();
            let turn = self.turn.load(Ordering::Acquire);
            let words = self.load_set(turn);
            fence(Ordering::Acquire);
            schedule::load();
            if self.turn.load(Ordering::Relaxed) == turn {
                return unpack(words);
            }
        }
    }
}

/// Bits of a word that say which optional parts of a status are known.
const HAS_LOG: u64 = 1;
const HAS_APPEND_TIME: u64 = 2;
const HAS_CLOCK_ERROR: u64 = 4;
const HAS_OPENED: u64 = 8;

fn pack(status: &Status) -> [u64; STATUS_WORDS] {
    let Status { progress, usage, cursor, generation } = status;
    let Position { epoch, offset, index_in_entry } = progress.position;
    let flags = [
        (cursor.log_id.is_some(), HAS_LOG),
        (cursor.append_time.is_some(), HAS_APPEND_TIME),
        (cursor.clock_error_us.is_some(), HAS_CLOCK_ERROR),
        (cursor.opened.is_some(), HAS_OPENED),
    ];
    let known_bits = flags.iter().filter(|(is_known, _)| *is_known).map(|(_, bit)| bit).sum();
    let opened = cursor.opened.unwrap_or_default();
    [
        u64::from(epoch.0) << 16 | u64::from(index_in_entry),
        offset.0,
        progress.offset_applied.0,
        progress.partition_time.as_micros() as u64,
        progress.schema_version.0.into(),
        usage.documents,
        usage.key_bytes,
        usage.row_bytes,
        usage.memory_bytes,
        known_bits,
        cursor.log_id.map_or(0, |log_id| log_id.0),
        cursor.append_time.map_or(0, Timestamp::as_micros) as u64,
        cursor.clock_error_us.unwrap_or(0) as u64,
        opened.0.0,
        opened.1.0,
        u64::from(cursor.drop_all_count) << 32 | u64::from(cursor.copy),
        *generation,
    ]
}

fn unpack(words: [u64; STATUS_WORDS]) -> Status {
    let [home, offset, applied, time, schema_version, documents, key_bytes, row_bytes, rest @ ..] =
        words;
    let [
        memory_bytes,
        known_bits,
        log_id,
        append_time,
        clock_error,
        start,
        end,
        counts,
        generation,
    ] = rest;
    let position = Position {
        epoch: Epoch((home >> 16) as u32),
        offset: Offset(offset),
        index_in_entry: (home & 0xffff) as u16,
    };
    let progress = Progress {
        position,
        offset_applied: Offset(applied),
        partition_time: Timestamp::from_micros(time as i64),
        schema_version: SchemaVersion(schema_version as u32),
    };
    let is_known = |bit: u64| known_bits & bit != 0;
    let cursor = LogCursor {
        log_id: is_known(HAS_LOG).then_some(LogId(log_id)),
        append_time: is_known(HAS_APPEND_TIME).then(|| Timestamp::from_micros(append_time as i64)),
        clock_error_us: is_known(HAS_CLOCK_ERROR).then_some(clock_error as i64),
        opened: is_known(HAS_OPENED).then_some((Offset(start), Offset(end))),
        drop_all_count: (counts >> 32) as u32,
        copy: counts as u32,
    };
    let usage = PartitionUsage { documents, key_bytes, row_bytes, memory_bytes };
    Status { progress, usage, cursor, generation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(n: u64) -> Status {
        let progress = Progress {
            position: Position {
                epoch: Epoch(u32::MAX),
                offset: Offset(n),
                index_in_entry: n as u16,
            },
            offset_applied: Offset(n + 1),
            partition_time: Timestamp::from_micros(-(n as i64)),
            schema_version: SchemaVersion(n as u32),
        };
        let usage =
            PartitionUsage { documents: n, key_bytes: 2 * n, row_bytes: 3 * n, memory_bytes: n };
        let cursor = LogCursor {
            log_id: n.is_multiple_of(2).then_some(LogId(n)),
            append_time: n.is_multiple_of(3).then_some(Timestamp::from_micros(-(n as i64))),
            clock_error_us: n.is_multiple_of(5).then_some(n as i64),
            opened: n.is_multiple_of(7).then_some((Offset(n), Offset(2 * n))),
            drop_all_count: n as u32,
            copy: 3,
        };
        Status { progress, usage, cursor, generation: n }
    }

    #[test]
    fn published_status_round_trips() {
        let words = Words::new();
        assert_eq!(words.status(), Status::START);
        for n in [1, 2, 210, 65_535, 70_000] {
            words.publish(&status(n));
            assert_eq!(words.status(), status(n));
        }
    }

    #[test]
    fn status_read_during_publishes_is_never_mixed_and_never_decreases() {
        let words = Words::new();
        const PUBLISHES: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=PUBLISHES).for_each(|n| words.publish(&status(n))));
            let mut last = 0;
            while last < PUBLISHES {
                let read = words.status();
                let n = read.usage.documents;
                assert!(n >= last, "status fell from {last} to {n}");
                if n > 0 {
                    assert_eq!(read, status(n));
                }
                last = n;
            }
        });
    }
}
