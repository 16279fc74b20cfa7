//! Failures between a write and its answer: a write happens once, or the client does not report a
//! failure.

use std::sync::Arc;
use std::time::Duration;

use forebay::environment::{ClientParts, SystemEntropy};
use forebay::schema::{KeyType, StoreSpec, Timestamp};
use forebay::{Client, ClientOptions, ErrorCode};
use forebay_core::clock::ManualClock;
use forebay_log::faulty::FaultRates;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::world::{PATIENCE, SOON, World, counters, counts};

/// A fault that hits every other call.
const HALF: u32 = 5_000;

#[tokio::test]
async fn each_write_happens_once_despite_refused_lost_and_late_answers() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    let rates = [
        FaultRates { append_refused: HALF, ..FaultRates::default() },
        FaultRates { append_in_doubt_appended: HALF, ..FaultRates::default() },
        FaultRates { append_in_doubt_lost: HALF, ..FaultRates::default() },
        FaultRates {
            append_in_doubt_late: HALF,
            delay_max: Duration::from_millis(20),
            ..FaultRates::default()
        },
    ];
    let rounds = rates.len() as i64;
    for rates in rates {
        world.log.set_rates(rates);
        let keys: Vec<_> = (0..20).map(|number| format!("u{number}")).collect();
        let sends = keys.iter().map(|key| store.upsert(key).increment("n", 1).send());
        for sent in join_all(sends).await {
            sent.unwrap();
        }
        let mut batch = store.batch();
        for key in &keys {
            batch.add(store.upsert(key).increment("n", 1)).unwrap();
        }
        batch.send().await.unwrap().require_complete().unwrap();
    }
    world.log.set_rates(FaultRates::default());
    for (fault, times) in world.log.counts().by_name() {
        assert_eq!(times > 0, fault.starts_with("append_") && fault != "append_delayed", "{fault}");
    }
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|count| *count == 2 * rounds), "{counts:?}");
    let appended = world.appended_everywhere(&store).await;
    let all: usize = appended.iter().map(Vec::len).sum();
    assert!(all > 2 * 20 * rounds as usize, "some changes stand in the log twice");
}

#[tokio::test]
async fn passed_deadline_is_an_unknown_outcome_that_the_same_write_resolves() {
    let world = World::start().await;
    let setup = world.client().await;
    counters(&setup, 1).await;
    let client = world.hasty_client(SOON).await;
    let store = client.store("counters").await.unwrap();
    world.log.inner().close();
    let error = store.upsert("u").increment("n", 1).send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    assert_eq!(error.error().context().store.as_deref(), Some("counters"));
    let pending = error.into_pending().unwrap();
    let error = pending.retry().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome);
    world.log.inner().open();
    let pending = error.into_pending().unwrap().deadline(PATIENCE);
    pending.retry().await.unwrap().require_complete().unwrap();
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts[&b"u"[..]], 1);
}

#[tokio::test]
async fn refused_retry_of_a_possibly_logged_write_stays_unknown() {
    let world = World::start().await;
    let setup = world.client().await;
    counters(&setup, 1).await;
    let client = world.hasty_client(SOON).await;
    let store = client.store("counters").await.unwrap();
    world.log.inner().close();
    let error = store.upsert("u").increment("n", 1).send().await.unwrap_err();
    setup.delete_store("counters").await.unwrap();
    let error = error.into_pending().unwrap().retry().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    assert!(error.to_string().contains("NotFound"), "the cause is told: {error}");
}

#[tokio::test]
async fn unsent_write_is_unavailable_and_can_be_retried() {
    let mut world = World::start().await;
    let setup = world.client().await;
    counters(&setup, 1).await;
    let client = world.hasty_client(SOON).await;
    let store = client.store("counters").await.unwrap();
    world.kill();
    // The first call may still use the broken connection; the next one surely finds no node.
    drop(store.upsert("other").set("n", 1).send().await);
    let error = store.upsert("u").increment("n", 1).send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    world.restart().await;
    let pending = error.into_pending().unwrap().deadline(PATIENCE);
    pending.retry().await.unwrap().require_complete().unwrap();
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts[&b"u"[..]], 1);
}

#[tokio::test]
async fn full_writer_applies_back_pressure_and_no_call_hangs() {
    let world = World::start().await;
    let client = world.client().await;
    let spec = StoreSpec::key_value("blobs", KeyType::Int64).partitions(1);
    let store = client.create_store(&spec).await.unwrap();
    world.log.inner().close();
    // The gate and the queue hold one write and four more.
    let send = |number: i64| store.put_value(number, vec![0; 15 << 20]).send();
    let mut sends: FuturesUnordered<_> = (0..7).map(send).collect();
    let first = sends.next().await.unwrap().unwrap_err();
    assert_eq!(first.code(), ErrorCode::LimitExceeded, "{first}");
    assert!(first.error().context().limit.is_some());
    assert!(first.into_pending().is_none(), "it is not in the log");
    world.log.inner().open();
    let mut appended = 0;
    while let Some(sent) = sends.next().await {
        match sent {
            Ok(_) => appended += 1,
            Err(error) => {
                // A call that took too long is retried, and may then find the queue full.
                let codes = [ErrorCode::LimitExceeded, ErrorCode::UnknownOutcome];
                assert!(codes.contains(&error.code()), "{error}");
            }
        }
    }
    assert!(appended > 0);
}

#[tokio::test]
async fn pending_write_keeps_later_writes_inside_its_window() {
    let world = World::start().await;
    let setup = world.client().await;
    counters(&setup, 1).await;
    let client = world.hasty_client(SOON).await;
    let store = client.store("counters").await.unwrap();
    world.log.inner().close();
    let pending = store.upsert("u").increment("n", 1).send().await.unwrap_err().into_pending();
    world.log.inner().open();
    let mut batch = store.batch().deadline(PATIENCE);
    for _ in 0..1_023 {
        batch.add(store.upsert("u").increment("n", 1)).unwrap();
    }
    batch.send().await.unwrap().require_complete().unwrap();
    let error = store.upsert("u").increment("n", 1).send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeadlineExceeded, "{error}");
    pending.unwrap().deadline(PATIENCE).retry().await.unwrap().require_complete().unwrap();
    let late = error.into_pending().unwrap().deadline(PATIENCE);
    late.retry().await.unwrap().require_complete().unwrap();
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts[&b"u"[..]], 1_025);
}

#[tokio::test]
async fn write_that_its_partition_may_have_forgotten_is_not_resent() {
    let world = World::start().await;
    let setup = world.client().await;
    let counters = counters(&setup, 1).await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
    let parts = ClientParts::default().clock(clock.clone()).entropy(Arc::new(SystemEntropy));
    let endpoint = format!("http://{}", world.endpoint());
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect_lazy();
    let options = ClientOptions::default().deadline(SOON).attempt(SOON / 3);
    let client = Client::from_channel(channel, options, parts).unwrap();
    let store = client.store("counters").await.unwrap();
    world.log.inner().close();
    let pending = store.upsert("u").increment("n", 1).send().await.unwrap_err().into_pending();
    clock.advance_micros(13 * 60 * 60 * 1_000_000);
    world.log.inner().open();
    let outcome = pending.unwrap().retry().await.unwrap();
    let error = outcome.require_complete().unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    // The client itself continues: its later writes get new sequences.
    store.upsert("v").set("n", 1).deadline(PATIENCE).send().await.unwrap();
    let appended = world.appended(&counters, forebay::schema::PartitionId(0)).await;
    let last = appended.last().unwrap().1;
    assert_eq!(last.0, 2);
}

#[tokio::test]
async fn killed_writer_neither_loses_nor_repeats_a_write() {
    let mut world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let writers = 16;
    let per_writer = 40;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..per_writer {
                    store.upsert(&format!("u{writer}")).increment("n", 1).send().await.unwrap();
                }
            })
        })
        .collect();
    for kill in 1..=3 {
        // Each kill comes after a quarter of the writes, at any point of the others.
        while world.appended_everywhere(&store).await.concat().len() < kill * 160 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.restart().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts.len(), writers);
    assert!(counts.values().all(|count| *count == per_writer), "{counts:?}");
}
