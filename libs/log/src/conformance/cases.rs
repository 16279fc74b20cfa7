//! Rules that need neither waiting nor a crash.

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

use super::fixture::{Fixture, STORE, append, at_once, code, create, entry, partition, read_all};

/// Entries come back bit for bit, in append order, at offsets from 0 without gaps.
pub async fn entries_are_read_back_in_order(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for number in 0..200 {
        let receipt = append(&*log, partition(0), entry(number)).await;
        assert_eq!(receipt.offset, Offset(number));
    }
    for from in [0, 1, 77, 199, 200] {
        let records = read_all(&*log, partition(0), Offset(from)).await;
        assert_eq!(records.len() as u64, 200 - from);
        for (number, record) in (from..).zip(records) {
            assert_eq!((record.offset, record.entry), (Offset(number), entry(number)));
        }
    }
}

/// A read returns at most the requested bytes of entries, and at least one record.
pub async fn read_returns_no_more_than_requested(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for number in 0..50_u8 {
        append(&*log, partition(0), Bytes::from(vec![number; 100])).await;
    }
    for (bytes_max, records_max) in [(100, 1), (199, 1), (200, 2), (1_050, 10), (100_000, 50)] {
        let mut next = 0;
        while next < 50 {
            let read = log.read(partition(0), Offset(next), at_once(bytes_max)).await.unwrap();
            assert_eq!(read.end, Offset(50));
            assert!((1..=records_max).contains(&read.records.len()), "limit of {bytes_max}");
            for record in read.records {
                assert_eq!(record.offset, Offset(next));
                assert_eq!(record.entry[..], [next as u8; 100]);
                next += 1;
            }
        }
    }
}

/// A read returns a record that exceeds the limit, alone.
pub async fn record_above_the_limit_is_returned_alone(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for length in [10, 50_000, 10] {
        append(&*log, partition(0), Bytes::from(vec![7; length])).await;
    }
    for bytes_max in [0, 1, 10, 49_999] {
        let read = log.read(partition(0), Offset(1), at_once(bytes_max)).await.unwrap();
        assert_eq!(read.records.len(), 1);
        assert_eq!((read.records[0].offset, read.records[0].entry.len()), (Offset(1), 50_000));
    }
}

/// The end is the offset that the next append gets.
pub async fn bounds_follow_appends(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for number in 0..10 {
        let bounds = log.bounds(partition(0)).await.unwrap();
        assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(number)));
        assert_eq!(append(&*log, partition(0), entry(number)).await.offset, bounds.end);
    }
}

/// Reading below the start or above the end fails with `TokenLost`; reading at the end does not.
pub async fn position_outside_the_log_is_lost(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for number in 0..3 {
        append(&*log, partition(0), entry(number)).await;
    }
    let at_end = log.read(partition(0), Offset(3), at_once(100)).await.unwrap();
    assert!(at_end.records.is_empty());
    for offset in [4, 1_000, u64::MAX] {
        let read = log.read(partition(0), Offset(offset), at_once(100)).await;
        assert_eq!(code(read), ErrorCode::TokenLost, "at {offset}");
    }
    fixture.admin().delete(STORE).await.unwrap();
    create(&fixture, 1).await;
    append(&*fixture.log(), partition(0), entry(0)).await;
    let read = fixture.log().read(partition(0), Offset(3), at_once(100)).await;
    assert_eq!(code(read), ErrorCode::TokenLost, "an old place in a log that was made anew");
}

/// No call creates a log by naming it.
pub async fn uncreated_log_is_not_found(fixture: impl Fixture) {
    create(&fixture, 2).await;
    let log = fixture.log();
    let other = PartitionRef { store: StoreId(99), partition: PartitionId(0) };
    for at in [other, partition(2), partition(u32::MAX)] {
        assert_eq!(code(log.append(at, entry(1)).await), ErrorCode::NotFound);
        assert_eq!(code(log.read(at, Offset(0), at_once(1)).await), ErrorCode::NotFound);
        assert_eq!(code(log.bounds(at).await), ErrorCode::NotFound);
    }
}

/// Repeated creation and deletion change nothing; a deleted log is not found, and a recreated one
/// is empty.
pub async fn create_and_delete_may_be_repeated(fixture: impl Fixture) {
    create(&fixture, 2).await;
    append(&*fixture.log(), partition(1), entry(1)).await;
    create(&fixture, 2).await;
    assert_eq!(read_all(&*fixture.log(), partition(1), Offset(0)).await.len(), 1);
    let admin = fixture.admin();
    let other_count = admin.create(STORE, PartitionCount(3)).await;
    assert_eq!(code(other_count), ErrorCode::InvalidArgument);
    admin.delete(STORE).await.unwrap();
    assert_eq!(code(fixture.log().bounds(partition(1)).await), ErrorCode::NotFound);
    assert_eq!(code(fixture.log().append(partition(1), entry(1)).await), ErrorCode::NotFound);
    admin.delete(STORE).await.unwrap();
    create(&fixture, 3).await;
    let bounds = fixture.log().bounds(partition(1)).await.unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(0)));
    assert_eq!(append(&*fixture.log(), partition(1), entry(2)).await.offset, Offset(0));
}

/// A log that cannot administer returns `Unsupported` and changes nothing.
pub async fn read_only_log_refuses_administration(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    append(&*log, partition(0), entry(1)).await;
    if fixture.administers() {
        log.trim(partition(0), Offset(0)).await.unwrap();
        return;
    }
    let create = log.create(StoreId(77), PartitionCount(1)).await;
    assert_eq!(code(create), ErrorCode::Unsupported);
    assert_eq!(code(log.delete(STORE).await), ErrorCode::Unsupported);
    assert_eq!(code(log.trim(partition(0), Offset(1)).await), ErrorCode::Unsupported);
    assert_eq!(read_all(&*log, partition(0), Offset(0)).await.len(), 1);
}

/// The control log exists from the start and cannot be deleted.
pub async fn control_log_always_exists(fixture: impl Fixture) {
    let at = PartitionRef::CONTROL;
    assert_eq!(append(&*fixture.log(), at, entry(1)).await.offset, Offset(0));
    let result = fixture.admin().delete(at.store).await;
    assert_eq!(code(result), ErrorCode::InvalidArgument);
    let result = fixture.admin().create(at.store, PartitionCount(1)).await;
    assert_eq!(code(result), ErrorCode::InvalidArgument);
    assert_eq!(read_all(&*fixture.log(), at, Offset(0)).await.len(), 1);
}

/// Trimming never removes a record at or above the given offset, and moves no end.
pub async fn trim_retains_records_at_or_above_its_offset(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    for number in 0..100 {
        append(&*log, partition(0), entry(number)).await;
    }
    let mut highest = 0;
    for before in [0, 60, 60, 10, 100] {
        highest = before.max(highest);
        fixture.admin().trim(partition(0), Offset(before)).await.unwrap();
        let bounds = log.bounds(partition(0)).await.unwrap();
        assert!(bounds.start <= Offset(highest) && bounds.end == Offset(100));
        let records = read_all(&*log, partition(0), bounds.start).await;
        for (number, record) in (bounds.start.0..).zip(&records) {
            assert_eq!((record.offset, &record.entry), (Offset(number), &entry(number)));
        }
        assert_eq!(records.len() as u64, 100 - bounds.start.0);
        if bounds.start > Offset(0) {
            let offset = Offset(bounds.start.0 - 1);
            let read = log.read(partition(0), offset, at_once(100)).await;
            assert_eq!(code(read), ErrorCode::TokenLost);
        }
    }
    let result = fixture.admin().trim(partition(0), Offset(101)).await;
    assert_eq!(code(result), ErrorCode::InvalidArgument);
    let admin = fixture.admin();
    assert_eq!(append(&*log, partition(0), entry(100)).await.offset, Offset(100));
    admin.trim(partition(0), Offset(101)).await.unwrap();
    assert_eq!(append(&*log, partition(0), entry(101)).await.offset, Offset(101));
    admin.trim(partition(0), Offset(101)).await.unwrap();
    assert_eq!(log.bounds(partition(0)).await.unwrap().start, Offset(101));
    let records = read_all(&*log, partition(0), Offset(101)).await;
    assert_eq!(records.iter().map(|record| &record.entry).collect::<Vec<_>>(), [&entry(101)]);
}

/// Changes to one partition do not show in another.
pub async fn partitions_are_isolated(fixture: impl Fixture) {
    create(&fixture, 5).await;
    let log = fixture.log();
    for number in 0..100_u64 {
        append(&*log, partition((number % 4) as u32), entry(number)).await;
    }
    fixture.admin().trim(partition(0), Offset(25)).await.unwrap();
    for lane in 1..4_u64 {
        let records = read_all(&*log, partition(lane as u32), Offset(0)).await;
        let numbers = (0..25).map(|turn| turn * 4 + lane);
        assert!(records.iter().map(|record| record.entry.clone()).eq(numbers.map(entry)));
    }
    assert_eq!(log.bounds(partition(4)).await.unwrap().end, Offset(0));
}

/// Append times never fall within a partition, even if the clock does, and are never lower than the
/// clock. Readers see the append times that the appenders received.
pub async fn append_times_never_decrease(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    let mut append_times = Vec::new();
    for (number, step) in [0, 5, 5_000_000, -9_000_000, -1, 3, 20_000_000].into_iter().enumerate() {
        let mut lowest = i64::MIN;
        if let Some(clock) = fixture.clock() {
            clock.advance_micros(step);
            lowest = forebay_core::clock::Clock::now(&*clock).as_micros();
        }
        let receipt = append(&*log, partition(0), entry(number as u64)).await;
        assert!(receipt.append_time.as_micros() >= lowest, "below the clock at {number}");
        let server_time = log.bounds(partition(0)).await.unwrap().server_time;
        assert!(server_time.is_none_or(|time| time >= receipt.append_time), "at {number}");
        append_times.push(receipt.append_time);
    }
    assert!(append_times.is_sorted(), "append times fell: {append_times:?}");
    let read = read_all(&*log, partition(0), Offset(0)).await;
    assert!(read.iter().map(|record| record.append_time).eq(append_times));
}

/// A log stores and returns an entry of exactly the limit. An entry of one byte more fails with a
/// typed error and changes nothing.
pub async fn largest_entry_is_accepted_and_a_larger_entry_is_refused(fixture: impl Fixture) {
    create(&fixture, 1).await;
    let log = fixture.log();
    let too_large = Bytes::from(vec![1; ENTRY_FRAME_BYTES_MAX + 1]);
    let error = log.append(partition(0), too_large.clone()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!(error.context().limit, Some(ENTRY_FRAME_BYTES_MAX as u64));
    assert_eq!(error.context().actual, Some(ENTRY_FRAME_BYTES_MAX as u64 + 1));
    append(&*log, partition(0), entry(1)).await;
    let largest = too_large.slice(1..);
    assert_eq!(append(&*log, partition(0), largest.clone()).await.offset, Offset(1));
    append(&*log, partition(0), entry(2)).await;
    let records = read_all(&*log, partition(0), Offset(0)).await;
    assert_eq!(records.len(), 3);
    assert!(records[1].entry == largest, "the largest entry came back changed");
}
