//! Rules about what survives a crash.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionRef};
use tokio::sync::watch;

use super::fixture::{
    Fixture, STORE, append, await_guarded, code, create, entry, partition, read_all,
};
use crate::{ChangeLog, LogRecord, ReadLimit};

/// Everything acknowledged survives a crash: records, times, bounds, trims and deletions.
pub async fn acknowledged_state_survives_a_reopen(mut fixture: impl Fixture) {
    create(&fixture, 3).await;
    let log = fixture.log();
    for number in 0..90 {
        append(&*log, partition((number % 2) as u32), entry(number)).await;
    }
    append(&*log, PartitionRef::CONTROL, entry(1)).await;
    fixture.admin().trim(partition(1), Offset(40)).await.unwrap();
    let start = log.bounds(partition(1)).await.unwrap().start;
    let places =
        [(partition(0), Offset(0)), (partition(1), start), (PartitionRef::CONTROL, Offset(0))];
    let mut before = Vec::new();
    for (at, from) in places {
        before.push(read_all(&*log, at, from).await);
    }
    drop(log);
    if !fixture.reopen().await {
        return;
    }
    let log = fixture.log();
    for ((at, from), records) in places.into_iter().zip(before) {
        let bounds = log.bounds(at).await.unwrap();
        assert_eq!((bounds.start, bounds.end.0), (from, from.0 + records.len() as u64));
        assert_eq!(read_all(&*log, at, from).await, records, "log {at} changed");
    }
    assert_eq!(log.bounds(partition(2)).await.unwrap().end, Offset(0));
    fixture.admin().delete(STORE).await.unwrap();
    drop(log);
    assert!(fixture.reopen().await);
    assert_eq!(code(fixture.log().bounds(partition(0)).await), ErrorCode::NotFound);
}

/// A record that any reader received is durable: the record survives a crash in the middle of
/// appends, and so does every acknowledged record.
pub async fn read_records_survive_a_crash(mut fixture: impl Fixture) {
    create(&fixture, 2).await;
    for round in 0..4 {
        let (stop, stopped) = watch::channel(false);
        let mut appenders = Vec::new();
        for lane in 0..6_u64 {
            let tasks = append_until(fixture.log(), lane, stopped.clone());
            appenders.push(tokio::spawn(tasks));
        }
        let reader = tokio::spawn(read_some(fixture.log(), partition(0), 60 * (round + 1)));
        let read_records = await_guarded(reader).await.unwrap();
        let outlives = fixture.reopen().await;
        stop.send_replace(true);
        let mut acknowledged = Vec::new();
        for appender in appenders {
            acknowledged.extend(await_guarded(appender).await.unwrap());
        }
        if !outlives {
            return;
        }
        let log = fixture.log();
        let records = read_all(&*log, partition(0), Offset(0)).await;
        assert_eq!(records[..read_records.len()], read_records, "a record that was read is gone");
        for (at, record) in acknowledged {
            let found = read_all(&*log, at, record.offset).await;
            assert_eq!(found.first(), Some(&record), "an acknowledged record is gone");
        }
    }
}

async fn append_until(
    log: Arc<dyn ChangeLog>,
    lane: u64,
    stopped: watch::Receiver<bool>,
) -> Vec<(PartitionRef, LogRecord)> {
    let at = partition((lane % 2) as u32);
    let mut acknowledged = Vec::new();
    for number in 0_u64.. {
        if *stopped.borrow() || acknowledged.len() > 2_000 {
            break;
        }
        let entry = entry(lane * 1_000_000 + number);
        match await_guarded(log.append(at, entry.clone())).await {
            Ok(receipt) => {
                let (offset, append_time) = (receipt.offset, receipt.append_time);
                acknowledged.push((at, LogRecord { offset, append_time, entry }));
            }
            Err(_) => break,
        }
        tokio::task::yield_now().await;
    }
    acknowledged
}

async fn read_some(log: Arc<dyn ChangeLog>, at: PartitionRef, count: usize) -> Vec<LogRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        let limit = ReadLimit { bytes_max: 2_000, wait_max: Duration::from_secs(60) };
        let next = Offset(records.len() as u64);
        records.extend(await_guarded(log.read(at, next, limit)).await.unwrap().records);
    }
    records
}

/// After a crash the next append gets the next offset and no lower append time.
pub async fn appends_continue_after_a_reopen(mut fixture: impl Fixture) {
    create(&fixture, 1).await;
    let first = append(&*fixture.log(), partition(0), entry(1)).await;
    if !fixture.reopen().await {
        return;
    }
    if let Some(clock) = fixture.clock() {
        clock.advance_micros(-5_000_000);
    }
    let second = append(&*fixture.log(), partition(0), entry(2)).await;
    assert_eq!(second.offset, Offset(1));
    assert!(second.append_time >= first.append_time, "the append time fell over a restart");
    let records = read_all(&*fixture.log(), partition(0), Offset(0)).await;
    assert!(records.iter().map(|record| record.entry.clone()).eq([entry(1), entry(2)]));
}
