//! Proves that a restart resumes from the checkpoint: the state that it restores, refuses or
//! rebuilds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::change::{ClientBatch, Entry, EntryBody, Source, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, PartitionId, Sequence};
use forebay_core::row::Document;
use forebay_core::schema::Alteration;
use forebay_log::ChangeLog;
use forebay_log::disk::{Disk, RealDisk};
use forebay_reader::{CheckpointCounts, CheckpointOptions, Phase, Reader, ReaderParts};
use forebay_wire::entry::encode_entry;

use crate::world::checkpoints::{
    DIR, checkpointed, counts, disk, end, files, open, options, parts, status, wait_until,
};
use crate::world::{CLIENT, LOG, Rim, SECOND, World, age, at, change, key_in, position, token};

const OTHER_LOG: LogId = LogId(0xbeef);

async fn rimmed(partitions: u32) -> (World, Arc<Rim>) {
    let rim = Rim::new();
    (World::over(rim.clone(), partitions).await, rim)
}

/// Returns the documents under these keys in a reader that has read the whole log, and the reader's
/// progress.
fn picture(reader: &Reader, keys: &[&str]) -> (Vec<Option<Document>>, Offset, u64) {
    let get = |key: &&str| reader.get_document(*key).unwrap();
    let status = status(reader);
    (keys.iter().map(get).collect(), status.offset_applied, status.documents)
}

#[tokio::test(start_paused = true)]
async fn restart_without_its_log_serves_at_once_and_reports_its_age() {
    let (world, rim) = rimmed(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    let before = status(&reader);
    end(reader).await;
    rim.is_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(60 * SECOND).await;

    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    assert_eq!(age(&reader, "bob").unwrap(), None, "absent is said: it has caught up once");
    let now = status(&reader);
    assert_eq!((now.log_id, now.position), (before.log_id, before.position));
    assert_eq!((now.schema_version, now.documents), (before.schema_version, before.documents));
    assert_eq!(now.counts.checkpoints, CheckpointCounts { restored: 1, ..Default::default() });
    let elapsed = now.age.unwrap();
    assert!(elapsed >= 60 * SECOND && elapsed < 70 * SECOND, "{elapsed:?}");
    let stale_error = reader.read_local(Some(30 * SECOND), |view| view.get_document("ann"));
    assert_eq!(stale_error.unwrap_err().code(), ErrorCode::Stale);
    assert!(reader.read_local(Some(90 * SECOND), |view| view.get_document("ann")).is_ok());

    rim.is_off.store(false, Ordering::SeqCst);
    let put_token = world.put("ann", 2).await;
    reader.await_token(&put_token, 30 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
    assert_eq!(
        status(&reader).counts.records_applied,
        1,
        "only what is behind the checkpoint is read"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_a_restart_is_not_applied_twice() {
    let world = World::new(1).await;
    let disk = disk();
    let first = world.change(change("ann", Verb::Put, &[("age", 1)]));
    world.append_to(0, LOG, first.clone()).await;
    world.put("ann", 2).await;
    let mut brief = change("bob", Verb::Put, &[("age", 3)]);
    brief.ttl_us = Some(5_000_000);
    world.write(brief).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;

    world.append_to(0, LOG, first).await;
    tokio::time::sleep(10 * SECOND).await;
    let last = world.put("cat", 4).await;
    let reader = open(&world, &disk).await;
    reader.await_token(&last, 10 * SECOND).await.unwrap();
    assert_eq!(counts(&reader).restored, 1);
    assert_eq!(status(&reader).counts.duplicates_skipped, 1);
    assert_eq!(status(&reader).counts.records_applied, 2);
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
    let from_start = world.caught_up().await;
    let keys = ["ann", "bob", "cat"];
    assert_eq!(picture(&reader, &keys), picture(&from_start, &keys));
    assert_eq!(age(&reader, "bob").unwrap(), None, "it has expired");
}

#[tokio::test(start_paused = true)]
async fn source_chain_and_drop_all_count_survive_a_restart() {
    let world = World::new(1).await;
    let disk = disk();
    let copied = |sequence: u64, previous: Option<u64>| {
        let put_change = change("ann", Verb::Put, &[("age", sequence as i64)]);
        let changes =
            vec![forebay_core::change::Change { sequence: Sequence(sequence), ..put_change }];
        let body = EntryBody::Changes(vec![ClientBatch { client: CLIENT, changes }]);
        let source = Source {
            partition: PartitionId(9),
            position: position(sequence),
            previous: previous.map(position),
            append_time: Timestamp::from_micros(1_000_000_000),
            is_forwarded: false,
        };
        let entry = world.entry(LOG, world.definition.version, body);
        encode_entry(&Entry { source: Some(source), ..entry }).unwrap()
    };
    world.put("gone", 1).await;
    let definition = world.definition.altered(&[Alteration::DropAll]).unwrap();
    world.define(&definition).await;
    let beat = world.entry(LOG, definition.version, EntryBody::Heartbeat);
    world.append_bytes(0, encode_entry(&beat).unwrap()).await;
    world.append_bytes(0, copied(50, None)).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    assert_eq!((age(&reader, "gone").unwrap(), age(&reader, "ann").unwrap()), (None, Some(50)));
    checkpointed(&reader).await;
    end(reader).await;

    world.append_bytes(0, beat_again(&world, &definition)).await;
    let offset = world.append_bytes(0, copied(60, Some(50))).await.offset;
    let reader = open(&world, &disk).await;
    reader.await_token(&token(0, LOG, offset.0), 10 * SECOND).await.unwrap();
    assert_eq!(counts(&reader).restored, 1);
    assert_eq!(status(&reader).counts.records_skipped, 0, "the chain of the source goes on");
    assert_eq!(reader.schema_version(), definition.version);
    let from_start = world.caught_up().await;
    assert_eq!(picture(&reader, &["gone", "ann"]), picture(&from_start, &["gone", "ann"]));
    assert_eq!(age(&reader, "ann").unwrap(), Some(60));
}

fn beat_again(world: &World, definition: &forebay_core::schema::Definition) -> bytes::Bytes {
    let beat = world.entry(LOG, definition.version, EntryBody::Heartbeat);
    encode_entry(&beat).unwrap()
}

#[tokio::test(start_paused = true)]
async fn catch_up_target_survives_restarts() {
    let (world, rim) = rimmed(1).await;
    let disk = disk();
    for number in 0..9 {
        world.put(&format!("key-{number}"), number).await;
    }
    rim.reads_below.store(4, Ordering::SeqCst);
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.offset_applied == Offset(4)).await;
    // The tail is held up at offset 4, but iterates as each of its waits ends.
    rim.reads_below.store(5, Ordering::SeqCst);
    checkpointed_while_held_up(&reader, &rim).await;
    end(reader).await;
    for number in 9..20 {
        world.put(&format!("key-{number}"), number).await;
    }
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    let restored = status(&reader);
    assert_eq!(restored.phase, Phase::Bootstrapping);
    assert_eq!(restored.catch_up.target, Offset(10));
    assert_eq!(age(&reader, "key-0").unwrap_err().code(), ErrorCode::Unavailable);

    rim.reads_below.store(10, Ordering::SeqCst);
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    let serving_status = status(&reader);
    assert_eq!(
        (serving_status.offset_applied, serving_status.end_offset),
        (Offset(10), Offset(21))
    );
    assert_eq!(age(&reader, "key-8").unwrap(), Some(8));
    assert_eq!(serving_status.counts.rebuilds, 0);
}

/// Lets one more record through at a time until a checkpoint is written.
async fn checkpointed_while_held_up(reader: &Reader, rim: &Rim) {
    for read_limit in 6..10 {
        if counts(reader).written > 0 {
            break;
        }
        tokio::time::sleep(6 * SECOND).await;
        rim.reads_below.store(read_limit, Ordering::SeqCst);
    }
    assert!(counts(reader).written > 0, "{:#?}", reader.status());
    assert_eq!(status(reader).phase, Phase::Bootstrapping);
}

#[tokio::test(start_paused = true)]
async fn checkpoint_of_another_log_is_served_until_the_new_copy_has_caught_up() {
    let (world, rim) = rimmed(1).await;
    let disk = disk();
    world.put("old", 1).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;

    world.replace_logs(OTHER_LOG).await;
    for number in 0..9 {
        world.write_to(OTHER_LOG, change("new", Verb::Put, &[("age", number)])).await;
    }
    rim.reads_below.store(3, Ordering::SeqCst);
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.rebuild.is_some()).await;
    assert_eq!(age(&reader, "old").unwrap(), Some(1));
    assert_eq!(status(&reader).log_id, Some(LOG));
    rim.reads_below.store(u64::MAX, Ordering::SeqCst);
    wait_until(&reader, |status| status.log_id == Some(OTHER_LOG)).await;
    assert_eq!((age(&reader, "old").unwrap(), age(&reader, "new").unwrap()), (None, Some(8)));
    assert_eq!(status(&reader).counts.rebuilds, 1);

    checkpointed(&reader).await;
    end(reader).await;
    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(status(&reader).log_id, Some(OTHER_LOG));
    assert_eq!((age(&reader, "old").unwrap(), age(&reader, "new").unwrap()), (None, Some(8)));
}

#[tokio::test(start_paused = true)]
async fn checkpoint_is_continued_if_the_log_still_has_its_next_entry() {
    let world = World::new(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    world.put("bob", 2).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;

    let put_token = world.put("bob", 3).await;
    world.log.trim(at(0), Offset(3)).await.unwrap();
    let reader = open(&world, &disk).await;
    reader.await_token(&put_token, 10 * SECOND).await.unwrap();
    assert_eq!((age(&reader, "ann").unwrap(), age(&reader, "bob").unwrap()), (Some(1), Some(3)));
    assert_eq!(status(&reader).counts.rebuilds, 0);
    checkpointed(&reader).await;
    end(reader).await;

    world.put("ann", 4).await;
    world.put("bob", 5).await;
    world.log.trim(at(0), Offset(5)).await.unwrap();
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.rebuild.is_some() && status.last_error.is_some()).await;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!((age(&reader, "ann").unwrap(), age(&reader, "bob").unwrap()), (Some(1), Some(3)));
    let rebuild = status(&reader).rebuild.unwrap();
    assert!(rebuild.reason.message().contains("starts at 5"), "{}", rebuild.reason);
    assert!(status(&reader).age.unwrap() >= 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn log_that_ends_below_the_checkpoint_is_read_from_its_start() {
    let world = World::new(1).await;
    let disk = disk();
    for number in 0..9 {
        world.put("ann", number).await;
    }
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;

    world.replace_logs(LOG).await;
    world.put("ann", 100).await;
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.rebuild.is_some()).await;
    let reason = status(&reader).rebuild.unwrap().reason;
    assert!(reason.message().contains("ends at 2"), "{reason}");
    assert_eq!(age(&reader, "ann").unwrap(), Some(8), "a position that is served never falls");
    for number in 101..110 {
        world.put("ann", number).await;
    }
    wait_until(&reader, |status| status.rebuild.is_none()).await;
    let from_start = world.caught_up().await;
    assert_eq!(picture(&reader, &["ann"]), picture(&from_start, &["ann"]));
}

#[tokio::test(start_paused = true)]
async fn checkpoint_without_its_definitions_or_of_other_partitions_is_ignored() {
    let disk = disk();
    let world = World::new(1).await;
    world.put("ann", 1).await;
    let next = world.definition.altered(&[Alteration::DropField("score".into())]).unwrap();
    world.define(&next).await;
    world.append_bytes(0, beat_again(&world, &next)).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;
    for partitions in [1, 2] {
        let world = World::new(partitions).await;
        let key = key_in(&world, 0);
        world.put(&key, 2).await;
        let options = world.options().checkpoint(CheckpointOptions::new(DIR));
        let reader = Reader::open(options, parts(&world, &disk)).await.unwrap();
        reader.await_ready(20 * SECOND).await.unwrap();
        let ignored = CheckpointCounts { ignored: 1, ..Default::default() };
        assert_eq!(counts(&reader), ignored, "{partitions} partitions");
        assert_eq!(age(&reader, &key).unwrap(), Some(2));
        end(reader).await;
    }
}

#[tokio::test(start_paused = true)]
async fn directory_has_one_reader_and_invalid_options_are_refused() {
    let world = World::new(1).await;
    let disk = disk();
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    let second = Reader::open(options(&world), parts(&world, &disk)).await.unwrap_err();
    assert_eq!(second.code(), ErrorCode::Conflict, "{second}");
    reader.begin_close();
    tokio::time::sleep(Duration::from_millis(1)).await;
    end(open(&world, &disk).await).await;

    let diskless_error = Reader::open(options(&world), world.parts()).await.unwrap_err();
    assert_eq!(diskless_error.code(), ErrorCode::InvalidArgument, "{diskless_error}");
    let checkpoint = CheckpointOptions::new(DIR).interval(Duration::ZERO);
    let options_of_zero = world.options().checkpoint(checkpoint);
    let zero_error = Reader::open(options_of_zero, parts(&world, &disk)).await.unwrap_err();
    assert_eq!(zero_error.code(), ErrorCode::InvalidArgument, "{zero_error}");
}

#[tokio::test(start_paused = true)]
async fn oversize_partition_or_failing_disk_costs_only_the_checkpoint() {
    let world = World::new(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    let mut small = options(&world);
    small.checkpoint.as_mut().unwrap().bytes_max = 4;
    let reader = Reader::open(small, parts(&world, &disk)).await.unwrap();
    wait_until(&reader, |status| status.counts.checkpoints.failed > 0).await;
    assert_eq!(files(&disk), [] as [PathBuf; 0]);
    end(reader).await;

    let reader = open(&world, &disk).await;
    checkpointed(&reader).await;
    let kept_files = files(&disk);
    disk.set_bytes_max(Some(disk.bytes_held() + 10));
    let put_token = world.put("ann", 2).await;
    wait_until(&reader, |status| status.counts.checkpoints.failed > 0).await;
    assert_eq!(files(&disk), kept_files, "the one before is kept, the unfinished one is not");
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
    disk.set_bytes_max(None);
    disk.fail_syncs(1);
    let failures = counts(&reader).failed;
    wait_until(&reader, |status| status.counts.checkpoints.failed > failures).await;
    checkpointed(&reader).await;
    assert_eq!(files(&disk).len(), 1);
    assert_ne!(files(&disk), kept_files);
}

#[tokio::test(start_paused = true)]
async fn unchanged_partition_is_not_rewritten_and_files_do_not_accumulate() {
    let world = World::new(1).await;
    let disk = disk();
    let reader = open(&world, &disk).await;
    checkpointed(&reader).await;
    let operations = disk.counts().operations;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(disk.counts().operations, operations);
    assert_eq!(counts(&reader).written, 1);
    for number in 0..5 {
        world.put("ann", number).await;
        checkpointed(&reader).await;
    }
    assert_eq!(files(&disk).len(), 1);
    let leftover = files(&disk)[0].with_extension("checkpoint.new");
    disk.create(&leftover).unwrap();
    end(reader).await;
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    assert_eq!(files(&disk).len(), 1, "what a crash left is removed at open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_on_a_real_disk_continues_from_its_checkpoint() {
    let (world, rim) = rimmed(1).await;
    let dir = tempfile::tempdir().unwrap();
    let interval = Duration::from_millis(20);
    let checkpoint_options = CheckpointOptions::new(dir.path()).is_shared(false);
    let checkpoint = checkpoint_options.interval(interval).dir(dir.path().join("a/b"));
    let options = world.options().checkpoint(checkpoint);
    let parts = ReaderParts { disk: Some(Arc::new(RealDisk)), ..world.parts() };
    world.put("ann", 1).await;
    let reader = Reader::open(options.clone(), parts.clone()).await.unwrap();
    reader.await_ready(60 * SECOND).await.unwrap();
    wait_until(&reader, |status| status.counts.checkpoints.written > 0).await;
    let second = Reader::open(options.clone(), parts.clone()).await.unwrap_err();
    assert_eq!(second.code(), ErrorCode::Conflict, "{second}");
    drop(reader);
    rim.is_off.store(true, Ordering::SeqCst);
    let opening = async {
        loop {
            match Reader::open(options.clone(), parts.clone()).await {
                Err(error) if error.code() == ErrorCode::Conflict => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                outcome => return outcome.unwrap(),
            }
        }
    };
    let reader = tokio::time::timeout(60 * SECOND, opening).await.unwrap();
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    assert_eq!(counts(&reader).restored, 1);
}
