//! Abandoned copies stay available for resumption until a shard contains everything of them.

use forebay_core::ErrorCode;
use forebay_shard::Export;

use super::support::*;
use super::{MODES, copy_range, folder_of_copy, freeze};

#[test]
fn abandoned_import_is_removed_once_a_shard_has_passed_it() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let mut replica = world.resume(from.path());
    (0..50).for_each(|_| drop(replica.step()));
    for (number, mode) in MODES.into_iter().enumerate() {
        let to = tempfile::tempdir().unwrap();
        let export = freeze(&replica, &from.path().join(format!("copies/{number}")), mode);
        let directory = directory(to.path());
        let import = directory.begin_import(export.plan().clone()).unwrap();
        copy_range(&export, &import, 0, 1);
        drop(import);
        let folder = folder_of_copy(to.path());
        let resume = |steps: usize| {
            let mut follower = world.resume(to.path());
            (0..steps).for_each(|_| drop(follower.step()));
            follower.writer.shard().flush().unwrap();
        };
        // A shard behind the copy, up to its last entry but one, does not remove the copy.
        resume(49);
        resume(0);
        assert!(folder.exists());
        resume(1);
        // A copy in progress is not removed.
        let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
        resume(0);
        assert!(folder.exists());
        drop(import);
        resume(0);
        assert!(!folder.exists());
        assert!(directory.resume_import("users", AT.partition).unwrap().is_none());
    }
}

#[test]
fn import_of_another_log_remains() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let mut replica = world.resume(from.path());
    (0..20).for_each(|_| drop(replica.step()));
    let export: Export = freeze(&replica, &from.path().join("copies/1"), MODES[0]);
    let mut plan = export.plan().clone();
    plan.log_id += 1;
    drop(directory(to.path()).begin_import(plan).unwrap());
    let mut follower = world.resume(to.path());
    (0..50).for_each(|_| drop(follower.step()));
    follower.writer.shard().flush().unwrap();
    drop(follower);
    drop(world.resume(to.path()));
    assert!(folder_of_copy(to.path()).exists());
}

#[test]
fn removing_a_store_removes_its_imports() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let mut replica = world.resume(from.path());
    (0..20).for_each(|_| drop(replica.step()));
    let export = freeze(&replica, &from.path().join("copies/1"), MODES[0]);
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    let folder = folder_of_copy(to.path());
    assert_eq!(directory.stores().unwrap().into_iter().collect::<Vec<_>>(), [AT.store]);
    assert_eq!(directory.remove_store(AT.store).unwrap_err().code(), ErrorCode::Conflict);
    assert!(folder.exists());
    drop(import);
    directory.remove_store(AT.store).unwrap();
    assert!(!folder.exists() && directory.stores().unwrap().is_empty());
}
