//! `forebayd dev` on real Kafka: kills, garbage, broker outages, a deleted topic, two processes at
//! once, and repartitions. Tests share one broker, and each has its own topics; tests that stop a
//! broker have one of their own.

mod builders;
#[path = "../daemon/mod.rs"]
mod daemon;
mod garbage;
mod lost_topic;
mod outage;
#[path = "../repartition/mod.rs"]
mod repartition;
mod repartitions;
mod start;
#[path = "../users/mod.rs"]
mod users;
mod world;

use daemon::{Daemon, kills_neither_lose_nor_repeat_writes};
use forebay::reads::ReadOptions;
use forebay::writes::WriteResult;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};

use crate::daemon::{LONG, count_of, counts};
use crate::world::{HEARTBEATS_TWO, World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_on_kafka_neither_lose_nor_repeat_acknowledged_writes() {
    let world = World::new("kills");
    kills_neither_lose_nor_repeat_writes(|listen| world.forebayd(listen)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_keep_silent_readers_fresh() {
    let world = World::new("heartbeats");
    let daemon = world.forebayd("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let ends = || reader.status().partitions.iter().map(|at| at.end_offset.0).collect::<Vec<_>>();
    let before = ends();
    eventually("three heartbeats in every partition", || {
        ends().iter().zip(&before).all(|(end, before)| *end >= before + 3)
    })
    .await;
    eventually("a fresh answer", || {
        let answer = reader.read_local(Some(HEARTBEATS_TWO), |view| view.get_document(1_i64));
        answer.is_ok_and(|document| document.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_absent_race_has_exactly_one_applied_write() {
    let world = World::new("outcomes");
    let daemon = world.forebayd("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    for key in 0..5 {
        let race = (0..4).map(|who| race(&daemon, key, who));
        let heard = futures::future::join_all(race).await;
        let winners: Vec<i64> = heard.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "key {key}");
        reader
            .wait(&ReadOptions::latest(LONG), &[reader.partition_of(key).unwrap()])
            .await
            .unwrap();
        assert_eq!(count_of(&reader, key), Some(winners[0]), "key {key}");
    }
}

/// Returns the writer of the document, if this client is the writer.
async fn race(daemon: &Daemon, key: i64, who: i64) -> Option<i64> {
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.store("counts").await.unwrap();
    let written = store.upsert(key).set("count", who).if_absent().send().await.unwrap();
    match written.result {
        WriteResult::Applied => Some(who),
        WriteResult::ConditionFailed(_) => None,
        WriteResult::Appended => panic!("a conditional write has an outcome"),
    }
}
