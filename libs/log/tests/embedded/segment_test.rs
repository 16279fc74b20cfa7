//! Segments: their bytes, when a new one starts, what trimming removes, which reads the cache
//! saves.

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionRef};
use forebay_log::ChangeLog;
use forebay_log::disk::Disk;
use forebay_log::disk::sim::Loss;

use super::{at, code, create, entry, open, read_all, segments, sim_disk, sim_options};

/// Proves that a segment has the bytes of `proto/spec/embedded-log.md`, written by hand.
#[tokio::test]
async fn segment_has_the_bytes_of_its_spec() {
    let disk = sim_disk(1);
    let log = open(&disk, sim_options()).await.unwrap();
    log.append(PartitionRef::CONTROL, Bytes::from_static(b"abc")).await.unwrap();
    log.append(PartitionRef::CONTROL, Bytes::new()).await.unwrap();
    let path = segments(&disk).pop().unwrap();
    let place = "/data/logs/0000000000000000/0000/00000000000000000000.seg";
    assert_eq!(path.to_str(), Some(place));
    let mut header = b"FBLS".to_vec();
    header.extend([1, 0, 0, 0]);
    header.extend([0; 8 + 4 + 8]);
    header.extend(i64::MIN.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    let frame = |entry: &[u8], offset: u64, synced_bytes: u64| {
        let length = (entry.len() as u32).to_le_bytes();
        let mut rest = offset.to_le_bytes().to_vec();
        rest.extend(1_700_000_000_000_000_i64.to_le_bytes());
        rest.extend(synced_bytes.to_le_bytes());
        rest.extend(entry);
        let checksum = crc32c::crc32c(&[&length[..], &rest].concat());
        [&length[..], &checksum.to_le_bytes(), &rest].concat()
    };
    let expected = [header, frame(b"abc", 0, 40), frame(b"", 1, 75)].concat();
    assert_eq!(disk.bytes(&path).unwrap(), expected);
    let store = disk.bytes("/data/logs/0000000000000000/store".as_ref()).unwrap();
    assert_eq!(store[..20], [b"FBLM\x01\0\0\0".as_slice(), &[0; 8], &[1, 0, 0, 0]].concat());
}

#[tokio::test]
async fn full_segment_is_followed_by_another_and_one_large_entry_is_accepted() {
    let disk = sim_disk(2);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 1).await;
    for bytes in [1_000, 1_000, 1_000, 1_000, 50_000, 10, 10] {
        log.append(at(0), Bytes::from(vec![1; bytes])).await.unwrap();
    }
    let names: Vec<_> = segments(&disk)
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap())
        .collect();
    assert_eq!(names, [0, 3, 4, 5]);
    assert_eq!(read_all(&log, at(0), Offset(0)).await.unwrap().len(), 7);
}

#[tokio::test]
async fn trim_removes_whole_segments_and_retains_the_last() {
    let disk = sim_disk(3);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 1).await;
    for _ in 0..9 {
        log.append(at(0), Bytes::from(vec![1; 1_500])).await.unwrap();
    }
    assert_eq!(segments(&disk).len(), 5);
    log.trim(at(0), Offset(5)).await.unwrap();
    assert_eq!(log.bounds(at(0)).await.unwrap().start, Offset(4));
    assert_eq!(segments(&disk).len(), 3);
    log.trim(at(0), Offset(9)).await.unwrap();
    assert_eq!(log.bounds(at(0)).await.unwrap().start, Offset(8));
    disk.power_cut(Loss::Everything);
    let log = open(&disk, sim_options()).await.unwrap();
    let bounds = log.bounds(at(0)).await.unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(8), Offset(9)));
}

/// Proves that a trim to the end of a log does not close a segment without frames: the next segment
/// would have the same name.
#[tokio::test]
async fn segment_without_frames_accepts_appends_after_a_trim_to_the_end() {
    let disk = sim_disk(8);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 1).await;
    log.append(at(0), entry(1)).await.unwrap();
    log.trim(at(0), Offset(1)).await.unwrap();
    // The disk takes the header of the next segment, and refuses its first frame.
    disk.fail_write_after(1);
    assert_eq!(code(log.append(at(0), entry(2)).await), ErrorCode::Unavailable);
    assert_eq!(segments(&disk).len(), 2);
    log.trim(at(0), Offset(1)).await.unwrap();
    log.append(at(0), entry(3)).await.unwrap();
    disk.power_cut(Loss::Everything);
    let log = open(&disk, sim_options()).await.unwrap();
    log.trim(at(0), Offset(2)).await.unwrap();
    log.append(at(0), entry(4)).await.unwrap();
    let start = log.bounds(at(0)).await.unwrap().start;
    let records = read_all(&log, at(0), start).await.unwrap();
    let entries: Vec<_> = records.into_iter().map(|record| record.entry).collect();
    assert_eq!(entries[entries.len() - 2..], [entry(3), entry(4)]);
}

#[tokio::test]
async fn deleted_store_leaves_no_files() {
    let disk = sim_disk(4);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 3).await;
    for partition in 0..3 {
        log.append(at(partition), entry(1)).await.unwrap();
    }
    log.delete(super::STORE).await.unwrap();
    assert_eq!(disk.list("/data/logs".as_ref()).unwrap(), ["0000000000000000"]);
}

#[tokio::test]
async fn half_created_or_half_removed_store_is_swept_at_open() {
    let disk = sim_disk(5);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 1).await;
    log.append(at(0), entry(1)).await.unwrap();
    log.close().await;
    let dir = std::path::Path::new("/data/logs/000000000000feed");
    disk.rename(dir, &dir.with_extension("deleted")).unwrap();
    disk.create_dir(&dir.with_extension("new")).unwrap();
    let log = open(&disk, sim_options()).await.unwrap();
    assert_eq!(disk.list("/data/logs".as_ref()).unwrap(), ["0000000000000000"]);
    assert!(log.bounds(at(0)).await.is_err());
}

/// Proves that concurrent appends share syncs: one per file across the partitions.
#[tokio::test]
async fn concurrent_appends_form_one_group() {
    let disk = sim_disk(6);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 2).await;
    for partition in 0..2 {
        log.append(at(partition), entry(1)).await.unwrap();
    }
    let syncs = disk.counts().file_syncs;
    let appends = (0..10).map(|number| log.append(at(number % 2), Bytes::from(vec![1; 50])));
    for appended in futures::future::join_all(appends).await {
        appended.unwrap();
    }
    assert_eq!(disk.counts().file_syncs - syncs, 2);
}
