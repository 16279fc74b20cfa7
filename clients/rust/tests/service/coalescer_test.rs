//! Concurrent writes are coalesced, and each receives its own outcome.

use forebay::schema::{ColumnRules, FieldSpec, KeyType, PartitionId, StoreSpec};
use forebay::{ErrorCode, Store};
use forebay_core::partition::partition_of;
use futures::FutureExt;
use futures::future::join_all;

use crate::world::{INT64, PATIENCE, SOON, World, counters, counts};

const WRITES: usize = 40;

fn keys() -> Vec<String> {
    (0..WRITES).map(|number| format!("u{number}")).collect()
}

fn partition(store: &Store, key: &str) -> PartitionId {
    partition_of(key.as_bytes(), store.definition().partitions)
}

#[tokio::test]
async fn concurrent_writes_are_coalesced_and_each_receives_its_own_outcome() {
    let world = World::start().await;
    let store = counters(&world.client().await, 4).await;
    let keys = keys();
    // All writes start before any is answered.
    let sends = keys.iter().map(|key| store.upsert(key).increment("n", 1).send());
    for (key, sent) in keys.iter().zip(join_all(sends).await) {
        let outcome = sent.unwrap();
        let own_partition = partition(&store, key);
        let token_partitions: Vec<_> = outcome.token.positions.keys().copied().collect();
        assert_eq!(
            token_partitions,
            [own_partition],
            "a token speaks of the write's own partition"
        );
    }
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts.len(), WRITES);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    // The first write goes alone; the others form at most one entry in each partition.
    let batches = world.batches(&store).await;
    assert!(batches.len() <= 2 + 4, "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), WRITES);
}

#[tokio::test]
async fn refused_event_does_not_fail_coalesced_events() {
    let world = World::start().await;
    let required = ColumnRules { required: true, ..ColumnRules::default() };
    let mut spec = StoreSpec::stream("orders", KeyType::String).partitions(2);
    spec.fields.push(FieldSpec { rules: required, ..FieldSpec::new("n", INT64) });
    let orders = world.client().await.create_store(&spec).await.unwrap();
    let keys = keys();
    let is_refused = |number: usize| number % 13 == 5;
    let sends = keys.iter().enumerate().map(|(number, key)| {
        let event = orders.insert(key);
        if is_refused(number) { event.send() } else { event.set("n", 1).send() }
    });
    for (number, sent) in join_all(sends).await.into_iter().enumerate() {
        match sent {
            Ok(_) => assert!(!is_refused(number), "{number}"),
            Err(error) => {
                assert!(is_refused(number), "{number}: {error}");
                assert_eq!(error.error().context().field.as_deref(), Some("n"));
            }
        }
    }
    let appended = world.appended_everywhere(&orders).await;
    let expected = (0..WRITES).filter(|number| !is_refused(*number)).count();
    assert_eq!(appended.iter().map(Vec::len).sum::<usize>(), expected);
}

#[tokio::test]
async fn cancelled_waiting_write_is_not_sent_and_blocks_no_other_write() {
    let world = World::start().await;
    let store = counters(&world.client().await, 1).await;
    world.log.inner().close();
    let first = tokio::spawn(store.upsert("first").increment("n", 1).send());
    let second = tokio::spawn(store.upsert("second").increment("n", 1).send());
    tokio::task::yield_now().await;
    assert!(store.upsert("gone").increment("n", 1).send().now_or_never().is_none());
    let last = tokio::spawn(store.upsert("last").increment("n", 1).send());
    tokio::task::yield_now().await;
    world.log.inner().open();
    for sent in [first, second, last] {
        sent.await.unwrap().unwrap();
    }
    let counts = counts(&world.reader("counters").await).await;
    let expected = ["first", "last", "second"].map(|key| (key.as_bytes().to_vec(), 1));
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn blocked_partition_delays_only_its_own_writes() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    let [blocked_keys, free_keys] = [0, 1].map(|partition_id| {
        let partition_keys =
            keys().into_iter().filter(|key| partition(&store, key).0 == partition_id);
        partition_keys.collect::<Vec<_>>()
    });
    world.log.inner().close_at(PartitionId(0));
    let send = |key: &String| store.upsert(key).increment("n", 1).send();
    let blocked_writes: Vec<_> = blocked_keys.iter().map(|key| tokio::spawn(send(key))).collect();
    tokio::task::yield_now().await;
    for key in &free_keys {
        tokio::time::timeout(PATIENCE, send(key)).await.unwrap().unwrap();
    }
    assert!(blocked_writes.iter().all(|write| !write.is_finished()));
    world.log.inner().open();
    for write in blocked_writes {
        write.await.unwrap().unwrap();
    }
    let counts = counts(&world.reader("counters").await).await;
    assert!(counts.len() == WRITES && counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test]
async fn writes_to_a_dead_writer_are_resolved_after_its_restart() {
    let mut world = World::start().await;
    let store = counters(&world.hasty_client(SOON).await, 2).await;
    world.kill();
    let keys = keys();
    let sends = keys.iter().map(|key| store.upsert(key).increment("n", 1).send());
    let mut pending = Vec::new();
    for sent in join_all(sends).await {
        let error = sent.unwrap_err();
        let code = error.code();
        assert!(matches!(code, ErrorCode::Unavailable | ErrorCode::UnknownOutcome), "{error}");
        pending.push(error.into_pending().unwrap().deadline(PATIENCE));
    }
    world.restart().await;
    for resolved in join_all(pending.into_iter().map(|pending| pending.retry())).await {
        resolved.unwrap().require_complete().unwrap();
    }
    let counts = counts(&world.reader("counters").await).await;
    assert!(counts.len() == WRITES && counts.values().all(|count| *count == 1), "{counts:?}");
}
