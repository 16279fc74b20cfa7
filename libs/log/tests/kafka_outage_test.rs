//! Brokers that stop, are killed, and come back. The tests prove that acknowledged entries survive,
//! that other appends fail with a typed error, and that repeating an append resolves its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions, ReadLimit};
use forebay_testkit::brokers::Brokers;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

const STORE: StoreId = StoreId(7);
const PARTITIONS: u32 = 3;
/// Longest wait for something that must happen: a guard against hanging, never a measurement.
const HANG_GUARD: Duration = Duration::from_secs(150);

fn partition(number: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(number) }
}

/// Starts, kills or restarts brokers on a blocking thread.
async fn on_brokers<T: Send + 'static>(
    brokers: &Arc<Brokers>,
    work: impl FnOnce(&Brokers) -> Result<T, String> + Send + 'static,
) -> T {
    let brokers = brokers.clone();
    tokio::task::spawn_blocking(move || work(&brokers)).await.unwrap().unwrap()
}

async fn start(count: usize) -> Arc<Brokers> {
    let start = tokio::task::spawn_blocking(move || Brokers::start(count));
    Arc::new(start.await.unwrap().unwrap())
}

fn shorten_timeouts(options: KafkaOptions) -> KafkaOptions {
    let (append_timeout, call_timeout) = (Duration::from_secs(3), Duration::from_secs(3));
    KafkaOptions { append_timeout, call_timeout, ..options }
}

/// Appends one entry, and repeats the append until it is acknowledged.
async fn append_until_acknowledged(log: &KafkaLog, at: PartitionRef, entry: &Bytes) -> Offset {
    let acknowledged = timeout(HANG_GUARD, async {
        loop {
            match log.append(at, entry.clone()).await {
                Ok(appended) => return appended.offset,
                Err(error) => assert_may_be_retried(&error),
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    acknowledged.await.expect("the entry is never acknowledged")
}

fn assert_may_be_retried(error: &forebay_core::Error) {
    let code = error.code();
    let is_typed = matches!(code, ErrorCode::UnknownOutcome | ErrorCode::Unavailable);
    assert!(is_typed, "not an error that a retry resolves: {error}");
}

/// Checks that a newly opened log has every acknowledged entry at its offset.
async fn assert_all_there(options: &KafkaOptions, acknowledged: &[(PartitionRef, Offset, Bytes)]) {
    let log = timeout(HANG_GUARD, async {
        loop {
            match KafkaLog::open(options.clone()).await {
                Ok(log) => return log,
                Err(error) => assert_may_be_retried(&error),
            }
        }
    });
    let log = log.await.unwrap();
    for number in 0..PARTITIONS {
        let at = partition(number);
        let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
        let mut records: Vec<forebay_log::LogRecord> = Vec::new();
        loop {
            let next = records.last().map_or(Offset(0), |record| record.offset.next());
            match timeout(HANG_GUARD, log.read(at, next, limit)).await.unwrap() {
                Ok(read) if read.records.is_empty() => break,
                Ok(read) => records.extend(read.records),
                Err(error) => assert_may_be_retried(&error),
            }
        }
        for (_, offset, entry) in acknowledged.iter().filter(|(partition, ..)| *partition == at) {
            let found = records.iter().find(|record| record.offset == *offset);
            assert_eq!(found.map(|record| &record.entry), Some(entry), "{at} at {offset} is lost");
        }
    }
}

/// Appends to one partition until told to stop; repeats each entry until it is acknowledged.
async fn append_until(
    log: Arc<KafkaLog>,
    number: u32,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) -> Vec<(PartitionRef, Offset, Bytes)> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let entry = Bytes::from(format!("{number}: {}", acknowledged.len()));
        let offset = append_until_acknowledged(&log, partition(number), &entry).await;
        acknowledged.push((partition(number), offset, entry));
        count.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

/// Waits until each appender has that many more acknowledged entries.
async fn go_on(counts: &[Arc<AtomicUsize>], appends_more: usize) {
    for count in counts {
        let expected = count.load(Ordering::Relaxed) + appends_more;
        let wait = timeout(HANG_GUARD, async {
            while count.load(Ordering::Relaxed) < expected {
                sleep(Duration::from_millis(10)).await;
            }
        });
        wait.await.expect("appends do not go on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_survives_one_dead_broker_of_three_and_stops_at_two() {
    let brokers = start(3).await;
    let options = shorten_timeouts(KafkaOptions::new(brokers.bootstrap(), "quorum"));
    let log = Arc::new(KafkaLog::open(options.clone()).await.unwrap());
    log.create(STORE, PartitionCount(PARTITIONS)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<_> = (0..PARTITIONS).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let appenders: Vec<_> = (0..PARTITIONS)
        .map(|number| {
            let count = counts[number as usize].clone();
            tokio::spawn(append_until(log.clone(), number, stop.clone(), count))
        })
        .collect();
    go_on(&counts, 30).await;
    on_brokers(&brokers, |brokers| brokers.kill(1)).await;
    // The second of these appends started after the kill.
    go_on(&counts, 30).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for appender in appenders {
        acknowledged.extend(appender.await.unwrap());
    }
    assert_all_there(&options, &acknowledged).await;

    on_brokers(&brokers, |brokers| brokers.kill(2)).await;
    let late: Vec<_> = (0..PARTITIONS).map(|number| (partition(number), "late".into())).collect();
    let log = &log;
    let appends = late.iter().map(|(at, entry)| async move {
        for _ in 0..2 {
            let appended = timeout(HANG_GUARD, log.append(*at, Bytes::clone(entry))).await.unwrap();
            let error = appended.expect_err("one broker of three acknowledged an entry");
            assert_may_be_retried(&error);
        }
    });
    join_all(appends).await;
    for number in [1, 2] {
        on_brokers(&brokers, move |brokers| brokers.restart(number)).await;
    }
    for (at, entry) in late {
        let offset = append_until_acknowledged(log, at, &entry).await;
        acknowledged.push((at, offset, entry));
    }
    assert_all_there(&options, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_outage_costs_only_time() {
    let brokers = start(1).await;
    let options = shorten_timeouts(KafkaOptions::dev(brokers.bootstrap(), "outage"));
    let log = Arc::new(KafkaLog::open(options.clone()).await.unwrap());
    log.create(STORE, PartitionCount(PARTITIONS)).await.unwrap();
    let at = partition(0);
    let mut acknowledged = Vec::new();
    for number in 0..20 {
        let entry = Bytes::from(format!("before: {number}"));
        acknowledged.push((at, append_until_acknowledged(&log, at, &entry).await, entry));
    }
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_millis(200) };
    assert_eq!(log.read(at, Offset(20), limit).await.unwrap().end, Offset(20));

    on_brokers(&brokers, |brokers| brokers.stop(1)).await;
    let late = Bytes::from("late");
    let error = timeout(HANG_GUARD, log.append(at, late.clone())).await.unwrap().unwrap_err();
    assert_may_be_retried(&error);
    assert_eq!(log.bounds(at).await.unwrap_err().code(), ErrorCode::Unavailable);
    let error = KafkaLog::open(options.clone()).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    // A reader at the end receives an error when the brokers are gone, instead of waiting forever.
    let reader = timeout(HANG_GUARD, async {
        loop {
            if let Err(error) = log.read(at, Offset(20), limit).await {
                return error;
            }
        }
    });
    assert_eq!(reader.await.unwrap().code(), ErrorCode::Unavailable);

    on_brokers(&brokers, |brokers| brokers.restart(1)).await;
    let offset = append_until_acknowledged(&log, at, &late).await;
    acknowledged.push((at, offset, late));
    // The follower of the same log continues at its position.
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_secs(1_000) };
    let read = timeout(HANG_GUARD, async {
        loop {
            match log.read(at, offset, limit).await {
                Ok(read) => return read,
                Err(error) => assert_may_be_retried(&error),
            }
        }
    });
    assert_eq!(read.await.unwrap().records[0].entry, &b"late"[..]);
    assert_all_there(&options, &acknowledged).await;
}
