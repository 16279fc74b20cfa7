//! Proves that a restart finds exactly one prefix of the log, or bootstraps, if the disk loses
//! power at any operation or returns bytes other than those written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::change::{EntryBody, Verb};
use forebay_core::entropy::SeededEntropy;
use forebay_log::disk::sim::Loss;
use forebay_log::disk::{Disk, SimDisk};
use forebay_reader::{Phase, Reader};

use crate::world::checkpoints::{
    DIR, checkpointed, counts, disk, end, files, open, options, parts, status, wait_until,
};
use crate::world::{LOG, Rim, SECOND, World, age, change};

const KEYS: [&str; 3] = ["ann", "bob", "cat"];
/// Bytes of a block of an image.
const BLOCK_BYTES: usize = 8 * 1024;

/// Writes the entry of this offset: the value `offset` under key `offset % 3`.
async fn put_entry(world: &World, offset: u64) {
    world.put(KEYS[(offset % 3) as usize], offset as i64).await;
}

/// Returns the values of the keys once the entries below this offset are applied; entry 0 opens the
/// log.
fn expected(offset_applied: u64) -> Vec<Option<i64>> {
    let newest = |key: u64| (1..offset_applied).rev().find(|offset| offset % 3 == key);
    (0..3).map(|key| newest(key).map(|offset| offset as i64)).collect()
}

/// Returns the values of the keys, once all of them can be read. A damaged block is rebuilt first.
async fn read_all_at_last(reader: &Reader) -> Vec<Option<i64>> {
    for _ in 0..1_000 {
        let read: Vec<_> = KEYS.iter().map(|key| age(reader, key)).collect();
        for (read, expected) in read.iter().zip(expected(6)) {
            match read {
                Ok(read) => assert_eq!(*read, expected, "damage was served"),
                Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
            }
        }
        if read.iter().all(Result::is_ok) {
            return read_all(reader);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("damage stays: {:#?}", reader.status());
}

fn read_all(reader: &Reader) -> Vec<Option<i64>> {
    KEYS.iter().map(|key| age(reader, key).unwrap()).collect()
}

/// The durable state before the disk dies.
#[derive(Clone, Copy, PartialEq)]
enum InitialDisk {
    Nothing,
    OneCheckpoint,
}

/// Runs a reader whose disk dies after this many operations, then cuts the power; returns whether
/// the disk died while the reader was still writing.
async fn cut(operations: u64, loss: Loss, initial: InitialDisk) -> bool {
    let rim = Rim::new();
    let world = World::over(rim.clone(), 1).await;
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(operations + 17)));
    for offset in 1..4 {
        put_entry(&world, offset).await;
    }
    let mut offset_min = 0;
    if initial == InitialDisk::OneCheckpoint {
        let reader = open(&world, &disk).await;
        reader.await_ready(10 * SECOND).await.unwrap();
        checkpointed(&reader).await;
        offset_min = 4;
        end(reader).await;
    }
    let began = disk.counts().operations;
    disk.die_after(operations);
    let reader = Reader::open(options(&world), parts(&world, &disk)).await;
    for offset in 4..8 {
        put_entry(&world, offset).await;
        tokio::time::sleep(2 * SECOND).await;
    }
    if let Ok(reader) = reader {
        end(reader).await;
    }
    let has_died = disk.counts().operations - began == operations;
    disk.power_cut(loss);

    rim.is_off.store(true, Ordering::SeqCst);
    let reader = open(&world, &disk).await;
    tokio::time::sleep(SECOND).await;
    let found = status(&reader);
    let checkpoints = counts(&reader);
    assert_eq!((checkpoints.damaged, checkpoints.ignored), (0, 0), "{operations} {loss:?}");
    if found.phase == Phase::Serving {
        assert_eq!(checkpoints.restored, 1);
        assert!(found.offset_applied.0 >= offset_min, "{operations} {loss:?}: {found:#?}");
        assert_eq!(read_all(&reader), expected(found.offset_applied.0), "{operations} {loss:?}");
    } else {
        assert_eq!(
            (initial == InitialDisk::Nothing, checkpoints.restored),
            (true, 0),
            "{operations}"
        );
    }
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| status.offset_applied.0 == 8).await;
    assert_eq!(read_all(&reader), expected(8));
    put_entry(&world, 8).await;
    wait_until(&reader, |status| status.offset_applied.0 == 9).await;
    assert_eq!(read_all(&reader), expected(9));
    wait_until(&reader, |status| status.counts.checkpoints.written > 0).await;
    has_died
}

#[tokio::test(start_paused = true)]
async fn power_cut_at_any_operation_leaves_one_prefix_or_nothing() {
    for loss in [Loss::Everything, Loss::TornPrefix, Loss::RandomSectors] {
        for initial in [InitialDisk::Nothing, InitialDisk::OneCheckpoint] {
            let mut operations = 0;
            while cut(operations, loss, initial).await {
                operations += 1;
            }
            assert!(operations > 20, "{operations} operations are no four checkpoints");
        }
    }
}

/// Returns a world and a disk with one checkpoint of it, and the checkpoint's path and bytes.
async fn one_checkpoint() -> (World, SimDisk, PathBuf, Vec<u8>) {
    let world = World::new(1).await;
    let disk = disk();
    for offset in 1..6 {
        put_entry(&world, offset).await;
    }
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    checkpointed(&reader).await;
    end(reader).await;
    let path = files(&disk).remove(0);
    let bytes = disk.bytes(&path).unwrap();
    (world, disk, path, bytes)
}

/// Opens a reader over these bytes in place of the checkpoint; returns the number of checkpoints
/// restored, damaged and ignored.
async fn serve_over(world: &World, disk: &SimDisk, path: &Path, bytes: &[u8]) -> (u64, u64, u64) {
    for path in files(disk) {
        disk.remove(&path).unwrap();
    }
    disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    let reader = open(world, disk).await;
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(read_all_at_last(&reader).await, expected(6));
    let counts = counts(&reader);
    assert_eq!(counts.written, 0, "the file is still the one that was damaged");
    end(reader).await;
    assert_eq!(counts.blocks_repaired, 0, "more is damaged than can be mended");
    (counts.restored, counts.damaged, counts.ignored)
}

/// Opens a reader over a repairable checkpoint; returns the number of repaired blocks.
async fn mended_over(world: &World, disk: &SimDisk, path: &Path, bytes: &[u8]) -> u64 {
    for path in files(disk) {
        disk.remove(&path).unwrap();
    }
    disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    let reader = open(world, disk).await;
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(read_all(&reader), expected(6), "all of it at once");
    // The tail counts repairs on its next iteration.
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(read_all(&reader), expected(6));
    let found = status(&reader).counts;
    let checkpoint_counts = found.checkpoints;
    assert_eq!(
        (
            checkpoint_counts.restored,
            checkpoint_counts.damaged,
            checkpoint_counts.ignored,
            found.rebuilds
        ),
        (1, 0, 0, 0)
    );
    assert_eq!(
        checkpoint_counts.written > 0,
        checkpoint_counts.blocks_repaired > 0,
        "what was mended is written anew"
    );
    end(reader).await;
    checkpoint_counts.blocks_repaired
}

#[tokio::test(start_paused = true)]
async fn any_flipped_byte_is_detected_and_the_partition_bootstraps() {
    let (world, disk, path, bytes) = one_checkpoint().await;
    assert_eq!(serve_over(&world, &disk, &path, &bytes).await, (1, 0, 0));
    let blocks = BLOCK_BYTES..(bytes.len() - bytes.len() % BLOCK_BYTES);
    // With this few blocks only the last one is parity: damage in any further block cannot be
    // repaired.
    let parity = blocks.end - BLOCK_BYTES;
    // Flip every byte that describes the blocks, and some of the many bytes of the blocks
    // themselves.
    let described = (0..160).chain(blocks.end..bytes.len());
    for byte in described.chain((160..parity).step_by(37)) {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        if blocks.contains(&byte) {
            flipped[parity + byte % BLOCK_BYTES] ^= 1;
        }
        let expected_counts = match byte {
            4..6 => (0, 0, 1),
            // The checkpoint serves as long as no read touches that block.
            _ if blocks.contains(&byte) => (1, 1, 0),
            _ => (0, 1, 0),
        };
        assert_eq!(
            serve_over(&world, &disk, &path, &flipped).await,
            expected_counts,
            "byte {byte} of {}",
            bytes.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn flipped_byte_of_a_block_is_repaired() {
    let (world, disk, path, bytes) = one_checkpoint().await;
    let blocks = BLOCK_BYTES..(bytes.len() - bytes.len() % BLOCK_BYTES);
    for byte in blocks.clone().step_by(37) {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        // No read touches the parity.
        let expected_repairs = u64::from(byte < blocks.end - BLOCK_BYTES);
        assert_eq!(
            mended_over(&world, &disk, &path, &flipped).await,
            expected_repairs,
            "byte {byte}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_of_wrong_length_is_detected() {
    let (world, disk, path, bytes) = one_checkpoint().await;
    for size in (0..bytes.len()).step_by(41).chain([BLOCK_BYTES, bytes.len() - 1]) {
        assert_eq!(
            serve_over(&world, &disk, &path, &bytes[..size]).await,
            (0, 1, 0),
            "{size} bytes"
        );
    }
    let longer_bytes = [&bytes[..], &[0]].concat();
    assert_eq!(serve_over(&world, &disk, &path, &longer_bytes).await, (0, 1, 0));
    let doubled_bytes = [&bytes[..], &bytes[..]].concat();
    assert_eq!(serve_over(&world, &disk, &path, &doubled_bytes).await, (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn checkpoint_of_a_newer_build_is_ignored_and_replaced() {
    let (world, disk, path, mut bytes) = one_checkpoint().await;
    bytes[4..6].copy_from_slice(&4_u16.to_le_bytes());
    assert_eq!(
        serve_over(&world, &disk, &path, &bytes).await,
        (0, 0, 1),
        "and replaced at its close"
    );
    let reader = open(&world, &disk).await;
    wait_until(&reader, |status| status.counts.checkpoints.restored == 1).await;
    assert_eq!(files(&disk).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn damaged_checkpoint_falls_back_to_the_previous_checkpoint() {
    let (world, disk, path, bytes) = one_checkpoint().await;
    let older_path = path.to_str().unwrap();
    let newer_path = PathBuf::from(older_path.replace("1.checkpoint", "2.checkpoint"));
    disk.create(&newer_path).unwrap().write_at(&bytes[..bytes.len() - 1], 0).unwrap();
    let reader = open(&world, &disk).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    assert_eq!((counts(&reader).damaged, counts(&reader).restored), (1, 1));
    assert_eq!(read_all(&reader), expected(6));
    let last = world.append_to(0, LOG, EntryBody::Heartbeat).await;
    world.write(change("dan", Verb::Put, &[("age", 1)])).await;
    wait_until(&reader, |status| status.offset_applied > last.offset).await;
    checkpointed(&reader).await;
    assert_eq!(files(&disk).len(), 1);
    assert!(disk.list(DIR.as_ref()).unwrap().iter().any(|name| name.ends_with("3.checkpoint")));
}
