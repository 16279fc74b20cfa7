//! Shared copies: owners that are killed at any moment, concurrent readers, and the state that is
//! left.
//!
//! The owners are processes of their own: this binary again, with a directory in its environment.
//! Every entry is a function of its offset, so any successor knows the next entry. An index in this
//! process's own memory, which the model test verifies, provides the expected documents.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use forebay_core::ErrorCode;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::PartitionState;
use forebay_core::id::{ClientId, LogId, PartitionId, Sequence, StoreId};
use forebay_core::key::Key;
use forebay_core::replica_state::{LogCursor, Phase};
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::value::Value;
use forebay_index::{Image, Index, InitialSource, PartitionWriter, SharedCopyDirectory};

const PARTITION: PartitionId = PartitionId(0);
const KEYS: u64 = 6_000;
const ENTRIES_PER_DROP: u64 = 400;
const DROPS_MAX: usize = 60;
const ROUNDS: u64 = 25;
/// The directory in which an owner process (this binary) finds its copy.
const OWNER_DIR: &str = "FOREBAY_COPY_OWNER";
/// The kind of the owner's copy.
const OWNER_COPY: &str = "FOREBAY_COPY_OWNER_COPY";
/// Less memory than the documents take.
const LITTLE_MEMORY: u64 = 640 * 1_024;

/// Returns a generator of numbers that look random and are the same in each run.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    move |bound| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

fn spec_of_pairs(copy: Copies) -> StoreSpec {
    match copy {
        Copies::Inline => spec(1, &[("a", INT32), ("b", INT32)]),
        _ => spec(1, &[("a", INT64), ("b", INT64), ("text", STRING), ("count", INT64)]),
    }
}

/// The store's definitions: each drops all documents once more than the previous one.
fn definitions(copy: Copies) -> Vec<Definition> {
    let first = spec_of_pairs(copy).define(StoreId(1)).unwrap();
    let next = |definition: &Definition| Some(definition.altered(&[Alteration::DropAll]).unwrap());
    std::iter::successors(Some(first), next).take(DROPS_MAX).collect()
}

fn directory(dir: &Path) -> SharedCopyDirectory {
    SharedCopyDirectory { dir: dir.to_owned(), memory_dir: None }
}

/// The inputs of an index over the store's definitions, and of the entries that it receives.
struct World {
    definitions: Vec<Definition>,
    copy: Copies,
}

/// The kinds of shared copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copies {
    /// Documents of several sizes, with as much memory as they take.
    Usual,
    /// The same documents, with little memory: they spill.
    Spilling,
    /// Small documents, which are in the buckets of their keys.
    Inline,
}

impl Copies {
    /// Returns the kind that the environment of an owner states, as [`start_owner`] has set it.
    fn of_owner() -> Self {
        let name = std::env::var(OWNER_COPY).unwrap_or_default();
        let all = [Self::Spilling, Self::Inline];
        all.into_iter().find(|copy| format!("{copy:?}") == name).unwrap_or(Self::Usual)
    }
}

impl World {
    fn new() -> Self {
        Self::of(Copies::Usual)
    }

    fn of(copy: Copies) -> Self {
        Self { definitions: definitions(copy), copy }
    }

    fn shared(&self, dir: &Path) -> Index {
        let schemas = self.definitions.iter().map(schema_at);
        let index = Index::open_shared(schemas, [PARTITION], 7, directory(dir)).unwrap();
        if self.copy == Copies::Spilling {
            index.limit_memory(LITTLE_MEMORY);
            index.spill_to(dir, 1 << 30);
        }
        index
    }

    fn acquire_writer(&self, index: &Index) -> FollowedPartition {
        let (mut writer, resumed) = index.acquire_writer(PARTITION).unwrap();
        writer.set_phase(Phase::Serving);
        writer.note_cursor(opened());
        let state = resumed.map(|resumed| resumed.state);
        let state = state.unwrap_or_else(|| empty_state(&self.definitions[0], PARTITION));
        FollowedPartition { writer, state }
    }

    fn private(&self) -> (Index, FollowedPartition) {
        let schemas = self.definitions.iter().map(schema_at);
        let index = Index::new(schemas, [PARTITION], 9).unwrap();
        let mut writer: PartitionWriter = index.writer(PARTITION).unwrap();
        writer.set_phase(Phase::Serving);
        (index, FollowedPartition { writer, state: empty_state(&self.definitions[0], PARTITION) })
    }

    /// Applies the next entry.
    fn step(&self, index: &Index, followed: &mut FollowedPartition) {
        let n = followed.state.offset_applied.0;
        let definition = &self.definitions[(n / ENTRIES_PER_DROP) as usize % DROPS_MAX];
        let mut number = numbers(n);
        let count = if n % 50 == 7 { 2_000 } else { 1 + number(40) };
        let changes: Vec<_> = (0..count).map(|i| change(definition, n, i, &mut number)).collect();
        let (first, rest) = changes.split_at(changes.len() / 3);
        let (second, third) = rest.split_at(rest.len() / 2);
        let batch = |client, changes: &[Change]| ClientBatch {
            client: ClientId(client),
            changes: changes.to_vec(),
        };
        // The first client occurs twice, as in the entries of a writer that coalesces requests.
        let client = u128::from(n % 5);
        let batches = vec![batch(client, first), batch(77, second), batch(client, third)];
        let body = EntryBody::Changes(batches);
        followed.append(index, definition, body, n as i64 * 1_000);
    }
}

/// Returns a change of one document with two equal numbers, so that half a change would be
/// detected.
fn change(definition: &Definition, n: u64, i: u64, number: &mut impl FnMut(u64) -> u64) -> Change {
    let key = Key::plain(name(number(KEYS)).as_bytes()).unwrap();
    let sequence = Sequence(n * 2_000 + i + 1);
    let verb = match number(8) {
        0 => Verb::Delete,
        1 | 2 => Verb::Put,
        _ => Verb::Upsert,
    };
    let is_small = definition.field("text").is_none();
    let field = |name: &str| definition.field(name).unwrap().id;
    let set = |name, value| FieldChange {
        field: field(name),
        op: FieldOp::Set(Some(value)),
        ttl_us: None,
    };
    let both_fields = n * 10_000 + i;
    let both_fields =
        if is_small { Value::Int32(both_fields as i32) } else { Value::Int64(both_fields as i64) };
    let mut fields = Vec::new();
    if verb != Verb::Delete {
        fields = vec![set("a", both_fields.clone()), set("b", both_fields)];
    }
    if verb != Verb::Delete && !is_small {
        fields.push(set("text", Value::String("x".repeat(number(200) as usize))));
    }
    if verb == Verb::Upsert && !is_small {
        let op = FieldOp::Increment(Value::Int64(1));
        fields.push(FieldChange { field: field("count"), op, ttl_us: None });
    }
    let ttl_us = (verb != Verb::Delete && number(4) == 0).then(|| 1 + number(40_000) as i64);
    Change { sequence, key, verb, fields, condition: None, ttl_us }
}

fn name(key: u64) -> String {
    format!("key-{key}")
}

/// The owner process: applies entries until it is killed.
#[test]
fn owner_writes_until_killed() {
    let Some(dir) = std::env::var_os(OWNER_DIR) else { return };
    let world = World::of(Copies::of_owner());
    let index = world.shared(Path::new(&dir));
    let mut followed = world.acquire_writer(&index);
    println!("held");
    let last = followed.state.offset_applied.0 + 3_000;
    while followed.state.offset_applied.0 < last {
        world.step(&index, &mut followed);
    }
}

/// Starts a process that holds the copy; returns once it does.
fn start_owner(dir: &Path, copy: Copies) -> Child {
    let mut owner = Command::new(std::env::current_exe().unwrap());
    let owner_test = "shared_copy::owner_writes_until_killed";
    owner.args([owner_test, "--exact", "--nocapture", "--test-threads=1"]);
    owner.env(OWNER_DIR, dir).env(OWNER_COPY, format!("{copy:?}")).stdout(Stdio::piped());
    let mut child = owner.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_held = |line: std::io::Result<String>| line.unwrap().contains("held");
    assert!({ lines }.any(is_held), "the owner ended before it held the copy");
    child
}

/// Checks that each document equals that of the other index.
fn assert_same(index: &Index, state: &PartitionState, oracle: &Index, expected: &PartitionState) {
    assert_eq!(state, expected);
    let now = at(state.partition_time.as_micros());
    let (view, oracle) = (index.view(now), oracle.view(now));
    let mut found = 0;
    for key in (0..KEYS).map(name) {
        let document = view.get_document(key.as_str()).unwrap();
        assert_eq!(document, oracle.get_document(key.as_str()).unwrap(), "{key}");
        found += u32::from(document.is_some());
    }
    let mut scan = index.scan();
    let mut scanned = 0;
    while scan.next_batch(now, 1_000, |_| Ok(())).unwrap().tap(|n| scanned += n) > 0 {}
    assert_eq!(scanned, found as usize);
}

trait Tap: Sized + Copy {
    fn tap(self, action: impl FnOnce(Self)) -> Self {
        action(self);
        self
    }
}

impl Tap for usize {}

/// Reads until stopped: no document is half written, and the position never decreases.
fn read_until(is_done: &AtomicBool, index: &Index, highest: &AtomicU64, reads: &AtomicU64) {
    let [a, b] = ["a", "b"].map(|name| index.field(name).unwrap());
    let mut number = numbers(5);
    while !is_done.load(Ordering::Relaxed) {
        let offset = index.status(PARTITION).unwrap().progress.offset_applied.0;
        let before = highest.fetch_max(offset, Ordering::Relaxed);
        assert!(offset >= before, "the position fell from {before} to {offset}");
        let keys: Vec<_> = (0..64).map(|_| name(number(KEYS))).collect();
        let view = index.view(at(0));
        for key in &keys {
            let Some(row) = view.get(key.as_str()).unwrap() else { continue };
            assert_eq!(row.value(&a).unwrap(), row.value(&b).unwrap());
        }
        let read = view.get_many(&keys[..], |_, answer| {
            if let forebay_index::KeyAnswer::Found(row) = answer {
                assert_eq!(row.value(&a)?, row.value(&b)?);
            }
            Ok(())
        });
        read.unwrap();
        reads.fetch_add(128, Ordering::Relaxed);
    }
}

#[test]
fn killed_owner_leaves_one_position_and_readers_continue() {
    kill_owners(&World::new());
}

#[test]
fn killed_spilling_owner_leaves_one_position_and_readable_spilled_records() {
    kill_owners(&World::of(Copies::Spilling));
}

#[test]
fn killed_owner_of_inline_records_leaves_one_position() {
    kill_owners(&World::of(Copies::Inline));
}

fn kill_owners(world: &World) {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path()).make(StoreId(1), [PARTITION], 3).unwrap();
    let index = world.shared(dir.path());
    drop(world.acquire_writer(&index));
    let (oracle, mut expected) = world.private();
    let mut spilled = 0;
    let (is_done, highest, reads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&is_done, &index, &highest, &reads));
        let _stops = Stops(&is_done);
        let mut number = numbers(u64::from(std::process::id()));
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                index.prepare();
            }
            let mut owner = start_owner(dir.path(), world.copy);
            std::thread::sleep(Duration::from_micros(number(30_000)));
            owner.kill().unwrap();
            owner.wait().unwrap();
            let highest_read = highest.load(Ordering::Relaxed);
            let mut followed = world.acquire_writer(&index);
            let offset = followed.state.offset_applied;
            assert!(offset.0 >= highest_read, "round {round}: {offset} behind {highest_read}");
            while expected.state.offset_applied < offset {
                world.step(&oracle, &mut expected);
            }
            assert_same(&index, &followed.state, &oracle, &expected.state);
            // This process then continues as the owner.
            for _ in 0..20 {
                world.step(&index, &mut followed);
                world.step(&oracle, &mut expected);
            }
            assert_same(&index, &followed.state, &oracle, &expected.state);
            spilled = spilled.max(index.memory().spilled);
        }
    });
    assert_eq!(spilled > 0, world.copy == Copies::Spilling);
    let applied = expected.state.offset_applied.0;
    assert!(applied > ROUNDS * 20, "no owner ever came to write: {applied}");
    assert!(reads.load(Ordering::Relaxed) > 0);
}

/// Stops the readers even if the test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn unusable_shared_copy_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let copy_directory = directory(dir.path());
    let missing = Index::open_shared(
        [schema_at(&world.definitions[0])],
        [PARTITION],
        7,
        copy_directory.clone(),
    );
    assert_eq!(missing.unwrap_err().code(), ErrorCode::NotFound);
    assert!(!copy_directory.is_made(StoreId(1), [PARTITION]));
    copy_directory.make(StoreId(1), [PARTITION], 3).unwrap();
    assert!(copy_directory.is_made(StoreId(1), [PARTITION]));
    let index = world.shared(dir.path());
    let mut followed = world.acquire_writer(&index);
    (0..30).for_each(|_| world.step(&index, &mut followed));
    drop(followed);
    // No owner can continue a copy whose space is gone.
    let spaces = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|name| name.unwrap().path());
        names.filter(|path| path.to_string_lossy().contains("forebay-")).collect::<Vec<_>>()
    };
    spaces().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let (_writer, resumed) = index.acquire_writer(PARTITION).unwrap();
    assert_eq!(resumed, None);
    let status = index.status(PARTITION).unwrap();
    assert_eq!((status.phase, status.usage.documents), (Phase::Bootstrapping, 0));
    assert_eq!(spaces().len(), 1);
    // The same happens if no process has the copy mapped.
    drop((_writer, index));
    spaces().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    copy_directory.make(StoreId(1), [PARTITION], 3).unwrap();
    let index = world.shared(dir.path());
    let mut followed = world.acquire_writer(&index);
    (0..30).for_each(|_| world.step(&index, &mut followed));
    assert_eq!(followed.state.offset_applied.0, 30);
    // The next owner removes old files that no header leads to, and keeps all others.
    let orphan = dir.path().join("forebay-00000000000000ff-0000000000000001-0000-1");
    let mut first = vec![0; 4_096];
    std::fs::File::open(&spaces()[0]).unwrap().read_exact(&mut first).unwrap();
    std::fs::write(&orphan, first).unwrap();
    copy_directory.make(StoreId(1), [PARTITION], 3).unwrap();
    assert!(orphan.exists(), "its header may be on its way");
    let hour = Duration::from_secs(3_600);
    for path in spaces() {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(file.metadata().unwrap().modified().unwrap() - hour).unwrap();
    }
    copy_directory.make(StoreId(1), [PARTITION], 3).unwrap();
    assert!(!orphan.exists());
    assert_eq!(spaces().len(), 1);
}

/// Returns an image of an index's documents.
fn image_of(followed: &FollowedPartition) -> Image {
    let mut bytes = Bytes::default();
    followed.writer.write_image(Vec::new(), &mut bytes).unwrap();
    Image::open(Arc::new(bytes)).unwrap()
}

/// Returns an index whose readers begin with an image.
fn begun_with(world: &World, image: &Image, dir: &Path) -> Index {
    let following = LogCursor { log_id: Some(LogId(9)), ..opened() };
    let initial_sources = [(PARTITION, InitialSource::from_image(image, following).unwrap())];
    let schemas = world.definitions.iter().map(schema_at);
    Index::open_from_sources(schemas, initial_sources, 7, directory(dir)).unwrap()
}

#[test]
fn readers_of_an_image_switch_to_the_copy_made_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let (oracle, mut expected) = world.private();
    (0..600).for_each(|_| world.step(&oracle, &mut expected));
    let image = image_of(&expected);
    let index = begun_with(&world, &image, dir.path());
    assert_eq!(index.status(PARTITION).unwrap().progress, expected.writer.progress());
    assert_same(&index, &expected.state, &oracle, &expected.state);
    assert_eq!(index.memory().used, 0, "its pages are those of the file");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "there is no copy");
    assert!(!index.switch_to_shared_copy(PARTITION).unwrap());
    let (is_done, highest, reads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&is_done, &index, &highest, &reads));
        let _stops = Stops(&is_done);
        // A scan that begins in the image ends in the shared copy, and sees each document once.
        let now = at(expected.state.partition_time.as_micros());
        let mut scan = index.scan();
        let first_batch = scan.next_batch(now, 500, |_| Ok(())).unwrap();
        let (mut writer, resumed) = index.acquire_writer(PARTITION).unwrap();
        assert_eq!(resumed, None);
        writer.start_rebuild_from_image(&image, &expected.state).unwrap();
        writer.note_cursor(opened());
        writer.publish_rebuild();
        assert!(!index.switch_to_shared_copy(PARTITION).unwrap(), "it does not serve yet");
        writer.set_phase(Phase::Serving);
        assert!(index.switch_to_shared_copy(PARTITION).unwrap());
        let (mut scanned, mut all) = (first_batch, 0);
        while scan.next_batch(now, 500, |_| Ok(())).unwrap().tap(|n| scanned += n) > 0 {}
        let mut oracle_scan = oracle.scan();
        while oracle_scan.next_batch(now, 500, |_| Ok(())).unwrap().tap(|n| all += n) > 0 {}
        assert_eq!(scanned, all);
        let mut followed = FollowedPartition { writer, state: expected.state.clone() };
        assert_same(&index, &followed.state, &oracle, &expected.state);
        for _ in 0..200 {
            world.step(&index, &mut followed);
            world.step(&oracle, &mut expected);
        }
        assert_same(&index, &followed.state, &oracle, &expected.state);
        let before = reads.load(Ordering::Relaxed);
        while reads.load(Ordering::Relaxed) < before + 1_000 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn copy_behind_an_image_does_not_replace_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let (oracle, mut expected) = world.private();
    (0..50).for_each(|_| world.step(&oracle, &mut expected));
    let index = begun_with(&world, &image_of(&expected), dir.path());
    let mut followed = world.acquire_writer(&index);
    for _ in 0..49 {
        world.step(&index, &mut followed);
        assert!(!index.switch_to_shared_copy(PARTITION).unwrap());
    }
    assert_same(&index, &expected.state, &oracle, &expected.state);
    world.step(&index, &mut followed);
    assert!(index.switch_to_shared_copy(PARTITION).unwrap());
    assert_same(&index, &followed.state, &oracle, &expected.state);
    // A later process begins with the shared copy, and does not know of any image.
    let other = world.shared(dir.path());
    assert!(other.switch_to_shared_copy(PARTITION).unwrap());
    assert_same(&other, &followed.state, &oracle, &expected.state);
}

/// Counts this process's mappings of a file, including a file whose name was removed.
fn mappings_of(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(path.to_str().unwrap())).count()
}

#[test]
fn space_of_the_first_reader_stays_until_the_reader_ends() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    directory(dir.path()).make(StoreId(1), [PARTITION], 3).unwrap();
    let owner = world.shared(dir.path());
    let mut followed = world.acquire_writer(&owner);
    (0..30).for_each(|_| world.step(&owner, &mut followed));
    let names = std::fs::read_dir(dir.path()).unwrap().map(|name| name.unwrap().path());
    let mut spaces = names.filter(|path| path.to_string_lossy().contains("forebay-"));
    let (space, reader) = (spaces.next().unwrap(), world.shared(dir.path()));
    // The early reader enters before `prepare`, and the other space is mapped before it leaves.
    let early = reader.memory_lines().unwrap();
    followed.writer.start_rebuild().unwrap();
    followed.writer.publish_rebuild();
    let read = || reader.view(at(0)).get_document("key-1");
    assert_eq!(read().unwrap(), None, "the other space is empty");
    reader.prepare();
    for _ in 0..3 {
        reader.collect_garbage();
        read().unwrap();
    }
    let mapped = mappings_of(&space);
    assert!(early.load(0, 0).is_some());
    drop(early);
    reader.collect_garbage();
    assert!(mappings_of(&space) < mapped);
}

/// Counts the bytes of this process's mappings of a directory's files that are in huge pages.
fn huge_bytes(dir: &Path) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_ours, mut huge) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("ShmemPmdMapped:") if is_ours => {
                huge += 1_024 * words.next().unwrap().parse::<u64>().unwrap();
            }
            Some(first) if !first.ends_with(':') => is_ours = line.contains(dir.to_str().unwrap()),
            _ => {}
        }
    }
    huge
}

/// Proves that a copy moves into huge pages under its readers and its writer, without any effect on
/// them.
#[test]
fn copy_moved_into_huge_pages_preserves_its_documents() {
    const DOCUMENTS: u64 = 60_000;
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return println!("there is no memory file system here: nothing to test");
    };
    let mut store = Store::shared(spec(1, &[("text", STRING)]), dir.path());
    let text = |n: u64, turn: u64| Some(Value::String(format!("{n} {turn} {:0100}", n ^ turn)));
    let write = |store: &mut Store, turn: u64, step: u64| {
        for first in (0..DOCUMENTS).step_by(2_000) {
            let numbers = (first..first + 2_000).filter(|n| n.is_multiple_of(step));
            let changes: Vec<_> = numbers
                .map(|n| store.upsert(&format!("k{n}"), &[("text", text(n, turn))]))
                .collect();
            store.write(changes, 1_000 + turn as i64);
        }
    };
    write(&mut store, 0, 1);
    let reading = AtomicBool::new(true);
    let index = store.index.clone();
    let handle = index.field_as("text", STRING).unwrap();
    let check = |turns: &dyn Fn(u64) -> std::ops::RangeInclusive<u64>, n: u64| {
        let read = index.view(at(2_000)).get_str_owned(&handle, &format!("k{n}")).unwrap().value();
        let found = turns(n).find(|turn| text(n, *turn) == read.clone().map(Value::String));
        assert!(found.is_some(), "document {n} is {read:?}");
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut next = numbers(3);
            while reading.load(Ordering::Relaxed) {
                check(&|_| 0..=9, next(DOCUMENTS));
            }
        });
        for turn in 1..=9 {
            if let Some(maintenance_task) = store.partitions[&PARTITION].writer.maintenance_task() {
                maintenance_task.run();
            }
            write(&mut store, turn, turn);
        }
        reading.store(false, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let last = |n: u64| (1..=9).rev().find(|turn| n.is_multiple_of(*turn)).unwrap();
    (0..DOCUMENTS).for_each(|n| check(&|n| last(n)..=last(n), n));
    assert!(store.partitions[&PARTITION].writer.maintenance_task().is_none(), "a part is left");
    println!("{} bytes of the copy's mappings lie in huge pages", huge_bytes(dir.path()));
}

#[test]
fn reader_uses_its_definition_until_it_knows_a_newer_definition() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::shared(spec(1, &[("a", INT64), ("b", INT64)]), dir.path());
    let [a, b] = [("a", Some(Value::Int64(1))), ("b", Some(Value::Int64(2)))];
    let old_change = store.upsert("old", &[a.clone(), b.clone()]);
    store.write(vec![old_change], 1);
    let first = schema_at(&store.definition);
    let reader = Index::open_shared([first], [PARTITION], 7, directory(dir.path())).unwrap();
    let get = |key: &str| reader.view(at(1)).get_document(key).map(|found| found.is_some());
    store.alter(&[Alteration::DropField("b".to_owned())], 2);
    // The read answers as it did a moment before.
    assert_eq!(get("old"), Ok(true));
    assert_eq!(get("nobody"), Ok(false));
    let new_change = store.upsert("new", &[a]);
    store.write(vec![new_change], 3);
    assert_eq!(get("new").unwrap_err().code(), ErrorCode::Unavailable);
    let handle = reader.field("b").unwrap();
    let read = || reader.view(at(1)).get_scalar::<i64>(&handle, "old").unwrap();
    assert_eq!(read().value(), Some(2));
    reader.schemas().add(schema_at(&store.definition)).unwrap();
    assert_eq!(get("new"), Ok(true));
    assert_eq!(read().value(), None, "the field was dropped");
}
