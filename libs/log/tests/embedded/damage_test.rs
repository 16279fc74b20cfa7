//! Proves that damage to acknowledged bytes is always found, and that no bytes make the log panic.

use std::path::PathBuf;

use forebay_core::ErrorCode;
use forebay_core::id::Offset;
use forebay_log::disk::SimDisk;
use forebay_log::disk::sim::Loss;
use forebay_log::embedded_log::{EmbeddedOptions, OpenVerification};
use forebay_log::{ChangeLog, LogRecord};
use proptest::prelude::*;

use super::{at, code, create, entry, open, read_all, segments, sim_disk, sim_options};

/// Returns a log of one partition with some segments; each entry is its own group.
async fn small_log(options: &EmbeddedOptions, entries: u64) -> (SimDisk, Vec<LogRecord>) {
    let disk = sim_disk(11);
    let log = open(&disk, options.clone()).await.unwrap();
    create(&log, 1).await;
    for number in 0..entries {
        log.append(at(0), entry(number)).await.unwrap();
    }
    let records = read_all(&log, at(0), Offset(0)).await.unwrap();
    log.close().await;
    (disk, records)
}

fn options(open_verification: OpenVerification) -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 700, open_verification, ..sim_options() }
}

/// Returns the path and offset of the last frame of the last segment.
fn last_frame(disk: &SimDisk, records: &[LogRecord]) -> (PathBuf, usize) {
    let path = segments(disk).pop().unwrap();
    let bytes = disk.bytes(&path).unwrap().len();
    (path, bytes - 32 - records.last().unwrap().entry.len())
}

async fn flip_every_bit(open_verification: OpenVerification) {
    let options = options(open_verification);
    let (disk, records) = small_log(&options, 12).await;
    let (last_path, last_at) = last_frame(&disk, &records);
    let files = segments(&disk);
    assert!(files.len() >= 3, "the log has too few segments");
    let mut cuts = 0;
    for path in files {
        let is_last = path == last_path;
        for place in 0..disk.bytes(&path).unwrap().len() {
            let bit = 1 << (place % 8);
            let original_bytes = disk.bytes(&path).unwrap();
            disk.damage(&path, |bytes| bytes[place] ^= bit).unwrap();
            disk.power_cut(Loss::Everything);
            let context = format!("byte {place} of {}", path.display());
            let read = match open(&disk, options.clone()).await {
                Ok(log) => read_all(&log, at(0), Offset(0)).await,
                Err(error) => Err(error),
            };
            match read {
                Ok(read) => {
                    assert!(is_last && place >= last_at, "{context}: not noticed");
                    assert_eq!(read, records[..records.len() - 1], "{context}");
                    cuts += 1;
                }
                // A header whose version differs by one bit would have a version that this build
                // does not know, if its checksum did not fail first.
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::Corrupt, "{context}: {error}");
                    let name = path.file_name().unwrap().to_str().unwrap();
                    assert!(error.message().contains(name), "{context}: {error}");
                    assert!(error.message().contains("at byte "), "{context}: {error}");
                }
            }
            disk.power_cut(Loss::Everything);
            disk.damage(&path, |bytes| *bytes = original_bytes).unwrap();
        }
    }
    assert!(cuts > 32, "only {cuts} flips of the last frame were cut");
}

#[tokio::test]
async fn every_flipped_bit_is_detected_at_open() {
    flip_every_bit(OpenVerification::AllSegments).await;
}

#[tokio::test]
async fn every_flipped_bit_is_detected_at_open_or_when_read() {
    flip_every_bit(OpenVerification::ActiveSegments).await;
}

#[tokio::test]
async fn truncated_file_opens_as_a_prefix_or_is_corrupt() {
    let options = options(OpenVerification::AllSegments);
    let (disk, records) = small_log(&options, 12).await;
    let (last_path, _) = last_frame(&disk, &records);
    for path in segments(&disk) {
        let original_bytes = disk.bytes(&path).unwrap();
        for length in 0..original_bytes.len() {
            disk.damage(&path, |bytes| bytes.truncate(length)).unwrap();
            disk.power_cut(Loss::Everything);
            let result = open(&disk, options.clone()).await;
            if path == last_path {
                let read = read_all(&result.unwrap(), at(0), Offset(0)).await.unwrap();
                assert!(read.len() < records.len() && read == records[..read.len()]);
            } else {
                assert_eq!(result.err().map(|error| error.code()), Some(ErrorCode::Corrupt));
            }
            disk.power_cut(Loss::Everything);
            disk.damage(&path, |bytes| bytes.clone_from(&original_bytes)).unwrap();
        }
    }
}

/// Proves that a shortened sealed segment is found at open if its length shows the loss, else by a
/// read; no read skips a record.
#[tokio::test]
async fn truncated_sealed_segment_is_detected_at_open_or_when_read() {
    let options = options(OpenVerification::ActiveSegments);
    let (disk, _) = small_log(&options, 12).await;
    let path = segments(&disk)[0].clone();
    let original_bytes = disk.bytes(&path).unwrap();
    let (mut at_open, mut when_read) = (0, 0);
    for length in 0..original_bytes.len() {
        disk.damage(&path, |bytes| bytes.truncate(length)).unwrap();
        let error = match open(&disk, options.clone()).await {
            Ok(log) => {
                when_read += 1;
                read_all(&log, at(0), Offset(0)).await.unwrap_err()
            }
            Err(error) => {
                at_open += 1;
                error
            }
        };
        assert_eq!(error.code(), ErrorCode::Corrupt, "{length} bytes: {error}");
        disk.power_cut(Loss::Everything);
        disk.damage(&path, |bytes| bytes.clone_from(&original_bytes)).unwrap();
    }
    assert!(at_open > 40 && when_read > 40, "{at_open} at open, {when_read} when read");
}

/// Proves that damage found by a read is as fatal as damage found at open: the log accepts no more
/// appends.
#[tokio::test]
async fn damage_found_by_a_read_stops_the_log_with_the_same_error() {
    let options =
        EmbeddedOptions { tail_cache_bytes: 0, ..options(OpenVerification::ActiveSegments) };
    let (disk, records) = small_log(&options, 12).await;
    let path = segments(&disk)[0].clone();
    disk.damage(&path, |bytes| bytes[100] ^= 1).unwrap();
    let log = open(&disk, options).await.unwrap();
    log.append(at(0), entry(12)).await.unwrap();
    let found = read_all(&log, at(0), Offset(0)).await.unwrap_err();
    assert_eq!(found.code(), ErrorCode::Corrupt);
    assert!(found.message().contains("00000000000000000000.seg"), "{found}");
    assert_eq!(log.failed().await, found);
    assert_eq!(log.append(at(0), entry(13)).await.unwrap_err(), found);
    // Records in other segments can still be read.
    let last = records.last().unwrap();
    let read = read_all(&log, at(0), last.offset).await.unwrap();
    assert_eq!((read.len(), &read[0]), (2, last));
}

#[tokio::test]
async fn missing_segment_is_corrupt() {
    let open_options = options(OpenVerification::AllSegments);
    let (disk, _) = small_log(&open_options, 12).await;
    let middle_segment = segments(&disk)[1].clone();
    forebay_log::disk::Disk::remove(&disk, &middle_segment).unwrap();
    let result = open(&disk, open_options).await;
    assert_eq!(result.err().map(|error| error.code()), Some(ErrorCode::Corrupt));
    let log = open(&disk, options(OpenVerification::ActiveSegments)).await.unwrap();
    assert_eq!(code(read_all(&log, at(0), Offset(0)).await), ErrorCode::Corrupt);
}

#[tokio::test]
async fn newer_format_asks_for_an_upgrade() {
    let options = options(OpenVerification::AllSegments);
    let (disk, _) = small_log(&options, 3).await;
    let path = segments(&disk)[0].clone();
    disk.damage(&path, |bytes| {
        bytes[4] = 2;
        let checksum = crc32c::crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
    })
    .unwrap();
    let result = open(&disk, options).await;
    assert_eq!(result.err().map(|error| error.code()), Some(ErrorCode::UpgradeNeeded));
}

/// Writes two groups. The first frame of the second group is lost, as if its sectors were written
/// last, and the second frame of that group is whole. Nothing of the group was acknowledged, so the
/// log opens without the group.
#[tokio::test]
async fn group_torn_in_its_middle_is_cut() {
    let disk = sim_disk(5);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 1).await;
    log.append(at(0), entry(1)).await.unwrap();
    let path = segments(&disk)[0].clone();
    let durable = disk.bytes(&path).unwrap().len();
    let appends = futures::future::join(log.append(at(0), entry(2)), log.append(at(0), entry(3)));
    let (first, second) = appends.await;
    assert_eq!((first.unwrap().offset, second.unwrap().offset), (Offset(1), Offset(2)));
    log.close().await;
    disk.damage(&path, |bytes| bytes[durable..durable + 20].fill(0)).unwrap();
    let log = open(&disk, sim_options()).await.unwrap();
    assert_eq!(read_all(&log, at(0), Offset(0)).await.unwrap().len(), 1);
    log.append(at(0), entry(4)).await.unwrap();
    log.close().await;
    // The same damage before a later group cannot be a torn write.
    disk.damage(&path, |bytes| bytes[45] ^= 1).unwrap();
    assert_eq!(code(open(&disk, sim_options()).await.map(|_| ())), ErrorCode::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_never_make_the_log_panic(
        garbage in proptest::collection::vec(any::<u8>(), 0..400),
        place in any::<prop::sample::Index>(),
        file in any::<prop::sample::Index>(),
        check_everything in any::<bool>(),
    ) {
        let check = if check_everything {
            OpenVerification::AllSegments
        } else {
            OpenVerification::ActiveSegments
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let options = options(check);
            let (disk, records) = small_log(&options, 8).await;
            let files = disk.files(std::path::Path::new("/data/logs")).unwrap();
            let path = &files[file.index(files.len())];
            disk.damage(path, |bytes| {
                let at = place.index(bytes.len() + 1);
                bytes.truncate(at);
                bytes.extend(&garbage);
            })
            .unwrap();
            if let Ok(log) = open(&disk, options).await
                && let Ok(read) = read_all(&log, at(0), Offset(0)).await
            {
                prop_assert_eq!(&read[..], &records[..read.len()]);
            }
            Ok(())
        })?;
    }
}
