//! Pushes that replace a store's documents with another number of partitions: during writes and
//! reads, with changes of every kind in flight, interrupted, and repeated.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::schema::Value;
use forebay::writes::{StreamOptions, WriteResult};
use forebay::{Client, Reader, Store};
use forebay_core::ErrorCode;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::partition::partition_of;
use forebay_core::schema::{Alteration, Definition};
use forebay_core::versions::VersionNumber;
use forebay_entries::open_log;
use forebay_snapshot_service::{PushParts, Snapshots};
use forebay_wire::entry::encode_entry;

use crate::files::{Files, ROWS};
use crate::repartition::eventually;
use crate::served_node::ServedNode;
use crate::versions::{
    answers, assert_writes, fill, found_writes, live_of, name, replace, shards_answer,
    start_held_push, watch, write_on,
};
use crate::{LONG, PARTITIONS, Push, World, assert_is_whole, quiet, read_fields, reader};

/// Returns a push that replaces the store's documents, with this many partitions.
fn divide(files: &std::path::Path, partitions: u32) -> Push {
    Push { partitions: Some(partitions), ..replace(files) }
}

fn definition(parts: &PushParts) -> Arc<Definition> {
    parts.service.context.catalog.catalog().store_by_name("users").unwrap().definition.clone()
}

/// Starts a node that builds snapshots, so that repartitions are completed.
async fn start(world: &World) -> (ServedNode, PushParts, Snapshots) {
    let (node, parts) = world.start().await;
    let maintenance = Snapshots::maintain(parts.service.clone());
    (node, parts, maintenance)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_repartitioned_both_ways_during_writes_and_reads() {
    for count in [PARTITIONS + 3, 1] {
        let (world, files) = (World::new(), Files::new());
        let (node, parts, _maintenance) = start(&world).await;
        let client = node.client().await;
        let store = client.store("users").await.unwrap();
        let old_token = fill(&store).await;
        let old = reader(&node.address, "users").await;
        old.await_token(&old_token, LONG).await.unwrap();

        let (stop, write_count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writing =
            tokio::spawn(write_on(store.clone(), Arc::clone(&stop), Arc::clone(&write_count)));
        let watching = std::thread::spawn({
            let (old, stop) = (old.clone(), Arc::clone(&stop));
            move || watch(&old, &stop)
        });
        let result = parts.push(&divide(&files.parts(3), count), quiet).await.unwrap();
        assert_eq!((result.version, result.documents), (VersionNumber(2), ROWS));
        assert_eq!((result.partitions, result.changed_outcomes), (count, vec![]));
        assert_eq!(live_of(&parts).0, 2);
        answers(&old, "old-7", None).await;
        stop.store(true, Ordering::SeqCst);
        let token = writing.await.unwrap();
        assert_eq!(watching.join().unwrap(), 1, "it has changed once");

        let fresh = reader(&node.address, "users").await;
        shards_answer(&store, "old-7", None).await;
        let write_count = write_count.load(Ordering::SeqCst);
        for reader in [&old, &fresh] {
            reader.await_token(&token, LONG).await.unwrap();
            assert_is_whole(reader, |_| true);
            assert_eq!(reader.status().partitions.len(), count as usize);
        }
        // The writes since the push are there, and no document from before.
        let has = found_writes(&old, write_count);
        // Each old partition has one position from which its writes are there.
        for before in PartitionCount(PARTITIONS).partitions() {
            let is_of = |number: &u64| {
                partition_of(format!("more-{number}").as_bytes(), PartitionCount(PARTITIONS))
                    == before
            };
            let mut has = (0..write_count).filter(is_of).map(|number| has[number as usize]);
            assert!(has.by_ref().skip_while(|has| !has).all(|has| has), "partition {before}");
        }
        assert_writes(&fresh, &store, &has).await;
        // The store is the same, with other logs: nothing is reported about the old ones.
        assert_eq!(fresh.definition().store, store.definition().store);
        assert_eq!(store.refresh().await.unwrap().write_logs().partitions, PartitionCount(count));
        let error = old.await_token(&old_token, LONG).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenLost, "{error}");
        let error = parts.activate_version("users", VersionNumber(1)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
}

/// Increments counters one after the other, each once; returns the value of each.
async fn count_on(store: Store, stop: Arc<AtomicBool>) -> Vec<i32> {
    let mut counts = vec![0; 32];
    for number in 0.. {
        let key = number % counts.len();
        match store.upsert(&*format!("counter-{key}")).increment("age", 1).send().await {
            Ok(_) => counts[key] += 1,
            // The outcome is unknown, so this counter is not checked any more.
            Err(error) => {
                assert_eq!(error.error().code(), ErrorCode::UnknownOutcome, "{error}");
                counts[key] = i32::MIN;
            }
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_happens_once_during_a_repartition_and_reads_see_own_writes() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts, _maintenance) = start(&world).await;
    let store = node.client().await.store("users").await.unwrap();
    let file = files.text("one.csv", "id,name\nann,pushed\n");
    let stop = Arc::new(AtomicBool::new(false));
    let (push_task, hold) = start_held_push(&parts, divide(&file, 6), PARTITIONS);
    hold.wait().await;
    // All of these writes came after the push, so none of them is lost.
    let counting = tokio::spawn(count_on(store.clone(), Arc::clone(&stop)));
    let other = node.client().await;
    let streaming = tokio::spawn(stream_on(other, Arc::clone(&stop)));
    let follower = reader(&node.address, "users").await;
    let reading = tokio::spawn(read_own(store.clone(), follower.clone(), Arc::clone(&stop)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    hold.go_on();
    assert_eq!(push_task.await.unwrap().unwrap().partitions, 6);
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::SeqCst);
    let (counts, sent, reads) =
        (counting.await.unwrap(), streaming.await.unwrap(), reading.await.unwrap());
    assert!(reads > 0 && sent > 0);

    for (key, count) in counts.iter().enumerate() {
        let key_of = format!("counter-{key}");
        let found =
            follower.get_document_with(&ReadOptions::latest(LONG), key_of.as_str()).await.unwrap();
        let age = store.definition().field("age").unwrap().id;
        let found = found.and_then(|document| document.value(age).cloned());
        if *count >= 0 {
            assert_eq!(found, Some(Value::Int32(*count)), "{key_of}");
        }
    }
    assert!(counts.iter().filter(|count| **count < 0).count() <= 1, "{counts:?}");
    for number in 0..sent {
        let key = format!("streamed-{number}");
        assert!(read_fields(&follower, &key).is_some(), "{key}");
    }
}

/// Streams documents until `stop` is set; returns their number.
async fn stream_on(client: Client, stop: Arc<AtomicBool>) -> u64 {
    let store = client.store("users").await.unwrap();
    let mut stream = store.write_stream(StreamOptions::default()).unwrap();
    let mut sent = 0;
    while !stop.load(Ordering::SeqCst) {
        let write = store.upsert(&*format!("streamed-{sent}")).set("name", "streamed");
        drop(stream.send(write).await.unwrap());
        sent += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let summary = stream.close().await.unwrap();
    assert_eq!((summary.resolved, summary.failed), (sent, 0));
    sent
}

/// Reads each write after its token, and with a latest read; returns the number of writes.
async fn read_own(store: Store, reader: Reader, stop: Arc<AtomicBool>) -> u64 {
    let age = store.definition().field("age").unwrap().id;
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let write = store.upsert("own").set("age", number as i32).send().await.unwrap();
        for read in [ReadOptions::after(write.token.clone(), LONG), ReadOptions::latest(LONG)] {
            let found = reader.get_document_with(&read, "own").await.unwrap();
            let found = found.and_then(|document| document.value(age).cloned());
            assert_eq!(found, Some(Value::Int32(number as i32)), "{read:?}");
        }
    }
    number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_reports_differing_outcomes_and_refuses_alterations() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts, _maintenance) = start(&world).await;
    let client = node.client().await;
    let store = client.store("users").await.unwrap();
    fill(&store).await;
    let file = files.text("one.csv", "id,name\nann,pushed\n");
    let (push_task, hold) = start_held_push(&parts, divide(&file, 4), 4);
    hold.wait().await;
    for (key, is_met) in [("ann", true), ("old-7", false), ("nobody", true)] {
        let write = store.upsert(key).set("name", "mine").if_absent().send().await.unwrap();
        assert_eq!(
            !matches!(write.result, WriteResult::ConditionFailed(_)),
            is_met,
            "{key}: {write:?}"
        );
    }
    hold.go_on();
    let result = push_task.await.unwrap().unwrap();
    let changes = result.changed_outcomes.iter();
    let were_applied: BTreeSet<_> =
        changes.map(|it| it.outcome.condition == ConditionOutcome::Applied).collect();
    assert_eq!(
        (result.changed_outcomes.len(), were_applied.len()),
        (2, 2),
        "{:?}",
        result.changed_outcomes
    );
    assert!(result.changed_outcomes.iter().all(|it| it.outcome.client == client.id()));
    let fresh = reader(&node.address, "users").await;
    assert_eq!(read_fields(&fresh, "ann"), Some(name("pushed")));
    assert_eq!(read_fields(&fresh, "old-7"), Some(name("mine")));

    // Slow writers may still append to the old partitions until the window is over.
    let error = parts.push(&divide(&file, 5), quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    // A push with the same number of partitions is a version like any other.
    let next_result = parts.push(&divide(&file, 4), quiet).await.unwrap();
    assert_eq!(next_result.version, VersionNumber(3));
    client.alter_store("users", None, &[Alteration::DropAll]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_repartitions_remove_old_logs_after_their_window() {
    let (world, files) = (World::new(), Files::new());
    let (node, mut parts) = world.start().await;
    parts.service.options.rollback_window = Duration::from_millis(200);
    let _maintenance = Snapshots::maintain(parts.service.clone());
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let follower = reader(&node.address, "users").await;
    for (number, count) in [(2, 5), (3, 2), (4, PARTITIONS)] {
        let text = format!("id,name\nann,version {number}\n");
        let file = files.text(&format!("{number}.csv"), &text);
        let before = definition(&parts).write_logs().store;
        let result = parts.push(&divide(&file, count), quiet).await.unwrap();
        assert_eq!((result.version, result.partitions), (VersionNumber(number), count));
        let write = store.upsert("bob").set("name", "mine").send().await.unwrap();
        follower.await_token(&write.token, LONG).await.unwrap();
        assert_eq!(read_fields(&follower, "ann"), Some(name(&format!("version {number}"))));
        assert_eq!(read_fields(&follower, "bob"), Some(name("mine")));
        eventually("the logs from before are gone", async || {
            let is_gone = world.log.bounds(first_of(before)).await.is_err();
            is_gone && definition(&parts).versions.all().len() == 1
        })
        .await;
        // Document versions exceed all earlier ones, whichever partition the document was in.
        let versions = definition(&parts).versions.live().logs.repartition_count;
        assert_eq!(u32::from(versions), number - 1);
    }
    let store_id: StoreId = store.definition().store;
    node.client().await.delete_store("users").await.unwrap();
    eventually("its last logs are gone", async || {
        let mut are_gone = true;
        for logs in parts.service.context.catalog.catalog().store(store_id).unwrap().logs() {
            are_gone &= world.log.bounds(first_of(logs)).await.is_err();
        }
        are_gone
    })
    .await;
}

/// Pushes until the version is in the definition, while no process completes the repartition.
async fn push_until_known(parts: &PushParts, ask: &Push) {
    let (own_parts, ask) = (parts.clone(), ask.clone());
    let push_task = tokio::spawn(async move { own_parts.push(&ask, quiet).await });
    eventually("the version is known", async || definition(parts).versions.is_repartitioning())
        .await;
    push_task.abort();
    assert!(push_task.await.unwrap_err().is_cancelled());
}

/// Pauses writes for a version, as the snapshot service does in a repartition.
async fn pause_writes(parts: &PushParts, number: VersionNumber) {
    let (log, at) = (&*parts.service.context.log, PartitionRef::CONTROL);
    let log_id = open_log(log, &*parts.service.context.entropy, at).await.unwrap();
    let paused_definition = definition(parts).with_writes_to(number).unwrap();
    let body = EntryBody::Control(ControlRecord::Define(Box::new(paused_definition)));
    let entry = Entry::original(log_id, SchemaVersion(0), body);
    log.append(at, encode_entry(&entry).unwrap()).await.unwrap();
    eventually("writes are paused", async || definition(parts).versions.writes_paused()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_is_activated_only_after_all_entries_are_forwarded() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let ask = divide(&files.text("one.csv", "id,name\nann,pushed\n"), 4);
    push_until_known(&parts, &ask).await;
    store.upsert("bob").set("name", "mine").send().await.unwrap();
    pause_writes(&parts, VersionNumber(2)).await;
    let error = parts.activate_version("users", VersionNumber(2)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    // The same push is resumed, and waits until a process completes the repartition.
    let own_parts = parts.clone();
    let mut resumed_push = tokio::spawn(async move { own_parts.push(&ask, quiet).await });
    let result = tokio::time::timeout(Duration::from_secs(1), &mut resumed_push).await;
    assert!(result.is_err(), "{result:?}");
    assert!(definition(&parts).versions.writes_paused());
    let _maintenance = Snapshots::maintain(parts.service.clone());
    assert_eq!(resumed_push.await.unwrap().unwrap().version, VersionNumber(2));
    let fresh = reader(&node.address, "users").await;
    for (key, fields) in [("ann", Some(name("pushed"))), ("bob", Some(name("mine")))] {
        fresh.get_document_with(&ReadOptions::latest(LONG), key).await.unwrap();
        assert_eq!(read_fields(&fresh, key), fields);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_whose_version_is_activated_elsewhere_leaves_the_previous_version() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let store = node.client().await.store("users").await.unwrap();
    fill(&store).await;
    let ask = divide(&files.text("one.csv", "id,name\nann,pushed\n"), 4);
    push_until_known(&parts, &ask).await;
    let write = store.upsert("ann").set("name", "mine").if_absent().send().await.unwrap();
    assert_eq!(write.result, WriteResult::Applied);
    let (push_task, hold) = start_held_push(&parts, ask, 4);
    hold.wait().await;
    let _maintenance = Snapshots::maintain(parts.service.clone());
    eventually("it is live", async || live_of(&parts).0 == 2).await;
    hold.go_on();
    let result = push_task.await.unwrap().unwrap();
    assert_eq!((result.version, result.changed_outcomes.len()), (VersionNumber(2), 1));
    assert_eq!(live_of(&parts), (2, vec![1, 2]));
}

fn first_of(store: StoreId) -> PartitionRef {
    PartitionRef { store, partition: PartitionId(0) }
}
