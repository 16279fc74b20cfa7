//! The header of one partition: the state that readers load before they touch a row.
//!
//! A single writer stores, any number of readers load, and nobody waits. The words that every read
//! needs (phase, space, schema version, partition time) stand alone; each is stored with release
//! after the rows that it describes. The status must be consistent in itself, so the header stores
//! the status in two sets of words that take turns, like a seqlock: the writer fills the set that
//! is not current and then increments the turn. A reader copies the current set and keeps the copy
//! if the turn has not moved. A reader retries only when the writer made progress, so a writer that
//! stops in the middle blocks no reader.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Epoch, LogId, Offset, Position, SchemaVersion};

use crate::live::{Attach, HeaderFile};
use crate::reclaim::Reclaim;
use crate::schedule;
use crate::storage::Space;

/// The phase of a partition: whether it may answer *absent*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartitionPhase {
    /// The partition has not caught up yet: reads answer `Unavailable` unless partial answers are
    /// allowed.
    Bootstrapping = 0,
    /// The partition has caught up once and answers.
    Serving = 1,
    /// An invariant broke: reads answer `Internal` until the partition is rebuilt.
    Poisoned = 2,
}

impl PartitionPhase {
    fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Bootstrapping,
            1 => Self::Serving,
            _ => Self::Poisoned,
        }
    }
}

/// The point in its history that a partition's documents are at.
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
    /// The state before the first entry.
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

/// The amount that a partition stores; expired documents count until they are reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of documents.
    pub documents: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their rows.
    pub row_bytes: u64,
    /// Bytes of memory that the documents and their index take.
    pub memory_bytes: u64,
}

impl Held {
    /// Adds a document.
    pub(crate) fn gain(&mut self, key_bytes: usize, row_bytes: usize) {
        self.documents += 1;
        self.key_bytes += key_bytes as u64;
        self.row_bytes += row_bytes as u64;
    }

    /// Removes a document. The counts saturate at 0, because an image may state less than it
    /// contains.
    pub(crate) fn lose(&mut self, key_bytes: usize, row_bytes: usize) {
        self.documents = self.documents.saturating_sub(1);
        self.key_bytes = self.key_bytes.saturating_sub(key_bytes as u64);
        self.row_bytes = self.row_bytes.saturating_sub(row_bytes as u64);
    }
}

/// The log state of the reader that writes a partition, for a successor that takes over and for the
/// other processes that read the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// Id of the log.
    pub log_id: Option<LogId>,
    /// Append time of the last entry applied.
    pub append_time: Option<Timestamp>,
    /// Largest difference between the log's clock and the reader's, in microseconds.
    pub clock_error_us: Option<i64>,
    /// Start and end of the log when the copy was opened.
    pub opened: Option<(Offset, Offset)>,
    /// Number of drop-alls that were applied.
    pub drop_all_count: u32,
    /// Number of the copy, from 1; 0 before the first.
    pub copy: u32,
}

/// A consistent state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) progress: Progress,
    pub(crate) held: Held,
    pub(crate) following: Following,
    /// Number of the space that the status belongs to; 0 in a process's own memory.
    pub(crate) generation: u64,
}

impl Status {
    pub(crate) const START: Self = Self {
        progress: Progress::START,
        held: Held { documents: 0, key_bytes: 0, row_bytes: 0, memory_bytes: 0 },
        following: Following {
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

const STATUS_WORDS: usize = 17;

/// The words of a header, on cache lines of their own, so that partitions do not slow each other.
/// The words that every read loads are on the first line. The words are in the process's own
/// memory, or in a file that all processes map which read the partition.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Words {
    partition_time: AtomicI64,
    generation: AtomicU64,
    schema_version: AtomicU32,
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

    pub(crate) fn store_phase_release(&self, phase: PartitionPhase) {
        schedule::store();
        self.phase.store(phase as u32, Ordering::Release);
    }

    #[inline]
    pub(crate) fn load_phase_acquire(&self) -> PartitionPhase {
        schedule::load();
        PartitionPhase::from_word(self.phase.load(Ordering::Acquire))
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

/// A reference to the words of a header, held by its readers or its writer.
#[derive(Clone, Debug)]
pub(crate) enum Published {
    /// Words in the process's own memory.
    Own(Arc<Words>),
    /// Words in a file.
    Shared(Arc<HeaderFile>),
}

impl Deref for Published {
    type Target = Words;

    #[inline]
    fn deref(&self) -> &Words {
        match self {
            Self::Own(words) => words,
            Self::Shared(file) => file.words(),
        }
    }
}

/// The path by which the readers of one process reach a partition.
#[derive(Debug)]
pub(crate) struct Header {
    /// The words of `first`, or of the live copy once readers have switched to it.
    words: AtomicPtr<Words>,
    /// A pointer from an `Arc` that this header owns.
    space: AtomicPtr<Space>,
    /// The words that readers began with. They stay: some readers may still use them.
    #[expect(dead_code, reason = "held, and let go by its drop")]
    first: Published,
    /// The live copy. Unset for a partition in the process's own memory, and for a partition that
    /// began with an image until readers switch to its live copy.
    live: OnceLock<(Published, Attach)>,
}

impl Header {
    pub(crate) fn new(published: Published, space: Arc<Space>, attach: Option<Attach>) -> Self {
        let words = AtomicPtr::new(std::ptr::from_ref::<Words>(&published).cast_mut());
        let space = AtomicPtr::new(Arc::into_raw(space).cast_mut());
        let live = attach.map(|attach| (published.clone(), attach));
        let live = live.map_or_else(OnceLock::new, OnceLock::from);
        Self { words, space, first: published, live }
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: the words belong to `first` or to `live`, each of which lives as long as `self`.
        unsafe { &*self.words.load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn load_phase_acquire(&self) -> PartitionPhase {
        self.words().load_phase_acquire()
    }

    /// Whether readers use a live copy.
    pub(crate) fn is_live(&self) -> bool {
        self.live.get().is_some()
    }

    /// Switches readers from the image that they began with to a live copy; returns the image, to
    /// be retired. Returns `None` if another thread was first.
    ///
    /// The space is stored before the words, so a reader that sees a position finds the documents
    /// of it.
    #[must_use]
    pub(crate) fn go_live(
        &self,
        published: Published,
        space: Arc<Space>,
        attach: Attach,
    ) -> Option<Arc<Space>> {
        let words = std::ptr::from_ref::<Words>(&published).cast_mut();
        self.live.set((published, attach)).ok()?;
        let image = self.swap_space(space);
        self.words.store(words, Ordering::Release);
        Some(image)
    }

    /// Returns the space that readers see.
    ///
    /// # Errors
    /// `Unavailable` when the space of a live partition cannot be mapped.
    ///
    /// # Safety
    /// The caller either holds a guard of this index, entered before this call and held for as long
    /// as `'g` lasts, or is the writer, which alone takes spaces out of use.
    #[inline]
    pub(crate) unsafe fn load_space<'g>(&self, reclaim: &Reclaim) -> Result<&'g Space> {
        let generation = self.words().load_generation();
        schedule::load();
        // SAFETY: the pointer is never null, and its space stays until the caller's guard is gone.
        // The load is sequentially consistent, as all loads on the path to a record: see
        // `Group::load_to_follow`.
        let space = unsafe { &*self.space.load(Ordering::SeqCst) };
        if space.generation == generation {
            return Ok(space);
        }
        self.attach_anew(reclaim)?;
        // SAFETY: as above.
        Ok(unsafe { &*self.space.load(Ordering::SeqCst) })
    }

    /// Maps the current live space in place of the previous one.
    #[cold]
    fn attach_anew(&self, reclaim: &Reclaim) -> Result<()> {
        let Some((published, attach)) = self.live.get() else { return Ok(()) };
        if !std::ptr::eq(self.words(), &raw const **published) {
            // Readers are between the two steps of `go_live`; a process that was forked there stays
            // there.
            return Ok(());
        }
        let _one_at_a_time = schedule::lock(&attach.lock);
        let generation = published.load_generation();
        // SAFETY: only one thread at a time takes spaces out of use.
        if unsafe { &*self.space.load(Ordering::SeqCst) }.generation != generation {
            let space = attach.space(published)?;
            reclaim.retire_space(self.swap_space(space));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn load_partition_time_acquire(&self) -> Timestamp {
        schedule::load();
        Timestamp::from_micros(self.words().partition_time.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn load_schema_version_acquire(&self) -> SchemaVersion {
        schedule::load();
        SchemaVersion(self.words().schema_version.load(Ordering::Acquire))
    }

    /// Replaces the space that readers see; returns the old space, to be retired. For a partition
    /// in the process's own memory only the writer calls this, and publishes afterwards.
    #[must_use]
    pub(crate) fn swap_space(&self, space: Arc<Space>) -> Arc<Space> {
        schedule::store();
        let old = self.space.swap(Arc::into_raw(space).cast_mut(), Ordering::SeqCst);
        // SAFETY: the pointer came from an `Arc`, by `new` or by this function.
        unsafe { Arc::from_raw(old) }
    }

    /// Returns the status as one entry left it.
    pub(crate) fn status(&self) -> Status {
        self.words().status()
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: as in `swap_space`; no reader is left.
        drop(unsafe { Arc::from_raw(*self.space.get_mut()) });
    }
}

/// Bits of a word that say which optional parts of a status are known.
const HAS_LOG: u64 = 1;
const HAS_APPEND_TIME: u64 = 2;
const HAS_CLOCK_ERROR: u64 = 4;
const HAS_OPENED: u64 = 8;

fn pack(status: &Status) -> [u64; STATUS_WORDS] {
    let Status { progress, held, following, generation } = status;
    let Position { epoch, offset, place } = progress.position;
    let known = [
        (following.log_id.is_some(), HAS_LOG),
        (following.append_time.is_some(), HAS_APPEND_TIME),
        (following.clock_error_us.is_some(), HAS_CLOCK_ERROR),
        (following.opened.is_some(), HAS_OPENED),
    ];
    let known = known.iter().filter(|(is_known, _)| *is_known).map(|(_, bit)| bit).sum();
    let opened = following.opened.unwrap_or_default();
    [
        u64::from(epoch.0) << 16 | u64::from(place),
        offset.0,
        progress.offset_applied.0,
        progress.partition_time.as_micros() as u64,
        progress.schema_version.0.into(),
        held.documents,
        held.key_bytes,
        held.row_bytes,
        held.memory_bytes,
        known,
        following.log_id.map_or(0, |log_id| log_id.0),
        following.append_time.map_or(0, Timestamp::as_micros) as u64,
        following.clock_error_us.unwrap_or(0) as u64,
        opened.0.0,
        opened.1.0,
        u64::from(following.drop_all_count) << 32 | u64::from(following.copy),
        *generation,
    ]
}

fn unpack(words: [u64; STATUS_WORDS]) -> Status {
    let [home, offset, applied, time, schema_version, documents, key_bytes, row_bytes, rest @ ..] =
        words;
    let [memory_bytes, known, log_id, append_time, clock_error, start, end, counts, generation] =
        rest;
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
    let has = |bit: u64| known & bit != 0;
    let following = Following {
        log_id: has(HAS_LOG).then_some(LogId(log_id)),
        append_time: has(HAS_APPEND_TIME).then(|| Timestamp::from_micros(append_time as i64)),
        clock_error_us: has(HAS_CLOCK_ERROR).then_some(clock_error as i64),
        opened: has(HAS_OPENED).then_some((Offset(start), Offset(end))),
        drop_all_count: (counts >> 32) as u32,
        copy: counts as u32,
    };
    let held = Held { documents, key_bytes, row_bytes, memory_bytes };
    Status { progress, held, following, generation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(n: u64) -> Status {
        let progress = Progress {
            position: Position { epoch: Epoch(u32::MAX), offset: Offset(n), place: n as u16 },
            offset_applied: Offset(n + 1),
            partition_time: Timestamp::from_micros(-(n as i64)),
            schema_version: SchemaVersion(n as u32),
        };
        let held = Held { documents: n, key_bytes: 2 * n, row_bytes: 3 * n, memory_bytes: n };
        let following = Following {
            log_id: n.is_multiple_of(2).then_some(LogId(n)),
            append_time: n.is_multiple_of(3).then_some(Timestamp::from_micros(-(n as i64))),
            clock_error_us: n.is_multiple_of(5).then_some(n as i64),
            opened: n.is_multiple_of(7).then_some((Offset(n), Offset(2 * n))),
            drop_all_count: n as u32,
            copy: 3,
        };
        Status { progress, held, following, generation: n }
    }

    #[test]
    fn a_status_comes_back_as_it_was_published() {
        let words = Words::new();
        assert_eq!(words.status(), Status::START);
        for n in [1, 2, 210, 65_535, 70_000] {
            words.publish(&status(n));
            assert_eq!(words.status(), status(n));
        }
    }

    #[test]
    fn a_status_read_during_publishes_is_never_mixed_and_never_falls() {
        let words = Words::new();
        const PUBLISHES: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=PUBLISHES).for_each(|n| words.publish(&status(n))));
            let mut last = 0;
            while last < PUBLISHES {
                let read = words.status();
                let n = read.held.documents;
                assert!(n >= last, "status fell from {last} to {n}");
                if n > 0 {
                    assert_eq!(read, status(n));
                }
                last = n;
            }
        });
    }
}
