//! `forebay-writer` and `forebay-replicator` as processes on a real Kafka broker: two writers and
//! one replicator, races between them, kills, wrong settings; and several replicators that share
//! the partitions.

mod features;
mod group;
mod pushes;
mod rebalance;
mod service;
mod snapshots;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use forebay::schema::Value;
use forebay::status::DeadLetter;
use forebay::writes::WriteResult;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::id::PartitionRef;
use forebay_core::partition::partition_of;
use forebay_log::ChangeLog;
use forebay_log::kafka::{KafkaLog, KafkaOptions};

use crate::service::{LONG, Service, WRITER, brokers, client, replicator, spec};

async fn race(store: &Store, key: i64, count: i64) -> bool {
    let written = store.upsert(key).set("count", count).if_absent().send().await.unwrap();
    match written.result {
        WriteResult::Applied => true,
        WriteResult::ConditionFailed(_) => false,
        WriteResult::Appended => panic!("a conditional write has an outcome"),
    }
}

fn count_of(reader: &Reader, key: i64) -> Option<i64> {
    let field = reader.definition().field("count").unwrap().id;
    match reader.get_document(key).unwrap()?.value(field) {
        Some(Value::Int64(count)) => Some(*count),
        other => panic!("key {key} holds {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_absent_race_over_two_writers_has_exactly_one_applied_write() {
    let replicator = Service::replicator("race", "127.0.0.1:0");
    let writers = [0, 1].map(|_| Service::writer("race", "127.0.0.1:0", &replicator));
    let (first, second) = (client(&writers[0].address).await, client(&writers[1].address).await);
    let store = first.create_store(&spec()).await.unwrap();
    let other_store = second.store("counts").await.unwrap();
    let reader = Reader::open(&replicator.address, ReaderOptions::new("counts")).await.unwrap();
    for key in 0..10 {
        let (first, second) = tokio::join!(race(&store, key, 1), race(&other_store, key, 2));
        assert_ne!(first, second, "key {key}: {first} and {second}");
        let token = store.upsert(key).increment("count", 10).send().await.unwrap().token;
        reader.await_token(&token, LONG).await.unwrap();
        assert_eq!(count_of(&reader, key), Some(if first { 11 } else { 12 }), "key {key}");
    }
    for writer in writers {
        assert!(writer.terminate().success(), "SIGTERM drains");
    }
    assert!(replicator.terminate().success(), "SIGTERM drains, open streams or not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_are_exact_despite_kills_of_their_writer() {
    let replicator = Service::replicator("kills", "127.0.0.1:0");
    let mut writer = Service::writer("kills", "127.0.0.1:0", &replicator);
    let client = client(&writer.address).await;
    let store = client.create_store(&spec()).await.unwrap();
    let mut last = None;
    for round in 0..4_u64 {
        let tasks = (0..4_i64).map(|key| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut token = None;
                for _ in 0..5 {
                    token =
                        Some(store.upsert(key).increment("count", 1).send().await.unwrap().token);
                }
                token
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        let address = writer.kill();
        writer = Service::writer("kills", &address, &replicator);
        last = Some(Vec::new());
        for task in tasks {
            last.as_mut().unwrap().extend(task.await.unwrap());
        }
    }
    let reader = Reader::open(&replicator.address, ReaderOptions::new("counts")).await.unwrap();
    for token in last.unwrap() {
        reader.await_token(&token, LONG).await.unwrap();
    }
    for key in 0..4 {
        assert_eq!(count_of(&reader, key), Some(20), "key {key}");
    }
}

async fn letters(address: &str, at: PartitionRef, count: usize) -> Vec<DeadLetter> {
    let client = client(address).await;
    let wait = async {
        loop {
            let page = client.dead_letters("counts", at.partition, &[], 0).await.unwrap();
            if page.letters.len() >= count {
                return page.letters;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the dead letters were not copied")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_records_are_copied_once_despite_kills_of_the_replicator() {
    let mut replicator = Service::replicator("letters", "127.0.0.1:0");
    let writer = Service::writer("letters", "127.0.0.1:0", &replicator);
    let store = client(&writer.address).await.create_store(&spec()).await.unwrap();
    let definition = store.definition();
    let partition = partition_of(&1_i64.to_le_bytes(), definition.partitions);
    let at = PartitionRef { store: definition.store, partition };
    let log = KafkaLog::open(KafkaOptions::dev(brokers(), "letters")).await.unwrap();
    let mut planted = Vec::new();
    for round in 0..3 {
        let garbage = Bytes::from(format!("garbage {round}"));
        let appended = log.append(at, garbage.clone()).await.unwrap();
        planted.push((appended.offset, garbage.to_vec()));
        if round != 1 {
            letters(&replicator.address, at, planted.len()).await;
        }
        let address = replicator.kill();
        replicator = Service::replicator("letters", &address);
    }
    let found = letters(&replicator.address, at, planted.len()).await;
    let found: Vec<_> = found.into_iter().map(|letter| (letter.offset, letter.entry)).collect();
    assert_eq!(found, planted);
    let applied = store.upsert(1_i64).set("count", 5).if_absent().send().await.unwrap();
    assert_eq!(applied.result, WriteResult::Applied);
}

fn run_refused(program: PathBuf, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} was taken");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn invalid_settings_are_refused_with_the_setting_to_use() {
    let brokers = ["--brokers", "127.0.0.1:1"];
    let programs: [fn() -> PathBuf; 2] = [|| WRITER.into(), replicator];
    for program in programs {
        for (arguments, advice) in [
            (&["--listen", "0.0.0.0:7071", "--brokers", "127.0.0.1:1"][..], "127.0.0.1:7071"),
            (&["--brokers", "nowhere"], "HOST:PORT"),
            (&["--topic-prefix", "a b", "--brokers", "127.0.0.1:1"], "`a b`"),
            (&[], "--brokers"),
            (&["--brokers", "127.0.0.1:1", "--brokres", "x"], "--brokres"),
        ] {
            let stderr = run_refused(program(), arguments);
            assert!(stderr.contains(advice), "{arguments:?}: {stderr}");
        }
    }
    let stderr =
        run_refused(WRITER.into(), &[&brokers[..], &["--replicator", "no where"]].concat());
    assert!(stderr.contains("`no where`"), "{stderr}");
}
