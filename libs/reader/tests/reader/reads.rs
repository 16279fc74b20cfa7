//! Proves a reader's promises over a healthy log: documents, catch-up, tokens, age, filter, close.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::change::{EntryBody, Verb};
use forebay_core::id::{LogId, PartitionId, PartitionRef, Sequence};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::schema::Alteration;
use forebay_core::value::FieldType;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{FieldRead, GatherField, GatherOut, KeyStatus};
use forebay_log::AppendReceipt;
use forebay_reader::{
    Barriers, LogBarriers, PartitionFilter, Phase, ReadOptions, Reader, ReaderOptions, ReaderParts,
};
use forebay_replica::ReplicaOptions;

use crate::world::{
    CLIENT, LOG, SECOND, World, age, change, if_absent, key_in, position, token, value,
};

#[tokio::test(start_paused = true)]
async fn puts_upserts_and_deletes_are_read_after_their_token() {
    let world = World::new(4).await;
    let reader = world.caught_up().await;
    assert_eq!(age(&reader, "ann").unwrap(), None);

    let put_token = world.write(change("ann", Verb::Put, &[("age", 41), ("score", 1)])).await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(41));

    let upsert = world.write(change("ann", Verb::Upsert, &[("score", 2)])).await;
    reader.await_token(&upsert, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), Some(41));
    assert_eq!(value(&reader, "ann", "score").unwrap(), Some(2));

    let put_token = world.write(change("ann", Verb::Put, &[("score", 3)])).await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "ann").unwrap(), None);

    let delete = world.write(change("ann", Verb::Delete, &[])).await;
    let partitions = [reader.partition_of("ann").unwrap()];
    let after = ReadOptions::after(delete, SECOND);
    let found = reader.read(&after, &partitions, |view| view.get_document("ann")).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test(start_paused = true)]
async fn documents_written_before_the_open_are_readable_once_ready() {
    let world = World::new(3).await;
    for number in 0..200 {
        world.put(&format!("user-{number}"), number).await;
    }
    let reader = world.caught_up().await;
    for number in 0..200 {
        assert_eq!(age(&reader, &format!("user-{number}")).unwrap(), Some(number));
    }
    let mut scan = reader.scan();
    let mut keys_seen = BTreeSet::new();
    while reader
        .scan_next(&mut scan, None, 7, |document| {
            keys_seen.insert(format!("{:?}", document.key.primary()));
            Ok(())
        })
        .unwrap()
        > 0
    {}
    assert_eq!(keys_seen.len(), 200);
    assert_eq!(reader.metrics().counts.records_applied, 200 + 3);
}

#[tokio::test(start_paused = true)]
async fn absent_is_returned_only_after_catch_up() {
    let world = World::new(1).await;
    world.put("ann", 1).await;
    let reader = world.open().await;
    // No task has run since the open, so the tail has read nothing yet.
    let error = age(&reader, "nobody").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    assert!(error.message().contains("bootstrapping: "), "{error}");
    assert_eq!(error.context().store.as_deref(), Some("users"));
    assert_eq!(error.context().partition, Some(PartitionId(0)));
    let keys = ["nobody"];
    let statuses = reader.read_local(None, |view| view.get_documents(&keys[..])).unwrap();
    assert_eq!(statuses[0].0, KeyStatus::Unavailable);
    assert_eq!(reader.status().phase, Phase::Bootstrapping);
    assert!(!reader.is_ready());

    reader.await_ready(SECOND).await.unwrap();
    assert_eq!(age(&reader, "nobody").unwrap(), None);
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    let status = reader.status();
    assert_eq!((status.phase, status.bootstrap_percent), (Phase::Serving, 100));
    assert_eq!(status.bootstrap_remaining, Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn allow_incomplete_reads_answers_before_catch_up() {
    let world = World::new(1).await;
    let options = world.options().allow_incomplete_reads(true);
    let reader = world.open_with(options).await;
    assert_eq!(reader.status().phase, Phase::Bootstrapping);
    assert_eq!(age(&reader, "nobody").unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn token_wait_ends_at_its_token_or_its_deadline() {
    let world = World::new(1).await;
    let reader = world.caught_up().await;
    let next = token(0, LOG, 2);
    let early = reader.await_token(&next, SECOND).await.unwrap_err();
    assert_eq!(early.code(), ErrorCode::DeadlineExceeded, "{early}");

    let waits = {
        let (reader, next) = (reader.clone(), next.clone());
        tokio::spawn(async move { reader.await_token(&next, 60 * SECOND).await })
    };
    world.put("ann", 1).await;
    assert_eq!(world.put("bob", 2).await, next);
    waits.await.unwrap().unwrap();
    assert_eq!(age(&reader, "bob").unwrap(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn tokens_of_other_stores_and_other_logs_are_refused() {
    let world = World::new(1).await;
    let reader = world.caught_up().await;
    let mut foreign = token(0, LOG, 0);
    foreign.store = forebay_core::id::StoreId(5);
    let error = reader.await_token(&foreign, SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let error = reader.await_token(&token(0, LogId(9), 0), SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost, "{error}");
}

/// Appends barriers to the log and counts them.
struct CountedBarriers {
    barriers: LogBarriers,
    sent: AtomicU64,
}

#[async_trait]
impl Barriers for CountedBarriers {
    async fn append_barrier(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.barriers.append_barrier(at, entry).await
    }
}

#[tokio::test(start_paused = true)]
async fn latest_read_sees_every_write_acknowledged_before_it() {
    let world = World::new(2).await;
    let barriers = LogBarriers(world.log.clone());
    let barriers = Arc::new(CountedBarriers { barriers, sent: AtomicU64::new(0) });
    let parts = ReaderParts { barriers: barriers.clone(), ..world.parts() };
    let reader = Reader::open(world.options(), parts).await.unwrap();
    reader.await_ready(SECOND).await.unwrap();
    for number in 0..20 {
        world.put("ann", number).await;
        let partitions = [reader.partition_of("ann").unwrap()];
        let latest = ReadOptions::latest(SECOND);
        let handle = reader.field_as("age", FieldType::INT64).unwrap();
        let read = reader.read(&latest, &partitions, |view| view.get_scalar(&handle, "ann")).await;
        assert_eq!(read.unwrap(), FieldRead::Value(number));
    }
    assert_eq!(barriers.sent.load(Ordering::SeqCst), 20);

    let calls = (0..50).map(|_| {
        let reader = reader.clone();
        tokio::spawn(
            async move { reader.wait(&ReadOptions::latest(SECOND), &[PartitionId(0)]).await },
        )
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    let shared = barriers.sent.load(Ordering::SeqCst) - 20;
    assert!((1..=2).contains(&shared), "{shared} barriers for 50 calls at once");
}

/// Appends barriers to the log, and returns another answer for the first `to_lose` ones.
struct LostAnswers {
    barriers: LogBarriers,
    to_lose: AtomicU64,
    answer: Error,
}

#[async_trait]
impl Barriers for LostAnswers {
    async fn append_barrier(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let appended = self.barriers.append_barrier(at, entry).await;
        let lose = |failures_left: u64| failures_left.checked_sub(1);
        match self.to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose) {
            Ok(_) => Err(self.answer.clone()),
            Err(_) => appended,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn barrier_with_a_lost_answer_is_resent_a_few_times() {
    assert_sent_again(Error::unknown_outcome("the answer is lost")).await;
}

#[tokio::test(start_paused = true)]
async fn barrier_on_a_broken_connection_is_resent_a_few_times() {
    assert_sent_again(Error::unavailable("the connection is broken; try again")).await;
}

async fn assert_sent_again(answer: Error) {
    let world = World::new(1).await;
    let barriers = LogBarriers(world.log.clone());
    let barriers = Arc::new(LostAnswers { barriers, to_lose: AtomicU64::new(2), answer });
    let parts = ReaderParts { barriers: barriers.clone(), ..world.parts() };
    let reader = Reader::open(world.options(), parts).await.unwrap();
    reader.await_ready(SECOND).await.unwrap();
    reader.wait(&ReadOptions::latest(SECOND), &[PartitionId(0)]).await.unwrap();
    assert_eq!(barriers.to_lose.load(Ordering::SeqCst), 0);

    barriers.to_lose.store(1_000, Ordering::SeqCst);
    let error = reader.wait(&ReadOptions::latest(SECOND), &[PartitionId(0)]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    assert!(barriers.to_lose.load(Ordering::SeqCst) > 990, "it is not tried for ever");
}

#[tokio::test(start_paused = true)]
async fn age_bound_is_exceeded_in_silence_and_met_with_heartbeats() {
    let world = World::new(1).await;
    world.put("ann", 1).await;
    let reader = world.caught_up().await;
    let read = |bound| reader.read_local(Some(bound), |view| view.get_document("ann"));
    assert!(read(2 * SECOND).unwrap().is_some());

    tokio::time::sleep(3 * SECOND).await;
    let error = read(2 * SECOND).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Stale);
    assert!(error.message().contains("reason age"), "{error}");
    let keys = ["ann"];
    let statuses = reader.read_local(Some(2 * SECOND), |v| v.get_documents(&keys[..]));
    assert_eq!(statuses.unwrap()[0].0, KeyStatus::Stale);
    assert!(age(&reader, "ann").unwrap().is_some(), "a local read has no bound");

    for _ in 0..10 {
        let beat = world.heartbeat(0).await;
        let beat = token(0, LOG, beat.offset.0);
        reader.await_token(&beat, SECOND).await.unwrap();
        assert!(read(2 * SECOND).unwrap().is_some());
        tokio::time::sleep(SECOND).await;
    }

    let error = read(Duration::from_millis(1_999)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test(start_paused = true)]
async fn clock_error_is_the_reason_of_a_stale_read() {
    let world = World::new(1).await;
    world.clock.jump_micros(1_500_000);
    let reader = world.caught_up().await;
    let error = reader.read_local(Some(2 * SECOND), |v| v.get_document("ann")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Stale);
    assert!(error.message().contains("reason clock"), "{error}");
    assert_eq!(reader.status().partitions[0].clock_error, Some(Duration::from_millis(1_500)));
    assert!(reader.read_local(Some(4 * SECOND), |v| v.get_document("ann")).unwrap().is_none());

    // The clock is corrected, and the next measurement finds it.
    world.clock.jump_micros(-1_500_000);
    tokio::time::sleep(61 * SECOND).await;
    let beat = world.heartbeat(0).await;
    reader.await_token(&token(0, LOG, beat.offset.0), SECOND).await.unwrap();
    assert!(reader.read_local(Some(2 * SECOND), |v| v.get_document("ann")).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn read_outside_the_filter_names_the_filter() {
    let world = World::new(4).await;
    let followed = PartitionFilter::Only(BTreeSet::from([PartitionId(1), PartitionId(3)]));
    let options = world.options().partitions(followed);
    let reader = world.open_with(options).await;
    reader.await_ready(SECOND).await.unwrap();
    let (inside, outside) = (key_in(&world, 3), key_in(&world, 2));
    world.put(&outside, 1).await;
    let put_token = world.put(&inside, 2).await;
    reader.await_token(&put_token, SECOND).await.unwrap();
    assert_eq!(age(&reader, &inside).unwrap(), Some(2));
    let error = age(&reader, &outside).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(error.context().partition, Some(PartitionId(2)));
    assert!(error.message().contains("1, 3"), "{error}");
    let error = reader.wait(&ReadOptions::latest(SECOND), &[PartitionId(2)]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("partitions 1, 3"), "{error}");
    assert_eq!(reader.status().partitions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn reader_with_invalid_options_is_refused_at_open() {
    let world = World::new(2).await;
    let open = async |options| Reader::open(options, world.parts()).await.map(|_| ());
    let error = open(ReaderOptions::new("nobody")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    for partitions in [BTreeSet::new(), BTreeSet::from([PartitionId(2)])] {
        let partitions = PartitionFilter::Only(partitions);
        let error = open(world.options().partitions(partitions)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
    let ready_max_staleness = Duration::from_millis(1_999);
    let error = open(world.options().ready_max_staleness(ready_max_staleness)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test(start_paused = true)]
async fn readers_and_callbacks_learn_new_definitions() {
    let world = World::new(1).await;
    let reader = world.caught_up().await;
    assert_eq!(reader.schema_version().0, 1);
    let versions_heard = Arc::new(AtomicU64::new(0));
    let heard_by_callback = versions_heard.clone();
    reader.on_schema_change(Arc::new(move |definition| {
        assert!(definition.field("years").is_some());
        heard_by_callback.store(definition.version.0.into(), Ordering::SeqCst);
    }));
    let handle = reader.field_as("age", FieldType::INT64).unwrap();
    let rename = Alteration::RenameField { from: "age".into(), to: "years".into() };
    let next = world.definition.altered(&[rename]).unwrap();
    world.define(&next).await;
    let entry = world.entry(LOG, next.version, EntryBody::Definition);
    world.append_bytes(0, forebay_wire::entry::encode_entry(&entry).unwrap()).await;
    let put_token = world.put("ann", 5).await;
    reader.await_token(&put_token, 30 * SECOND).await.unwrap();
    assert_eq!(reader.schema_version().0, 2);
    assert_eq!(versions_heard.load(Ordering::SeqCst), 2);
    assert!(reader.definition().field("years").is_some());
    let read = reader.get_i64(&handle, "ann", -1);
    assert_eq!(read.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn replica_retains_outcomes_if_its_options_say_so() {
    let world = World::new(1).await;
    let replica = world.replica(ReplicaOptions::new("users"));
    let error = replica.outcome(PartitionId(0), CLIENT, Sequence(1)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);

    let options = ReplicaOptions { keep_outcomes: true, ..ReplicaOptions::new("users") };
    let replica = world.replica(options);
    world.write(if_absent(change("ann", Verb::Put, &[("age", 1)]))).await;
    world.write(if_absent(change("ann", Verb::Put, &[("age", 2)]))).await;
    world.put("bob", 3).await;
    replica.wait_applied(PartitionId(0), position(3), SECOND).await.unwrap();
    let condition_outcome = |sequence| {
        let outcome = replica.outcome(PartitionId(0), CLIENT, Sequence(sequence)).unwrap();
        outcome.map(|outcome| outcome.condition)
    };
    assert_eq!(condition_outcome(1), Some(ConditionOutcome::Applied));
    assert_eq!(condition_outcome(2), Some(ConditionOutcome::ConditionFailed(None)));
    assert_eq!(condition_outcome(3), None);
}

#[tokio::test(start_paused = true)]
async fn reader_gathers_fields_of_many_keys() {
    let world = World::new(4).await;
    let reader = world.caught_up().await;
    for (key, number) in [("a", 1), ("b", 2)] {
        let put_token = world.put(key, number).await;
        reader.await_token(&put_token, SECOND).await.unwrap();
    }
    let fields = [GatherField::new("age")];
    let plan = reader.plan_gather::<f32>(&fields, forebay_index::Conversion::Lossy).unwrap();
    let mut matrix = [0.0_f32; 3];
    let keys = ["b", "nobody", "a"];
    reader
        .read_local(None, |view| view.gather(&plan, &keys[..], &mut GatherOut::values(&mut matrix)))
        .unwrap();
    assert_eq!(matrix, [2.0, 0.0, 1.0]);
    assert_eq!(reader.partitions_of(&keys[..]).unwrap().len(), {
        let partitions = keys.map(|key| world.partition_of(key));
        BTreeSet::from(partitions).len()
    });
}

#[tokio::test(start_paused = true)]
async fn close_ends_waits_and_later_reads_and_may_be_repeated() {
    let world = World::new(1).await;
    let reader = world.caught_up().await;
    let waits = {
        let reader = reader.clone();
        tokio::spawn(async move { reader.await_token(&token(0, LOG, 99), 600 * SECOND).await })
    };
    tokio::task::yield_now().await;
    reader.begin_close();
    reader.begin_close();
    assert_eq!(waits.await.unwrap().unwrap_err().code(), ErrorCode::Closed);
    assert_eq!(age(&reader, "ann").unwrap_err().code(), ErrorCode::Closed);
    let latest = reader.wait(&ReadOptions::latest(SECOND), &[PartitionId(0)]).await;
    assert_eq!(latest.unwrap_err().code(), ErrorCode::Closed);
    assert_eq!(reader.await_ready(SECOND).await.unwrap_err().code(), ErrorCode::Closed);
    assert!(!reader.is_ready());

    let applied = reader.metrics().counts.records_applied;
    world.put("ann", 1).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(reader.metrics().counts.records_applied, applied);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_ends_the_tasks() {
    let world = World::new(2).await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let reader = world.caught_up().await;
    let other = reader.clone();
    drop(reader);
    assert_eq!(age(&other, "ann").unwrap(), None);
    assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() > before);
    drop(other);
    tokio::time::sleep(SECOND).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_return_or_are_closed_and_never_go_back() {
    let world = World::new(1).await;
    world.put("ann", 0).await;
    let reader = world.caught_up().await;
    let (is_stopped, reads_begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (reader, is_stopped, reads_begun) =
                (reader.clone(), is_stopped.clone(), reads_begun.clone());
            std::thread::spawn(move || {
                let (mut last, mut reads) = (0, 0_u64);
                loop {
                    let was_closed = is_stopped.load(Ordering::SeqCst);
                    match age(&reader, "ann") {
                        Ok(found) => {
                            assert!(!was_closed, "a read began after close and was answered");
                            let found = found.unwrap();
                            assert!(found >= last, "{found} after {last}");
                            reads_begun.fetch_add(u64::from(reads == 0), Ordering::SeqCst);
                            (last, reads) = (found, reads + 1);
                        }
                        Err(error) => {
                            assert_eq!(error.code(), ErrorCode::Closed, "{error}");
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    // On a busy machine a thread may take longer to start than the rest of the test.
    let all_read = async {
        while reads_begun.load(Ordering::SeqCst) < 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(60 * SECOND, all_read).await.unwrap();
    let mut last = None;
    for number in 1..=2_000 {
        last = Some(world.put("ann", number).await);
    }
    reader.await_token(&last.unwrap(), 60 * SECOND).await.unwrap();
    reader.begin_close();
    is_stopped.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
}
