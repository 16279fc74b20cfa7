//! Proves that readers that start from a snapshot serve the state of the log, regardless of
//! retention; that an interrupted bootstrap resumes; and that damaged data is never served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::snapshots::{FOLDER, Folded, Kept};
use crate::world::{LOG, SECOND, World, age, at, change, kept};
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
async fn filled() -> (World, Kept, Folded) {
    let world = World::new(1).await;
    for number in 0..DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let mut folded = Folded::empty(&world, 0);
    folded.go_on(&world).await;
    (world, Kept::new(), folded)
}

fn options(world: &World, kept: &Kept) -> ReaderOptions {
    world.options().snapshots(kept.store.clone())
}

async fn trim(world: &World, folded: &Folded) {
    world.log.trim(at(0), folded.state.offset_applied).await.unwrap();
    assert_eq!(world.log.bounds(at(0)).await.unwrap().start, folded.state.offset_applied);
}

/// Opens a reader that writes checkpoints to this disk and starts from snapshots.
async fn open_on(world: &World, kept: &Kept, disk: &SimDisk) -> Reader {
    let options = kept::options(world).snapshots(kept.store.clone());
    let parts = ReaderParts { ..kept::parts(world, disk) };
    Reader::open(options, parts).await.unwrap()
}

fn has_all(reader: &Reader) {
    for number in 0..DOCUMENTS {
        assert_eq!(age(reader, &key(number)).unwrap(), Some(number), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_begins_with_the_snapshot_and_follows_the_log_from_there() {
    let (world, kept, mut folded) = filled().await;
    kept.publish(&world, 1, &mut folded).await;
    trim(&world, &folded).await;
    world.put(&key(0), -1).await;
    let reader = world.open_with(options(&world, &kept)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), Some(-1));
    for number in 1..DOCUMENTS {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(number));
    }
    assert_eq!(age(&reader, "absent").unwrap(), None);
    let counts = reader.status().partitions[0].counts;
    assert_eq!((counts.bootstraps, counts.bootstraps_failed, counts.applied), (1, 0, 1));
    let token = world.put("new", 5).await;
    reader.await_token(&token, 10 * SECOND).await.unwrap();
    assert_eq!(age(&reader, "new").unwrap(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn without_a_snapshot_a_trimmed_log_is_told_and_nothing_is_served() {
    let (world, kept, mut folded) = filled().await;
    trim(&world, &folded).await;
    let reader = world.open_with(options(&world, &kept)).await;
    let error = reader.await_ready(20 * SECOND).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains("there is no snapshot"), "{error}");
    assert_eq!(age(&reader, &key(0)).unwrap_err().code(), ErrorCode::Unavailable);
    // The reader starts to serve by itself once there is a snapshot.
    kept.publish(&world, 1, &mut folded).await;
    kept::until(&reader, |status| status.phase == Phase::Serving).await;
    has_all(&reader);
}

#[tokio::test(start_paused = true)]
async fn deltas_lie_over_the_image_and_the_state_is_that_of_the_last_one() {
    let (world, kept, mut folded) = filled().await;
    let mut manifest = kept.publish(&world, 1, &mut folded).await;
    for round in 1..4_i64 {
        for number in (0..DOCUMENTS).step_by(7) {
            world.put(&key(number), 10_000 * round + number).await;
        }
        world.write(change(&key(round), Verb::Delete, &[])).await;
        world.put(&format!("new-{round}"), round).await;
        folded.go_on(&world).await;
        manifest = kept.publish_over(&world, 1 + round as u64, &mut folded, &manifest).await;
    }
    assert_eq!((manifest.deltas.len(), manifest.deltas[0].deleted), (3, 1));
    // The client repeats a change that the last delta contains.
    let repeated = world.log.read(
        at(0),
        Offset(folded.state.offset_applied.0 - 1),
        forebay_log::ReadLimit { bytes_max: 1 << 20, wait_max: SECOND },
    );
    let repeated = repeated.await.unwrap().records.pop().unwrap();
    trim(&world, &folded).await;
    world.append_bytes(0, repeated.entry).await;
    let reader = world.open_with(options(&world, &kept)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    for number in 0..DOCUMENTS {
        let wanted = match number {
            // Keys 1 to 3 are not multiples of seven.
            1..=3 => None,
            number if number % 7 == 0 => Some(30_000 + number),
            number => Some(number),
        };
        assert_eq!(age(&reader, &key(number)).unwrap(), wanted, "{number}");
    }
    assert_eq!(age(&reader, "new-3").unwrap(), Some(3));
    assert_eq!(reader.status().partitions[0].counts.repeats, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_stays_over_breaks_and_only_the_rest_is_fetched() {
    let (world, kept, mut folded) = filled().await;
    let manifest = kept.publish(&world, 1, &mut folded).await;
    let chunks = manifest.base.chunks.len() as u64;
    assert!(chunks > 12, "{chunks}");
    trim(&world, &folded).await;
    for broken in [1, chunks / 4, chunks / 2, chunks * 3 / 4, chunks - 1] {
        let disk = kept::disk();
        let fetched = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&fetched);
        kept.objects.decide(Some(Arc::new(move |path: &str, _| {
            let is_chunk = path.contains("/chunks/");
            let number = if is_chunk { counted.fetch_add(1, Ordering::Relaxed) } else { 0 };
            (is_chunk && number >= broken).then_some(ObjectFault::Refused)
        })));
        let reader = open_on(&world, &kept, &disk).await;
        reader.await_ready(SECOND).await.unwrap_err();
        let status = &reader.status().partitions[0];
        assert_eq!(status.phase, Phase::Bootstrapping);
        assert!(status.counts.bootstraps_failed > 0);
        kept::end(reader).await;
        kept.objects.decide(None);
        let reader = open_on(&world, &kept, &disk).await;
        reader.await_ready(60 * SECOND).await.unwrap();
        has_all(&reader);
        // The bootstrap reads two manifests and one list besides the missing chunks.
        let calls = kept.objects.calls();
        assert!(calls <= chunks - broken + 8 + 2, "{calls} calls for {broken} of {chunks}");
        kept::end(reader).await;
    }
}

#[tokio::test(start_paused = true)]
async fn images_are_fetched_a_few_at_a_time_and_one_that_cannot_be_had_keeps_no_turn() {
    const PARTITIONS: u32 = 5;
    let world = World::new(PARTITIONS).await;
    // Each image has more chunks than are fetched at once.
    for number in 0..6 * DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let kept = Kept::new();
    let mut chunks = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let mut folded = Folded::empty(&world, partition);
        folded.go_on(&world).await;
        let manifest = kept.publish(&world, 1, &mut folded).await;
        world.log.trim(at(partition), folded.state.offset_applied).await.unwrap();
        for chunk in &manifest.base.chunks {
            // Equal chunks of several images identify no partition.
            let of = chunks.entry(chunk.hash.to_string()).or_insert(Some(partition));
            *of = of.filter(|it| *it == partition);
        }
    }
    let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
    let (of, told) = (chunks.clone(), Arc::clone(&asked));
    kept.objects.decide(Some(Arc::new(move |path: &str, _| {
        let (_, chunk) = path.split_once("/chunks/")?;
        let partition = (*of.get(chunk.split('-').next()?)?)?;
        told.lock().push(partition);
        Some(if partition == 0 { ObjectFault::Refused } else { ObjectFault::Late })
    })));
    let reader = world.open_with(options(&world, &kept)).await;
    let are_others_serving = async {
        while reader.status().partitions[1..].iter().any(|it| it.phase != Phase::Serving) {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(60 * SECOND, are_others_serving).await.unwrap();
    let first = reader.status().partitions[0].clone();
    assert!(first.counts.bootstraps_failed > 0 && first.phase == Phase::Bootstrapping);
    // At any moment, no more images are started and not completed than there are permits.
    let asked: Vec<u32> = asked.lock().iter().copied().filter(|it| *it != 0).collect();
    let is_open = |partition: u32, now: usize| {
        asked[..=now].contains(&partition) && asked[now + 1..].contains(&partition)
    };
    let open = |now| (1..PARTITIONS).filter(|partition| is_open(*partition, now)).count();
    let most = (0..asked.len()).map(open).max().unwrap();
    assert_eq!(most, READER_FETCHES_AT_ONCE, "{asked:?}");
    kept.objects.decide(None);
    reader.await_ready(60 * SECOND).await.unwrap();
}

/// Publishes snapshots of all partitions and trims the logs up to them.
async fn publish_all(world: &World, kept: &Kept) {
    for partition in 0..world.definition.partitions.0 {
        let mut folded = Folded::empty(world, partition);
        folded.go_on(world).await;
        kept.publish(world, 1, &mut folded).await;
        world.log.trim(at(partition), folded.state.offset_applied).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_checkpoint_is_written_while_images_are_fetched_and_all_are_behind_that() {
    let world = World::new(3).await;
    for number in 0..2 * DOCUMENTS {
        world.put(&key(number), number).await;
    }
    let kept = Kept::new();
    publish_all(&world, &kept).await;
    // Each image takes seconds to fetch, and a checkpoint is due each second.
    let throttled = ThrottleConfig { wait_get_per_call: 2 * SECOND, ..ThrottleConfig::default() };
    let throttled = ThrottledStore::new(Arc::clone(&kept.objects), throttled);
    let kept = Kept { store: SnapshotStore::of(Arc::new(throttled), FOLDER.into()), ..kept };
    let disk = kept::disk();
    let reader = open_on(&world, &kept, &disk).await;
    reader.await_ready(120 * SECOND).await.unwrap();
    let written = || -> Vec<u64> {
        reader.status().partitions.iter().map(|it| it.counts.checkpoints.written).collect()
    };
    assert_eq!(written(), [0; 3]);
    let are_written = async {
        while written().contains(&0) {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(10 * SECOND, are_written).await.unwrap();
    kept::end(reader).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_stays_whose_deltas_did_not_come() {
    let (world, kept, mut folded) = filled().await;
    let base = kept.publish(&world, 1, &mut folded).await;
    world.put(&key(0), -1).await;
    folded.go_on(&world).await;
    let manifest = kept.publish_over(&world, 2, &mut folded, &base).await;
    trim(&world, &folded).await;
    let hash = manifest.deltas[0].rows[0].hash.to_string();
    kept.objects.decide(Some(Arc::new(move |path: &str, _| {
        path.contains(&hash).then_some(ObjectFault::Refused)
    })));
    let disk = kept::disk();
    let reader = open_on(&world, &kept, &disk).await;
    reader.await_ready(SECOND).await.unwrap_err();
    assert!(reader.status().partitions[0].counts.bootstraps_failed > 0);
    kept::end(reader).await;
    kept.objects.decide(None);
    let reader = open_on(&world, &kept, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), Some(-1));
    assert_eq!(age(&reader, &key(1)).unwrap(), Some(1));
    // The second attempt reads a list, two manifests, and the delta.
    let (calls, chunks) = (kept.objects.calls(), base.base.chunks.len() as u64);
    assert!(calls < chunks, "{calls} calls for {chunks} chunks that were there");
    kept::end(reader).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_its_files_needs_no_snapshot_and_no_log_to_serve() {
    let (world, kept, mut folded) = filled().await;
    kept.publish(&world, 1, &mut folded).await;
    trim(&world, &folded).await;
    let disk = kept::disk();
    let reader = open_on(&world, &kept, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    kept::checkpointed(&reader).await;
    kept::end(reader).await;
    kept.objects.decide(Some(Arc::new(|_: &str, _| Some(ObjectFault::Refused))));
    let reader = open_on(&world, &kept, &disk).await;
    kept::until(&reader, |status| status.phase == Phase::Serving).await;
    has_all(&reader);
    assert_eq!(kept.objects.calls(), 0, "nobody asked");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_is_never_served_and_the_next_attempt_brings_it() {
    for fault in [ObjectFault::Cut, ObjectFault::Changed] {
        let (world, kept, mut folded) = filled().await;
        kept.publish(&world, 1, &mut folded).await;
        trim(&world, &folded).await;
        kept.objects.decide(Some(Arc::new(move |path: &str, number| {
            (path.contains("/chunks/") && number % 3 == 2).then_some(fault)
        })));
        let reader = world.open_with(options(&world, &kept)).await;
        let error = reader.await_ready(5 * SECOND).await.unwrap_err();
        assert!(error.message().contains("is damaged"), "{error}");
        assert_eq!(age(&reader, &key(0)).unwrap_err().code(), ErrorCode::Unavailable);
        kept.objects.decide(None);
        reader.await_ready(60 * SECOND).await.unwrap();
        has_all(&reader);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_fell_behind_the_logs_start_begins_again_beside_what_it_serves() {
    let (world, kept, mut folded) = filled().await;
    let disk = kept::disk();
    let reader = open_on(&world, &kept, &disk).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    kept::checkpointed(&reader).await;
    kept::end(reader).await;
    for number in 0..DOCUMENTS {
        world.put(&key(number), -number).await;
    }
    folded.go_on(&world).await;
    trim(&world, &folded).await;
    let reader = open_on(&world, &kept, &disk).await;
    kept::until(&reader, |status| status.rebuilding.is_some()).await;
    has_all(&reader);
    kept.publish(&world, 1, &mut folded).await;
    world.heartbeat(0).await;
    kept::until(&reader, |status| status.counts.bootstraps == 1 && status.rebuilding.is_none())
        .await;
    for number in 0..DOCUMENTS {
        assert_eq!(age(&reader, &key(number)).unwrap(), Some(-number));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_another_log_is_not_begun_with() {
    let (world, kept, mut folded) = filled().await;
    kept.publish(&world, 1, &mut folded).await;
    world.replace_logs(forebay_core::id::LogId(LOG.0 + 1)).await;
    let reader = world.open_with(options(&world, &kept)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    assert_eq!(age(&reader, &key(0)).unwrap(), None);
    assert_eq!(reader.status().partitions[0].counts.bootstraps, 0);
}

#[tokio::test(start_paused = true)]
async fn snapshot_ahead_of_its_log_is_refused() {
    let (world, kept, mut folded) = filled().await;
    kept.publish(&world, 1, &mut folded).await;
    // The log was restored to an old state under the same id.
    world.replace_logs(LOG).await;
    let reader = world.open_with(options(&world, &kept)).await;
    kept::until(&reader, |status| status.counts.bootstraps_failed > 0).await;
    let trouble = reader.status().partitions[0].trouble.clone().unwrap();
    assert_eq!(trouble.code(), ErrorCode::Corrupt, "{trouble}");
}

#[tokio::test(start_paused = true)]
async fn where_the_log_has_all_a_store_that_is_down_is_asked_a_few_times_and_no_more() {
    let (world, kept, mut folded) = filled().await;
    kept.publish(&world, 1, &mut folded).await;
    kept.objects.decide(Some(Arc::new(|_: &str, _| Some(ObjectFault::Refused))));
    let reader = world.open_with(options(&world, &kept)).await;
    reader.await_ready(60 * SECOND).await.unwrap();
    has_all(&reader);
    let counts = reader.status().partitions[0].counts;
    assert_eq!((counts.bootstraps, counts.bootstraps_failed), (0, 5));
}
