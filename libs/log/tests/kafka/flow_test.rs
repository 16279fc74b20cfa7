//! Order of appends in flight, readers far behind, and cancelled reads.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::Offset;
use forebay_log::{ChangeLog, KafkaLog, ReadLimit};
use futures::future::join_all;
use tokio::time::timeout;

use crate::support::{AT, HANG_GUARD, entry, fixture, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_in_flight_are_appended_in_issue_order() {
    let (fixture, _) = store().await;
    // The first appends, which wait for the lookup of the topic, keep their order, too.
    let appends = (0..2_000).map(|number| fixture.log.append(AT, entry(number)));
    let appended = timeout(HANG_GUARD, join_all(appends)).await.unwrap();
    for (number, appended) in appended.into_iter().enumerate() {
        assert_eq!(appended.unwrap().offset, Offset(number as u64));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_at_many_old_positions_all_reach_the_end() {
    const ENTRIES: u64 = 3_000;
    let (fixture, _) = store().await;
    let appends = (0..ENTRIES).map(|number| fixture.log.append(AT, entry(number)));
    timeout(HANG_GUARD, join_all(appends)).await.unwrap();
    let log = Arc::new(KafkaLog::open(fixture.options.clone()).await.unwrap());
    let readers = (0..12_u64).map(|reader| {
        let log = log.clone();
        tokio::spawn(async move {
            let mut next = reader * 200;
            while next < ENTRIES {
                let limit = ReadLimit { bytes_max: 4_000, wait_max: Duration::from_secs(100) };
                for record in log.read(AT, Offset(next), limit).await.unwrap().records {
                    assert_eq!((record.offset, record.entry), (Offset(next), entry(next)));
                    next += 1;
                }
            }
        })
    });
    for reader in join_all(readers).await {
        reader.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_lose_nothing() {
    const ENTRIES: u64 = 1_000;
    let (fixture, _) = store().await;
    let appends = (0..ENTRIES / 2).map(|number| fixture.log.append(AT, entry(number)));
    timeout(HANG_GUARD, join_all(appends)).await.unwrap();
    let log = KafkaLog::open(fixture.options.clone()).await.unwrap();
    let follower = tokio::spawn(async move {
        let (mut next, mut given_up) = (0, 0_u64);
        while next < ENTRIES {
            let limit = ReadLimit { bytes_max: 300, wait_max: Duration::from_secs(100) };
            // Some reads are cancelled at once, some halfway, some not at all.
            let patience = Duration::from_micros((given_up + next) % 40 * 200);
            let Ok(read) = timeout(patience, log.read(AT, Offset(next), limit)).await else {
                given_up += 1;
                continue;
            };
            for record in read.unwrap().records {
                assert_eq!((record.offset, record.entry), (Offset(next), entry(next)));
                next += 1;
            }
        }
        given_up
    });
    for number in ENTRIES / 2..ENTRIES {
        fixture.log.append(AT, entry(number)).await.unwrap();
    }
    assert!(timeout(HANG_GUARD, follower).await.unwrap().unwrap() > 0);
}

#[tokio::test]
async fn idle_log_reopens_its_released_clients() {
    let mut fixture = fixture().await;
    fixture.options.idle_timeout = Duration::from_millis(100);
    let log = KafkaLog::open(fixture.options.clone()).await.unwrap();
    log.create(AT.store, forebay_core::id::PartitionCount(1)).await.unwrap();
    for number in 0..5 {
        assert_eq!(log.append(AT, entry(number)).await.unwrap().offset, Offset(number));
        let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_secs(100) };
        let read = timeout(HANG_GUARD, log.read(AT, Offset(0), limit)).await.unwrap().unwrap();
        assert_eq!(read.records.len() as u64, number + 1);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
