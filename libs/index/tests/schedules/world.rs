//! A partition whose every entry is a function of its offset, and the reads that are correct at a
//! time.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use forebay_core::ErrorCode;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::FoldEffects;
use forebay_core::id::{ClientId, Offset, PartitionId, Sequence, StoreId};
use forebay_core::key::Key;
use forebay_core::replica_state::Phase;
use forebay_core::schema::Alteration;
use forebay_core::value::Value;
use forebay_index::{Index, RowRef, SharedCopyDirectory};
use tempfile::TempDir;

use crate::orders::{note, numbers, turn, turn_to_store, wait};
use crate::support::{FollowedPartition, INT64, STRING, empty_state, opened, schema_at, spec};

pub const PARTITION: PartitionId = PartitionId(0);
const DROPS_MAX: u64 = 8;
const ENTRIES_PER_DROP: u64 = 30;
const CLIENTS: u64 = 2;
/// Number of attempts to apply an entry that finds no memory.
const TRIES_MAX: u32 = 10_000;
/// Time between two entries.
const MICROS: u64 = 1_000;

/// The parameters of a scene.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whether the documents are in files.
    pub is_shared: bool,
    pub keys: u64,
    /// Keys that the first entry writes, before any reader starts.
    pub keys_before: u64,
    pub entries: u64,
    /// Maximum number of changes of an entry.
    pub changes: u64,
    /// Maximum bytes of a text.
    pub text: u64,
    /// Memory that the writer may take in addition to that of the first entry; 0 for no bound.
    pub memory: u64,
    /// Whether documents that do not fit are spilled.
    pub spills: bool,
    /// Whether all documents are dropped now and then.
    pub drops: bool,
    /// Whether the partition is rebuilt now and then.
    pub rebuilds: bool,
    /// Whether readers scan: a scan of damaged memory may read anything.
    pub scans: bool,
    /// Maximum number of killed owners.
    pub kills: u64,
}

/// The result of one write of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    offset: u64,
    /// The document; `None` if the write removed it.
    document: Option<WrittenDocument>,
}

/// A document, as an entry writes it.
#[derive(Clone, Copy, Debug)]
struct WrittenDocument {
    /// Length of the text.
    bytes: u64,
    /// Time of the expiry.
    expires: u64,
}

/// A document, as a reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDocument {
    /// Offset of the entry that has written the document.
    pub offset: u64,
    /// Length of the text.
    pub bytes: u64,
}

/// The writes so far, and the progress of the entries.
#[derive(Debug)]
struct History {
    /// By key, ascending by offset.
    versions: Vec<Vec<Version>>,
    /// Number of entries that were begun, and that are certainly visible.
    begun: u64,
    done: u64,
}

/// A partition, and the history of its writes.
#[derive(Debug)]
pub struct World {
    pub shape: Shape,
    seed: u64,
    dir: Option<TempDir>,
    history: Mutex<History>,
    /// The writer's memory bound.
    limit: OnceLock<u64>,
}

/// The time of the entry at an offset.
fn time_of(offset: u64) -> u64 {
    (offset + 1) * MICROS
}

/// The partition's time after this many entries.
fn time_after(entries: u64) -> u64 {
    entries.checked_sub(1).map_or(0, time_of)
}

pub fn name(key: u64) -> String {
    format!("key-{key}")
}

fn text(key: u64, offset: u64, bytes: u64) -> String {
    let word = format!("{key}at{offset} ");
    word.chars().cycle().take(bytes as usize).collect()
}

/// The store's definitions: each drops all documents once more than the previous one.
fn definitions() -> &'static [Arc<SchemaAt>] {
    static DEFINITIONS: OnceLock<Vec<Arc<SchemaAt>>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let first = spec(1, &[("a", INT64), ("b", INT64), ("text", STRING)]);
        let first = first.define(StoreId(1)).unwrap();
        let next = |from: &_| {
            let from: &forebay_core::schema::Definition = from;
            Some(from.altered(&[Alteration::DropAll]).unwrap())
        };
        let all = std::iter::successors(Some(first), next).take(DROPS_MAX as usize);
        all.map(|definition| schema_at(&definition)).collect()
    })
}

/// A change of an entry.
struct Write {
    key: u64,
    document: Option<WrittenDocument>,
}

impl World {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let dir = (shape.is_shared || shape.spills)
            .then(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
        let versions = (0..shape.keys).map(|_| Vec::new()).collect();
        let history = Mutex::new(History { versions, begun: 0, done: 0 });
        let world = Self { shape, seed, dir, history, limit: OnceLock::new() };
        if shape.is_shared {
            world.directory().make(StoreId(1), [PARTITION], seed).unwrap();
        }
        world
    }

    fn directory(&self) -> SharedCopyDirectory {
        let dir = self.dir.as_ref().expect("a shared copy has a directory").path().to_owned();
        SharedCopyDirectory { dir, memory_dir: None }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    /// Opens an index as another process would: it shares only files with the others.
    pub fn open(&self) -> Index {
        let schemas = definitions().iter().cloned();
        let index = match self.shape.is_shared {
            true => Index::open_shared(schemas, [PARTITION], self.seed, self.directory()),
            false => Index::new(schemas, [PARTITION], self.seed),
        };
        index.unwrap()
    }

    /// Takes the writer, and checks that it continues from one single position.
    pub fn acquire_writer(&self, index: &Index) -> FollowedPartition {
        let (mut writer, resumed) = match self.shape.is_shared {
            true => index.acquire_writer(PARTITION).unwrap(),
            false => (index.writer(PARTITION).unwrap(), None),
        };
        self.bound_memory(index);
        writer.set_phase(Phase::Serving);
        writer.note_cursor(opened());
        let state = resumed.map(|resumed| resumed.state);
        let state = state.unwrap_or_else(|| empty_state(&definitions()[0].definition, PARTITION));
        let followed = FollowedPartition { writer, state };
        let offset = followed.state.offset_applied.0;
        {
            let mut history = self.history();
            let range = history.done..=history.begun;
            assert!(range.contains(&offset), "taken over at {offset}, not in {range:?}");
            history.done = offset;
        }
        let mut rows = 0;
        let visit_result = followed.writer.visit_rows(|_, _| {
            rows += 1;
            Ok(())
        });
        visit_result.unwrap();
        assert_eq!(followed.writer.usage().documents, rows, "a wrong answer: a count of documents");
        self.look_at_all(index, offset);
        followed
    }

    fn bound_memory(&self, index: &Index) {
        if let (Some(limit), Some(dir)) = (self.limit.get(), &self.dir) {
            index.limit_memory(*limit);
            if self.shape.spills {
                index.spill_to(dir.path(), 1 << 30);
            }
        }
    }

    /// Checks that each document is as this many entries have left it.
    fn look_at_all(&self, index: &Index, entries: u64) {
        let view = index.view(crate::support::at(0));
        for key in 0..self.shape.keys {
            let read = view
                .get(name(key).as_str())
                .expect("a wrong answer")
                .map(|row| found(index, &row, key));
            self.judge(key, read, entries, entries);
        }
    }

    /// Checks that the final documents are those that all entries have left.
    pub fn look_at_the_end(&self, index: &Index) {
        let done_entries = self.history().done;
        assert_eq!(done_entries, self.shape.entries);
        self.look_at_all(index, done_entries);
    }

    /// Applies the first entry, which creates the initial documents, and bounds the memory.
    pub fn begin(&self, index: &Index, followed: &mut FollowedPartition) {
        self.step(index, followed);
        if self.shape.memory > 0 {
            self.limit.get_or_init(|| index.memory().used + self.shape.memory);
            self.bound_memory(index);
        }
    }

    /// Applies all remaining entries.
    pub fn write(&self, index: &Index, followed: &mut FollowedPartition) {
        self.write_until(self.shape.entries, index, followed);
    }

    /// Applies the entries below an offset.
    pub fn write_until(&self, end: u64, index: &Index, followed: &mut FollowedPartition) {
        while followed.state.offset_applied < Offset(end) {
            let n = followed.state.offset_applied.0;
            self.step(index, followed);
            if self.shape.rebuilds && numbers(self.seed ^ n << 20)(8) == 0 {
                rebuild(followed);
            }
            let has_spilled = index.memory().spilled > 0;
            note(|tally| tally.spilled += u64::from(has_spilled));
            turn_to_store();
        }
    }

    /// Applies the next entry.
    fn step(&self, index: &Index, followed: &mut FollowedPartition) {
        let offset = followed.state.offset_applied.0;
        let drops = if self.shape.drops { offset / ENTRIES_PER_DROP } else { 0 };
        let definition = &definitions()[drops.min(DROPS_MAX - 1) as usize].definition;
        let writes = self.writes(offset);
        self.begin_entry(offset, drops, &writes);
        let field = |name: &str| definition.field(name).unwrap().id;
        let [a, b, text_field] = ["a", "b", "text"].map(field);
        let change = |(place, write): (usize, &Write)| {
            let set =
                |field, value| FieldChange { field, op: FieldOp::Set(Some(value)), ttl_us: None };
            let number = || Value::Int64(offset as i64);
            let fields = |bytes| {
                let text = Value::String(text(write.key, offset, bytes));
                vec![set(a, number()), set(b, number()), set(text_field, text)]
            };
            let ttl =
                |expires: u64| (expires < u64::MAX).then(|| (expires - time_of(offset)) as i64);
            Change {
                sequence: Sequence(offset * 2_000 + place as u64 + 1),
                key: Key::plain(name(write.key).as_bytes()).unwrap(),
                verb: if write.document.is_some() { Verb::Put } else { Verb::Delete },
                fields: write.document.map_or(Vec::new(), |document| fields(document.bytes)),
                condition: None,
                ttl_us: write.document.and_then(|document| ttl(document.expires)),
            }
        };
        let changes = writes.iter().enumerate().map(change).collect();
        let client = ClientId((offset % CLIENTS).into());
        let body = EntryBody::Changes(vec![ClientBatch { client, changes }]);
        let effects = followed.fold(index, definition, body, time_of(offset) as i64).unwrap();
        // A stalled reader may hold memory that would suffice.
        let mut tries = 0..TRIES_MAX;
        while let Err(error) = followed.writer.apply(&effects, &followed.state) {
            assert!(error.code() == ErrorCode::LimitExceeded && tries.next().is_some(), "{error}");
            wait();
        }
        self.history().done = offset + 1;
    }

    fn writes(&self, offset: u64) -> Vec<Write> {
        let mut number = numbers(self.seed.wrapping_add(offset));
        if offset == 0 {
            let mut first_document =
                || WrittenDocument { bytes: 1 + number(40), expires: u64::MAX };
            let keys = 0..self.shape.keys_before;
            return keys.map(|key| Write { key, document: Some(first_document()) }).collect();
        }
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..1 + number(self.shape.changes) {
            let key = number(self.shape.keys);
            let expires = match number(5) {
                0 => time_of(offset) + 1 + number(5 * MICROS),
                _ => u64::MAX,
            };
            let document_written = WrittenDocument { bytes: 1 + number(self.shape.text), expires };
            let document = (number(7) > 0).then_some(document_written);
            if writes.iter().all(|write| write.key != key) {
                writes.push(Write { key, document });
            }
        }
        writes
    }

    /// Notes that the entry may be seen from here on, unless an earlier owner has already begun
    /// it.
    fn begin_entry(&self, offset: u64, drops: u64, writes: &[Write]) {
        let mut history = self.history();
        if offset < history.begun {
            return;
        }
        if drops > 0 && drops < DROPS_MAX && offset.is_multiple_of(ENTRIES_PER_DROP) {
            let deleted = Version { offset, document: None };
            history.versions.iter_mut().for_each(|versions| versions.push(deleted));
        }
        for Write { key, document } in writes {
            let versions = &mut history.versions[*key as usize];
            // The same entry has dropped the key and writes it again.
            versions.retain(|version| version.offset != offset);
            versions.push(Version { offset, document: *document });
        }
        history.begun = offset + 1;
    }

    /// Number of entries that are certainly visible.
    pub fn done(&self) -> u64 {
        self.history().done
    }

    pub fn begun(&self) -> u64 {
        self.history().begun
    }

    /// Panics unless a read of a key may return this result (a document of this offset, or none) at
    /// a time between `entries_min` and `entries_max` entries.
    pub fn judge(&self, key: u64, found: Option<ReadDocument>, entries_min: u64, entries_max: u64) {
        let history = self.history();
        let versions = &history.versions[key as usize];
        // The range covers the versions that were the newest at some moment.
        let first = versions.partition_point(|version| version.offset < entries_min);
        let last = versions.partition_point(|version| version.offset < entries_max);
        let was_absent = first == 0;
        let mut newest = versions[first.saturating_sub(1)..last].iter();
        let is_right = match found {
            Some(found) => newest.any(|version| {
                let Some(WrittenDocument { bytes, expires }) = version.document else {
                    return false;
                };
                found == ReadDocument { offset: version.offset, bytes }
                    && time_after(entries_min) < expires
            }),
            None => {
                let is_gone =
                    |document: WrittenDocument| document.expires <= time_after(entries_max);
                was_absent || newest.any(|version| version.document.is_none_or(is_gone))
            }
        };
        assert!(
            is_right,
            "a wrong answer: {found:?} for key {key} between {entries_min} and {entries_max}: \
             {versions:?}"
        );
    }

    /// Describes a key between `entries_min` and `entries_max` entries.
    pub fn describe(&self, key: u64, entries_min: u64, entries_max: u64) -> String {
        let history = self.history();
        format!(
            "key {key} between {entries_min} and {entries_max}: {:?}",
            history.versions[key as usize]
        )
    }

    /// Whether a key has a document at all times between `entries_min` and `entries_max` entries.
    pub fn is_lasting(&self, key: u64, entries_min: u64, entries_max: u64) -> bool {
        let history = self.history();
        let versions = &history.versions[key as usize];
        let first = versions.partition_point(|version| version.offset < entries_min);
        let last = versions.partition_point(|version| version.offset < entries_max);
        let lasts = |version: &Version| {
            version.document.is_some_and(|document| time_after(entries_max) < document.expires)
        };
        first > 0 && versions[first - 1..last].iter().all(lasts)
    }
}

/// Returns the entry that has written this document of a key. Panics if no entry has written it so.
pub fn found(index: &Index, row: &RowRef<'_>, key: u64) -> ReadDocument {
    let [a, b] = ["a", "b"].map(|name| index.field_as(name, INT64).unwrap());
    let number = |handle| row.scalar::<i64>(handle).expect("a wrong answer").value();
    let offset = number(&a);
    turn();
    assert_eq!(offset, number(&b), "a wrong answer: a torn document of key {key}");
    let offset = offset.expect("a wrong answer: a document without number") as u64;
    let read = row.str(&index.field_as("text", STRING).unwrap()).expect("a wrong answer").value();
    let read = read.expect("a wrong answer: a document without text");
    turn();
    let bytes = read.len() as u64;
    assert_eq!(read, text(key, offset, bytes), "a wrong answer: the text of key {key}");
    ReadDocument { offset, bytes }
}

/// Rebuilds the partition as a new generation.
fn rebuild(followed: &mut FollowedPartition) {
    let mut copied = FoldEffects::default();
    let visited = followed.writer.visit_rows(|key, row| {
        copied.writes.push((Key::from_identity_bytes(key), Some(row.to_vec())));
        Ok(())
    });
    visited.unwrap();
    let following = opened();
    followed.writer.start_rebuild().unwrap();
    followed.writer.note_cursor(following);
    let state = &followed.state;
    copied.clients.extend(state.dedup.windows().into_iter().map(|(client, _)| client));
    followed.writer.apply(&copied, state).unwrap();
    followed.writer.publish_rebuild();
}
