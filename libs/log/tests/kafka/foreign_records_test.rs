//! Effects of other users of the topics: foreign records, and topics that are removed and
//! recreated.

use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount};
use forebay_log::{ChangeLog, KafkaLog, ReadLimit};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureRecord, Producer};
use tokio::time::timeout;

use crate::support::{
    AT, Admin, HANG_GUARD, STORE, at_once, entry, patient_limit, producer, read_all, store,
};

#[tokio::test]
async fn log_returns_every_foreign_record() {
    let (fixture, topic) = store().await;
    fixture.log.append(AT, entry(0)).await.unwrap();
    let mut expected = vec![entry(0).to_vec()];
    // The client library has only lz4 built in; the topic's setting makes the broker store records
    // uncompressed.
    for settings in [&[("compression.codec", "none")], &[("compression.codec", "lz4")]] {
        let others = producer(settings);
        for payload in [&b""[..], b"\0\0\0", b"garbage", &[0xff; 5_000]] {
            let header = Header { key: "from", value: Some("others") };
            let record = FutureRecord::to(&topic)
                .partition(0)
                .key("a key")
                .payload(payload)
                .timestamp(4_102_444_800_000)
                .headers(OwnedHeaders::new().insert(header));
            others.send(record, HANG_GUARD).await.unwrap();
            expected.push(payload.to_vec());
        }
        let tombstone = FutureRecord::<str, [u8]>::to(&topic).partition(0).key("no payload");
        others.send(tombstone, HANG_GUARD).await.unwrap();
        expected.push(Vec::new());
    }
    let last = fixture.log.append(AT, entry(9)).await.unwrap();
    expected.push(entry(9).to_vec());
    let far_behind = KafkaLog::open(fixture.options.clone()).await.unwrap();
    for log in [&*fixture.log, &far_behind] {
        let records = read_all(log, Offset(0)).await;
        let entries: Vec<_> = records.iter().map(|record| record.entry.to_vec()).collect();
        assert_eq!(entries, expected);
        // The broker sets the time, regardless of the producer's timestamp.
        let times: Vec<Timestamp> = records.iter().map(|record| record.append_time).collect();
        assert!(times.is_sorted() && times.last() == Some(&last.append_time));
    }
}

#[tokio::test]
async fn offsets_of_transaction_markers_are_skipped() {
    let (fixture, topic) = store().await;
    let id = topic.clone();
    let others = producer(&[("transactional.id", &id)]);
    others.init_transactions(HANG_GUARD).unwrap();
    fixture.log.append(AT, entry(0)).await.unwrap();
    let mut expected = vec![(0, entry(0))];
    for (turn, is_kept) in [(1, true), (2, false), (3, true)] {
        others.begin_transaction().unwrap();
        let payload = entry(turn);
        let record = FutureRecord::<str, [u8]>::to(&topic).partition(0).payload(&payload);
        let offset = others.send(record, HANG_GUARD).await.unwrap().offset as u64;
        if is_kept {
            others.commit_transaction(HANG_GUARD).unwrap();
        } else {
            others.abort_transaction(HANG_GUARD).unwrap();
        }
        expected.push((offset, payload));
    }
    let far_behind = KafkaLog::open(fixture.options.clone()).await.unwrap();
    let bounds = far_behind.bounds(AT).await.unwrap();
    assert_eq!(bounds.end, Offset(7), "three records of a transaction and three markers");
    // The log may end with a transaction marker, which is no record.
    let at_marker = timeout(HANG_GUARD, far_behind.read(AT, Offset(6), at_once())).await.unwrap();
    assert!(at_marker.unwrap().records.is_empty());
    let last = fixture.log.append(AT, entry(9)).await.unwrap();
    assert_eq!(last.offset, Offset(7));
    expected.push((7, entry(9)));
    for log in [&*fixture.log, &far_behind] {
        let records = read_all(log, Offset(0)).await;
        let found: Vec<_> =
            records.into_iter().map(|record| (record.offset.0, record.entry)).collect();
        assert_eq!(found, expected);
        let from_marker = log.read(AT, Offset(6), at_once()).await.unwrap().records;
        assert_eq!(from_marker.first().map(|record| record.offset), Some(Offset(7)));
    }
}

fn assert_gone_or_not_yet(error: &forebay_core::Error) {
    let codes = [ErrorCode::NotFound, ErrorCode::Unavailable, ErrorCode::UnknownOutcome];
    assert!(codes.contains(&error.code()), "{error}");
}

#[tokio::test]
async fn topic_removed_by_another_client_is_not_found() {
    let (fixture, topic) = store().await;
    let log = fixture.log.clone();
    log.append(AT, entry(0)).await.unwrap();
    let reader = tokio::spawn(async move { log.read(AT, Offset(1), patient_limit()).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    Admin::new().remove(&topic).await;
    let read = timeout(HANG_GUARD, reader).await.unwrap().unwrap();
    assert_gone_or_not_yet(&read.unwrap_err());
    let log = &fixture.log;
    // The answer of one broker is not enough: that broker may have just started.
    let removal = timeout(HANG_GUARD, async {
        loop {
            let error = log.append(AT, entry(1)).await.unwrap_err();
            assert_gone_or_not_yet(&error);
            if error.code() == ErrorCode::NotFound {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    removal.await.expect("a topic that is gone is never told to be");
    assert_eq!(log.bounds(AT).await.unwrap_err().code(), ErrorCode::NotFound);
    let read = log.read(AT, Offset(0), at_once()).await;
    assert_eq!(read.unwrap_err().code(), ErrorCode::NotFound);
    log.create(STORE, PartitionCount(1)).await.unwrap();
    // The log refuses the first append if a client has reported the new topic's id by then.
    let appended = match log.append(AT, entry(2)).await {
        Err(error) if error.code() == ErrorCode::Unavailable => log.append(AT, entry(2)).await,
        appended => appended,
    };
    assert_eq!(appended.unwrap().offset, Offset(0));
}

/// Proves that readers lose their position even if the new topic is longer than that position, so
/// that Kafka itself reports no error.
#[tokio::test]
async fn recreated_topic_invalidates_its_old_positions() {
    for entries_new in [2, 50] {
        let (fixture, topic) = store().await;
        let log = fixture.log.clone();
        for number in 0..10 {
            log.append(AT, entry(number)).await.unwrap();
        }
        let read = read_all(&*log, Offset(0)).await;
        assert_eq!(read.len(), 10);
        let reader = tokio::spawn(async move { log.read(AT, Offset(10), patient_limit()).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let admin = Admin::new();
        admin.remove(&topic).await;
        admin.make(&topic, &[]).await;
        let others = producer(&[("linger.ms", "0")]);
        for _ in 0..entries_new {
            let record = FutureRecord::<str, str>::to(&topic).partition(0).payload("new");
            others.send(record, HANG_GUARD).await.unwrap();
        }
        let mut read = timeout(HANG_GUARD, reader).await.unwrap().unwrap();
        let loss = timeout(HANG_GUARD, async {
            loop {
                let code = read.expect_err("the reader went on in another log").code();
                if code != ErrorCode::Unavailable {
                    return code;
                }
                read = fixture.log.read(AT, Offset(10), patient_limit()).await;
            }
        });
        let code = loss.await.expect("the reader never hears that its log is another");
        assert!(matches!(code, ErrorCode::TokenLost | ErrorCode::NotFound), "{code:?}");
        // A reader that bootstraps again gets the new log and nothing of the old one.
        let records = timeout(HANG_GUARD, async {
            loop {
                match fixture.log.read(AT, Offset(0), at_once()).await {
                    Ok(_) => return read_all(&*fixture.log, Offset(0)).await,
                    Err(error) => assert!(error.code() != ErrorCode::Corrupt, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let records = records.await.unwrap();
        assert_eq!(records.len(), entries_new);
        assert!(records.iter().all(|record| record.entry[..] == b"new"[..]));
        // An entry that was written for the old log must not be acknowledged in the new one.
        let error = fixture.log.append(AT, entry(0)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        let appended = fixture.log.append(AT, entry(0)).await;
        assert_eq!(appended.unwrap().offset, Offset(entries_new as u64));
    }
}

/// Proves that records that a consumer far behind fetched from the deleted topic, before a read
/// took them, are not returned.
#[tokio::test]
async fn reader_discards_fetched_records_of_a_recreated_topic() {
    let (fixture, topic) = store().await;
    for number in 0..10 {
        fixture.log.append(AT, entry(number)).await.unwrap();
    }
    // The new log's tail starts at the end, so that the records are behind it.
    let log = KafkaLog::open(fixture.options.clone()).await.unwrap();
    let limit = ReadLimit { bytes_max: entry(0).len() + 1, wait_max: Duration::ZERO };
    assert_eq!(log.read(AT, Offset(0), limit).await.unwrap().records[0].entry, entry(0));
    let admin = Admin::new();
    admin.remove(&topic).await;
    admin.make(&topic, &[]).await;
    let others = producer(&[("linger.ms", "0")]);
    for _ in 0..50 {
        let record = FutureRecord::<str, str>::to(&topic).partition(0).payload("another");
        others.send(record, HANG_GUARD).await.unwrap();
    }
    let loss = timeout(HANG_GUARD, async {
        while let Err(error) = log.read(AT, Offset(10), limit).await {
            if error.code() == ErrorCode::TokenLost {
                return;
            }
        }
        panic!("the reader went on in another log");
    });
    loss.await.expect("the reader never hears that its log is another");
    let found = timeout(HANG_GUARD, async {
        let mut found = Vec::new();
        while found.len() < 5 {
            match log.read(AT, Offset(found.len() as u64), limit).await {
                Ok(read) => found.extend(read.records.into_iter().map(|record| record.entry)),
                Err(error) => assert!(error.code() != ErrorCode::Corrupt, "{error}"),
            }
        }
        found
    });
    let found = found.await.expect("the new log is never read");
    assert!(found.iter().all(|entry| entry[..] == b"another"[..]), "{found:?}");
}
