//! Proves that the close of a reader writes a last checkpoint, that the checkpoint is never worse
//! than the existing one, and that the close can be awaited.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::change::EntryBody;
use forebay_core::id::{Offset, SchemaVersion};
use forebay_core::schema::Alteration;
use forebay_log::disk::{RealDisk, SimDisk};
use forebay_reader::{CheckpointCounts, CheckpointOptions, Phase, Reader, ReaderOptions};
use forebay_reader::{PartitionStatus, ReaderParts};
use forebay_wire::entry::encode_entry;

use crate::world::checkpoints::{
    DIR, checkpointed, counts, disk, files, open, parts, status, wait_until,
};
use crate::world::{LOG, Rim, SECOND, World, age};

/// Returns the options of a reader that writes only its last checkpoint.
fn rarely(world: &World) -> ReaderOptions {
    let interval = Duration::from_secs(1_000_000);
    let checkpoint = CheckpointOptions::new(DIR).interval(interval);
    world.options().checkpoint(checkpoint)
}

async fn open_rarely(world: &World, disk: &SimDisk) -> Reader {
    Reader::open(rarely(world), parts(world, disk)).await.unwrap()
}

fn bytes(disk: &SimDisk) -> Vec<Vec<u8>> {
    files(disk).iter().map(|path| disk.bytes(path).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn close_writes_a_last_checkpoint_of_each_partition_and_frees_the_directory() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 2).await;
    let disk = disk();
    for number in 0..20 {
        world.put(&format!("key-{number}"), number).await;
    }
    let reader = open_rarely(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    assert!(files(&disk).is_empty());
    reader.close(10 * SECOND).await.unwrap();
    assert_eq!(files(&disk).len(), 2);
    assert_eq!(counts(&reader), CheckpointCounts { written: 1, ..Default::default() });
    assert_eq!(age(&reader, "key-3").unwrap_err().code(), ErrorCode::Closed);
    let operations = disk.counts().operations;
    reader.begin_close();
    reader.close(10 * SECOND).await.unwrap();
    assert_eq!(disk.counts().operations, operations, "a second close changes nothing");

    // The directory is free at once, and its checkpoint holds everything that was applied.
    rim.is_off.store(true, Ordering::SeqCst);
    let reopened = open_rarely(&world, &disk).await;
    let restored = |status: &PartitionStatus| status.phase == Phase::Serving;
    wait_until(&reopened, restored).await;
    for number in 0..20 {
        assert_eq!(age(&reopened, &format!("key-{number}")).unwrap(), Some(number));
    }
    let before = bytes(&disk);
    reopened.close(10 * SECOND).await.unwrap();
    assert_eq!(bytes(&disk), before, "what has not changed is not written again");
}

#[tokio::test(start_paused = true)]
async fn drop_of_the_last_clone_closes_the_reader() {
    let world = World::new(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    let reader = open_rarely(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    let clone = reader.clone();
    drop(reader);
    tokio::time::sleep(SECOND).await;
    assert_eq!((age(&clone, "ann").unwrap(), files(&disk).len()), (Some(1), 0));
    drop(clone);
    tokio::time::sleep(SECOND).await;
    assert_eq!(files(&disk).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn close_before_the_first_entry_writes_nothing() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let disk = disk();
    world.put("ann", 1).await;
    rim.reads_below.store(0, Ordering::SeqCst);
    let reader = open_rarely(&world, &disk).await;
    reader.close(10 * SECOND).await.unwrap();
    assert!(files(&disk).is_empty());
}

#[tokio::test(start_paused = true)]
async fn close_during_bootstrap_checkpoints_its_progress_and_target() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let disk = disk();
    for number in 0..9 {
        world.put(&format!("key-{number}"), number).await;
    }
    rim.reads_below.store(4, Ordering::SeqCst);
    let reader = open_rarely(&world, &disk).await;
    wait_until(&reader, |status| status.offset_applied == Offset(4)).await;
    reader.close(10 * SECOND).await.unwrap();
    assert_eq!(files(&disk).len(), 1);

    let reopened = open_rarely(&world, &disk).await;
    wait_until(&reopened, |status| status.counts.checkpoints.restored == 1).await;
    let restored = status(&reopened);
    assert_eq!((restored.phase, restored.offset_applied), (Phase::Bootstrapping, Offset(4)));
    assert_eq!(restored.catch_up.target, Offset(10));
    assert_eq!(age(&reopened, "key-0").unwrap_err().code(), ErrorCode::Unavailable);
    rim.reads_below.store(u64::MAX, Ordering::SeqCst);
    reopened.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(status(&reopened).counts.records_applied, 6, "it goes on behind the checkpoint");
}

#[tokio::test(start_paused = true)]
async fn checkpoint_that_awaits_its_definition_is_not_replaced_by_an_earlier_state() {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let disk = disk();
    for number in 0..9 {
        world.put("ann", number).await;
    }
    let next = world.definition.altered(&[Alteration::DropField("score".into())]).unwrap();
    world.define(&next).await;
    let beat = world.entry(LOG, next.version, EntryBody::Heartbeat);
    world.append_bytes(0, encode_entry(&beat).unwrap()).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    reader.close(10 * SECOND).await.unwrap();
    let checkpoint_bytes = bytes(&disk);

    // The log is the same, and the control log does not contain the second version yet.
    let late_rim = Rim::new();
    let late = World::over(late_rim.clone(), 1).await;
    for number in 0..9 {
        late.put("ann", number).await;
    }
    late_rim.reads_below.store(4, Ordering::SeqCst);
    let reader = open(&late, &disk).await;
    wait_until(&reader, |status| status.offset_applied == Offset(4)).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(counts(&reader), CheckpointCounts { ignored: 1, ..Default::default() });
    reader.close(10 * SECOND).await.unwrap();
    assert_eq!(bytes(&disk), checkpoint_bytes, "4 records take the place of 11");

    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    assert_eq!(reader.schema_version(), SchemaVersion(2));
}

#[tokio::test(start_paused = true)]
async fn halted_partition_retains_its_checkpoint() {
    let world = World::new(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    let reader = open_rarely(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    let entry = world.entry(LOG, world.definition.version, EntryBody::Heartbeat);
    let mut newer_entry = encode_entry(&entry).unwrap().to_vec();
    newer_entry[4] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&newer_entry[..20]), &newer_entry[24..]);
    newer_entry[20..24].copy_from_slice(&checksum.to_le_bytes());
    world.append_bytes(0, newer_entry.into()).await;
    wait_until(&reader, |status| status.fatal_error.is_some()).await;
    wait_until(&reader, |status| status.counts.checkpoints.written == 1).await;
    reader.close(10 * SECOND).await.unwrap();
    let reopened = open_rarely(&world, &disk).await;
    wait_until(&reopened, |status| status.counts.checkpoints.restored == 1).await;
    assert_eq!(age(&reopened, "ann").unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn failing_disk_does_not_delay_a_close() {
    let world = World::new(1).await;
    let disk = disk();
    world.put("ann", 1).await;
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    let checkpoint_bytes = bytes(&disk);
    let put_token = world.put("ann", 2).await;
    reader.await_token(&put_token, 10 * SECOND).await.unwrap();
    disk.set_bytes_max(Some(disk.bytes_held()));
    reader.close(SECOND).await.unwrap();
    assert_eq!((counts(&reader).failed, bytes(&disk)), (1, checkpoint_bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_on_a_real_disk_frees_the_directory_and_loses_nothing() {
    let world = World::new(4).await;
    let dir = tempfile::tempdir().unwrap();
    let mut options = rarely(&world);
    let checkpoint = options.checkpoint.as_mut().unwrap();
    (checkpoint.dir, checkpoint.is_shared) = (dir.path().join("checkpoints"), false);
    let parts = ReaderParts { disk: Some(Arc::new(RealDisk)), ..world.parts() };
    for round in 0..20 {
        let put_token = world.put("ann", round).await;
        let reader = Reader::open(options.clone(), parts.clone()).await.unwrap();
        reader.await_ready(60 * SECOND).await.unwrap();
        reader.await_token(&put_token, 60 * SECOND).await.unwrap();
        let restored = || reader.metrics().counts.checkpoints.restored;
        let all_restored = async {
            while round > 0 && restored() < 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(60 * SECOND, all_restored).await.unwrap();
        let second = Reader::open(options.clone(), parts.clone()).await.unwrap_err();
        assert_eq!(second.code(), ErrorCode::Conflict, "{second}");
        let (first_close, second_close) = (reader.clone(), reader.clone());
        let (first_result, second_result) =
            tokio::join!(first_close.close(60 * SECOND), second_close.close(60 * SECOND));
        first_result.and(second_result).unwrap();
    }
}
