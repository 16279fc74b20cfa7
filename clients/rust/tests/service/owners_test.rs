//! Three processes share a directory, and the process that maintains a copy is killed again and
//! again, at random moments of the writes. The remaining processes have the documents of the log,
//! each change once; so does a reader that never used the directory.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::writes::Token;
use forebay::{Reader, Store};
use forebay_core::entropy::{Entropy, SeededEntropy, SystemEntropy};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::follower::{CheckpointFolder, Follower};
use crate::world::{PATIENCE, World, counters, counts};

const ROUNDS: u64 = 24;
const PROCESSES: usize = 3;
const WRITERS: u64 = 4;
const KEYS: u64 = 60;
/// Most microseconds between the resumption of writes and a kill.
const KILL_US_MAX: u64 = 60_000;

/// Writers that run until `stop` is set; the holder of the gate's write lock excludes all writes.
struct Writers {
    store: Store,
    gate: RwLock<()>,
    stop: AtomicBool,
    /// Token of everything that was written.
    token: Mutex<Token>,
}

impl Writers {
    /// Writes until stopped; returns the number of its increments.
    async fn write(&self, seed: u64) -> i64 {
        let entropy = SeededEntropy::new(seed);
        let number = |bound: u64| entropy.next_u64().unwrap() % bound;
        let mut increments = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let _writing = self.gate.read().await;
            let (count, other) =
                (format!("count-{}", number(KEYS)), format!("other-{}", number(KEYS)));
            let text = "x".repeat(number(400) as usize);
            let mut batch = self.store.batch();
            let increment = |key: &str| self.store.upsert(key).increment("n", 1);
            batch.add(increment(&count)).unwrap();
            increments += 1;
            match number(6) {
                0 => batch.add(self.store.delete(other.as_str())),
                1 => batch.add(self.store.put(other.as_str()).set("n", number(99) as i64)),
                2 => batch.add(self.store.upsert(other.as_str()).set("name", text).if_absent()),
                3 => {
                    // Two changes of one key in one entry, with a delete of the other key in
                    // between.
                    batch.add(self.store.delete(other.as_str())).unwrap();
                    batch.add(increment(&other)).unwrap();
                    increments += 1;
                    batch.add(increment(&count))
                }
                4 => batch.add(increment(&other).set("name", text)),
                _ => batch.add(self.store.upsert(other.as_str()).set("n", 1).if_newer("n")),
            }
            .unwrap();
            let outcome = batch.send().await.unwrap();
            self.token.lock().merge(&outcome.token).unwrap();
        }
        increments
    }
}

/// Returns all documents of a reader, as [`Follower::documents`] prints them.
fn documents(reader: &Reader) -> Vec<String> {
    let (mut documents, mut scan) = (Vec::new(), reader.scan());
    let mut visit = |found: forebay::reads::ScannedDocument<'_>| {
        let key = found.key.primary().with_bytes(|key| String::from_utf8_lossy(key).into_owned());
        documents.push(format!("{key} {:?}", found.row.document()?));
        Ok(())
    };
    while reader.scan_next(&mut scan, None, 1_000, &mut visit).unwrap() > 0 {}
    documents.sort();
    documents
}

/// Returns the process that has the lock of a partition.
fn owner_of(folder: &CheckpointFolder, partition: u64) -> Option<u32> {
    let mut files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let is_it = |name: &str| name.ends_with(&format!("-{partition:04}.lock"));
    let lock = files.find(|path| path.to_str().is_some_and(is_it))?;
    let of_lock = format!(":{}", lock.metadata().unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    // `1: POSIX  ADVISORY  WRITE <process> <device>:<inode> 0 EOF`
    let mut lock_lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lock_lines
        .find(|fields| fields.get(5).is_some_and(|file| file.ends_with(&of_lock)))?
        .get(4)?
        .parse()
        .ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_with_repeatedly_killed_owners_have_each_change_once() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let folder = CheckpointFolder::new(store.definition().store);
    let of_log = world.reader("counters").await;
    let start = || Follower::start(&world, folder.path(), true);
    let mut processes: Vec<Follower> = (0..PROCESSES).map(|_| start()).collect();
    processes.iter_mut().for_each(Follower::await_ready);
    let writers = Arc::new(Writers {
        store: store.clone(),
        gate: RwLock::new(()),
        stop: AtomicBool::new(false),
        token: Mutex::new(Token::new(store.definition().store)),
    });
    let writing: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let writers = Arc::clone(&writers);
            tokio::spawn(async move { writers.write(seed).await })
        })
        .collect();

    let numbers = SeededEntropy::new(SystemEntropy.next_u64().unwrap());
    let number = |bound: u64| numbers.next_u64().unwrap() % bound;
    let mut owners_killed = 0;
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_micros(number(KILL_US_MAX))).await;
        let owner = owner_of(&folder, number(4));
        let of_owner = processes.iter().position(|candidate| Some(candidate.process.id()) == owner);
        owners_killed += u64::from(of_owner.is_some());
        drop(processes.remove(of_owner.unwrap_or(0)));
        // The replacement starts while others take over, and while writes continue.
        processes.push(start());
        if round % 3 > 0 {
            continue;
        }
        let _alone = writers.gate.write().await;
        let token = writers.token.lock().clone();
        of_log.await_token(&token, PATIENCE).await.unwrap();
        let expected = documents(&of_log);
        for process in &mut processes {
            assert_eq!(process.documents(&token), expected, "round {round}");
        }
    }
    writers.stop.store(true, Ordering::Relaxed);
    let increments: i64 = join_all(writing).await.into_iter().map(Result::unwrap).sum();
    let token = writers.token.lock().clone();
    of_log.await_token(&token, PATIENCE).await.unwrap();
    let fresh_reader = world.reader("counters").await;
    for reader in [&of_log, &fresh_reader] {
        let counts = counts(reader).await.into_iter();
        let counted_here =
            counts.filter(|(key, _)| key.starts_with(b"count-")).map(|entry| entry.1);
        assert_eq!(counted_here.sum::<i64>(), increments, "each increment once");
    }
    let expected = documents(&fresh_reader);
    for process in &mut processes {
        assert_eq!(process.documents(&token), expected);
    }
    assert_eq!(documents(&of_log), expected);
    println!("{owners_killed} of {ROUNDS} kills met an owner");
    assert!(owners_killed > ROUNDS / 2, "{owners_killed} kills met an owner");
}
