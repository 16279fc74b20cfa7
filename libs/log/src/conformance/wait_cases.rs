//! Rules about waiting, wake-ups and sharing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::id::Offset;

use super::fixture::{
    Fixture, STORE, append, await_guarded, code, create, entry, partition, read_all,
};
use crate::{LogRecord, ReadLimit};

const APPENDERS: u64 = 16;
const ENTRIES_EACH: u64 = 40;

/// An append wakes the read that waits for it at the end.
pub async fn read_at_the_end_waits_for_an_append(fixture: impl Fixture) {
    create(&fixture, 2).await;
    let log = fixture.log();
    for round in 0..20 {
        let reader = tokio::spawn({
            let log = log.clone();
            let limit = ReadLimit { bytes_max: 1_000, wait_max: Duration::from_secs(100_000) };
            async move { log.read(partition(0), Offset(round), limit).await }
        });
        append(&*log, partition(1), entry(round)).await;
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        append(&*log, partition(0), entry(round)).await;
        let read = await_guarded(reader).await.unwrap().unwrap();
        assert_eq!(read.records.len(), 1);
        assert_eq!(
            (read.records[0].offset, &read.records[0].entry),
            (Offset(round), &entry(round))
        );
        assert!(read.end >= Offset(round + 1));
    }
}

/// A read at the end returns no records after its wait.
pub async fn read_at_the_end_is_empty_after_its_wait(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    append(&*log, partition(0), entry(0)).await;
    for wait_ms in [0, 1, 30] {
        let limit = ReadLimit { bytes_max: 1_000, wait_max: Duration::from_millis(wait_ms) };
        let read = await_guarded(log.read(partition(0), Offset(1), limit)).await.unwrap();
        assert!(read.records.is_empty());
        assert_eq!(read.end, Offset(1));
    }
}

/// The deletion of a log wakes a reader that waits at its end.
pub async fn deleted_log_wakes_its_readers(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    // After this read, a missing log counts as deleted, no longer as one that is being created.
    let limit = ReadLimit { bytes_max: 1_000, wait_max: Duration::ZERO };
    await_guarded(log.read(partition(0), Offset(0), limit)).await.unwrap();
    let reader = tokio::spawn(async move {
        let limit = ReadLimit { wait_max: Duration::from_secs(100_000), ..limit };
        log.read(partition(0), Offset(0), limit).await
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    fixture.admin().delete(STORE).await.unwrap();
    assert_eq!(code(await_guarded(reader).await.unwrap()), ErrorCode::NotFound);
}

/// If any number of tasks append to one partition, no entry is lost or duplicated, and the entries
/// of each task keep their order. A concurrent follower sees the same records.
pub async fn many_appenders_share_a_partition(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    let follower = tokio::spawn(follow(log.clone(), APPENDERS * ENTRIES_EACH));
    let mut appenders = Vec::new();
    for appender in 0..APPENDERS {
        let log = log.clone();
        appenders.push(tokio::spawn(async move {
            let mut offsets = Vec::new();
            for turn in 0..ENTRIES_EACH {
                let entry = Bytes::from(format!("{appender} {turn}"));
                offsets.push(append(&*log, partition(0), entry).await.offset);
            }
            offsets
        }));
    }
    let mut entries = vec![None; (APPENDERS * ENTRIES_EACH) as usize];
    for (appender, task) in appenders.into_iter().enumerate() {
        let offsets = await_guarded(task).await.unwrap();
        assert!(offsets.is_sorted_by(|a, b| a < b), "an appender's entries changed their order");
        for (turn, offset) in offsets.into_iter().enumerate() {
            let before = entries[offset.0 as usize].replace(format!("{appender} {turn}"));
            assert_eq!(before, None, "two appenders were told offset {offset}");
        }
    }
    let records = read_all(&*log, partition(0), Offset(0)).await;
    assert_eq!(records.len(), entries.len());
    for (record, expected) in records.iter().zip(entries) {
        assert_eq!(record.entry, expected.expect("an offset that nobody was told"));
    }
    assert_eq!(await_guarded(follower).await.unwrap(), records);
}

async fn follow(log: Arc<dyn crate::ChangeLog>, count: u64) -> Vec<LogRecord> {
    let mut records = Vec::new();
    while (records.len() as u64) < count {
        let limit = ReadLimit { bytes_max: 300, wait_max: Duration::from_secs(100_000) };
        let next = Offset(records.len() as u64);
        records.extend(log.read(partition(0), next, limit).await.unwrap().records);
    }
    records
}
