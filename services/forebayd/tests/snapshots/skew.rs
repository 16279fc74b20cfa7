//! Clocks that jump, of the object store and of the log. Proves that published snapshots are
//! complete, that the newest one has the last position, and that no write is lost.

use std::sync::Arc;
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::schema::Value;
use forebay_core::clock::{Clock, ManualClock, SystemClock};
use forebay_log::MemoryLog;
use forebay_snapshot::Manifest;

use crate::served_node::{ServedNode, is_caught_up};
use crate::users::{ExpectedDocuments, partitions, snapshots, write};
use crate::{World, create_store, maintain, options};

const HOUR: Duration = Duration::from_secs(3_600);
const KEYS: i64 = 2_000;
/// Hours by which the object store's clock and the log's clock jump: beyond the grace and back.
const JUMPS: [(i32, i32); 9] =
    [(25, 25), (-60, 0), (0, -49), (26, 1), (25, -1), (-1, 400), (24, -900), (48, 30), (-9, 0)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jumps_cost_no_valid_snapshot_and_no_written_document() {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let world = World { log: Arc::new(MemoryLog::new(clock.clone())), ..World::new() };
    let start = async |data: &std::path::Path| {
        let store = Some(world.store.clone());
        let node = ServedNode::start_at(&world.log, data, store, clock.clone()).await;
        let maintenance = maintain(&node, options(HOUR / 72_000));
        (node, maintenance)
    };
    let data = tempfile::tempdir().unwrap();
    let (mut node, maintenance) = start(data.path()).await;
    let store = create_store(&node.client().await).await;
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..KEYS, 0).await;
    let mut before = snapshots(&world.store, &store, |newest| newest.base.documents > 900).await;
    for (round, (of_store, of_log)) in (1..).zip(JUMPS) {
        let hours = of_store.unsigned_abs() * HOUR;
        match of_store < 0 {
            true => world.objects.go_back(hours),
            false => world.objects.pass(hours),
        }
        clock.advance_micros(i64::from(of_log) * HOUR.as_micros() as i64);
        write(&store, &mut expected, 150 * round..150 * round + 400, 10_000 * round).await;
        let ends: Vec<_> = before.iter().map(|it| it.progress.offset_applied).collect();
        let is_later =
            |found: &Manifest| found.progress.offset_applied > ends[found.at.partition.0 as usize];
        before = snapshots(&world.store, &store, is_later).await;
        for at in partitions(&store) {
            let partition_snapshots = world.store.partition(at);
            let newest = partition_snapshots.newest(None).await.unwrap().unwrap();
            for chunk in newest.chunks() {
                partition_snapshots
                    .chunk(*chunk)
                    .await
                    .unwrap_or_else(|error| panic!("{round}: {error}"));
            }
            let bounds = world.log.bounds(at).await.unwrap();
            assert!(bounds.start <= newest.progress.offset_applied, "round {round}");
        }
    }
    assert!(maintenance.counts().chunks_removed > 0, "{:?}", maintenance.counts());

    // Only the snapshots and the logs after them remain.
    maintenance.stop().await;
    node.end().await;
    drop(node);
    let other = tempfile::tempdir().unwrap();
    let (node, _maintenance) = start(other.path()).await;
    let replica = node.replica(store.definition().store, is_caught_up).await;
    assert!(replica.partitions.iter().all(|it| it.counts.bootstraps == 1), "{replica:?}");
    let ordered = node.client().await.store("users").await.unwrap().ordered().unwrap();
    let field = store.definition().field("age").unwrap().id;
    for key in 0..KEYS {
        let found = ordered.get(&ReadOptions::local(), key).await.unwrap();
        let found = found.and_then(|found| found.value(field).cloned());
        assert_eq!(found, expected.get(&key).copied().map(Value::Int64), "{key}");
    }
}
