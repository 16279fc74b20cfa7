//! A reader's process is killed at any moment while it writes checkpoints. The directory then opens
//! at exactly one position of each partition's log, and the next reader continues from there. The
//! tests cover readers that share a copy, which is next to the checkpoints, and readers that each
//! map a checkpoint.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::reads::{CheckpointOptions, FieldRead};
use forebay::schema::PartitionId;
use forebay::status::{PartitionStatus, Phase};
use forebay::{ErrorCode, ReaderOptions, Store};
use forebay_core::change::EntryBody;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::{Entropy, SeededEntropy, SystemEntropy};
use forebay_core::id::{Offset, PartitionRef};
use forebay_entries::CatalogFollower;
use forebay_log::disk::RealDisk;
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{ChangeLog, ReadLimit};
use forebay_reader::{LogBarriers, Reader, ReaderParts};
use forebay_wire::entry::decode_entry;
use futures::future::join_all;

use crate::follower::{CheckpointFolder, Follower};
use crate::gate::GatedLog;
use crate::world::{INT64, PATIENCE, SOON, World, counters};

const ROUNDS: u64 = 40;
const KEYS: u64 = 400;
/// Most milliseconds between the start of the process, or every other time its readiness, and a
/// kill.
const KILL_MS_MAX: u64 = 120;
/// Rounds for each loss of the shared copy, as by a restart of the machine.
const ROUNDS_PER_LOSS: u64 = 5;

fn key(number: u64) -> String {
    format!("key-{number}")
}

/// Returns each key's count once the entries below an offset are applied: a change counts once,
/// however often its client has sent it.
async fn oracle(
    world: &World,
    store: &Store,
    at: PartitionId,
    end: Offset,
) -> BTreeMap<Vec<u8>, i64> {
    let at = PartitionRef { store: store.definition().store, partition: at };
    let limit = ReadLimit { bytes_max: usize::MAX, wait_max: Duration::ZERO };
    let (mut counts, mut keys_seen, mut next) = (BTreeMap::new(), HashSet::new(), Offset(0));
    while next < end {
        for record in world.log.inner().read(at, next, limit).await.unwrap().records {
            next = record.offset.next();
            let body = decode_entry(&record.entry).unwrap().body;
            let EntryBody::Changes(batches) = body else { continue };
            let changes = batches.into_iter().flat_map(|batch| {
                batch
                    .changes
                    .into_iter()
                    .map(move |change| ((batch.client, change.sequence), change))
            });
            for (identity, change) in changes {
                if record.offset < end && keys_seen.insert(identity) {
                    *counts.entry(change.key.as_bytes().to_vec()).or_default() += 1;
                }
            }
        }
    }
    counts
}

/// Opens the directory that a killed process has left, over an unreachable log.
struct Looker {
    parts: ReaderParts,
    options: ReaderOptions,
}

impl Looker {
    fn new(world: &World, directory: &Path, is_shared: bool) -> Self {
        let unreachable =
            FaultRates { read_refused: 10_000, bounds_refused: 10_000, ..FaultRates::default() };
        let log_of_world: Arc<dyn ChangeLog> = world.log.clone();
        let entropy = Arc::new(SystemEntropy);
        let catalog = CatalogFollower::start(Arc::clone(&log_of_world), entropy.clone());
        let log = FaultyLog::new(
            GatedLog::new(log_of_world),
            Arc::new(SeededEntropy::new(3)),
            unreachable,
        );
        let log: Arc<dyn ChangeLog> = Arc::new(log);
        let parts = ReaderParts {
            barriers: Arc::new(LogBarriers(Arc::clone(&log))),
            log,
            catalog: Arc::new(catalog),
            clock: Arc::new(SystemClock),
            entropy,
            disk: Some(Arc::new(RealDisk)),
            replicator: None,
        };
        let checkpoint = CheckpointOptions::new(directory).is_shared(is_shared);
        let checkpoint = Some(checkpoint);
        Self { parts, options: ReaderOptions::new("counters").checkpoint(checkpoint) }
    }

    async fn knows_the_store(&self) {
        while self.parts.catalog.catalog().store_by_name("counters").is_err() {
            tokio::time::sleep(SOON / 100).await;
        }
    }

    /// Compares the contents of the directory with the oracle; returns the offset of each
    /// partition.
    async fn look(&self, world: &World, store: &Store, has_files: &[bool]) -> Vec<u64> {
        let reader = Reader::open(self.options.clone(), self.parts.clone()).await.unwrap();
        let is_told = |partition: &PartitionStatus| {
            let checkpoints = partition.counts.checkpoints;
            assert_eq!((checkpoints.damaged, checkpoints.ignored), (0, 0), "{partition:?}");
            checkpoints.restored == 1 || !has_files[partition.partition.0 as usize]
        };
        while !reader.status().partitions.iter().all(is_told) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let n = reader.field_as("n", INT64).unwrap();
        let mut offsets = Vec::new();
        for partition in reader.status().partitions {
            offsets.push(partition.offset_applied.0);
            if partition.phase != Phase::Serving {
                continue;
            }
            let expected =
                oracle(world, store, partition.partition, partition.offset_applied).await;
            let mut documents = 0;
            for number in 0..KEYS {
                let key = key(number);
                if reader.partition_of(key.as_str()).unwrap() != partition.partition {
                    continue;
                }
                let found = reader.get_scalar::<i64>(&n, &key);
                let expected = expected.get(key.as_bytes());
                let expected = expected.map_or(FieldRead::Absent, |count| FieldRead::Value(*count));
                assert_eq!(found.unwrap(), expected, "{key} at {}", partition.offset_applied);
                documents += u64::from(expected != FieldRead::Absent);
            }
            assert_eq!(partition.documents, documents);
        }
        reader.close(PATIENCE).await.unwrap();
        offsets
    }
}

/// Returns whether each of four partitions has a whole checkpoint, and whether there is an
/// unfinished checkpoint.
fn files(directory: &Path) -> ([bool; 4], bool) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let names = || paths.iter().filter_map(|path| path.file_name()?.to_str());
    let is_of = |partition: usize, name: &str| {
        name.ends_with(".checkpoint") && name.get(17..21) == Some(&format!("{partition:04}"))
    };
    let complete_files =
        std::array::from_fn(|partition| names().any(|name| is_of(partition, name)));
    (complete_files, names().any(|name| name.ends_with(".new")))
}

/// Increments keys until stopped; returns the number of increments.
async fn write(store: Store, seed: u64, stop: Arc<AtomicBool>) -> i64 {
    let entropy = SeededEntropy::new(seed);
    let mut increments = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = key(entropy.next_u64().unwrap() % KEYS);
        let write = store.upsert(key.as_str()).increment("n", 1).set("name", "x".repeat(200));
        write.send().await.unwrap();
        increments += 1;
    }
    increments
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_killed_during_checkpoints_reopens_at_one_position() {
    kill_and_look(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_killed_while_its_copy_is_shared_reopens_at_one_position() {
    kill_and_look(true).await;
}

async fn kill_and_look(is_shared: bool) {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let folder = CheckpointFolder::new(store.definition().store);
    let looker = Looker::new(&world, folder.path(), is_shared);
    tokio::time::timeout(PATIENCE, looker.knows_the_store()).await.unwrap();
    // Some answers get lost: the log contains some changes twice.
    world.log.set_rates(FaultRates { append_in_doubt_appended: 300, ..FaultRates::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..4).map(|seed| tokio::spawn(write(store.clone(), seed, stop.clone()))).collect();

    let delays = SeededEntropy::new(SystemEntropy.next_u64().unwrap());
    let (mut offsets, mut restored, mut unfinished) = (vec![0; 4], 0, 0);
    for round in 0..ROUNDS {
        let mut follower = Follower::start(&world, folder.path(), is_shared);
        if round % 2 == 1 {
            // The process is ready, or a lost answer has ended it. On a busy machine all other
            // processes may die before their first checkpoint.
            tokio::task::block_in_place(|| follower.line());
        }
        let delay = delays.next_u64().unwrap() % (KILL_MS_MAX * 1_000);
        tokio::time::sleep(Duration::from_micros(delay)).await;
        drop(follower);
        if is_shared && round % ROUNDS_PER_LOSS == 0 {
            folder.lose_copies();
            offsets = vec![0; 4];
        }
        let (has_files, is_unfinished) = files(folder.path());
        unfinished += u64::from(is_unfinished);
        restored += u64::from(has_files.contains(&true));
        let look = looker.look(&world, &store, &has_files);
        let found = tokio::time::timeout(PATIENCE, look).await.unwrap();
        let is_behind = found.iter().zip(&offsets).any(|(found, before)| found < before);
        assert!(!is_behind, "round {round}: {found:?} behind {offsets:?}");
        offsets = found;
    }
    println!("{restored} of {ROUNDS} kills left checkpoints, {unfinished} an unfinished one");
    assert!(restored > ROUNDS / 2, "{restored} kills left something to open");

    stop.store(true, Ordering::Relaxed);
    let increments: i64 = join_all(writers).await.into_iter().map(Result::unwrap).sum();
    // A lost answer to the last process's barrier would end it.
    world.log.set_rates(FaultRates::default());
    assert_goes_on(&world, &store, &folder, is_shared, increments).await;
}

/// Asserts that a last process continues, alone in the directory or sharing it, and shuts down in
/// order; it leaves every write, each once.
async fn assert_goes_on(
    world: &World,
    store: &Store,
    folder: &CheckpointFolder,
    is_shared: bool,
    increments: i64,
) {
    // A slow machine may have killed each follower before some partition's first checkpoint.
    let checkpoints = files(folder.path()).0.into_iter().filter(|is_whole| *is_whole).count();
    let mut follower = Follower::start(world, folder.path(), is_shared);
    assert_eq!(follower.line(), format!("ready, {checkpoints} partitions restored\n"));
    let looker = Looker::new(world, folder.path(), is_shared);
    tokio::time::timeout(PATIENCE, looker.knows_the_store()).await.unwrap();
    match Reader::open(looker.options.clone(), looker.parts.clone()).await {
        Ok(second) => {
            assert!(is_shared);
            // Cut off from the log, the reader answers from the copy that the process maintains.
            let n = second.field_as("n", INT64).unwrap();
            let total = || {
                (0..KEYS).map(|number| {
                    let found = second.get_scalar::<i64>(&n, key(number).as_str());
                    match found.unwrap() {
                        FieldRead::Value(count) => count,
                        _ => 0,
                    }
                })
            };
            assert_eq!(total().sum::<i64>(), increments);
            let counts = second
                .status()
                .partitions
                .into_iter()
                .map(|partition_status| partition_status.counts);
            assert!(counts.into_iter().all(|counts| counts.records_applied == 0));
            second.close(PATIENCE).await.unwrap();
        }
        Err(error) => assert_eq!((error.code(), is_shared), (ErrorCode::Conflict, false)),
    }
    follower.end_input();
    assert!(follower.line().ends_with("checkpoints written\n"));
    assert!(follower.process.wait().unwrap().success());

    let look = looker.look(world, store, &[true; 4]);
    let offsets = tokio::time::timeout(PATIENCE, look).await.unwrap();
    let (mut counted_total, mut appended) = (0, 0);
    for (partition, offset) in (0..).map(PartitionId).zip(offsets) {
        counted_total +=
            oracle(world, store, partition, Offset(offset)).await.values().sum::<i64>();
        appended += world.appended(store, partition).await.len() as i64;
    }
    assert_eq!(counted_total, increments, "an orderly end leaves nothing out");
    assert!(appended > increments, "no change stands twice in the log");
}
