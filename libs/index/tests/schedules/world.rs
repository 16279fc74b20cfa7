//! A partition whose every entry is a function of its offset, and what may be read of it when.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use forebay_core::ErrorCode;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::Applied;
use forebay_core::id::{ClientId, Offset, PartitionId, Sequence, StoreId};
use forebay_core::key::Key;
use forebay_core::schema::Alteration;
use forebay_core::value::Value;
use forebay_index::{Index, LiveDirectory, PartitionPhase, RowRef};
use tempfile::TempDir;

use crate::orders::{note, numbers, turn, turn_to_store, wait};
use crate::support::{Followed, INT64, STRING, empty_state, opened, schema_at, spec};

pub const PARTITION: PartitionId = PartitionId(0);
const DROPS_MAX: u64 = 8;
const ENTRIES_PER_DROP: u64 = 30;
const CLIENTS: u64 = 2;
/// How often an entry is tried that finds no memory.
const TRIES_MAX: u32 = 10_000;
/// From one entry to the next.
const MICROS: u64 = 1_000;

/// What a scene is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whether the documents lie in files.
    pub is_live: bool,
    pub keys: u64,
    /// Keys that the first entry writes, before anybody reads.
    pub keys_before: u64,
    pub entries: u64,
    /// Changes of an entry, at most.
    pub changes: u64,
    /// Bytes of a text, at most.
    pub text: u64,
    /// Memory that the writer may take beyond what the first entry has taken; 0 for no bound.
    pub memory: u64,
    /// Whether what has no room there is spilled.
    pub spills: bool,
    /// Whether all documents are dropped now and then.
    pub drops: bool,
    /// Whether the partition is rebuilt beside itself now and then.
    pub rebuilds: bool,
    /// Whether readers scan: who scans where memory is damaged may read anything.
    pub scans: bool,
    /// Holders that are killed, at most.
    pub kills: u64,
}

/// What one write leaves of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    offset: u64,
    /// The document, or that there is none.
    document: Option<Written>,
}

/// A document, as an entry writes it.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// How long its text is.
    bytes: u64,
    /// When it expires.
    expires: u64,
}

/// A document, as a reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Of the entry that has written it.
    pub offset: u64,
    /// How long its text is.
    pub bytes: u64,
}

/// What was written, and how far that has come.
#[derive(Debug)]
struct History {
    /// By key, ascending by offset.
    versions: Vec<Vec<Version>>,
    /// Entries that were begun, and that are surely there.
    begun: u64,
    done: u64,
}

/// A partition, and what is known of it.
#[derive(Debug)]
pub struct World {
    pub shape: Shape,
    seed: u64,
    dir: Option<TempDir>,
    history: Mutex<History>,
    /// What the writer may take.
    limit: OnceLock<u64>,
}

/// The time of the entry at an offset.
fn time_of(offset: u64) -> u64 {
    (offset + 1) * MICROS
}

/// The partition's time once so many entries were applied.
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

/// The store's definitions: each drops all documents once more than the one before.
fn definitions() -> &'static [Arc<SchemaAt>] {
    static DEFINITIONS: OnceLock<Vec<Arc<SchemaAt>>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let first = spec(1, &[("a", INT64), ("b", INT64), ("text", STRING)]);
        let first = first.define(StoreId(1)).unwrap();
        let next = |at: &_| {
            let at: &forebay_core::schema::Definition = at;
            Some(at.altered(&[Alteration::DropAll]).unwrap())
        };
        let all = std::iter::successors(Some(first), next).take(DROPS_MAX as usize);
        all.map(|definition| schema_at(&definition)).collect()
    })
}

/// One change of an entry.
struct Write {
    key: u64,
    document: Option<Written>,
}

impl World {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let dir = (shape.is_live || shape.spills)
            .then(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
        let versions = (0..shape.keys).map(|_| Vec::new()).collect();
        let history = Mutex::new(History { versions, begun: 0, done: 0 });
        let world = Self { shape, seed, dir, history, limit: OnceLock::new() };
        if shape.is_live {
            world.directory().make(StoreId(1), [PARTITION], seed).unwrap();
        }
        world
    }

    fn directory(&self) -> LiveDirectory {
        let dir = self.dir.as_ref().expect("a live copy has a directory").path().to_owned();
        LiveDirectory { dir, memory_dir: None }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    /// Another process, as it were: it shares nothing with others but files.
    pub fn open(&self) -> Index {
        let schemas = definitions().iter().cloned();
        let index = match self.shape.is_live {
            true => Index::live(schemas, [PARTITION], self.seed, self.directory()),
            false => Index::new(schemas, [PARTITION], self.seed),
        };
        index.unwrap()
    }

    /// Takes the writer, and sees that what it goes on with is of one position.
    pub fn hold(&self, index: &Index) -> Followed {
        let (mut writer, resumed) = match self.shape.is_live {
            true => index.hold(PARTITION).unwrap(),
            false => (index.writer(PARTITION).unwrap(), None),
        };
        self.bound(index);
        writer.set_phase(PartitionPhase::Serving);
        writer.note_following(opened());
        let state = resumed.map(|resumed| resumed.state);
        let state = state.unwrap_or_else(|| empty_state(&definitions()[0].definition, PARTITION));
        let followed = Followed { writer, state };
        let offset = followed.state.offset_applied.0;
        {
            let mut history = self.history();
            let range = history.done..=history.begun;
            assert!(range.contains(&offset), "taken over at {offset}, not in {range:?}");
            history.done = offset;
        }
        let mut rows = 0;
        let counted = followed.writer.visit_rows(|_, _| {
            rows += 1;
            Ok(())
        });
        counted.unwrap();
        assert_eq!(followed.writer.held().documents, rows, "a wrong answer: a count of documents");
        self.look_at_all(index, offset);
        followed
    }

    fn bound(&self, index: &Index) {
        if let (Some(limit), Some(dir)) = (self.limit.get(), &self.dir) {
            index.limit_memory(*limit);
            if self.shape.spills {
                index.spill_to(dir.path(), 1 << 30);
            }
        }
    }

    /// Finds each document as so many entries have left it.
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

    /// Sees that what is there now is what all entries have left.
    pub fn look_at_the_end(&self, index: &Index) {
        let done = self.history().done;
        assert_eq!(done, self.shape.entries);
        self.look_at_all(index, done);
    }

    /// Applies the first entry, which sets the stage, and bounds the memory.
    pub fn begin(&self, index: &Index, followed: &mut Followed) {
        self.step(index, followed);
        if self.shape.memory > 0 {
            self.limit.get_or_init(|| index.memory().used + self.shape.memory);
            self.bound(index);
        }
    }

    /// Applies all entries that are still to come.
    pub fn write(&self, index: &Index, followed: &mut Followed) {
        self.write_until(self.shape.entries, index, followed);
    }

    /// Applies the entries below an offset.
    pub fn write_until(&self, end: u64, index: &Index, followed: &mut Followed) {
        while followed.state.offset_applied < Offset(end) {
            let n = followed.state.offset_applied.0;
            self.step(index, followed);
            if self.shape.rebuilds && numbers(self.seed ^ n << 20)(8) == 0 {
                rebuild(followed);
            }
            let has_spilled = index.memory().spilled > 0;
            note(|seen| seen.spilled += u64::from(has_spilled));
            turn_to_store();
        }
    }

    /// Applies the entry that is next.
    fn step(&self, index: &Index, followed: &mut Followed) {
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
        let applied = followed.fold(index, definition, body, time_of(offset) as i64).unwrap();
        // A reader that stands still may hold memory that would do.
        let mut tries = 0..TRIES_MAX;
        while let Err(error) = followed.writer.apply(&applied, &followed.state) {
            assert!(error.code() == ErrorCode::LimitExceeded && tries.next().is_some(), "{error}");
            wait();
        }
        self.history().done = offset + 1;
    }

    fn writes(&self, offset: u64) -> Vec<Write> {
        let mut number = numbers(self.seed.wrapping_add(offset));
        if offset == 0 {
            let mut written = || Written { bytes: 1 + number(40), expires: u64::MAX };
            let keys = 0..self.shape.keys_before;
            return keys.map(|key| Write { key, document: Some(written()) }).collect();
        }
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..1 + number(self.shape.changes) {
            let key = number(self.shape.keys);
            let expires = match number(5) {
                0 => time_of(offset) + 1 + number(5 * MICROS),
                _ => u64::MAX,
            };
            let written = Written { bytes: 1 + number(self.shape.text), expires };
            let document = (number(7) > 0).then_some(written);
            if writes.iter().all(|write| write.key != key) {
                writes.push(Write { key, document });
            }
        }
        writes
    }

    /// From here on the entry may be seen. One that an earlier holder has begun is known.
    fn begin_entry(&self, offset: u64, drops: u64, writes: &[Write]) {
        let mut history = self.history();
        if offset < history.begun {
            return;
        }
        if drops > 0 && drops < DROPS_MAX && offset.is_multiple_of(ENTRIES_PER_DROP) {
            let gone = Version { offset, document: None };
            history.versions.iter_mut().for_each(|versions| versions.push(gone));
        }
        for Write { key, document } in writes {
            let versions = &mut history.versions[*key as usize];
            // Dropped and written again by the same entry.
            versions.retain(|version| version.offset != offset);
            versions.push(Version { offset, document: *document });
        }
        history.begun = offset + 1;
    }

    /// Entries that are surely there, and that may be.
    pub fn done(&self) -> u64 {
        self.history().done
    }

    pub fn begun(&self) -> u64 {
        self.history().begun
    }

    /// Panics unless a key could be found like this: a document of this offset, or none, at a time
    /// between so many entries and so many.
    pub fn judge(&self, key: u64, found: Option<Found>, least: u64, most: u64) {
        let history = self.history();
        let versions = &history.versions[key as usize];
        // Those that were the newest at some moment.
        let first = versions.partition_point(|version| version.offset < least);
        let last = versions.partition_point(|version| version.offset < most);
        let was_absent = first == 0;
        let mut newest = versions[first.saturating_sub(1)..last].iter();
        let is_right = match found {
            Some(found) => newest.any(|version| {
                let Some(Written { bytes, expires }) = version.document else { return false };
                found == Found { offset: version.offset, bytes } && time_after(least) < expires
            }),
            None => {
                let is_gone = |document: Written| document.expires <= time_after(most);
                was_absent || newest.any(|version| version.document.is_none_or(is_gone))
            }
        };
        assert!(
            is_right,
            "a wrong answer: {found:?} for key {key} between {least} and {most}: {versions:?}"
        );
    }

    /// What is known of a key between so many entries and so many.
    pub fn about(&self, key: u64, least: u64, most: u64) -> String {
        let history = self.history();
        format!("key {key} between {least} and {most}: {:?}", history.versions[key as usize])
    }

    /// Whether a key has a document all the time between so many entries and so many.
    pub fn is_lasting(&self, key: u64, least: u64, most: u64) -> bool {
        let history = self.history();
        let versions = &history.versions[key as usize];
        let first = versions.partition_point(|version| version.offset < least);
        let last = versions.partition_point(|version| version.offset < most);
        let lasts = |version: &Version| {
            version.document.is_some_and(|document| time_after(most) < document.expires)
        };
        first > 0 && versions[first - 1..last].iter().all(lasts)
    }
}

/// Which entry has written this document of a key. Panics if none has written it so.
pub fn found(index: &Index, row: &RowRef<'_>, key: u64) -> Found {
    let [a, b] = ["a", "b"].map(|name| index.handle(name, INT64).unwrap());
    let number = |handle| row.scalar::<i64>(handle).expect("a wrong answer").value();
    let offset = number(&a);
    turn();
    assert_eq!(offset, number(&b), "a wrong answer: a torn document of key {key}");
    let offset = offset.expect("a wrong answer: a document without number") as u64;
    let read = row.str(&index.handle("text", STRING).unwrap()).expect("a wrong answer").value();
    let read = read.expect("a wrong answer: a document without text");
    turn();
    let bytes = read.len() as u64;
    assert_eq!(read, text(key, offset, bytes), "a wrong answer: the text of key {key}");
    Found { offset, bytes }
}

/// Rebuilds the partition beside itself.
fn rebuild(followed: &mut Followed) {
    let mut copied = Applied::default();
    let visited = followed.writer.visit_rows(|key, row| {
        copied.writes.push((Key::from_identity_bytes(key), Some(row.to_vec())));
        Ok(())
    });
    visited.unwrap();
    let following = opened();
    followed.writer.start_rebuild().unwrap();
    followed.writer.note_following(following);
    let state = &followed.state;
    copied.clients.extend(state.dedup.windows().into_iter().map(|(client, _)| client));
    followed.writer.apply(&copied, state).unwrap();
    followed.writer.publish_rebuild();
}
