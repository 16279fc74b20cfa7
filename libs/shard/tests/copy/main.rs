//! Copies of shards. The tests prove that every row or file arrives, in ranges of about equal
//! bytes, over interruptions at any part; and that contents that do not match their digest never
//! become a shard.

mod abandoned_imports;
mod files;
mod rows;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use forebay_core::key::KeyType;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Export, ExportMode, Import, PartBlock, PartEnd, PartSource};
use forebay_testkit::random::SeededRng;
use forebay_wire::shard_copy::RowsBlock;
use support::*;

const RANGES: usize = 8;
const MODES: [ExportMode; 2] = [ExportMode::Rows { ranges_max: RANGES }, ExportMode::Files];
const ONE_RANGE: ExportMode = ExportMode::Rows { ranges_max: 1 };

/// A source of a range or a file that breaks off.
struct Stream<N> {
    next: N,
    /// Parts that arrive before the source breaks off inside the next one.
    parts_left: usize,
}

impl<N: FnMut() -> Result<(Vec<u8>, Option<PartEnd>)>> PartSource for Stream<N> {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> Result<PartBlock<Vec<u8>>> {
        let (bytes, end) = (self.next)()?;
        if end.is_some() {
            if self.parts_left == 0 {
                return Err(Error::unavailable("it breaks off"));
            }
            self.parts_left -= 1;
        }
        Ok(PartBlock { bytes, end, was_compressed: true })
    }
}

/// Copies at most `parts` parts of a range or a file from its progress on; returns whether it has
/// ended.
fn copy_range(export: &Export, import: &Import, range: usize, parts: usize) -> bool {
    let progress = import.range(range);
    if progress.is_ended {
        return true;
    }
    if export.plan().files.is_empty() {
        let mut rows = export.rows(range, progress.last_key.as_deref()).unwrap();
        let next = || {
            let mut block = RowsBlock::default();
            let end = rows.next(&mut block)?;
            Ok((block.bytes().to_vec(), end))
        };
        return write(import, range, Stream { next, parts_left: parts });
    }
    let mut file = export.file(range, progress.bytes).unwrap();
    write(import, range, Stream { next: || file.next_block(), parts_left: parts })
}

/// Writes parts until a range ends or its source breaks off; returns whether the range has ended.
fn write(import: &Import, range: usize, mut source: impl PartSource) -> bool {
    loop {
        match import.write_part(range, &mut source) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                return false;
            }
        }
    }
}

fn copy_all(export: &Export, import: &Import) {
    for range in 0..import.ranges().len() {
        assert!(copy_range(export, import, range, usize::MAX));
    }
}

/// Returns the digest of all rows of an export of rows, and the bytes of each range.
fn digest(export: &Export) -> (RowsDigest, Vec<u64>) {
    let (mut all, mut sizes) = (RowsDigest::default(), Vec::new());
    for range in 0..export.plan().ranges.len() {
        let (mut rows, mut bytes) = (export.rows(range, None).unwrap(), 0);
        loop {
            let mut block = RowsBlock::default();
            let end = rows.next(&mut block).unwrap();
            bytes += block.bytes().len() as u64;
            all.merge(end.map(|end| end.digest).unwrap_or_default());
            if end.is_some_and(|end| end.is_range_end) {
                break;
            }
        }
        sizes.push(bytes);
    }
    (all, sizes)
}

/// Returns a shard with some entries of the log, and `documents` more documents.
fn fill_replica<'w>(world: &'w World, dir: &Path, documents: usize) -> Replica<'w> {
    let mut replica = world.resume(dir);
    (0..50).for_each(|_| drop(replica.step()));
    replica.fill(documents);
    replica
}

/// Freezes a shard for copies in this mode.
fn freeze(replica: &Replica<'_>, place: &Path, mode: ExportMode) -> Export {
    Export::create(replica.writer.shard(), "users", place, 1, mode).unwrap()
}

/// Returns the folder of the only copy in progress.
fn folder_of_copy(dir: &Path) -> PathBuf {
    let mut names = std::fs::read_dir(dir).unwrap().map(|name| name.unwrap().path());
    let is_copy = |path: &PathBuf| {
        path.is_dir() && path.file_name().unwrap().to_string_lossy().starts_with("copy-")
    };
    names.find(is_copy).unwrap()
}

#[test]
fn copy_equals_the_frozen_shard_and_follows_the_log() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let mut replica = fill_replica(&world, from.path(), 120_000);
    let frozen_documents = replica.live();
    let place = |name: &str| from.path().join("copies").join(name);
    let rows = freeze(&replica, &place("1"), MODES[0]);
    let files = freeze(&replica, &place("2"), MODES[1]);
    let at = replica.state.offset_applied;
    // Later entries do not belong to the frozen shard.
    (0..50).for_each(|_| drop(replica.step()));
    let (expected, sizes) = digest(&rows);
    assert!(sizes.len() > RANGES / 2, "{sizes:?}");
    let (smallest, largest) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*largest < 2 * smallest, "ranges of equal bytes: {sizes:?}");
    for export in [rows, files] {
        let to = tempfile::tempdir().unwrap();
        let directory = directory(to.path());
        let import = directory.begin_import(export.plan().clone()).unwrap();
        copy_all(&export, &import);
        if export.plan().files.is_empty() {
            assert_eq!(import.digest(), expected);
        } else {
            assert_eq!(import.digest(), RowsDigest::default(), "nobody has counted");
        }
        directory.take_in(import).unwrap();
        let mut copy = world.resume(to.path());
        assert_eq!(copy.state.offset_applied, at);
        assert!(copy.live() == frozen_documents);
        // The copy compacts on its own: it holds at most the expired documents of its source.
        let copied_digest = digest(&freeze(&copy, &to.path().join("copies/1"), MODES[0])).0;
        assert!(copied_digest.rows <= expected.rows, "{copied_digest:?}, {expected:?}");
        (0..50).for_each(|_| drop(copy.step()));
        assert!(copy.live() == replica.live());
    }
}

#[test]
fn copy_resumes_after_its_durable_parts() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 60_000);
    for mode in MODES {
        let (to, mut dice) = (tempfile::tempdir().unwrap(), SeededRng::new(5));
        let (mut turns, mut breaks) = (0, 0);
        let place = from.path().join("copies/1");
        let mut export = freeze(&replica, &place, mode);
        drop(directory(to.path()).begin_import(export.plan().clone()).unwrap());
        loop {
            // Each turn reopens both ends.
            drop(export);
            export = Export::open(&place).unwrap();
            let directory = directory(to.path());
            assert!(directory.resume_import("others", AT.partition).unwrap().is_none());
            let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
            let ranges = import.ranges();
            let unfinished_ranges: Vec<_> =
                (0..ranges.len()).filter(|range| !ranges[*range].is_ended).collect();
            // Each third turn completes no part.
            breaks += usize::from(!copy_range(
                &export,
                &import,
                *dice.pick(&unfinished_ranges),
                turns % 3,
            ));
            turns += 1;
            if import.ranges().iter().all(|range| range.is_ended) {
                assert_eq!(import.digest(), digest(&export).0);
                directory.take_in(import).unwrap();
                break;
            }
            assert_eq!(directory.take_in(import).unwrap_err().code(), ErrorCode::Unavailable);
        }
        assert!(breaks >= 3, "{breaks} breaks in {turns} turns");
        assert!(directory(to.path()).resume_import("users", AT.partition).unwrap().is_none());
        assert!(world.resume(to.path()).live() == replica.live());
        Export::remove(&place).unwrap();
        assert_eq!(Export::open(&place).err().unwrap().code(), ErrorCode::NotFound);
    }
}

#[test]
fn second_import_conflicts_and_kill_at_the_end_loses_nothing() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 1_000);
    for (number, mode) in MODES.into_iter().enumerate() {
        let to = tempfile::tempdir().unwrap();
        let export = freeze(&replica, &from.path().join(format!("copies/{number}")), mode);
        let directory = directory(to.path());
        let import = directory.begin_import(export.plan().clone()).unwrap();
        for error in [
            directory.resume_import("users", AT.partition).err(),
            directory.begin_import(export.plan().clone()).err(),
        ] {
            assert_eq!(error.unwrap().code(), ErrorCode::Conflict);
        }
        copy_all(&export, &import);
        let copy = folder_of_copy(to.path());
        let saved_files =
            ["plan", "parts"].map(|name| (name, std::fs::read(copy.join(name)).unwrap()));
        directory.take_in(import).unwrap();
        assert!(!copy.exists());
        let leave = || {
            std::fs::create_dir_all(&copy).unwrap();
            saved_files
                .iter()
                .for_each(|(name, bytes)| std::fs::write(copy.join(name), bytes).unwrap());
        };
        // A kill between ingesting the files and renaming the shard leaves this state.
        leave();
        let mut names = std::fs::read_dir(to.path()).unwrap().map(|name| name.unwrap().path());
        let shard = names.find(|path| path.is_dir() && *path != copy).unwrap();
        std::fs::rename(&shard, copy.join("shard")).unwrap();
        let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
        directory.take_in(import).unwrap();
        // A kill after the rename leaves this state.
        leave();
        assert!(directory.resume_import("users", AT.partition).unwrap().is_none());
        assert!(!copy.exists());
        assert!(world.resume(to.path()).live() == replica.live());
    }
}

#[test]
fn imports_of_two_stores_to_one_folder_do_not_interfere() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 10);
    let export = freeze(&replica, &from.path().join("copies/1"), ONE_RANGE);
    let directory = directory(to.path());
    let plan_of = |store: &str, store_id| {
        let store = store.to_owned();
        forebay_wire::v1::CopyPlan { store, store_id, ..export.plan().clone() }
    };
    let plans = [plan_of("users", AT.store.0), plan_of("others", AT.store.0 + 1)];
    let [users, others] = plans.map(|plan| directory.begin_import(plan).unwrap());
    drop(users);
    assert!(directory.resume_import("users", AT.partition).unwrap().is_some());
    assert!(directory.resume_import("nobody's", AT.partition).unwrap().is_none());
    let of_others = directory.resume_import("others", AT.partition).err().unwrap();
    assert_eq!(of_others.code(), ErrorCode::Conflict);
    drop(others);
}

#[test]
fn empty_shard_cannot_be_copied_yet() {
    let dir = tempfile::tempdir().unwrap();
    let definition =
        forebay_core::schema::StoreSpec::documents("users", KeyType::Bytes).partitions(1);
    let order = forebay_core::key_order::KeyOrder::of(&definition.define(AT.store).unwrap());
    let writer = directory(dir.path()).create(AT, order).unwrap();
    let place = dir.path().join("copies/1");
    for mode in MODES {
        let error = Export::create(writer.shard(), "users", &place, 1, mode).err().unwrap();
        assert_eq!(error.code(), ErrorCode::Unavailable);
        assert!(!place.exists());
    }
}
