//! Proves where a reader that shares its copies starts if there is no shared copy: it serves the
//! checkpoint at once, builds the shared copy from it after the open, and no read sees a position
//! fall.
//!
//! The runtime of most of these tests has one thread, so a check between an open and the next
//! `await` runs before any task that the open has spawned.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::id::{Offset, PartitionId};
use forebay_core::{Error, ErrorCode};
use forebay_index::SharedCopyDirectory;
use forebay_log::disk::{Disk, RealDisk};
use forebay_reader::{Phase, Reader};

use crate::world::checkpoints::{counts, status, wait_until};
use crate::world::shared_directory::{LONG, options, parts};
use crate::world::{Rim, STORE, World, age};

async fn open(world: &World, dir: &Path) -> Reader {
    Reader::open(options(world, dir), parts(world)).await.unwrap()
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|name| name.unwrap().path()).collect()
}

fn is_checkpoint(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "checkpoint")
}

fn checkpoint(dir: &Path) -> PathBuf {
    paths(dir).into_iter().find(|path| is_checkpoint(path)).unwrap()
}

/// Counts headers and spaces of shared copies.
fn live_files(dir: &Path) -> usize {
    let names = paths(dir).into_iter().map(|path| path.file_name().unwrap().to_owned());
    let is_live = |name: &str| name.starts_with("live-") || name.starts_with("forebay-");
    names.filter(|name| is_live(name.to_str().unwrap())).count()
}

/// Removes the shared copies, as a restart of the machine does.
fn restart_machine(dir: &Path) {
    paths(dir).iter().filter(|path| !is_checkpoint(path)).for_each(|path| {
        std::fs::remove_file(path).unwrap();
    });
}

fn key(number: i64) -> String {
    format!("key-{number}")
}

/// Writes documents, and leaves a checkpoint of them and no shared copy.
async fn leave_checkpoint(world: &World, dir: &Path, numbers: std::ops::Range<i64>) {
    for number in numbers {
        world.put(&key(number), number).await;
    }
    let reader = open(world, dir).await;
    reader.await_ready(LONG).await.unwrap();
    reader.close(LONG).await.unwrap();
    restart_machine(dir);
}

#[tokio::test]
async fn checkpoint_is_served_after_a_machine_restart_before_it_is_copied() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..500).await;
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, dir.path()).await;
    for number in 0..500 {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
    }
    assert_eq!(age(&reader, "nobody").unwrap(), None, "absent is said: it has caught up once");
    assert_eq!((live_files(dir.path()), counts(&reader).restored), (0, 0), "nothing is copied");
    assert_eq!(reader.metrics().memory.used, 0, "pages of the file are nobody's memory");
    assert_eq!(status(&reader).documents, 500);
    // The shared copy is built from the checkpoint, after the open and without the log.
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    assert!(reader.metrics().memory.used > 0 && live_files(dir.path()) > 0);
    let now = status(&reader);
    assert_eq!((now.phase, now.generation), (Phase::Serving, 1));
    assert_eq!(age(&reader, &key(499)).unwrap(), Some(499));
    rim.is_off.store(false, Ordering::SeqCst);
    let put_token = world.put(&key(7), 1_000).await;
    reader.await_token(&put_token, LONG).await.unwrap();
    assert_eq!(age(&reader, &key(7)).unwrap(), Some(1_000));
    assert_eq!(
        status(&reader).counts.records_applied,
        1,
        "only what is behind the checkpoint is read"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_never_go_back_while_the_copy_replaces_the_checkpoint() {
    let world = Arc::new(World::new(2).await);
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..2_000).await;
    for round in 1..6 {
        let readers = [open(&world, dir.path()).await, open(&world, dir.path()).await];
        let is_done = Arc::new(AtomicBool::new(false));
        let threads = readers.clone().map(|reader| {
            let is_done = is_done.clone();
            std::thread::spawn(move || {
                let mut last = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let age_read = age(&reader, &key(7)).unwrap().expect("it is never deleted");
                    assert!(age_read >= last, "it fell from {last} to {age_read}");
                    assert!(age(&reader, &key(last % 2_000)).unwrap().is_some());
                    last = age_read;
                }
            })
        });
        for step in 0..50 {
            let put_token = world.put(&key(7), round * 1_000 + step).await;
            for reader in &readers {
                reader.await_token(&put_token, LONG).await.unwrap();
                assert!(age(reader, &key(7)).unwrap() >= Some(round * 1_000 + step));
            }
        }
        is_done.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let kept_here = |reader: &Reader| {
            let partitions = reader.status().partitions;
            partitions
                .iter()
                .map(|partition| partition.counts.checkpoints.restored)
                .collect::<Vec<_>>()
        };
        let kept_copies = readers.each_ref().map(kept_here);
        assert_eq!(
            kept_copies[0][0] + kept_copies[1][0],
            1,
            "one copy, which one of them keeps: {kept_copies:?}"
        );
        assert_eq!(kept_copies[0][1] + kept_copies[1][1], 1, "{kept_copies:?}");
        assert_eq!(paths(dir.path()).iter().filter(|path| is_header(path)).count(), 2);
        for reader in readers {
            reader.close(LONG).await.unwrap();
        }
        restart_machine(dir.path());
    }
}

fn is_header(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("live-")
}

#[tokio::test]
async fn reader_serves_the_checkpoint_until_another_owner_has_made_the_copy() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..100).await;
    rim.is_off.store(true, Ordering::SeqCst);
    // An owner in another process gets as far as an empty copy and is then killed.
    let live = SharedCopyDirectory { dir: dir.path().to_owned(), memory_dir: None };
    let lock = dir.path().join(format!("{:016x}-0000.lock", STORE.0));
    let lock = RealDisk.lock(&lock).unwrap();
    live.make(STORE, [PartitionId(0)], 5).unwrap();
    let reader = open(&world, dir.path()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(age(&reader, &key(99)).unwrap(), Some(99));
    let before = status(&reader);
    assert_eq!((before.phase, counts(&reader).restored), (Phase::Serving, 0));
    assert_eq!(before.offset_applied, Offset(101));
    drop(lock);
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    let now = status(&reader);
    assert_eq!((now.position, now.log_id), (before.position, before.log_id));
    assert_eq!(age(&reader, &key(99)).unwrap(), Some(99));
}

/// Offset of the phase in a shared copy's header, by `proto/spec/shared-copy.md`.
const PHASE_AT: usize = 20;

#[tokio::test]
async fn reader_serves_the_checkpoint_while_a_complete_copy_does_not_serve_yet() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..100).await;
    rim.is_off.store(true, Ordering::SeqCst);
    let owner = open(&world, dir.path()).await;
    wait_until(&owner, |status| status.counts.checkpoints.restored == 1).await;
    wait_until(&owner, |status| status.rebuild.is_none()).await;
    drop(owner.close(LONG).await);
    // The state between two stores of an owner.
    let header = paths(dir.path()).into_iter().find(|path| is_header(path)).unwrap();
    let mut bytes = std::fs::read(&header).unwrap();
    assert_eq!(std::mem::replace(&mut bytes[PHASE_AT], 0), 1);
    std::fs::write(&header, bytes).unwrap();
    let lock = dir.path().join(format!("{:016x}-0000.lock", STORE.0));
    let lock = RealDisk.lock(&lock).unwrap();
    let reader = open(&world, dir.path()).await;
    assert_eq!(age(&reader, &key(99)).unwrap(), Some(99));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(age(&reader, &key(99)).unwrap(), Some(99));
    assert_eq!(counts(&reader).restored, 0);
    // The owner is killed there.
    drop(lock);
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    assert_eq!(std::fs::read(&header).unwrap()[PHASE_AT], 1);
    assert_eq!(age(&reader, &key(99)).unwrap(), Some(99));
}

/// Damages the last block of documents of a checkpoint, and the parity that could repair it.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let blocks = u64::from_le_bytes(bytes[112..120].try_into().unwrap()) as usize;
    bytes[blocks * 8_192 + 4_096] ^= 1;
    (1..=blocks.div_ceil(64)).for_each(|parity| bytes[(blocks + parity) * 8_192] ^= 1);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn sound_blocks_of_a_damaged_checkpoint_are_served_until_the_log_is_replayed() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..2_000).await;
    let path = checkpoint(dir.path());
    damage(&path);
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, dir.path()).await;
    let look = || {
        let (mut sound, mut damaged) = (0, 0);
        for number in 0..2_000 {
            match age(&reader, &key(number)) {
                Ok(found) => {
                    assert_eq!(found, Some(number), "absent, or another one, is never said");
                    sound += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                    damaged += 1;
                }
            }
        }
        (sound, damaged)
    };
    let (sound, damaged) = look();
    assert!(sound > 0 && damaged > 0, "{sound} sound, {damaged} damaged");
    wait_until(&reader, |status| status.counts.checkpoints.damaged == 1).await;
    wait_until(&reader, |status| status.rebuild.is_some()).await;
    assert_eq!(look(), (sound, damaged), "nothing came from the log yet");
    assert_eq!(status(&reader).phase, Phase::Serving);
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    assert_eq!(look(), (2_000, 0));
    assert_eq!(counts(&reader).restored, 0);
}

#[tokio::test]
async fn copy_of_an_older_checkpoint_waits_to_pass_the_served_checkpoint() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..2_000).await;
    let older_path = checkpoint(dir.path());
    let older_bytes = std::fs::read(&older_path).unwrap();
    leave_checkpoint(&world, dir.path(), 2_000..2_100).await;
    let newer_path = checkpoint(dir.path());
    assert_ne!(older_path, newer_path);
    std::fs::write(&older_path, older_bytes).unwrap();
    damage(&newer_path);
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, dir.path()).await;
    wait_until(&reader, |status| status.rebuild.is_some()).await;
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    let now = status(&reader);
    assert_eq!((now.phase, now.offset_applied), (Phase::Serving, Offset(2_101)));
    assert!(now.rebuild.is_some_and(|beside| beside.catch_up.offset_applied == Offset(2_001)));
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    for number in 0..2_100 {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
    }
}

/// Counts this process's mappings of shared copies of a directory.
fn mappings(dir: &Path) -> usize {
    let space = format!("{}/forebay-", dir.to_str().unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(&space)).count()
}

fn store_file(dir: &Path) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("store-");
    paths(dir).into_iter().find(is_it)
}

/// Opens a reader and waits until the directory notes its store.
async fn open_and_note(world: &World, dir: &Path) -> Reader {
    let reader = open(world, dir).await;
    reader.await_ready(LONG).await.unwrap();
    let noted = async {
        while store_file(dir).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, noted).await.unwrap();
    reader
}

/// Leaves shared copies of 50 documents that no reader has open; the catalog of the world starts
/// again without any store.
async fn leave_copies(world: &mut World, dir: &Path) {
    for number in 0..50 {
        world.put(&key(number), number).await;
    }
    open_and_note(world, dir).await.close(LONG).await.unwrap();
    world.forget_catalog();
    await_unmapped(dir).await;
}

async fn await_unmapped(dir: &Path) {
    let unmapped = async {
        while mappings(dir) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, unmapped).await.unwrap();
}

#[tokio::test]
async fn copies_open_during_connect_and_are_released_if_it_fails() {
    let mut world = World::new(2).await;
    let dir = tempfile::tempdir().unwrap();
    leave_copies(&mut world, dir.path()).await;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let open = |parts| Reader::open_with(options(&world, dir.path()), Some(disk.clone()), parts);
    for is_refused in [true, false] {
        let (connect, connected) = tokio::sync::oneshot::channel();
        let mut opening = Box::pin(open(Box::pin(async { connected.await.unwrap() })));
        assert!(futures::poll!(opening.as_mut()).is_pending(), "there is no log yet");
        assert_eq!(mappings(dir.path()), 2, "they are opened meanwhile");
        if is_refused {
            // A reader that waits for long releases files that others may need.
            tokio::select! {
                _ = &mut opening => panic!("it was opened without a log"),
                () = await_unmapped(dir.path()) => {}
            }
        }
        let connect_error = Error::unavailable("nobody answers");
        let answer = if is_refused { Err(connect_error.clone()) } else { Ok(parts(&world)) };
        assert!(connect.send(answer).is_ok());
        match opening.await {
            Ok(reader) => {
                for number in 0..50 {
                    assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
                }
            }
            Err(error) => assert_eq!((is_refused, error), (true, connect_error)),
        }
        await_unmapped(dir.path()).await;
    }
}

#[tokio::test]
async fn copies_open_while_the_control_log_is_read_and_serve_after_its_answer() {
    let rim = Rim::new();
    let mut world = World::over(rim.clone(), 2).await;
    let dir = tempfile::tempdir().unwrap();
    leave_copies(&mut world, dir.path()).await;
    let (silent, reads_before) =
        (rim.control.lock().await, rim.control_asked.load(Ordering::SeqCst));
    let mut opening = Box::pin(open(&world, dir.path()));
    assert!(
        futures::poll!(opening.as_mut()).is_pending(),
        "nobody knows yet whose copies they are"
    );
    assert_eq!(mappings(dir.path()), 2, "they are opened meanwhile");
    let reads = rim.control_asked.load(Ordering::SeqCst) - reads_before;
    assert_eq!(reads, 1, "the question was on its way before");
    drop(silent);
    let reader = opening.await;
    for number in 0..50 {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
    }
}

#[tokio::test]
async fn recreated_store_never_serves_documents_of_its_predecessor() {
    let mut world = World::new(1).await;
    let dir = tempfile::tempdir().unwrap();
    world.put(&key(1), 1).await;
    open_and_note(&world, dir.path()).await.close(LONG).await.unwrap();
    let noted = std::fs::read(store_file(dir.path()).unwrap()).unwrap();
    world.remake(forebay_core::id::StoreId(43)).await;
    world.forget_catalog();
    let reader = open(&world, dir.path()).await;
    assert_eq!(reader.definition().store.0, 43);
    match age(&reader, &key(1)) {
        Ok(found) => assert_eq!(found, None),
        Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
    }
    // The note of the name is rewritten, so that the next open finds the right copies.
    let anew = async {
        while std::fs::read(store_file(dir.path()).unwrap()).is_ok_and(|bytes| bytes == noted) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, anew).await.unwrap();
    // The copies of the deleted store have no owner.
    let lock = dir.path().join(format!("{:016x}-0000.lock", STORE.0));
    assert!(RealDisk.lock(&lock).is_ok());
}

#[tokio::test]
async fn store_id_is_looked_up_if_its_note_is_missing_or_damaged() {
    let mut world = World::new(1).await;
    let dir = tempfile::tempdir().unwrap();
    world.put(&key(1), 1).await;
    open_and_note(&world, dir.path()).await.close(LONG).await.unwrap();
    let path = store_file(dir.path()).unwrap();
    let sound = std::fs::read(&path).unwrap();
    let mut damaged = sound.clone();
    damaged[20] ^= 1;
    for note in [Some(damaged), None] {
        std::fs::remove_file(&path).unwrap();
        note.into_iter().for_each(|bytes| std::fs::write(&path, bytes).unwrap());
        world.forget_catalog();
        let reader = open_and_note(&world, dir.path()).await;
        assert_eq!(age(&reader, &key(1)).unwrap(), Some(1));
        let sound_again = async {
            while std::fs::read(&path).ok().as_ref() != Some(&sound) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, sound_again).await.unwrap();
        reader.close(LONG).await.unwrap();
    }
}

#[tokio::test]
async fn unshared_reader_excludes_others_from_its_checkpoints() {
    let world = World::new(1).await;
    let dir = tempfile::tempdir().unwrap();
    leave_checkpoint(&world, dir.path(), 0..10).await;
    let mut unshared_options = options(&world, dir.path());
    unshared_options.checkpoint.as_mut().unwrap().is_shared = false;
    let unshared_reader = Reader::open(unshared_options, parts(&world)).await.unwrap();
    unshared_reader.await_ready(LONG).await.unwrap();
    let soon = options(&world, dir.path()).open_timeout(crate::world::SECOND);
    let error = Reader::open(soon, parts(&world)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
}
