//! Disk faults: a full disk, failing writes, failing syncs.

use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionRef};
use forebay_log::ChangeLog;
use forebay_log::disk::sim::Loss;

use super::{at, code, create, entry, open, read_all, sim_disk, sim_options};

#[tokio::test]
async fn full_disk_refuses_appends_with_a_typed_error_and_the_log_continues() {
    let disk = sim_disk(1);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 2).await;
    let mut acknowledged = 0;
    let mut refusals = 0;
    for number in 0..200_u64 {
        if number % 20 == 10 {
            disk.set_bytes_max(Some(disk.bytes_held() + number * 3 % 500));
        } else if number % 20 == 15 {
            disk.set_bytes_max(None);
        }
        match log.append(at(0), entry(number)).await {
            Ok(appended) => {
                assert_eq!(appended.offset, Offset(acknowledged));
                acknowledged += 1;
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
                let (free, needed) =
                    (error.context().limit.unwrap(), error.context().actual.unwrap());
                assert!(needed > free, "{needed} bytes needed, {free} free");
                refusals += 1;
            }
        }
    }
    assert!(refusals > 5 && acknowledged > 100);
    assert_eq!(disk.counts().full_writes, refusals);
    disk.power_cut(Loss::TornPrefix);
    let log = open(&disk, sim_options()).await.unwrap();
    let records = read_all(&log, at(0), Offset(0)).await.unwrap();
    assert_eq!(records.len() as u64, acknowledged, "a refused entry is in the log");
}

/// Proves that a segment whose creation failed leaves nothing that a later crash could restore.
#[tokio::test]
async fn segment_refused_by_a_full_disk_does_not_reappear() {
    for seed in 0..40 {
        let disk = sim_disk(seed);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, 1).await;
        log.append(at(0), bytes::Bytes::from(vec![1; 3_000])).await.unwrap();
        disk.set_bytes_max(Some(disk.bytes_held() + 10));
        let large = bytes::Bytes::from(vec![2; 3_000]);
        assert_eq!(code(log.append(at(0), large).await), ErrorCode::LimitExceeded);
        disk.set_bytes_max(None);
        for number in 0..3 {
            log.append(at(0), entry(number * 7)).await.unwrap();
        }
        disk.power_cut(Loss::RandomSectors);
        let log = open(&disk, sim_options()).await.unwrap();
        assert_eq!(read_all(&log, at(0), Offset(0)).await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn full_disk_refuses_a_new_store_and_accepts_it_after_space_returns() {
    let disk = sim_disk(2);
    let log = open(&disk, sim_options()).await.unwrap();
    disk.set_bytes_max(Some(disk.bytes_held() + 3));
    let result = log.create(super::STORE, forebay_core::id::PartitionCount(2)).await;
    assert_eq!(code(result), ErrorCode::LimitExceeded);
    assert_eq!(code(log.bounds(at(0)).await), ErrorCode::NotFound);
    disk.set_bytes_max(None);
    create(&log, 2).await;
    log.append(at(1), entry(1)).await.unwrap();
}

#[tokio::test]
async fn failed_write_appends_nothing_and_the_log_continues() {
    for seed in 0..20 {
        let disk = sim_disk(seed);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, 1).await;
        let mut acknowledged = Vec::new();
        for number in 0..60 {
            if number % 7 == seed % 7 {
                disk.fail_writes(1);
            }
            match log.append(at(0), entry(number)).await {
                Ok(_) => acknowledged.push(entry(number)),
                Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
            }
        }
        assert!(disk.counts().failed_writes >= 8);
        disk.power_cut(Loss::TornPrefix);
        let log = open(&disk, sim_options()).await.unwrap();
        let records = read_all(&log, at(0), Offset(0)).await.unwrap();
        assert!(records.into_iter().map(|record| record.entry).eq(acknowledged));
    }
}

#[tokio::test]
async fn failed_sync_stops_the_log_for_good() {
    let disk = sim_disk(3);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, 2).await;
    for number in 0..5 {
        log.append(at(0), entry(number)).await.unwrap();
    }
    disk.fail_syncs(1);
    assert_eq!(code(log.append(at(0), entry(5)).await), ErrorCode::UnknownOutcome);
    assert_eq!(disk.counts().failed_syncs, 1);
    let operations = disk.counts().operations;
    for (at, number) in [(at(0), 6), (at(1), 7), (PartitionRef::CONTROL, 8)] {
        let error = log.append(at, entry(number)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
        assert!(error.message().contains("restart"), "{error}");
    }
    assert_eq!(code(log.delete(super::STORE).await), ErrorCode::Unavailable);
    assert_eq!(disk.counts().operations, operations, "the disk was asked again");
    assert!(log.failed().await.message().contains("restart"));
    // Acknowledged entries can still be read; the entry of unknown outcome cannot.
    assert_eq!(read_all(&log, at(0), Offset(0)).await.unwrap().len(), 5);
    assert_eq!(log.bounds(at(0)).await.unwrap().end, Offset(5));
}

/// Proves that a restart without a power cut does not trust the page cache, which shows bytes that
/// never reached the disk.
#[tokio::test]
async fn recovery_syncs_bytes_of_a_failed_sync_before_reads() {
    for appends_after in 0..3 {
        let disk = sim_disk(4);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, 1).await;
        log.append(at(0), entry(0)).await.unwrap();
        disk.fail_syncs(1);
        assert_eq!(code(log.append(at(0), entry(1)).await), ErrorCode::UnknownOutcome);
        log.close().await;
        let log = open(&disk, sim_options()).await.unwrap();
        let read_records = read_all(&log, at(0), Offset(0)).await.unwrap();
        assert_eq!(read_records.len(), 2, "the page cache had the entry");
        for number in 0..appends_after {
            log.append(at(0), entry(2 + number)).await.unwrap();
        }
        disk.power_cut(Loss::Everything);
        let log = open(&disk, sim_options()).await.unwrap();
        let records = read_all(&log, at(0), Offset(0)).await.unwrap();
        assert_eq!(records[..2], read_records, "a record that was read is gone");
        assert_eq!(records.len() as u64, 2 + appends_after);
    }
}

/// Proves that a refused append is not in the log even after an immediate power cut: the log
/// durably truncates the whole frames that a failed write left.
#[tokio::test]
async fn refused_append_does_not_reappear_after_a_power_cut() {
    for seed in 0..60 {
        let disk = sim_disk(seed);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, 1).await;
        log.append(at(0), entry(0)).await.unwrap();
        disk.fail_writes(1);
        let group = (1..5).map(|number| log.append(at(0), entry(number)));
        for result in futures::future::join_all(group).await {
            assert_eq!(code(result), ErrorCode::Unavailable);
        }
        disk.power_cut(Loss::TornPrefix);
        let log = open(&disk, sim_options()).await.unwrap();
        let records = read_all(&log, at(0), Offset(0)).await.unwrap();
        assert_eq!(records.len(), 1, "seed {seed}: a refused entry is in the log");
    }
}

#[tokio::test]
async fn sync_that_fails_during_segment_creation_stops_the_log() {
    for skipped in 0..4 {
        let disk = sim_disk(skipped);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, 1).await;
        // Each of these appends creates a segment, by several syncs of files and directories.
        let mut failures = 0;
        for number in 0..4 {
            if number == skipped {
                disk.fail_syncs(1);
            }
            let large = bytes::Bytes::from(vec![number as u8; 5_000]);
            if let Err(error) = log.append(at(0), large).await {
                let expected = [ErrorCode::UnknownOutcome, ErrorCode::Unavailable];
                assert!(expected.contains(&error.code()), "{error}");
                failures += 1;
            }
        }
        assert_eq!(failures, 4 - skipped);
        disk.power_cut(Loss::RandomSectors);
        let log = open(&disk, sim_options()).await.unwrap();
        let records = read_all(&log, at(0), Offset(0)).await.unwrap();
        assert!(records.len() as u64 >= skipped);
    }
}
