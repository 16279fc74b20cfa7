//! The header of one partition: what readers ask of it before they touch a row.
//!
//! One writer stores, any readers load; nobody waits. The words that every read needs (phase,
//! space, schema version, partition time) stand alone and are stored with release after the
//! rows that they speak of. The status, which must be consistent in itself, lies in two sets of
//! words that take turns: the writer fills the set that is not current and then raises the turn.
//! A reader copies the current set and keeps the copy if the turn has not moved; it tries again
//! only when the writer got further, so a writer that is frozen in the middle stops no reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Epoch, Offset, Position, SchemaVersion};

use crate::storage::Space;

/// How far a partition is; whether it may say *absent*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartitionPhase {
    /// It has not caught up once: reads answer `Unavailable` unless partial answers were asked for.
    Bootstrapping = 0,
    /// It has caught up once and answers.
    Serving = 1,
    /// An invariant broke: reads answer `Internal` until it is rebuilt.
    Poisoned = 2,
}

impl PartitionPhase {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Bootstrapping,
            1 => Self::Serving,
            _ => Self::Poisoned,
        }
    }
}

/// Where in its history a partition's documents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Position of the last entry applied.
    pub position: Position,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Running maximum of append times.
    pub partition_time: Timestamp,
    /// Newest schema version that the partition has seen; 0 before the first.
    pub schema_version: SchemaVersion,
}

impl Progress {
    /// Before the first entry.
    pub const START: Self = Self {
        position: Position { epoch: Epoch(0), offset: Offset(0), place: 0 },
        offset_applied: Offset(0),
        partition_time: Timestamp::MIN,
        schema_version: SchemaVersion(0),
    };
}

impl From<&PartitionState> for Progress {
    fn from(state: &PartitionState) -> Self {
        Self {
            position: state.position,
            offset_applied: state.offset_applied,
            partition_time: state.partition_time,
            schema_version: state.schema_version,
        }
    }
}

/// How much a partition holds; expired documents count until they are reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Documents.
    pub documents: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their rows.
    pub row_bytes: u64,
    /// Bytes of memory that they and their index take.
    pub memory_bytes: u64,
}

impl Held {
    /// A document went. Where an image lied about what it holds, there may be less than that.
    pub(crate) fn lose(&mut self, key_bytes: usize, row_bytes: usize) {
        self.documents = self.documents.saturating_sub(1);
        self.key_bytes = self.key_bytes.saturating_sub(key_bytes as u64);
        self.row_bytes = self.row_bytes.saturating_sub(row_bytes as u64);
    }
}

const STATUS_WORDS: usize = 9;

/// The header of one partition; on lines of its own, so that partitions do not slow each other.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Header {
    partition_time: AtomicI64,
    /// Made of an `Arc`, which is this header's.
    space: AtomicPtr<Space>,
    schema_version: AtomicU32,
    phase: AtomicU8,
    turn: AtomicU64,
    sets: [[AtomicU64; STATUS_WORDS]; 2],
}

impl Header {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        let header = Self {
            partition_time: AtomicI64::new(Timestamp::MIN.as_micros()),
            space: AtomicPtr::new(Arc::into_raw(space).cast_mut()),
            schema_version: AtomicU32::new(0),
            phase: AtomicU8::new(PartitionPhase::Bootstrapping as u8),
            turn: AtomicU64::new(0),
            sets: Default::default(),
        };
        header.publish_status(&Progress::START, &Held::default());
        header
    }

    pub(crate) fn load_phase_acquire(&self) -> PartitionPhase {
        PartitionPhase::from_byte(self.phase.load(Ordering::Acquire))
    }

    pub(crate) fn store_phase_release(&self, phase: PartitionPhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The space that readers see.
    ///
    /// # Safety
    /// The caller holds a guard, and has since before this call, for as long as `'g` lasts; or is
    /// the writer, who alone takes spaces out of use.
    #[inline]
    pub(crate) unsafe fn load_space<'g>(&self) -> &'g Space {
        // SAFETY: it is never null, and stays until the caller's guard has gone. Sequentially
        // consistent, as all loads on the way to a record: see `Group::load_to_follow`.
        unsafe { &*self.space.load(Ordering::SeqCst) }
    }

    pub(crate) fn load_partition_time_acquire(&self) -> Timestamp {
        Timestamp::from_micros(self.partition_time.load(Ordering::Acquire))
    }

    pub(crate) fn load_schema_version_acquire(&self) -> SchemaVersion {
        SchemaVersion(self.schema_version.load(Ordering::Acquire))
    }

    /// Puts a space in place of the one that readers see, which is handed back to be retired. Only
    /// the writer calls it, and publishes behind it.
    #[must_use]
    pub(crate) fn swap_space(&self, space: Arc<Space>) -> Arc<Space> {
        let old = self.space.swap(Arc::into_raw(space).cast_mut(), Ordering::SeqCst);
        // SAFETY: what stands there was made of an `Arc`, by `new` or by this.
        unsafe { Arc::from_raw(old) }
    }

    /// Publishes what one entry made; its rows, and the root that leads to them, were stored
    /// before. Only the writer calls it.
    ///
    /// A reader loads in the opposite order (schema version, then space, root and row), so whoever
    /// sees the new schema version also sees the new rows.
    pub(crate) fn publish(&self, progress: &Progress, held: &Held) {
        self.schema_version.store(progress.schema_version.0, Ordering::Release);
        self.partition_time.store(progress.partition_time.as_micros(), Ordering::Release);
        self.publish_status(progress, held);
    }

    fn publish_status(&self, progress: &Progress, held: &Held) {
        let Position { epoch, offset, place } = progress.position;
        let words = [
            u64::from(epoch.0) << 16 | u64::from(place),
            offset.0,
            progress.offset_applied.0,
            progress.partition_time.as_micros() as u64,
            progress.schema_version.0.into(),
            held.documents,
            held.key_bytes,
            held.row_bytes,
            held.memory_bytes,
        ];
        let turn = self.turn.load(Ordering::Relaxed) + 1;
        // Whoever sees one of the words below also sees that the turn before this one was taken,
        // and so drops what it copied of the set that is overwritten now.
        fence(Ordering::Release);
        for (word, value) in self.sets[(turn & 1) as usize].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.turn.store(turn, Ordering::Release);
    }

    /// The status as one entry left it.
    pub(crate) fn status(&self) -> (Progress, Held) {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let set = &self.sets[(turn & 1) as usize];
            let words: [u64; STATUS_WORDS] =
                std::array::from_fn(|place| set[place].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.turn.load(Ordering::Relaxed) == turn {
                return unpack(words);
            }
        }
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: as in `swap_space`; nobody reads any more.
        drop(unsafe { Arc::from_raw(*self.space.get_mut()) });
    }
}

fn unpack(words: [u64; STATUS_WORDS]) -> (Progress, Held) {
    let [home, offset, applied, time, schema_version, held @ ..] = words;
    let [documents, key_bytes, row_bytes, memory_bytes] = held;
    let position = Position {
        epoch: Epoch((home >> 16) as u32),
        offset: Offset(offset),
        place: (home & 0xffff) as u16,
    };
    let progress = Progress {
        position,
        offset_applied: Offset(applied),
        partition_time: Timestamp::from_micros(time as i64),
        schema_version: SchemaVersion(schema_version as u32),
    };
    (progress, Held { documents, key_bytes, row_bytes, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::storage::SeededHash;
    use crate::table::Root;

    fn header() -> Header {
        let memory = Memory::reserve(1 << 30).unwrap();
        Header::new(Space::new(memory, SeededHash::new(1), Root::NONE))
    }

    fn progress(n: u64) -> Progress {
        Progress {
            position: Position { epoch: Epoch(u32::MAX), offset: Offset(n), place: n as u16 },
            offset_applied: Offset(n + 1),
            partition_time: Timestamp::from_micros(-(n as i64)),
            schema_version: SchemaVersion(n as u32),
        }
    }

    #[test]
    fn a_status_comes_back_as_it_was_published() {
        let header = header();
        assert_eq!(header.status(), (Progress::START, Held::default()));
        for n in [1, 2, 65_535, 70_000] {
            let held = Held { documents: n, key_bytes: 2 * n, row_bytes: 3 * n, memory_bytes: n };
            header.publish(&progress(n), &held);
            assert_eq!(header.status(), (progress(n), held));
        }
    }

    #[test]
    fn a_status_read_during_publishes_is_never_mixed_and_never_falls() {
        let header = header();
        const PUBLISHES: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=PUBLISHES {
                    let held = Held { documents: n, ..Held::default() };
                    header.publish(&progress(n), &held);
                }
            });
            let mut last = 0;
            while last < PUBLISHES {
                let (read, held) = header.status();
                let n = held.documents;
                assert!(n >= last, "status fell from {last} to {n}");
                if n > 0 {
                    assert_eq!(read, progress(n));
                }
                last = n;
            }
        });
    }
}
