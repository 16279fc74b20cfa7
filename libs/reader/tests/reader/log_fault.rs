//! Proves the behaviour of a reader whose log is silent, damaged, replaced, cut or written by a
//! newer build.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::change::{EntryBody, Verb};
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{LogId, Offset, PartitionId};
use forebay_core::schema::{Alteration, FieldSpec};
use forebay_core::value::FieldType;
use forebay_log::ChangeLog;
use forebay_reader::{Phase, ReadOptions, Reader, RebuildProgress};
use forebay_replica::{OnSkipped, ReplicaOptions, SkippedLogRecord};
use forebay_wire::entry::encode_entry;

use crate::world::{LOG, Rim, SECOND, World, age, at, change, key_in, position, token};

const OTHER_LOG: LogId = LogId(0xbeef);
const FIRST: PartitionId = PartitionId(0);

async fn rimmed(partitions: u32) -> (World, Arc<Rim>) {
    let rim = Rim::new();
    (World::over(rim.clone(), partitions).await, rim)
}

/// Waits until the reader's status is as wanted; the paused clock bounds the wait.
async fn wait_until(
    reader: &Reader,
    is_reached: impl Fn(&forebay_reader::PartitionStatus) -> bool,
) {
    let wait = async {
        while !is_reached(&reader.status().partitions[0]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = tokio::time::timeout(120 * SECOND, wait).await;
    outcome.unwrap_or_else(|_| panic!("{:#?}", reader.status()));
}

#[tokio::test(start_paused = true)]
async fn replica_skips_counts_and_reports_garbage_and_applies_later_keys() {
    let world = World::new(2).await;
    let reported: Arc<Mutex<Vec<SkippedLogRecord>>> = Arc::default();
    let reported_by_reader = reported.clone();
    let on_skipped = move |record: &SkippedLogRecord| {
        reported_by_reader.lock().unwrap().push(record.clone());
        panic!("a callback that panics stops nothing");
    };
    let on_skipped: OnSkipped = Arc::new(on_skipped);
    let replica = world
        .replica(ReplicaOptions { on_skipped: Some(on_skipped), ..ReplicaOptions::new("users") });
    let reader = world.caught_up().await;

    let garbage = Bytes::from_static(b"no entry at all");
    world.append_bytes(0, garbage.clone()).await;
    let misplaced = world.change(change(&key_in(&world, 1), Verb::Put, &[("age", 1)]));
    world.append_to(0, LOG, misplaced).await;
    let foreign = world.change(change(&key_in(&world, 0), Verb::Put, &[("age", 2)]));
    world.append_to(0, OTHER_LOG, foreign).await;
    let key = key_in(&world, 0);
    let put_token = world.put(&key, 3).await;
    reader.await_token(&put_token, 10 * SECOND).await.unwrap();
    replica.await_readable(&ReadOptions::after(put_token, 10 * SECOND), &[FIRST]).await.unwrap();

    assert_eq!(age(&reader, &key).unwrap(), Some(3));
    assert_eq!(age(&reader, &key_in(&world, 1)).unwrap(), None);
    assert_eq!(replica.status().partitions[0].counts, reader.status().partitions[0].counts);
    let status = reader.status();
    assert_eq!(status.partitions[0].counts.records_skipped, 3);
    assert_eq!(status.partitions[0].counts.rebuilds, 0);
    assert_eq!(status.partitions[0].offset_applied, Offset(5));
    let reported = reported.lock().unwrap();
    let offsets: Vec<_> = reported.iter().map(|record| record.offset.0).collect();
    assert_eq!(offsets, [1, 2, 3]);
    assert_eq!(reported[0].entry, garbage);
    assert!(reported.iter().all(|skipped| skipped.reason.code() == ErrorCode::Corrupt));
    assert!(reported.iter().all(|skipped| skipped.log_id == Some(LOG)));
}

#[tokio::test(start_paused = true)]
async fn record_damaged_in_transit_is_read_again() {
    let (world, rim) = rimmed(1).await;
    let reader = world.caught_up().await;
    rim.twist(|records| {
        let mut bytes = records.records[0].entry.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        records.records[0].entry = bytes.into();
    });
    let put_token = world.put("ann", 1).await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    assert_eq!(reader.status().partitions[0].counts.records_skipped, 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_definition_is_awaited_and_nothing_is_skipped() {
    let world = World::new(1).await;
    let reader = world.caught_up().await;
    let field = FieldSpec::new("city", FieldType::INT64);
    let next = world.definition.altered(&[Alteration::AddField(field)]).unwrap();
    let body = world.change(change("ann", Verb::Put, &[("age", 1)]));
    let entry = world.entry(LOG, next.version, body);
    world.append_bytes(0, encode_entry(&entry).unwrap()).await;
    let put_token = world.put("bob", 2).await;
    let error = reader.await_token(&put_token, 20 * SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
    assert!(error.message().contains("schema version 2"), "{error}");
    assert_eq!(age(&reader, "bob").unwrap(), None);
    assert_eq!(reader.status().partitions[0].offset_applied, Offset(1));

    world.define(&next).await;
    reader.await_token(&put_token, 20 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    assert_eq!(age(&reader, "bob").unwrap(), Some(2));
    assert_eq!(reader.schema_version(), next.version);
    assert_eq!(reader.status().partitions[0].last_error, None);
}

/// Returns a frame with a valid checksum and a format that this build does not know.
fn newer_entry(world: &World) -> Bytes {
    let entry = world.entry(LOG, world.definition.version, EntryBody::Heartbeat);
    let mut bytes = encode_entry(&entry).unwrap().to_vec();
    bytes[4] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
    bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
    bytes.into()
}

#[tokio::test(start_paused = true)]
async fn entry_of_a_newer_build_halts_only_its_partition() {
    let world = World::new(2).await;
    let (halting, other) = (key_in(&world, 0), key_in(&world, 1));
    world.put(&halting, 1).await;
    let reader = world.caught_up().await;
    world.append_bytes(0, newer_entry(&world)).await;
    let lost_token = world.put(&halting, 2).await;
    let error = reader.await_token(&lost_token, SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UpgradeNeeded, "{error}");
    assert_eq!(age(&reader, &halting).unwrap(), Some(1), "what was applied goes on being read");
    let put_token = world.put(&other, 3).await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, &other).unwrap(), Some(3));
    let status = reader.status();
    let fatal = status.partitions[0].fatal_error.as_ref().unwrap();
    assert_eq!(fatal.code(), ErrorCode::UpgradeNeeded);
    assert_eq!(status.partitions[1].fatal_error, None);
    tokio::time::sleep(5 * SECOND).await;
    let error = reader.read_local(Some(2 * SECOND), |v| v.get_document(halting.as_str()));
    assert_eq!(error.unwrap_err().code(), ErrorCode::Stale);

    let late = world.open().await;
    let error = late.await_ready(SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UpgradeNeeded, "{error}");
    assert_eq!(age(&late, &halting).unwrap_err().code(), ErrorCode::UpgradeNeeded);
}

#[tokio::test(start_paused = true)]
async fn reader_of_an_unreachable_log_serves_with_rising_age() {
    let (world, rim) = rimmed(1).await;
    world.put("ann", 1).await;
    let ready_max_staleness = 2 * SECOND;
    let reader = world.open_with(world.options().ready_max_staleness(ready_max_staleness)).await;
    reader.await_ready(SECOND).await.unwrap();
    rim.is_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(3 * SECOND).await;
    assert!(reader.is_ready(), "past the bound, but not past twice the bound");
    tokio::time::sleep(5 * SECOND).await;
    assert!(reader.is_ready(), "past twice the bound, but not for 5 s");
    tokio::time::sleep(2 * SECOND).await;
    assert!(!reader.is_ready());
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    let status = reader.status();
    assert!(status.age.unwrap() >= 10 * SECOND);
    let last_error = status.partitions[0].last_error.as_ref().unwrap();
    assert_eq!(last_error.code(), ErrorCode::Unavailable);
    let error = reader.await_ready(SECOND).await.unwrap_err();
    assert!(error.message().contains("the rim is off"), "{error}");

    rim.is_off.store(false, Ordering::SeqCst);
    world.put("ann", 2).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
    assert_eq!(reader.status().partitions[0].last_error, None);
}

#[tokio::test(start_paused = true)]
async fn replaced_log_is_replayed_next_to_the_old_copy_until_caught_up() {
    let (world, rim) = rimmed(1).await;
    let old = world.put("ann", 1).await;
    let reader = world.caught_up().await;
    rim.reads_below.store(5, Ordering::SeqCst);
    world.replace_logs(OTHER_LOG).await;
    for number in 0..20 {
        world.write_to(OTHER_LOG, change("bob", Verb::Put, &[("age", number)])).await;
    }
    let is_held_up = |rebuild: &RebuildProgress| rebuild.catch_up.offset_applied == Offset(5);
    wait_until(&reader, |status| status.rebuild.as_ref().is_some_and(is_held_up)).await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(1), "the old copy is served meanwhile");
    assert_eq!(age(&reader, "bob").unwrap(), None);
    assert_eq!(reader.log_id(FIRST).unwrap(), Some(LOG));
    let before = reader.status().age.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(reader.status().age.unwrap() >= before + 5 * SECOND);
    reader.await_token(&old, SECOND).await.unwrap();

    rim.reads_below.store(u64::MAX, Ordering::SeqCst);
    wait_until(&reader, |status| status.generation == 2).await;
    assert_eq!(reader.log_id(FIRST).unwrap(), Some(OTHER_LOG));
    assert_eq!(age(&reader, "ann").unwrap(), None);
    assert_eq!(age(&reader, "bob").unwrap(), Some(19));
    let error = reader.await_token(&old, SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost, "{error}");
    let new = world.write_to(OTHER_LOG, change("ann", Verb::Put, &[("age", 7)])).await;
    reader.await_token(&new, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(7));
    assert_eq!(reader.status().partitions[0].counts.rebuilds, 1);
}

#[tokio::test(start_paused = true)]
async fn token_of_the_new_log_moves_the_reader_to_it() {
    let world = World::new(1).await;
    for number in 0..5 {
        world.put("ann", number).await;
    }
    let reader = world.caught_up().await;
    // The new log is longer than the old one and is replaced between two reads, so that no read
    // fails.
    world.replace_logs(OTHER_LOG).await;
    let mut last = None;
    for number in 10..30 {
        let put_change = change("ann", Verb::Put, &[("age", number)]);
        last = Some(world.write_to(OTHER_LOG, put_change).await);
    }
    reader.await_token(&last.unwrap(), 10 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(29));
}

#[tokio::test(start_paused = true)]
async fn latest_read_never_answers_from_a_replaced_log() {
    for old_length in [0, 3, 19, 20, 21, 40] {
        let (world, rim) = rimmed(1).await;
        for number in 0..old_length {
            world.put("ann", number).await;
        }
        let reader = world.caught_up().await;
        rim.is_off.store(true, Ordering::SeqCst);
        world.replace_logs(OTHER_LOG).await;
        for number in 0..20 {
            let put_change = change("ann", Verb::Put, &[("age", 1_000 + number)]);
            world.write_to(OTHER_LOG, put_change).await;
        }
        rim.is_off.store(false, Ordering::SeqCst);
        let latest = ReadOptions::latest(10 * SECOND);
        let mut answers = 0;
        for _ in 0..50 {
            let read = reader.read(&latest, &[FIRST], |_| Ok(())).await;
            match read.map(|()| age(&reader, "ann").unwrap()) {
                Ok(found) => {
                    assert_eq!(found, Some(1_019), "old length {old_length}");
                    answers += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        assert!(answers > 0, "old length {old_length}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_that_lost_its_tail_is_served_once_it_has_passed_the_old_copy() {
    let world = World::new(1).await;
    for number in 0..10 {
        world.put("ann", number).await;
    }
    let reader = world.caught_up().await;
    assert_eq!(reader.status().partitions[0].position, Some(position(10)));
    world.replace_logs(LOG).await;
    world.put("ann", 100).await;
    wait_until(&reader, |status| status.rebuild.is_some()).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(9), "the new copy ends below the old one");
    assert_eq!(reader.status().partitions[0].position, Some(position(10)));
    for number in 101..110 {
        world.put("ann", number).await;
    }
    wait_until(&reader, |status| status.generation == 2).await;
    assert_eq!(reader.status().partitions[0].position, Some(position(10)));
    assert_eq!(age(&reader, "ann").unwrap(), Some(109));
}

#[tokio::test(start_paused = true)]
async fn log_trimmed_past_the_reader_cannot_bootstrap_and_the_old_copy_serves() {
    let (world, rim) = rimmed(1).await;
    world.put("ann", 1).await;
    let reader = world.caught_up().await;
    rim.is_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(2 * SECOND).await;
    for number in 2..10 {
        world.put("ann", number).await;
    }
    world.log.trim(at(0), Offset(6)).await.unwrap();
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| {
        status
            .last_error
            .as_ref()
            .is_some_and(|last_error| last_error.message().contains("snapshot"))
    })
    .await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    let late = world.open().await;
    let error = late.await_ready(5 * SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains("the log starts at offset 6"), "{error}");
    let error = age(&late, "ann").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains("the log starts at offset 6"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn log_trimmed_behind_the_reader_changes_nothing() {
    let (world, rim) = rimmed(1).await;
    for number in 0..10 {
        world.put("ann", number).await;
    }
    let reader = world.caught_up().await;
    world.log.trim(at(0), Offset(8)).await.unwrap();
    rim.is_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(2 * SECOND).await;
    rim.is_off.store(false, Ordering::SeqCst);
    let put_token = world.put("ann", 77).await;
    reader.await_token(&put_token, 10 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(77));
    assert_eq!(reader.status().partitions[0].counts.rebuilds, 0);
}

#[tokio::test(start_paused = true)]
async fn broken_invariant_poisons_the_partition_until_it_is_rebuilt() {
    let (world, rim) = rimmed(1).await;
    world.put("ann", 1).await;
    let reader = world.caught_up().await;
    let held_rim = rim.clone();
    rim.twist(move |records| {
        records.records[0].offset = Offset(0);
        held_rim.is_off.store(true, Ordering::SeqCst);
    });
    world.put("ann", 2).await;
    wait_until(&reader, |status| status.phase == Phase::Poisoned).await;
    let error = age(&reader, "ann").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
    assert!(!reader.is_ready() || reader.status().phase == Phase::Poisoned);
    rim.is_off.store(false, Ordering::SeqCst);
    wait_until(&reader, |status| status.phase == Phase::Serving).await;
    assert_eq!(age(&reader, "ann").unwrap(), Some(2));
    assert_eq!(reader.status().partitions[0].generation, 2);
}

#[tokio::test(start_paused = true)]
async fn barrier_measures_the_clock_if_the_log_reports_no_time() {
    let (world, rim) = rimmed(1).await;
    rim.is_timeless.store(true, Ordering::SeqCst);
    world.put("ann", 1).await;
    let reader = world.caught_up().await;
    let status = reader.status();
    assert_eq!(status.partitions[0].clock_error, Some(Duration::ZERO));
    wait_until(&reader, |status| status.counts.records_applied == 3).await;
    assert!(reader.read_local(Some(2 * SECOND), |v| v.get_document("ann")).unwrap().is_some());
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(reader.status().partitions[0].counts.records_applied, 3, "one barrier a minute");
}

/// Random appends, silences, cuts and replacements prove that the position of one log never falls,
/// and that the reader always recovers.
#[tokio::test(start_paused = true)]
async fn position_of_a_log_never_decreases() {
    for seed in 0..40 {
        position_run(seed).await;
    }
}

async fn position_run(seed: u64) {
    let (world, rim) = rimmed(1).await;
    let random = SeededEntropy::new(seed);
    let draw = |bound: u64| random.next_u64().unwrap() % bound;
    let reader = world.caught_up().await;
    let mut log_id = LOG;
    let mut last = (reader.log_id(FIRST).unwrap(), None, 0);
    for step in 0..200 {
        match draw(20) {
            0 => world.replace_logs(log_id).await,
            1 => {
                log_id = LogId(log_id.0 + 1);
                world.replace_logs(log_id).await;
            }
            2 | 3 => rim.is_off.store(true, Ordering::SeqCst),
            4 | 5 => rim.is_off.store(false, Ordering::SeqCst),
            6 => {
                world.append_bytes(0, Bytes::from_static(b"garbage")).await;
            }
            7..=9 => tokio::time::sleep(Duration::from_millis(draw(2_000))).await,
            _ => {
                world.write_to(log_id, change("ann", Verb::Put, &[("age", step)])).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(draw(5))).await;
        let status = &reader.status().partitions[0];
        let now = (status.log_id, status.position, status.generation);
        if now.0 == last.0 {
            assert!(now.1 >= last.1, "seed {seed}, step {step}: {now:?} after {last:?}");
        } else {
            assert!(now.2 > last.2, "seed {seed}, step {step}: {now:?} after {last:?}");
        }
        last = now;
        assert!(age(&reader, "ann").is_ok(), "seed {seed}, step {step}");
    }
    rim.is_off.store(false, Ordering::SeqCst);
    world.replace_logs(LogId(1)).await;
    let end = world.write_to(LogId(1), change("ann", Verb::Put, &[("age", 999)])).await;
    reader.await_token(&end, 60 * SECOND).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(age(&reader, "ann").unwrap(), Some(999), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn reader_waits_for_a_token_ahead_of_a_bootstrapping_partition() {
    let world = World::new(1).await;
    let put_token = world.put("ann", 1).await;
    let reader = world.open().await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    let error = reader.await_token(&token(0, LOG, 50), SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn reader_over_its_budget_stops_applying_and_names_the_option_to_raise() {
    let world = World::new(1).await;
    let options = world.options().memory_limit(256 * 1024);
    let reader = world.open_with(options).await;
    reader.await_ready(10 * SECOND).await.unwrap();
    let mut last = world.put("key-0", 0).await;
    for n in 1..20_000 {
        last = world.put(&format!("key-{n}"), n).await;
    }
    let error = reader.await_token(&last, 30 * SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeadlineExceeded, "{error}");
    let status = reader.status().partitions[0].clone();
    let last_error = status.last_error.clone().unwrap();
    assert_eq!(last_error.code(), ErrorCode::LimitExceeded, "{last_error}");
    assert!(last_error.message().contains("memory limit"), "{last_error}");
    // The applied documents are readable as of one position, and no later ones.
    assert_eq!(status.phase, Phase::Serving);
    let applied = status.documents as i64;
    assert!(applied > 1_000 && applied < 19_000, "{applied}");
    assert_eq!(age(&reader, &format!("key-{}", applied - 1)).unwrap(), Some(applied - 1));
    assert_eq!(age(&reader, &format!("key-{applied}")).unwrap(), None);
    let stale_error = reader.read_local(Some(5 * SECOND), |view| view.get_document("key-0"));
    assert_eq!(stale_error.unwrap_err().code(), ErrorCode::Stale);
    let memory = reader.metrics().memory;
    assert!(memory.used <= 256 * 1024, "{memory:?}");
}
