//! The broker goes away under writers and readers, and comes back. Writes end with typed errors and
//! then are resolved, readers turn stale and recover, nothing is rebuilt, and forebayd survives.

use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::writes::PendingWrite;
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions, Store};
use forebay_testkit::brokers::Brokers;

use crate::daemon::{LONG, count_of, counts};
use crate::world::{HEARTBEATS_TWO, World, eventually};

/// Keys that are written in each part of a cycle.
const KEYS: std::ops::Range<i64> = 0..8;
const CYCLES: i64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_resolve_and_readers_recover_after_a_broker_outage() {
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(1).unwrap()).await.unwrap();
    let world = World::on(&brokers, "outage");
    let daemon = world.forebayd("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    for cycle in 0..CYCLES {
        for key in KEYS {
            store.upsert(key).increment("count", 1).send().await.unwrap();
        }
        // The broker is stopped in the first cycle and killed in the second.
        if cycle == 0 {
            brokers.stop(1).unwrap()
        } else {
            brokers.kill(1).unwrap()
        }
        let pending = send_in_vain(&store).await;
        eventually("a stale reader", || {
            let answer = reader.read_local(Some(HEARTBEATS_TWO), |view| view.get_document(1_i64));
            answer.is_err_and(|error| error.code() == ErrorCode::Stale)
        })
        .await;
        brokers.restart(1).unwrap();
        let retries = pending.into_iter().map(retry_until_known);
        futures::future::join_all(retries).await;
        eventually("a fresh reader", || {
            let answer = reader.read_local(Some(HEARTBEATS_TWO), |view| view.get_document(1_i64));
            answer.is_ok()
        })
        .await;
        for key in KEYS {
            let at = reader.partition_of(key).unwrap();
            reader.wait(&ReadOptions::latest(LONG), &[at]).await.unwrap();
            assert_eq!(count_of(&reader, key), Some(2 * (cycle + 1)), "key {key}");
        }
        assert!(reader.status().partitions.iter().all(|at| at.generation == 1));
    }
}

/// Writes to a log without a broker; asserts that each write ends with a typed error and is
/// unresolved.
async fn send_in_vain(store: &Store) -> Vec<PendingWrite> {
    let writes = KEYS
        .map(|key| store.upsert(key).increment("count", 1).deadline(Duration::from_secs(3)).send());
    let ended = futures::future::join_all(writes).await.into_iter().map(|ended| {
        let error = ended.unwrap_err();
        let typed = [ErrorCode::UnknownOutcome, ErrorCode::Unavailable];
        assert!(typed.contains(&error.code()), "{}", error.error());
        error.into_pending().unwrap()
    });
    ended.collect()
}

async fn retry_until_known(mut pending: PendingWrite) {
    let retries = async {
        loop {
            match pending.deadline(Duration::from_secs(5)).retry().await {
                Ok(outcome) => return outcome.require_complete().map(|_| ()).unwrap(),
                Err(error) => pending = error.into_pending().unwrap(),
            }
        }
    };
    tokio::time::timeout(LONG, retries).await.unwrap();
}
