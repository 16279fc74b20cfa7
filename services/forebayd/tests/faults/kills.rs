//! Conditional writes over kills. Proves that each ends as applied or condition failed, and that
//! exactly one of the racing writes of a document is applied.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::writes::WriteResult;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};

use crate::daemon::{Daemon, LONG, count_of, counts};

const CLIENTS: i64 = 3;
const KEYS: i64 = 60;
const KILLS: usize = 4;

fn start(data_dir: &Path, listen: &str) -> Daemon {
    Daemon::start(&["--data-dir", data_dir.to_str().unwrap()], listen)
}

/// Tries to be the first writer of each key; returns the keys for which it was.
async fn claim(address: String, who: i64, heard: Arc<AtomicUsize>) -> Vec<i64> {
    let options = ClientOptions::default().deadline(LONG);
    let client = Client::connect(&address, options).await.unwrap();
    let store = client.store("counts").await.unwrap();
    let mut won = Vec::new();
    for key in 0..KEYS {
        let written = store.upsert(key).set("count", who).if_absent().send().await.unwrap();
        match written.result {
            WriteResult::Applied => won.push(key),
            WriteResult::ConditionFailed(_) => {}
            WriteResult::Appended => panic!("a conditional write has an outcome"),
        }
        heard.fetch_add(1, Ordering::SeqCst);
    }
    won
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditional_writes_are_resolved_despite_kills() {
    let data = tempfile::tempdir().unwrap();
    let mut daemon = start(data.path(), "127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    client.create_store(&counts()).await.unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let claims: Vec<_> = (0..CLIENTS)
        .map(|who| tokio::spawn(claim(daemon.address.clone(), who, Arc::clone(&heard))))
        .collect();
    for kill in 1..=KILLS {
        let all = (CLIENTS * KEYS) as usize;
        while heard.load(Ordering::SeqCst) < kill * all / (KILLS + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let address = daemon.kill();
        daemon = start(data.path(), &address);
    }
    let mut winners = vec![Vec::new(); KEYS as usize];
    for (who, claim) in (0..CLIENTS).zip(claims) {
        for key in claim.await.unwrap() {
            winners[key as usize].push(who);
        }
    }
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    for (key, winners) in (0..KEYS).zip(winners) {
        assert_eq!(winners.len(), 1, "key {key} was won by {winners:?}");
        reader
            .wait(&ReadOptions::latest(LONG), &[reader.partition_of(key).unwrap()])
            .await
            .unwrap();
        assert_eq!(count_of(&reader, key), Some(winners[0]), "key {key}");
    }
}
