//! Write streams: order and exactness over failures and restarts, and back-pressure.

use std::collections::HashSet;

use forebay::writes::{StreamOptions, WriteResult};
use forebay::{ErrorCode, Store};
use forebay_log::faulty::FaultRates;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::world::{PATIENCE, SOON, World, counters, counts};

/// Asserts that in every partition's log the first occurrence of each sequence is after the
/// sequences before it.
async fn assert_in_order(world: &World, store: &Store) {
    for appended in world.appended_everywhere(store).await {
        let mut positions_seen = HashSet::new();
        let firsts = appended.into_iter().filter(|change| positions_seen.insert(*change));
        let firsts: Vec<_> = firsts.map(|(_, sequence)| sequence.0).collect();
        let dense: Vec<_> = (1..=firsts.len() as u64).collect();
        assert_eq!(firsts, dense);
    }
}

#[tokio::test]
async fn stream_acknowledges_every_write() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 3).await;
    let mut stream = store.write_stream(StreamOptions::default()).unwrap();
    let mut acknowledgements = Vec::new();
    for number in 0..6_000 {
        let write = store.upsert(&format!("u{}", number % 100)).increment("n", 1);
        acknowledgements.push(stream.send(write).await.unwrap());
    }
    let conditional_write = store.upsert("u0").set("n", 1).if_absent();
    let pending_outcome = stream.send(conditional_write).await.unwrap();
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.condition_failed, summary.failed), (6_001, 1, 0));
    assert_eq!(summary.token.positions.len(), 3);
    for acknowledgement in acknowledgements {
        assert_eq!(acknowledgement.await.unwrap().result, WriteResult::Appended);
    }
    assert_eq!(pending_outcome.await.unwrap().result, WriteResult::ConditionFailed(None));
    let counts = counts(&world.reader("counters").await).await;
    assert!(counts.len() == 100 && counts.values().all(|count| *count == 60), "{counts:?}");
    assert_in_order(&world, &store).await;
}

#[tokio::test]
async fn order_and_count_survive_lost_answers_and_writer_restarts() {
    let mut world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 3).await;
    let rates =
        FaultRates { append_refused: 1_000, append_in_doubt_appended: 1_000, ..Default::default() };
    let mut stream = store.write_stream(StreamOptions::default()).unwrap();
    let writes = 20_000;
    for number in 0..writes {
        if number % 5_000 == 2_500 {
            world.log.set_rates(rates);
        }
        if number % 5_000 == 4_000 {
            world.log.set_rates(FaultRates::default());
            world.restart().await;
        }
        let write = store.upsert(&format!("u{}", number % 10)).set("name", "x");
        stream.send(write.increment("n", 1)).await.unwrap();
        // Small requests, so that many of them can fail.
        if number % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    world.log.set_rates(FaultRates::default());
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.failed), (writes, 0));
    assert_in_order(&world, &store).await;
    let counts = counts(&world.reader("counters").await).await;
    assert!(counts.values().all(|count| *count == writes as i64 / 10), "{counts:?}");
    assert_eq!(counts.len(), 10);
}

#[tokio::test]
async fn deadline_ends_the_call_and_not_the_stream() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 1).await;
    let options = StreamOptions::default().changes_max(10);
    let mut stream = store.write_stream(options).unwrap().deadline(SOON);
    world.log.inner().close();
    for _ in 0..10 {
        stream.send(store.upsert("u").increment("n", 1)).await.unwrap();
    }
    let error = stream.send(store.upsert("u").increment("n", 1)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let error = stream.flush().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    assert!(error.message().starts_with("10 writes"), "{error}");
    assert_eq!(stream.summary().resolved, 0);
    world.log.inner().open();
    let mut stream = stream.deadline(PATIENCE);
    assert_eq!(stream.flush().await.unwrap().resolved, 10);
    stream.send(store.upsert("u").increment("n", 1)).await.unwrap();
    assert_eq!(stream.close().await.unwrap().resolved, 11);
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts[&b"u"[..]], 11);
}

#[tokio::test]
async fn refused_write_is_reported_and_its_neighbours_succeed() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    let mut stream = store.write_stream(StreamOptions::default()).unwrap();
    stream.send(store.upsert("a").increment("n", 1)).await.unwrap();
    let error = stream.send(store.upsert("a").set("n", "text")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    stream.send(store.upsert("a").increment("n", 1)).await.unwrap();
    assert_eq!(stream.flush().await.unwrap().resolved, 2);
    world.client().await.delete_store("counters").await.unwrap();
    let refused_write = stream.send(store.upsert("a").increment("n", 1)).await.unwrap();
    let error = stream.flush().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    assert_eq!(refused_write.await.unwrap_err(), error);
    assert_eq!(stream.summary().failed, 1);
    stream.flush().await.unwrap();
    let no_room = StreamOptions::default().bytes_max(0);
    let error = store.write_stream(no_room).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn writes_of_a_dropped_stream_have_an_unknown_outcome() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 1).await;
    let mut stream = store.write_stream(StreamOptions::default()).unwrap();
    world.log.inner().close();
    let unresolved = stream.send(store.upsert("u").increment("n", 1)).await.unwrap();
    drop(stream);
    assert_eq!(unresolved.await.unwrap_err().code(), ErrorCode::UnknownOutcome);
}

#[tokio::test]
async fn stream_waits_out_back_pressure() {
    let world = World::start().await;
    let client = world.client().await;
    let spec = forebay::schema::StoreSpec::key_value("blobs", forebay::schema::KeyType::Int64)
        .partitions(1);
    let store = client.create_store(&spec).await.unwrap();
    world.log.inner().close();
    // The gate and the queue hold one write and four more.
    let blob = || vec![0; 15 << 20];
    let send = |number: i64| tokio::spawn(store.put_value(number, blob()).send());
    let mut sends: FuturesUnordered<_> = (0..7).map(send).collect();
    let refusal = sends.next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::LimitExceeded);
    let mut stream = store.write_stream(StreamOptions::default()).unwrap().deadline(SOON);
    stream.send(store.put_value(9, blob())).await.unwrap();
    let error = stream.flush().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    assert!(error.message().contains("queue is full"), "{error}");
    world.log.inner().open();
    assert_eq!(stream.deadline(PATIENCE).close().await.unwrap().resolved, 1);
}
