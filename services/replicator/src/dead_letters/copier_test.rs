//! Proves, over a log with all kinds of failures and copiers that die, that a reader of the
//! dead-letter log finds each position once, and that the log stays bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Error;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::dead_letter::DeadLetter;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{LogId, Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::key::KeyType;
use forebay_core::limits::{DEAD_LETTER_RECORDS_KEPT, DEAD_LETTERS_PER_RECORD_MAX};
use forebay_core::schema::{Definition, StoreSpec};
use forebay_log::faulty::FaultRates;
use forebay_log::{ChangeLog, FaultyLog, MemoryLog};
use forebay_replica::SkippedLogRecord;
use forebay_runtime::ServiceContext;

use super::*;
use crate::heartbeat::LogHeartbeats;
use crate::parts::ReplicatorParts;

const STORE: StoreId = StoreId(1 << 63 | 0xfeed);
const LETTERS: StoreId = StoreId(0xfeed);
const PARTITIONS: u32 = 2;
const LONG: Duration = Duration::from_secs(600);

fn definition() -> Definition {
    StoreSpec::documents("users", KeyType::String).partitions(PARTITIONS).define(STORE).unwrap()
}

fn parts(log: Arc<dyn ChangeLog>, seed: u64) -> ReplicatorParts {
    let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(seed));
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1)));
    let context = ServiceContext::start(log, clock, entropy);
    let heartbeats = Arc::new(LogHeartbeats::new(&context));
    ReplicatorParts { context, heartbeats, shards: None }
}

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1)))))
}

fn skipped_record(partition: u32, offset: u64) -> SkippedLogRecord {
    SkippedLogRecord {
        at: PartitionRef { store: STORE, partition: PartitionId(partition) },
        offset: Offset(offset),
        log_id: Some(LogId(5)),
        append_time: Timestamp::from_micros(offset as i64),
        entry: Bytes::from(format!("garbage {offset}")),
        reason: Error::corrupt("garbage"),
    }
}

/// Starts a copier as a replicator does; retries while the log refuses it.
async fn start(parts: &ReplicatorParts) -> (Arc<Backlog>, tokio::task::JoinHandle<()>) {
    let backlog = Arc::new(Backlog::default());
    let reopen = Arc::default();
    let mut copier = Copier::new(parts, &definition(), LETTERS, Arc::clone(&backlog), reopen, None);
    let partitions = definition().partitions.partitions().collect();
    while copier.read_back(&partitions).await.is_err() {}
    (backlog, tokio::spawn(copier.run()))
}

async fn await_copied(backlog: &Backlog) {
    let wait = async {
        while backlog.counts().records_waiting > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("letters wait for ever");
}

async fn list_letters(log: &dyn ChangeLog, partition: u32) -> Vec<DeadLetter> {
    let at = PartitionRef { store: LETTERS, partition: PartitionId(partition) };
    let (mut letters, mut cursor) = (Vec::new(), None);
    loop {
        let (page, next) = list(log, at, cursor, 7).await.unwrap();
        if page.is_empty() {
            return letters;
        }
        letters.extend(page);
        cursor = next;
    }
}

#[tokio::test(start_paused = true)]
async fn each_position_is_copied_once_as_read_despite_faults() {
    let rates = FaultRates {
        append_refused: 1_500,
        append_in_doubt_appended: 1_500,
        append_in_doubt_lost: 1_500,
        append_in_doubt_late: 1_500,
        read_refused: 500,
        bounds_refused: 500,
        delay_max: Duration::from_secs(2),
        ..FaultRates::default()
    };
    let mut faults = 0;
    for seed in 0..40 {
        let memory = memory();
        let entropy = Arc::new(SeededEntropy::new(seed));
        let faulty = Arc::new(FaultyLog::new(Arc::clone(&memory), entropy, rates));
        let parts = parts(Arc::clone(&faulty) as Arc<dyn ChangeLog>, seed);
        for life in 1..=3_u64 {
            let (backlog, task) = start(&parts).await;
            // Each life folds the home log from its start, and finds more skipped records than the
            // life before.
            for offset in 0..life * 60 {
                backlog.push(&skipped_record((offset % 2) as u32, offset));
                if offset % 8 == 0 {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
            }
            if life == 3 {
                await_copied(&backlog).await;
            }
            task.abort();
        }
        // Appends of unknown outcome that are delayed take effect now.
        tokio::time::sleep(Duration::from_secs(10)).await;
        for partition in 0..PARTITIONS {
            let letters = list_letters(&*memory, partition).await;
            let offsets: Vec<u64> = letters.iter().map(|letter| letter.offset.0).collect();
            let expected: Vec<u64> = (partition.into()..180).step_by(2).collect();
            assert_eq!(offsets, expected, "seed {seed}");
        }
        faults += faulty.counts().by_name().iter().map(|(_, times)| times).sum::<u64>();
    }
    assert!(faults > 500, "only {faults} faults");
}

#[tokio::test(start_paused = true)]
async fn dead_letter_log_is_bounded_and_its_newest_letters_are_listed() {
    const FULL_RECORD: u64 = DEAD_LETTERS_PER_RECORD_MAX as u64;
    let memory = memory();
    let parts = parts(Arc::clone(&memory) as Arc<dyn ChangeLog>, 1);
    let (backlog, task) = start(&parts).await;
    let at = PartitionRef { store: LETTERS, partition: PartitionId(0) };
    let records = 2 * DEAD_LETTER_RECORDS_KEPT + 10;
    for offset in 0..records {
        backlog.push(&skipped_record(0, offset));
        await_copied(&backlog).await;
    }
    let bounds = memory.bounds(at).await.unwrap();
    let retained = bounds.end.0 - bounds.start.0;
    assert!((DEAD_LETTER_RECORDS_KEPT..records).contains(&retained), "{retained} records");
    task.abort();
    // The next life knows all copied letters, although the log header entry is trimmed.
    let (backlog, task) = start(&parts).await;
    for offset in records - 5..records + FULL_RECORD {
        backlog.push(&skipped_record(0, offset));
    }
    await_copied(&backlog).await;
    assert_eq!(backlog.counts().letters_copied, FULL_RECORD);
    let letters = list_letters(&*memory, 0).await;
    assert!(letters.is_sorted_by(|one, other| one.offset < other.offset));
    assert_eq!(letters.last().unwrap().offset.0, records + FULL_RECORD - 1);
    task.abort();
}
