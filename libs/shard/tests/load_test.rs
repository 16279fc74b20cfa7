//! Bulk loads of shards, and their effect on other shards.

mod support;

use forebay_core::ErrorCode;
use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::key::Key;
use forebay_core::limits::SHARD_LOAD_FILES_MAX;
use forebay_core::state_rows::FollowState;
use forebay_shard::{BulkLoad, ShardDirectory};
use forebay_testkit::random::SeededRng;
use support::*;

/// The other partition of the store, whose shard is loaded.
const LOADED: PartitionRef = PartitionRef { partition: PartitionId(1), ..AT };
const ROWS_AT_ONCE: usize = 100;
const ROW_BYTES: usize = 3_200;

/// Returns random rows, the same for the same number.
fn rows(number: u64) -> Vec<(Key, Option<Vec<u8>>)> {
    let mut dice = SeededRng::new(number);
    let mut row = || {
        let id = [dice.bits(), dice.bits()].map(u64::to_le_bytes).concat();
        (Key::plain(&id).unwrap(), Some(id.repeat(ROW_BYTES / id.len())))
    };
    (0..ROWS_AT_ONCE).map(|_| row()).collect()
}

fn begin(directory: &ShardDirectory) -> BulkLoad {
    directory.begin_load(LOADED, World::new().order()).unwrap()
}

fn folders(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn bulk_load_causes_no_small_files_in_other_shards() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let directory = directory(dir.path());
    let mut follows = world.resume_in(&directory);
    let mut loading = begin(&directory);
    // The loaded bytes are many times the budget of unflushed writes.
    for number in 0..200 {
        loading.load(&rows(number)).unwrap();
        follows.step();
    }
    assert_eq!(follows.writer.shard().overlapping_files().unwrap(), 0);
    let writer = loading.end().unwrap();
    assert_eq!(writer.shard().overlapping_files().unwrap(), 0, "its own are merged");
}

#[test]
fn bulk_load_stores_the_last_row_of_each_key() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut loading = begin(&directory(dir.path()));
    // The number of files exceeds what one load accumulates before it compacts.
    let count = SHARD_LOAD_FILES_MAX * 8;
    for number in 0..count {
        loading.load(&rows(number)).unwrap();
    }
    let (changed_key, removed_key) = (&rows(0)[0].0, &rows(1)[0].0);
    loading
        .load(&[(changed_key.clone(), Some(b"changed".to_vec())), (removed_key.clone(), None)])
        .unwrap();
    let mut writer = loading.end().unwrap();
    let state = PartitionState { log_id: Some(LOG), ..PartitionState::new(LOADED, ONE) };
    let follow_state = FollowState { is_served: true, copy: 1, ..FollowState::default() };
    assert!(writer.try_apply(&FoldEffects::default(), &state, follow_state).unwrap());
    writer.shard().flush().unwrap();
    drop(writer);
    let restored = directory(dir.path()).resume(LOADED, ONE, world.order()).unwrap();
    let (writer, _) = restored.expect("the load has ended");
    for (key, row) in (0..count).flat_map(rows) {
        let expected = match &key {
            key if key == changed_key => Some(b"changed".to_vec()),
            key if key == removed_key => None,
            _ => row,
        };
        let found = writer.row(key.as_bytes()).unwrap();
        assert_eq!(found.as_deref(), expected.as_deref(), "{key:?}");
    }
}

#[test]
fn unfinished_load_leaves_no_copy() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    for is_given_up in [true, false] {
        let mut loading = begin(&directory(dir.path()));
        loading.load(&rows(7)).unwrap();
        match is_given_up {
            true => loading.give_up().unwrap(),
            // The drop leaves the folder as a kill would.
            false => drop(loading),
        }
        assert_eq!(folders(dir.path()), usize::from(!is_given_up));
        let restored = directory(dir.path()).resume(LOADED, ONE, world.order()).unwrap();
        assert!(restored.is_none());
        assert_eq!(folders(dir.path()), 0);
    }
}

#[test]
fn failed_load_reports_its_cause_and_leaves_no_copy() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut loading = begin(&directory(dir.path()));
    loading.load(&rows(7)).unwrap();
    let folder = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    // CURRENT names the list of files; the end of the load reads it again.
    std::fs::write(folder.join("CURRENT"), b"MANIFEST-no\n").unwrap();
    let error = loading.end().expect_err("nothing names the files");
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
    assert_eq!(folders(dir.path()), 0);
    assert!(directory(dir.path()).resume(LOADED, ONE, world.order()).unwrap().is_none());
}
