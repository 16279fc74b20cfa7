//! Proves that readers that start from a snapshot serve the state of the log, regardless of
//! retention; that an interrupted bootstrap resumes; and that damaged data is never served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::snapshots::{FOLDER, PartitionFold, WorldSnapshots};
use crate::world::{LOG, SECOND, World, age, at, change, checkpoints};
use forebay_core::ErrorCode;
use forebay_core::change::Verb;
use forebay_core::id::Offset;
use forebay_core::limits::READER_FETCHES_AT_ONCE;
use forebay_log::ChangeLog;
use forebay_log::disk::SimDisk;
use forebay_reader::{Phase, Reader, ReaderOptions, ReaderParts};
use forebay_snapshot::SnapshotStore;
use forebay_testkit::objects::ObjectFault;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use parking_lot::Mutex;

const DOCUMENTS: i64 = 3_000;

fn key(number: i64) -> String {
    format!("key-{number}")
}

/// Returns a world whose log starts with these documents.
async fn fill_world() -> (World, WorldSnapshots, PartitionFold) {
    let world = World::new(1).await;
    for number in 0..DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let mut fold = PartitionFold::empty(&world, 0);
    fold.go_on(&world).await;
    (world, WorldSnapshots::new(), fold)
}

fn options(world: &World, snapshots: &WorldSnapshots) -> ReaderOptions {
    world.options().snapshots(snapshots.store.clone())
}

async fn trim(world: &World, fold: &PartitionFold) {
    world.log.trim(at(0), fold.state.offset_applied).await.unwrap();
    assert_eq!(world.log.bounds(at(0)).await.unwrap().start, fold.state.offset_applied);
}

/// Opens a reader that writes checkpoints to this disk and starts from snapshots.
async fn open_on(world: &World, snapshots: &WorldSnapshots, disk: &SimDisk) -> Reader {
    let options = checkpoints::options(world).snapshots(snapshots.store.clone());
    let parts = ReaderParts { ..checkpoints::parts(world, disk) };
    Reader::open(options, parts).await.unwrap()
}

fn has_all(reader: &Reader) {
    for number in 0..DOCUMENTS {
        assert_eq!(age(reader, &key(number)).unwrap(), Some(number), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn reader_loads_the_snapshot_and_follows_the_log_from_there() {
    let (world, snapshots, mut fold) = fill_world().await;
    snapshots.publish(&world, 1, &mut fold).await;
    trim(&world, &fold).await;
    world.put(&key(0), -1).await;
    let reader = world.open_with(options(&world, &snapshots)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), Some(-1));
    for number in 1..DOCUMENTS {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
    }
    assert_eq!(age(&reader, "absent").unwrap(), None);
    let counts = reader.status().partitions[0].counts;
    assert_eq!((counts.bootstraps, counts.bootstraps_failed, counts.records_applied), (1, 0, 1));
    let token = world.put("new", 5).await;
    reader.await_token(&token, 10 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "new").unwrap(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn trimmed_log_without_a_snapshot_is_reported_and_not_served() {
    let (world, snapshots, mut fold) = fill_world().await;
    trim(&world, &fold).await;
    let reader = world.open_with(options(&world, &snapshots)).await;
    let error = reader.await_ready(20 * SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains("there is no snapshot"), "{error}");
    assert_eq!(age(&reader, &key(0)).unwrap_err().code(), ErrorCode::Unavailable);
    // The reader starts to serve by itself once there is a snapshot.
    snapshots.publish(&world, 1, &mut fold).await;
    checkpoints::wait_until(&reader, |status| status.phase == Phase::Serving).await;
    has_all(&reader);
}

#[tokio::test(start_paused = true)]
async fn deltas_override_the_image_and_the_last_delta_gives_the_state() {
    let (world, snapshots, mut fold) = fill_world().await;
    let mut manifest = snapshots.publish(&world, 1, &mut fold).await;
    for round in 1..4_i64 {
        for number in (0..DOCUMENTS).step_by(7) {
            world.put(&key(number), 10_000 * round + number).await;
        }
        world.write(change(&key(round), Verb::Delete, &[])).await;
        world.put(&format!("new-{round}"), round).await;
        fold.go_on(&world).await;
        manifest = snapshots.publish_over(&world, 1 + round as u64, &mut fold, &manifest).await;
    }
    assert_eq!((manifest.deltas.len(), manifest.deltas[0].deleted), (3, 1));
    // The client repeats a change that the last delta contains.
    let repeated = world.log.read(
        at(0),
        Offset(fold.state.offset_applied.0 - 1),
        forebay_log::ReadLimit { bytes_max: 1 << 20, wait_max: SECOND },
    );
    let repeated = repeated.await.unwrap().records.pop().unwrap();
    trim(&world, &fold).await;
    world.append_bytes(0, repeated.entry).await;
    let reader = world.open_with(options(&world, &snapshots)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    for number in 0..DOCUMENTS {
        let expected = match number {
            // Keys 1 to 3 are not multiples of seven.
            1..=3 => None,
            number if number % 7 == 0 => Some(30_000 + number),
            number => Some(number),
        };
        assert_eq!(age(&reader, &key(number)).unwrap(), expected, "{number}");
    }
    assert_eq!(age(&reader, "new-3").unwrap(), Some(3));
    assert_eq!(reader.status().partitions[0].counts.duplicates_skipped, 1);
}

#[tokio::test(start_paused = true)]
async fn fetched_chunks_survive_interruptions_and_only_the_rest_is_fetched() {
    let (world, snapshots, mut fold) = fill_world().await;
    let manifest = snapshots.publish(&world, 1, &mut fold).await;
    let chunks = manifest.base.chunks.len() as u64;
    assert!(chunks > 12, "{chunks}");
    trim(&world, &fold).await;
    for broken_chunk in [1, chunks / 4, chunks / 2, chunks * 3 / 4, chunks - 1] {
        let disk = checkpoints::disk();
        let fetched = Arc::new(AtomicU64::new(0));
        let fetched_by_disk = Arc::clone(&fetched);
        snapshots.objects.decide(Some(Arc::new(move |path: &str, _| {
            let is_chunk = path.contains("/chunks/");
            let number = if is_chunk { fetched_by_disk.fetch_add(1, Ordering::Relaxed) } else { 0 };
            (is_chunk && number >= broken_chunk).then_some(ObjectFault::Refused)
        })));
        let reader = open_on(&world, &snapshots, &disk).await;
        reader.await_ready(SECOND).await.unwrap_err();
        let status = &reader.status().partitions[0];
        assert_eq!(status.phase, Phase::Bootstrapping);
        assert!(status.counts.bootstraps_failed > 0);
        checkpoints::end(reader).await;
        snapshots.objects.decide(None);
        let reader = open_on(&world, &snapshots, &disk).await;
        reader.await_ready(60 * SECOND).await.unwrap();
        has_all(&reader);
        // The bootstrap reads two manifests and one list besides the missing chunks.
        let calls = snapshots.objects.calls();
        assert!(
            calls <= chunks - broken_chunk + 8 + 2,
            "{calls} calls for {broken_chunk} of {chunks}"
        );
        checkpoints::end(reader).await;
    }
}

#[tokio::test(start_paused = true)]
async fn images_are_fetched_a_few_at_a_time_and_a_failing_image_frees_its_turn() {
    const PARTITIONS: u32 = 5;
    let world = World::new(PARTITIONS).await;
    // Each image has more chunks than are fetched at once.
    for number in 0..6 * DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let snapshots = WorldSnapshots::new();
    let mut chunks = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let mut fold = PartitionFold::empty(&world, partition);
        fold.go_on(&world).await;
        let manifest = snapshots.publish(&world, 1, &mut fold).await;
        world.log.trim(at(partition), fold.state.offset_applied).await.unwrap();
        for chunk in &manifest.base.chunks {
            // Equal chunks of several images identify no partition.
            let owner = chunks.entry(chunk.hash.to_string()).or_insert(Some(partition));
            *owner = owner.filter(|partition_or_none| *partition_or_none == partition);
        }
    }
    let requested: Arc<Mutex<Vec<u32>>> = Arc::default();
    let (owners, requests) = (chunks.clone(), Arc::clone(&requested));
    snapshots.objects.decide(Some(Arc::new(move |path: &str, _| {
        let (_, chunk) = path.split_once("/chunks/")?;
        let partition = (*owners.get(chunk.split('-').next()?)?)?;
        requests.lock().push(partition);
        Some(if partition == 0 { ObjectFault::Refused } else { ObjectFault::Late })
    })));
    let reader = world.open_with(options(&world, &snapshots)).await;
    let are_others_serving = async {
        while reader.status().partitions[1..].iter().any(|status| status.phase != Phase::Serving) {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(60 * SECOND, are_others_serving).await.unwrap();
    let first = reader.status().partitions[0].clone();
    assert!(first.counts.bootstraps_failed > 0 && first.phase == Phase::Bootstrapping);
    // At any moment, no more images are started and not completed than there are permits.
    let requested: Vec<u32> = requested
        .lock()
        .iter()
        .copied()
        .filter(|partition_number| *partition_number != 0)
        .collect();
    let is_open = |partition: u32, now: usize| {
        requested[..=now].contains(&partition) && requested[now + 1..].contains(&partition)
    };
    let open = |now| (1..PARTITIONS).filter(|partition| is_open(*partition, now)).count();
    let open_max = (0..requested.len()).map(open).max().unwrap();
    assert_eq!(open_max, READER_FETCHES_AT_ONCE, "{requested:?}");
    snapshots.objects.decide(None);
    reader.await_ready(60 * SECOND).await.unwrap();
}

/// Publishes snapshots of all partitions and trims the logs up to them.
async fn publish_all(world: &World, snapshots: &WorldSnapshots) {
    for partition in 0..world.definition.partitions.0 {
        let mut fold = PartitionFold::empty(world, partition);
        fold.go_on(world).await;
        snapshots.publish(world, 1, &mut fold).await;
        world.log.trim(at(partition), fold.state.offset_applied).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_written_only_after_all_images_are_fetched() {
    let world = World::new(3).await;
    for number in 0..2 * DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let snapshots = WorldSnapshots::new();
    publish_all(&world, &snapshots).await;
    // Each image takes seconds to fetch, and a checkpoint is due each second.
    let throttled = ThrottleConfig { wait_get_per_call: 2 * SECOND, ..ThrottleConfig::default() };
    let throttled = ThrottledStore::new(Arc::clone(&snapshots.objects), throttled);
    let snapshots = WorldSnapshots {
        store: SnapshotStore::of(Arc::new(throttled), FOLDER.into()),
        ..snapshots
    };
    let disk = checkpoints::disk();
    let reader = open_on(&world, &snapshots, &disk).await;
    reader.await_ready(120 * SECOND).await.unwrap();
    let checkpoints_written = || -> Vec<u64> {
        reader.status().partitions.iter().map(|status| status.counts.checkpoints.written).collect()
    };
    assert_eq!(checkpoints_written(), [0; 3]);
    let are_written = async {
        while checkpoints_written().contains(&0) {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(10 * SECOND, are_written).await.unwrap();
    checkpoints::end(reader).await;
}

#[tokio::test(start_paused = true)]
async fn fetched_image_survives_a_failed_fetch_of_its_deltas() {
    let (world, snapshots, mut fold) = fill_world().await;
    let base = snapshots.publish(&world, 1, &mut fold).await;
    world.put(&key(0), -1).await;
    fold.go_on(&world).await;
    let manifest = snapshots.publish_over(&world, 2, &mut fold, &base).await;
    trim(&world, &fold).await;
    let hash = manifest.deltas[0].rows[0].hash.to_string();
    snapshots.objects.decide(Some(Arc::new(move |path: &str, _| {
        path.contains(&hash).then_some(ObjectFault::Refused)
    })));
    let disk = checkpoints::disk();
    let reader = open_on(&world, &snapshots, &disk).await;
    reader.await_ready(SECOND).await.unwrap_err();
    assert!(reader.status().partitions[0].counts.bootstraps_failed > 0);
    checkpoints::end(reader).await;
    snapshots.objects.decide(None);
    let reader = open_on(&world, &snapshots, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), Some(-1));
    assert_eq!(age(&reader, &key(1)).unwrap(), Some(1));
    // The second attempt reads a list, two manifests, and the delta.
    let (calls, chunks) = (snapshots.objects.calls(), base.base.chunks.len() as u64);
    assert!(calls < chunks, "{calls} calls for {chunks} chunks that were there");
    checkpoints::end(reader).await;
}

#[tokio::test(start_paused = true)]
async fn restart_with_its_files_serves_without_snapshot_and_log() {
    let (world, snapshots, mut fold) = fill_world().await;
    snapshots.publish(&world, 1, &mut fold).await;
    trim(&world, &fold).await;
    let disk = checkpoints::disk();
    let reader = open_on(&world, &snapshots, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    checkpoints::checkpointed(&reader).await;
    checkpoints::end(reader).await;
    snapshots.objects.decide(Some(Arc::new(|_: &str, _| Some(ObjectFault::Refused))));
    let reader = open_on(&world, &snapshots, &disk).await;
    checkpoints::wait_until(&reader, |status| status.phase == Phase::Serving).await;
    has_all(&reader);
    assert_eq!(snapshots.objects.calls(), 0, "nobody asked");
}

#[tokio::test(start_paused = true)]
async fn damaged_chunk_is_never_served_and_the_next_attempt_fetches_it() {
    for fault in [ObjectFault::Cut, ObjectFault::Changed] {
        let (world, snapshots, mut fold) = fill_world().await;
        snapshots.publish(&world, 1, &mut fold).await;
        trim(&world, &fold).await;
        snapshots.objects.decide(Some(Arc::new(move |path: &str, number| {
            (path.contains("/chunks/") && number % 3 == 2).then_some(fault)
        })));
        let reader = world.open_with(options(&world, &snapshots)).await;
        let error = reader.await_ready(5 * SECOND).await.unwrap_err();
        assert!(error.message().contains("is damaged"), "{error}");
        assert_eq!(age(&reader, &key(0)).unwrap_err().code(), ErrorCode::Unavailable);
        snapshots.objects.decide(None);
        reader.await_ready(60 * SECOND).await.unwrap();
        has_all(&reader);
    }
}

#[tokio::test(start_paused = true)]
async fn reader_behind_the_start_of_the_log_rebuilds_while_it_serves() {
    let (world, snapshots, mut fold) = fill_world().await;
    let disk = checkpoints::disk();
    let reader = open_on(&world, &snapshots, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    checkpoints::checkpointed(&reader).await;
    checkpoints::end(reader).await;
    for number in 0..DOCUMENTS {
        world.put(&key(number), -number).await;
    }
    fold.go_on(&world).await;
    trim(&world, &fold).await;
    let reader = open_on(&world, &snapshots, &disk).await;
    checkpoints::wait_until(&reader, |status| status.rebuild.is_some()).await;
    has_all(&reader);
    snapshots.publish(&world, 1, &mut fold).await;
    world.heartbeat(0).await;
    checkpoints::wait_until(&reader, |status| {
        status.counts.bootstraps == 1 && status.rebuild.is_none()
    })
    .await;
    for number in 0..DOCUMENTS {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(-number));
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_another_log_is_not_loaded() {
    let (world, snapshots, mut fold) = fill_world().await;
    snapshots.publish(&world, 1, &mut fold).await;
    world.replace_logs(forebay_core::id::LogId(LOG.0 + 1)).await;
    let reader = world.open_with(options(&world, &snapshots)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), None);
    assert_eq!(reader.status().partitions[0].counts.bootstraps, 0);
}

#[tokio::test(start_paused = true)]
async fn snapshot_ahead_of_its_log_is_refused() {
    let (world, snapshots, mut fold) = fill_world().await;
    snapshots.publish(&world, 1, &mut fold).await;
    // The log was restored to an old state under the same id.
    world.replace_logs(LOG).await;
    let reader = world.open_with(options(&world, &snapshots)).await;
    checkpoints::wait_until(&reader, |status| status.counts.bootstraps_failed > 0).await;
    let last_error = reader.status().partitions[0].last_error.clone().unwrap();
    assert_eq!(last_error.code(), ErrorCode::Corrupt, "{last_error}");
}

#[tokio::test(start_paused = true)]
async fn failing_object_store_is_tried_a_few_times_if_the_log_is_complete() {
    let (world, snapshots, mut fold) = fill_world().await;
    snapshots.publish(&world, 1, &mut fold).await;
    snapshots.objects.decide(Some(Arc::new(|_: &str, _| Some(ObjectFault::Refused))));
    let reader = world.open_with(options(&world, &snapshots)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    has_all(&reader);
    let counts = reader.status().partitions[0].counts;
    assert_eq!((counts.bootstraps, counts.bootstraps_failed), (0, 5));
}
