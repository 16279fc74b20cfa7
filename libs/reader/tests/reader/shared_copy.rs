//! Proves that readers of one directory share one copy, that one of them owns it, and that another
//! one takes over when the owner ends. (The index's `live` test and the Python client's tests kill
//! processes.)

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::ErrorCode;
use forebay_core::id::PartitionId;
use forebay_core::schema::Alteration;
use forebay_reader::{PartitionFilter, Phase, ReadOptions, Reader};

use crate::world::checkpoints::{counts, status, wait_until};
use crate::world::shared_directory::{LONG, forget_copies, options, parts};
use crate::world::{LOG, Rim, SECOND, World, age, key_in};

async fn open(world: &World, dir: &Path) -> Reader {
    let reader = Reader::open(options(world, dir), parts(world)).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_directory_answer_alike_and_only_the_owner_reads_the_log() {
    let world = World::new(2).await;
    let dir = tempfile::tempdir().unwrap();
    let put_token = world.put("ann", 1).await;
    let (first, second) = (open(&world, dir.path()).await, open(&world, dir.path()).await);
    for (reader, expected) in [(&first, 1), (&second, 1)] {
        reader.await_token(&put_token, LONG).await.unwrap();
        assert_eq!(age(reader, "ann").unwrap(), Some(expected));
    }
    let put_token = world.put("ann", 2).await;
    second.await_token(&put_token, LONG).await.unwrap();
    assert_eq!(age(&second, "ann").unwrap(), Some(2));
    assert_eq!(age(&first, "ann").unwrap(), Some(2), "the documents are the same ones");
    first.await_token(&put_token, LONG).await.unwrap();
    let partition = world.partition_of("ann") as usize;
    let statuses = [&first, &second].map(|reader| reader.status().partitions[partition].clone());
    let progress = statuses.each_ref().map(|status| {
        (
            status.phase,
            status.generation,
            status.log_id,
            status.position,
            status.offset_applied,
            status.documents,
        )
    });
    assert_eq!(progress[0], progress[1]);
    assert!(statuses[0].counts.records_applied > 0);
    assert_eq!(statuses[1].counts.records_applied, 0, "only the owner of the copy reads the log");
    let aged = second.read_local(Some(LONG), |view| view.get_document("ann")).unwrap();
    assert!(aged.is_some(), "its age is told by the copy's header");
    // A wait for the log's end uses the same copy.
    world.put("ann", 3).await;
    let partitions = [second.partition_of("ann").unwrap()];
    second.wait(&ReadOptions::latest(LONG), &partitions).await.unwrap();
    assert_eq!(age(&second, "ann").unwrap(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_takes_over_at_close_of_the_owner_without_a_gap_in_reads() {
    let world = Arc::new(World::new(2).await);
    let dir = tempfile::tempdir().unwrap();
    for n in 0..200 {
        world.put(&format!("key-{n}"), 0).await;
    }
    let mut owner = open(&world, dir.path()).await;
    let (watched_reader, is_done) =
        (open(&world, dir.path()).await, Arc::new(AtomicBool::new(false)));
    let (reader, stop) = (watched_reader.clone(), is_done.clone());
    let reads = std::thread::spawn(move || {
        let (mut reads, mut last) = (0_u64, 0);
        while !stop.load(Ordering::Relaxed) {
            let age_read = age(&reader, "key-7").unwrap().expect("it is never deleted");
            assert!(age_read >= last, "it fell from {last} to {age_read}");
            (reads, last) = (reads + 1, age_read);
        }
        reads
    });
    for round in 1..=6 {
        let next = open(&world, dir.path()).await;
        owner.begin_close();
        for n in 0..200 {
            world.put(&format!("key-{n}"), round).await;
        }
        let put_token = world.put("key-7", round).await;
        watched_reader.await_token(&put_token, LONG).await.unwrap();
        next.await_token(&put_token, LONG).await.unwrap();
        assert_eq!(age(&watched_reader, "key-7").unwrap(), Some(round));
        owner = next;
    }
    is_done.store(true, Ordering::Relaxed);
    assert!(reads.join().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_survives_its_last_reader_and_serves_without_the_log() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    world.put("ann", 1).await;
    let reader = open(&world, dir.path()).await;
    let before = status(&reader);
    reader.close(LONG).await.unwrap();
    for path in std::fs::read_dir(dir.path()).unwrap().map(|name| name.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "checkpoint") {
            std::fs::remove_file(path).unwrap();
        }
    }
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = Reader::open(options(&world, dir.path()), parts(&world)).await.unwrap();
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!((age(&reader, "ann").unwrap(), age(&reader, "bob").unwrap()), (Some(1), None));
    let now = status(&reader);
    assert_eq!((now.position, now.log_id), (before.position, before.log_id));
    // The copy found answers at once; the reader takes it over after that.
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    rim.is_off.store(false, Ordering::SeqCst);
    let put_token = world.put("ann", 2).await;
    reader.await_token(&put_token, LONG).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_from_a_checkpoint_survives_like_any_other() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let dir = tempfile::tempdir().unwrap();
    world.put("ann", 1).await;
    let reader = open(&world, dir.path()).await;
    let before = status(&reader);
    reader.close(LONG).await.unwrap();
    forget_copies(dir.path());
    // The first reader builds the copy from the checkpoint, the second one finds it so, and neither
    // can read further.
    rim.is_off.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let reader = Reader::open(options(&world, dir.path()), parts(&world)).await.unwrap();
        wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
        wait_until(&reader, |status| status.phase == Phase::Serving).await;
        let now = status(&reader);
        assert_eq!((now.position, now.log_id), (before.position, before.log_id));
        assert_eq!((counts(&reader).restored, age(&reader, "ann").unwrap()), (1, Some(1)));
        reader.close(LONG).await.unwrap();
    }
    rim.is_off.store(false, Ordering::SeqCst);
    let put_token = world.put("ann", 2).await;
    let reader = open(&world, dir.path()).await;
    reader.await_token(&put_token, LONG).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
}

/// Returns the bytes of this process's mappings of a directory's files, and how many are in huge
/// pages.
fn mapped_bytes(dir: &Path) -> (u64, u64) {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_ours, mut resident, mut huge) = (false, 0, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        let mut bytes = || 1_024 * words.next().unwrap().parse::<u64>().unwrap();
        match first {
            "Rss:" if is_ours => resident += bytes(),
            "ShmemPmdMapped:" if is_ours => huge += bytes(),
            first if !first.ends_with(':') => is_ours = line.contains(dir.to_str().unwrap()),
            _ => {}
        }
    }
    (resident, huge)
}

/// Proves that maintenance continues until it is done: nothing signals the tail to start it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_moves_into_huge_pages_while_the_log_is_silent() {
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return println!("there is no memory file system here: nothing to test");
    };
    if huge.is_ok_and(|words| words.contains("[deny]")) || cfg!(not(target_os = "linux")) {
        return println!("this system gives no huge pages here: nothing to test");
    }
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let mut last = world.put("first", 0).await;
    for n in 0..20_000 {
        last = world.put(&format!("{n:02000}"), n).await;
    }
    let reader = open(&world, dir.path()).await;
    reader.await_token(&last, LONG).await.unwrap();
    let end = status(&reader).offset_applied;
    reader.close(LONG).await.unwrap();
    forget_copies(dir.path());
    rim.silent_from.store(end.0, Ordering::SeqCst);
    let reader = Reader::open(options(&world, dir.path()), parts(&world)).await.unwrap();
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    let is_huge = async {
        loop {
            let (resident, huge) = mapped_bytes(dir.path());
            assert!(resident > 32 << 20, "{resident} bytes of it are mapped");
            // A busy system refuses some blocks; a single step of the maintenance moves 16 MiB.
            if huge > resident / 2 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(LONG, is_huge).await;
    assert!(in_time.is_ok(), "resident, and in huge pages: {:?}", mapped_bytes(dir.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_with_different_filters_share_their_common_partitions() {
    let world = World::new(2).await;
    let dir = tempfile::tempdir().unwrap();
    let keys = [key_in(&world, 0), key_in(&world, 1)];
    for key in &keys {
        world.put(key, 1).await;
    }
    let mut filtered_options = options(&world, dir.path());
    filtered_options.partitions = PartitionFilter::Only(BTreeSet::from([PartitionId(1)]));
    let filtered = Reader::open(filtered_options, parts(&world)).await.unwrap();
    filtered.await_ready(LONG).await.unwrap();
    let all = open(&world, dir.path()).await;
    assert_eq!(age(&filtered, &keys[1]).unwrap(), Some(1));
    assert_eq!(age(&filtered, &keys[0]).unwrap_err().code(), ErrorCode::InvalidArgument);
    for key in &keys {
        assert_eq!(age(&all, key).unwrap(), Some(1));
    }
    let applied = all
        .status()
        .partitions
        .iter()
        .map(|partition| partition.counts.records_applied > 0)
        .collect::<Vec<_>>();
    assert_eq!(applied, [true, false], "each partition is kept by whoever came first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_readers_of_a_copy_receive_a_definition_and_another_log() {
    let world = World::new(1).await;
    let dir = tempfile::tempdir().unwrap();
    let put_token = world.put("ann", 1).await;
    let (first, second) = (open(&world, dir.path()).await, open(&world, dir.path()).await);
    second.await_token(&put_token, LONG).await.unwrap();
    let definition = world.definition.altered(&[Alteration::DropField("score".into())]).unwrap();
    world.define(&definition).await;
    let entry = forebay_core::change::EntryBody::Definition;
    let mut with_it = world.entry(LOG, definition.version, entry);
    with_it.schema_version = definition.version;
    let bytes = forebay_wire::entry::encode_entry(&with_it).unwrap();
    world.append_bytes(0, bytes).await;
    for reader in [&first, &second] {
        wait_until(reader, |status| status.schema_version == definition.version).await;
        assert_eq!(reader.definition().version, definition.version);
        assert_eq!(age(reader, "ann").unwrap(), Some(1));
    }
    // After a log replacement a new replica is built next to the serving one, and all readers
    // switch to it.
    let other = forebay_core::id::LogId(0xbeef);
    world.replace_logs(other).await;
    let put_token = world.write_to(
        other,
        crate::world::change("ann", forebay_core::change::Verb::Put, &[("age", 7)]),
    );
    let put_token = put_token.await;
    for reader in [&first, &second] {
        reader.await_token(&put_token, LONG).await.unwrap();
        assert_eq!(age(reader, "ann").unwrap(), Some(7));
        wait_until(reader, |status| status.log_id == Some(other) && status.generation == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unshared_reader_excludes_others_from_its_directory() {
    let world = World::new(1).await;
    let dir = tempfile::tempdir().unwrap();
    world.put("ann", 1).await;
    let shared = open(&world, dir.path()).await;
    let mut unshared_options = options(&world, dir.path());
    unshared_options.checkpoint.as_mut().unwrap().is_shared = false;
    let error = Reader::open(unshared_options.clone(), parts(&world)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    shared.close(LONG).await.unwrap();
    let unshared_reader = Reader::open(unshared_options, parts(&world)).await.unwrap();
    unshared_reader.await_ready(LONG).await.unwrap();
    let beside = options(&world, dir.path()).open_timeout(SECOND);
    let error = Reader::open(beside, parts(&world)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    unshared_reader.close(LONG).await.unwrap();
    let shared = open(&world, dir.path()).await;
    assert_eq!(age(&shared, "ann").unwrap(), Some(1));
}
