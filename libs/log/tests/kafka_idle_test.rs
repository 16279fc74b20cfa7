//! Clients of a log on Kafka: a few for any number of readers, fewer without readers, none after
//! the drop. This is the only test of its process, because it counts the process's threads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions, ReadLimit};
use forebay_testkit::brokers::Brokers;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

const PARTITIONS: u32 = 16;
/// Longest wait for something that must happen: a guard against hanging, never a measurement.
const HANG_GUARD: Duration = Duration::from_secs(120);
/// Clients for administration, producer, follower and four cursors.
const CLIENTS_MAX: usize = 7;

/// Returns the number of running librdkafka clients: each has one thread of this name.
fn clients() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read(thread.path().join("comm")).ok());
    names.filter(|name| name.starts_with(b"rdk:main")).count()
}

async fn wait_for_clients(expected: usize) {
    let wait = timeout(HANG_GUARD, async {
        while clients() != expected {
            sleep(Duration::from_millis(20)).await;
        }
    });
    wait.await.unwrap_or_else(|_| panic!("{} clients run, not {expected}", clients()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_clients_are_few_and_released_when_idle() {
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(1)).await.unwrap().unwrap();
    let idle_timeout = Duration::from_millis(500);
    let options = KafkaOptions { idle_timeout, ..KafkaOptions::dev(brokers.bootstrap(), "idle") };
    let log = Arc::new(KafkaLog::open(options.clone()).await.unwrap());
    let store = StoreId(7);
    log.create(store, PartitionCount(PARTITIONS)).await.unwrap();
    let places =
        (0..PARTITIONS).map(|number| PartitionRef { store, partition: PartitionId(number) });
    for at in places.clone() {
        let appends = (0..50).map(|_| log.append(at, Bytes::from_static(b"entry")));
        assert!(join_all(appends).await.iter().all(Result::is_ok));
    }
    assert_eq!(clients(), 2, "administration and producer");
    let reads =
        places.flat_map(|at| (0..50).map(move |from| (at, Offset(from)))).map(|(at, from)| {
            let log = log.clone();
            tokio::spawn(async move {
                let limit = ReadLimit { bytes_max: 1, wait_max: Duration::from_secs(100) };
                loop {
                    match log.read(at, from, limit).await {
                        Ok(read) => {
                            assert_eq!(read.records[0].offset, from);
                            return clients();
                        }
                        // With so many readers far behind, some get no turn within a call's
                        // timeout.
                        Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
                    }
                }
            })
        });
    for read in timeout(HANG_GUARD, join_all(reads)).await.unwrap() {
        let clients = read.unwrap();
        assert!(clients <= CLIENTS_MAX, "{clients} clients run");
    }
    wait_for_clients(2).await;
    drop(log);
    wait_for_clients(0).await;
}
