//! Kills a real process on a real disk with SIGKILL at arbitrary moments. The test proves that
//! every acknowledged entry survives, and that the log is a prefix of the sent entries.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::{Entropy, SystemEntropy};
use forebay_core::id::{Offset, PartitionCount, PartitionRef};
use forebay_log::ChangeLog;
use forebay_log::disk::{Disk, RealDisk};
use forebay_log::embedded_log::{EmbeddedLog, EmbeddedOptions};

use super::{STORE, at, read_all};

/// Set for the process to kill; the value is its data directory.
const CHILD_DIR: &str = "FOREBAY_LOG_KILL_TEST_DIR";
const ROUNDS: u64 = 8;
const LANES: u64 = 6;

async fn open(dir: &Path) -> EmbeddedLog {
    let mut options = EmbeddedOptions::new(dir);
    options.segment_bytes = 50_000;
    EmbeddedLog::open(Arc::new(RealDisk), Arc::new(SystemClock), options).await.unwrap()
}

fn place(lane: u64) -> PartitionRef {
    at((lane % 3) as u32)
}

/// Returns entry `number` of a lane; the length varies.
fn entry(lane: u64, number: u64) -> Bytes {
    let text = format!("{lane} {number} ");
    text.bytes().cycle().take(text.len() + (number * 37 % 900) as usize).collect()
}

/// Parses the lane and the number of an entry.
fn sender(entry: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(entry).unwrap();
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Appends forever and prints acknowledgements until the process is killed.
fn append_until_killed(dir: &Path) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = Arc::new(open(dir).await);
        log.create(STORE, PartitionCount(3)).await.unwrap();
        let mut next = BTreeMap::new();
        for partition in 0..3 {
            for record in read_all(&log, at(partition), Offset(0)).await.unwrap() {
                let (lane, number) = sender(&record.entry);
                next.insert(lane, number + 1);
            }
        }
        let lanes = (0..LANES).map(|lane| {
            let (log, first) = (log.clone(), next.get(&lane).copied().unwrap_or(0));
            tokio::spawn(async move {
                for number in first.. {
                    let appended = log.append(place(lane), entry(lane, number)).await.unwrap();
                    let line = format!("ack {lane} {number} {}\n", appended.offset);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            })
        });
        futures::future::join_all(lanes).await;
    });
}

/// Starts a process, kills it after it has acknowledged some entries, and returns all
/// acknowledgements.
fn kill_after(dir: &Path, acknowledged: u64) -> Vec<(u64, u64, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill_test::acknowledged_entries_survive_kill_9", "--exact", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledgements = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(numbers) = line.strip_prefix("ack ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').filter_map(|text| text.parse().ok()).collect();
        // A pipe takes a write this short whole or not at all, so the kill cuts no line.
        let [lane, number, offset] = numbers[..] else { panic!("no acknowledgement: {line}") };
        acknowledgements.push((lane, number, offset));
        if acknowledgements.len() as u64 == acknowledged {
            let lock = RealDisk.lock(&dir.join("lock")).map_err(|error| error.kind());
            assert_eq!(
                lock.err(),
                Some(std::io::ErrorKind::WouldBlock),
                "two processes may append"
            );
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(
        !status.success() && acknowledgements.len() as u64 >= acknowledged,
        "the child ended by itself"
    );
    acknowledgements
}

#[test]
fn acknowledged_entries_survive_kill_9() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return append_until_killed(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut acknowledgements = BTreeMap::new();
    for round in 0..ROUNDS {
        let acknowledged = 1 + SystemEntropy.next_u64().unwrap() % 400;
        for (lane, number, offset) in kill_after(dir.path(), acknowledged) {
            acknowledgements.insert((place(lane), offset), (lane, number));
        }
        runtime.block_on(async {
            let context = format!("round {round}, killed after {acknowledged}");
            let log = open(dir.path()).await;
            let mut next: BTreeMap<u64, u64> = BTreeMap::new();
            for partition in 0..3 {
                let records = read_all(&log, at(partition), Offset(0)).await.unwrap();
                for ((place, offset), sent) in &acknowledgements {
                    if *place == at(partition) {
                        let found = records.get(*offset as usize).map(|record| &record.entry[..]);
                        let sent = entry(sent.0, sent.1);
                        assert_eq!(found, Some(&sent[..]), "{context}: {place} lost {offset}");
                    }
                }
                for record in records {
                    let (lane, number) = sender(&record.entry);
                    let expected = next.entry(lane).or_default();
                    assert_eq!(number, *expected, "{context}: lane {lane} has a gap or a repeat");
                    assert_eq!(record.entry, entry(lane, number), "{context}");
                    *expected += 1;
                }
            }
            log.close().await;
        });
    }
}
