//! Spilled documents: they are read, changed, stored in images and removed like any other, and a
//! failing disk causes an error and never a wrong answer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::images::{blocks, damage, parities, without_parity};
use crate::support::*;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::{FoldEffects, FoldError};
use forebay_core::id::{ClientId, PartitionId, StoreId};
use forebay_core::replica_state::Phase;
use forebay_core::value::Value;
use forebay_core::{ErrorCode, Result};
use forebay_index::{Image, Index, KeyStatus};

const PARTITION: PartitionId = PartitionId(0);
const DOCUMENTS: u64 = 20_000;
const MIB: u64 = 1 << 20;

fn text(n: u64) -> String {
    format!("{n} {:0150}", n * 7)
}

fn key(n: u64) -> String {
    format!("key-{n}")
}

/// Returns a store with a megabyte of memory, far less than its documents take.
fn small(spill_to: &Path, spill_bytes: u64) -> Store {
    let store = Store::new(spec(1, &[("text", STRING), ("count", INT64)]));
    store.index.limit_memory(MIB);
    store.index.spill_to(spill_to, spill_bytes);
    store
}

/// Returns the same store in files that others may read, with its spill file next to them.
fn small_in_files(dir: &Path) -> Store {
    let store = Store::shared(spec(1, &[("text", STRING), ("count", INT64)]), dir);
    store.index.limit_memory(MIB);
    store.index.spill_to(dir, 64 * MIB);
    store
}

fn document(store: &mut Store, n: u64) -> Change {
    let fields = [("text", Some(Value::String(text(n)))), ("count", Some(Value::Int64(n as i64)))];
    store.upsert(&key(n), &fields)
}

fn increment(store: &mut Store, n: u64) -> Change {
    let op = FieldOp::Increment(Value::Int64(1));
    let field = store.field("count");
    store.change(&key(n), Verb::Upsert, vec![FieldChange { field, op, ttl_us: None }], None)
}

/// Writes changes of these documents, a few hundred per entry.
fn write(store: &mut Store, documents: &[u64], change: impl Fn(&mut Store, u64) -> Change) {
    for chunk in documents.chunks(300) {
        let changes = chunk.iter().map(|n| change(store, *n)).collect();
        store.write(changes, 1_000);
    }
}

/// Checks by every kind of read that each document has its text and this count.
fn check(index: &Index, count: impl Fn(u64) -> Option<i64>) {
    let texts = index.field_as("text", STRING).unwrap();
    let counts = index.field_as("count", INT64).unwrap();
    let view = index.view(at(2_000));
    for n in 0..DOCUMENTS {
        let found = view.get_str_owned(&texts, &key(n)).unwrap().value();
        assert_eq!(found, count(n).map(|_| text(n)), "text of {n}");
        let found = view.get(key(n).as_str()).unwrap();
        let found = found.map(|row| row.scalar::<i64>(&counts).unwrap().value().unwrap());
        assert_eq!(found, count(n), "count of {n}");
    }
    let keys: Vec<_> = (0..DOCUMENTS).map(key).collect();
    for (turn, keys) in keys.chunks(500).enumerate() {
        let documents = view.get_documents(keys).unwrap();
        for (place, (status, _)) in documents.iter().enumerate() {
            let n = (turn * 500 + place) as u64;
            let expected = count(n).map_or(KeyStatus::Absent, |_| KeyStatus::Found);
            assert_eq!(*status, expected, "status of {n}");
        }
    }
    let (mut scan, mut scanned) = (index.scan(), 0);
    loop {
        let found = scan.next_batch(at(2_000), 700, |_| Ok(())).unwrap();
        scanned += found;
        if found == 0 {
            break;
        }
    }
    assert_eq!(scanned as u64, (0..DOCUMENTS).filter(|n| count(*n).is_some()).count() as u64);
}

/// Checks that a memory-only reader gets an error for spilled documents, and reads documents in
/// memory.
fn check_memory_alone(index: &Index) {
    let view = index.view(at(2_000).only_memory());
    let [mut found, mut spilled] = [0, 0];
    for n in 0..DOCUMENTS {
        match view.get(key(n).as_str()) {
            Ok(row) => found += i32::from(row.is_some()),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                spilled += 1;
            }
        }
    }
    assert!(found > 500 && spilled > 10_000, "{found} found, {spilled} spilled");
}

#[test]
fn documents_beyond_the_memory_limit_are_read_and_changed_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small(dir.path(), 64 * MIB);
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    check_memory_alone(&store.index);
    let memory = store.index.memory();
    assert!(memory.used <= MIB, "{memory:?}");
    assert!(memory.spilled >= 3 * MIB && memory.spilled <= 8 * MIB, "{memory:?}");
    check(&store.index, |n| Some(n as i64));
    // The fold increments documents that are on disk.
    let thirds: Vec<_> = (0..DOCUMENTS).step_by(3).collect();
    write(&mut store, &thirds, increment);
    check(&store.index, |n| Some(n as i64 + i64::from(n % 3 == 0)));
    write(&mut store, &thirds, |store, n| store.delete(&key(n)));
    check(&store.index, |n| (n % 3 != 0).then_some(n as i64));
    assert!(store.index.memory().used <= MIB);
    // The disk space is reclaimed, except in segments that are less than half dead.
    let rest: Vec<_> = (0..DOCUMENTS).filter(|n| n % 3 != 0).collect();
    write(&mut store, &rest, |store, n| store.delete(&key(n)));
    write(&mut store, &[1; 3_000], |store, n| store.delete(&key(n)));
    check(&store.index, |_| None);
    let spilled = store.index.memory().spilled;
    assert!(spilled <= 4 * MIB, "{spilled} bytes are spilled still");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a file has kept its name");
}

#[test]
fn full_disk_refuses_entries_until_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small(dir.path(), 4 * MIB);
    let mut last = 0;
    let refusal = loop {
        let changes = (last..last + 100).map(|n| document(&mut store, n)).collect();
        let (effects, followed) = fold(&mut store, changes);
        match followed.writer.apply(&effects, &followed.state) {
            Ok(()) => last += 100,
            Err(error) => break (error, effects),
        }
    };
    let (error, effects) = refusal;
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert!(error.message().contains("spill"), "{error}");
    assert!(last >= 5_000, "{last} documents fit into five megabytes");
    let memory = store.index.memory();
    assert!(memory.used <= MIB && memory.spilled <= 4 * MIB, "{memory:?}");
    for n in 0..last {
        assert!(store.index.view(at(0)).get(key(n).as_str()).unwrap().is_some(), "{n}");
    }
    store.index.spill_to(dir.path(), 64 * MIB);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.writer.apply(&effects, &followed.state).unwrap();
    assert!(store.index.view(at(0)).get(key(last).as_str()).unwrap().is_some());
}

#[test]
fn entry_larger_than_the_memory_is_refused_until_the_limit_is_raised() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small(dir.path(), 64 * MIB);
    let all: Vec<_> = (0..8_000).collect();
    write(&mut store, &all, document);
    // The documents take some 150 bytes each: more than a megabyte.
    let changes = (0..9_000).map(|n| document(&mut store, DOCUMENTS + n)).collect();
    let (effects, followed) = fold(&mut store, changes);
    let error = followed.writer.apply(&effects, &followed.state).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert!(store.index.view(at(0)).get(key(7_999).as_str()).unwrap().is_some());
    assert!(store.index.view(at(0)).get(key(DOCUMENTS).as_str()).unwrap().is_none());
    store.index.limit_memory(4 * MIB);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.writer.apply(&effects, &followed.state).unwrap();
    for n in (0..8_000).chain(DOCUMENTS..DOCUMENTS + 9_000) {
        assert!(store.index.view(at(0)).get(key(n).as_str()).unwrap().is_some(), "{n}");
    }
}

/// Folds changes into the state, without applying them to the index.
fn try_fold(
    store: &mut Store,
    changes: Vec<Change>,
) -> (std::result::Result<FoldEffects, FoldError>, &mut FollowedPartition) {
    let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(5), changes }]);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    let effects = followed.fold(&store.index, &store.definition, body, 1_000);
    (effects, followed)
}

fn fold(store: &mut Store, changes: Vec<Change>) -> (FoldEffects, &mut FollowedPartition) {
    let (effects, followed) = try_fold(store, changes);
    (effects.unwrap(), followed)
}

/// Replaces the content of a store by that of an image.
fn restore(store: &mut Store, bytes: &[u8], source: &Store) -> Result<()> {
    let image = Image::open(Arc::new(Bytes(bytes.to_vec())))?;
    let state = source.partitions[&PARTITION].state.clone();
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.writer.start_rebuild_from_image(&image, &state)?;
    followed.writer.publish_rebuild();
    followed.writer.set_phase(Phase::Serving);
    followed.state = state;
    store.write_as(source);
    Ok(())
}

#[test]
fn image_contains_spilled_records_and_an_index_continues_from_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut store = small(dirs[0].path(), 64 * MIB);
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    let mut bytes = Bytes::default();
    store.partitions[&PARTITION].writer.write_image(Vec::new(), &mut bytes).unwrap();
    let bytes = bytes.0;
    Image::open(Arc::new(Bytes(bytes.clone()))).unwrap().verify().unwrap();

    let mut nowhere = Store::new(spec(1, &[("text", STRING), ("count", INT64)]));
    let error = restore(&mut nowhere, &bytes, &store).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");

    let shared = small_in_files(dirs[1].path());
    for mut other in [small(dirs[1].path(), 64 * MIB), shared] {
        restore(&mut other, &bytes, &store).unwrap();
        check(&other.index, |n| Some(n as i64));
        let memory = other.index.memory();
        assert!(memory.used <= MIB + MIB / 8 && memory.spilled >= 3 * MIB, "{memory:?}");
        let fifths: Vec<_> = (0..DOCUMENTS).step_by(5).collect();
        write(&mut other, &fifths, increment);
        check(&other.index, |n| Some(n as i64 + i64::from(n % 5 == 0)));
        assert!(other.index.memory().used <= MIB);
    }
}

#[test]
fn image_repairs_its_spilled_part_and_opens_without_parity() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let mut store = small(dirs[0].path(), 64 * MIB);
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    let mut bytes = Bytes::default();
    store.partitions[&PARTITION].writer.write_image(Vec::new(), &mut bytes).unwrap();
    let mut bytes = bytes.0;
    let before = without_parity(&bytes, 2);
    let (blocks, parities) = (blocks(&bytes), parities(&bytes));
    assert!(parities > 2);
    // Spilled blocks come last.
    damage(&mut bytes, blocks - parities, parities);
    let shared = Store::shared(spec(1, &[("text", STRING), ("count", INT64)]), dirs[1].path());
    shared.index.spill_to(dirs[1].path(), 64 * MIB);
    for mut other in [small(dirs[2].path(), 64 * MIB), shared] {
        restore(&mut other, &bytes, &store).unwrap();
        let writer = &other.partitions[&PARTITION].writer;
        assert_eq!(writer.blocks_repaired(), parities as u64);
        check(&other.index, |n| Some(n as i64));
        assert!(other.index.memory().spilled >= 3 * MIB);
    }
    damage(&mut bytes, blocks - 2 * parities, 1);
    let mut other = small(dirs[3].path(), 64 * MIB);
    let error = restore(&mut other, &bytes, &store).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
    restore(&mut other, &before, &store).unwrap();
    check(&other.index, |n| Some(n as i64));
}

/// Returns the only spill file of a directory.
fn spill_file(dir: &Path) -> PathBuf {
    let names = std::fs::read_dir(dir).unwrap().map(|name| name.unwrap().path());
    let mut files: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|end| end == "spill")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn flipped_spilled_byte_is_never_served_and_stops_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small_in_files(dir.path());
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    let file = File::options().read(true).write(true).open(spill_file(dir.path())).unwrap();
    // Every record in these bytes gets one wrong byte.
    let mut bytes = vec![0; MIB as usize];
    file.read_exact_at(&mut bytes, 2 * MIB).unwrap();
    bytes.iter_mut().skip(64).step_by(50).for_each(|byte| *byte ^= 0x10);
    file.write_all_at(&bytes, 2 * MIB).unwrap();
    let reader = store.index.clone();
    let view = reader.view(at(2_000));
    let texts = reader.field_as("text", STRING).unwrap();
    let mut damaged = 0;
    for n in 0..DOCUMENTS {
        match view.get_str_owned(&texts, &key(n)) {
            Ok(found) => assert_eq!(found.value(), Some(text(n))),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 1_000, "{damaged} documents were found damaged");
    let found = store.partitions[&PARTITION].writer.check_integrity().unwrap_err();
    assert_eq!(found.code(), ErrorCode::Corrupt, "what a reader found");
    let keys: Vec<_> = (0..500).map(key).collect();
    let statuses = view.get_documents(&keys[..]).unwrap();
    assert!(statuses.iter().any(|(status, _)| *status == KeyStatus::Unavailable));
    // The fold must not take a damaged document for an absent one.
    let changes = (0..16_000).map(|n| increment(&mut store, n)).collect();
    let before = store.partitions[&PARTITION].state.clone();
    let (outcome, followed) = try_fold(&mut store, changes);
    match outcome.unwrap_err() {
        FoldError::Unreadable(error) => assert_eq!(error.code(), ErrorCode::Corrupt, "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(followed.state, before, "the fold is where it was");
}

#[test]
fn spill_files_are_removed_with_their_copy() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small_in_files(dir.path());
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    let before = spill_file(dir.path());
    let reader = store.index.clone();
    store.take_over(PARTITION);
    check(&reader, |n| Some(n as i64));
    assert_eq!(spill_file(dir.path()), before);
    assert!(store.index.memory().spilled >= 3 * MIB);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.writer.start_rebuild().unwrap();
    followed.writer.publish_rebuild();
    assert!(!before.exists(), "the space was replaced");
    drop(store);
    let directory =
        forebay_index::SharedCopyDirectory { dir: dir.path().to_owned(), memory_dir: None };
    directory.remove(StoreId(1), [PARTITION]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Documents on disk are removed like others, even if the owner was killed during the removal.
#[test]
fn successor_frees_spilled_records_of_a_finished_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = small_in_files(dir.path());
    let all: Vec<_> = (0..DOCUMENTS).collect();
    write(&mut store, &all, document);
    assert!(store.index.memory().spilled > 0);
    let deleted = [0, 1, 2];
    assert!(deleted.iter().all(|n| {
        let read = store.index.view(at(2_000).only_memory()).get(key(*n).as_str()).map(drop);
        read.is_err_and(|error| error.code() == ErrorCode::Unavailable)
    }));
    write(&mut store, &deleted, |store, n| store.delete(&key(n)));
    let FollowedPartition { writer, state } = store.partitions.remove(&PARTITION).unwrap();
    drop(writer);
    // This simulates a kill before the owner noted that the entry is fully shown: `shared-copy.md`.
    let (turn_of_header, redo_turn_of_space) = (64, 88);
    let (mut header, mut spaces) = (None, Vec::new());
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match () {
            () if name.starts_with("live-") => header = Some(path),
            () if name.starts_with("forebay-") && !name.ends_with(".spill") => spaces.push(path),
            () => {}
        }
    }
    let mut turn = [0; 8];
    File::open(header.unwrap()).unwrap().read_exact_at(&mut turn, turn_of_header).unwrap();
    assert!(u64::from_le_bytes(turn) > 0 && spaces.len() == 1);
    let space = File::options().write(true).open(&spaces[0]).unwrap();
    space.write_all_at(&turn, redo_turn_of_space).unwrap();

    let (_writer, resumed) = store.index.acquire_writer(PARTITION).unwrap();
    assert_eq!(resumed.map(|resumed| resumed.state), Some(state));
    check(&store.index, |n| (!deleted.contains(&n)).then_some(n as i64));
}
