//! Snapshots in an object store: which snapshots count, are skipped, or are removed, and when; with
//! concurrent builders and collectors, and with a store that fails.

mod tiny;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::LogId;
use forebay_core::{Error, ErrorCode};
use forebay_snapshot::{
    ChunkId, ChunkUpload, ListedSnapshot, PartitionSnapshots, SnapshotName, SnapshotStore,
};
use forebay_testkit::objects::{ObjectFault, TestObjects};
use object_store::path::Path;

use tiny::{AT, LOG, build, bytes_of, manifest};

const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

fn world() -> (Arc<TestObjects>, PartitionSnapshots) {
    let objects = Arc::new(TestObjects::default());
    let store = SnapshotStore::of(objects.clone(), Path::from("some/folder"));
    (objects, store.partition(AT))
}

async fn newest(snapshots: &PartitionSnapshots) -> Option<u64> {
    snapshots.newest(Some(LOG)).await.unwrap().map(|manifest| manifest.id)
}

#[tokio::test]
async fn built_snapshot_is_read_back_and_the_newest_is_selected() {
    let (_, snapshots) = world();
    assert_eq!(newest(&snapshots).await, None);
    let first = build(&snapshots, 1, 10, b"some bytes of it").await.unwrap();
    let second = build(&snapshots, 2, 20, b"some bytes of other").await.unwrap();
    assert_eq!(snapshots.newest(Some(LOG)).await.unwrap(), Some(second.clone()));
    assert_eq!(bytes_of(&snapshots, &first).await, b"some bytes of it");
    assert_eq!(bytes_of(&snapshots, &second).await, b"some bytes of other");
    // Three chunks are the same in both.
    let shared = second.base.chunks.iter().filter(|chunk| chunk.written_by == 1).count();
    assert_eq!(shared, 3);
    // A snapshot of an older position is older even if it is published later.
    build(&snapshots, 3, 15, b"late").await.unwrap();
    assert_eq!(newest(&snapshots).await, Some(2));
    assert_eq!(snapshots.newest(Some(LogId(9))).await.unwrap(), None);
    snapshots.expire(second.name()).await.unwrap();
    snapshots.expire(second.name()).await.unwrap();
    assert_eq!(newest(&snapshots).await, Some(3));
}

#[tokio::test]
async fn newest_snapshot_of_any_log_is_the_last_published() {
    let (objects, snapshots) = world();
    build(&snapshots, 1, 90, b"old").await.unwrap();
    objects.pass(Duration::from_secs(1));
    let chunk = ChunkId::of(b"new", 2);
    snapshots.put_chunk(chunk, b"new".to_vec().into()).await.unwrap();
    let mut other = manifest(2, 4, vec![chunk]);
    other.log_id = LogId(1);
    snapshots.publish(&other).await.unwrap();
    assert_eq!(snapshots.newest(None).await.unwrap(), Some(other));
}

#[tokio::test]
async fn snapshot_with_a_damaged_chunk_is_not_verified() {
    for fault in [ObjectFault::Cut, ObjectFault::Changed, ObjectFault::Refused] {
        let (objects, snapshots) = world();
        objects.decide(Some(Arc::new(move |path: &str, number| {
            // The fault hits the requests after the put and the list before it.
            (path.contains("/chunks/") && number > 1).then_some(fault)
        })));
        let error = build(&snapshots, 1, 10, b"byte").await.unwrap_err();
        let code =
            if fault == ObjectFault::Refused { ErrorCode::Unavailable } else { ErrorCode::Corrupt };
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        objects.decide(None);
        assert_eq!(newest(&snapshots).await, None);
        assert_eq!(snapshots.list().await.unwrap().len(), 1, "published, and not verified");
    }
}

#[tokio::test]
async fn build_broken_off_anywhere_leaves_the_previous_snapshot() {
    let (objects, snapshots) = world();
    build(&snapshots, 1, 10, b"the one before").await.unwrap();
    objects.decide(None);
    build(&snapshots, 2, 20, b"another one that goes through").await.unwrap();
    let calls = objects.calls();
    for fault in [ObjectFault::Refused, ObjectFault::LostAnswer] {
        for broken in 0..calls {
            let (objects, snapshots) = world();
            build(&snapshots, 1, 10, b"the one before").await.unwrap();
            objects
                .decide(Some(Arc::new(move |_: &str, number| (number == broken).then_some(fault))));
            let built = build(&snapshots, 2, 20, b"another one that goes through").await;
            objects.decide(None);
            // The answer to a completed request may be lost; the snapshot then counts, and is
            // whole.
            let counts = newest(&snapshots).await.unwrap();
            assert!(counts == 2 || built.is_err() && counts == 1, "{fault:?} {broken}");
            let manifest = snapshots.newest(Some(LOG)).await.unwrap().unwrap();
            bytes_of(&snapshots, &manifest).await;
            // The next snapshot is built as if nothing had failed.
            build(&snapshots, 3, 30, b"another one that goes through, more").await.unwrap();
            assert_eq!(newest(&snapshots).await, Some(3));
        }
    }
}

#[tokio::test]
async fn damaged_manifest_is_skipped_for_an_older_manifest() {
    let (objects, snapshots) = world();
    let first = build(&snapshots, 1, 10, b"one").await.unwrap();
    let second = build(&snapshots, 2, 20, b"two").await.unwrap();
    let names = objects.names().await;
    let manifest_path = |name: SnapshotName| {
        names.iter().find(|path| path.ends_with(&format!("{name}.manifest"))).unwrap()
    };
    let original = objects.bytes(manifest_path(second.name())).await;
    for place in 0..original.len() {
        let mut flipped = original.to_vec();
        flipped[place] ^= 1;
        objects.replace(manifest_path(second.name()), flipped.into()).await;
        assert_eq!(newest(&snapshots).await, Some(1), "{place}");
    }
    objects
        .replace(manifest_path(second.name()), objects.bytes(manifest_path(first.name())).await)
        .await;
    assert_eq!(newest(&snapshots).await, Some(1), "the manifest of another snapshot");
    objects.replace(manifest_path(first.name()), original.slice(..5)).await;
    let error = snapshots.newest(Some(LOG)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "none is left: that is told");
}

#[tokio::test]
async fn expired_chunks_are_collected_after_the_grace_unless_shared() {
    let (objects, snapshots) = world();
    let first = build(&snapshots, 1, 10, b"sharemine").await.unwrap();
    let second = build(&snapshots, 2, 20, b"share!your").await.unwrap();
    snapshots.expire(first.name()).await.unwrap();
    objects.pass(GRACE);
    assert_eq!(snapshots.collect(GRACE).await.unwrap(), Default::default());
    assert_eq!(bytes_of(&snapshots, &first).await, b"sharemine", "who has begun with it goes on");
    objects.pass(Duration::from_secs(1));
    let collected = snapshots.collect(GRACE).await.unwrap();
    // The first chunk of `shar|emin|e` is shared.
    assert_eq!((collected.snapshots, collected.chunks), (1, 2));
    assert_eq!(bytes_of(&snapshots, &second).await, b"share!your");
    assert_eq!(snapshots.list().await.unwrap().len(), 1);
    assert_eq!(snapshots.collect(GRACE).await.unwrap(), Default::default());
    assert_eq!(newest(&snapshots).await, Some(2));
}

#[tokio::test]
async fn remains_of_a_dead_builder_are_collected_after_the_grace() {
    let (objects, snapshots) = world();
    let orphan = ChunkId::of(b"orphan", 9);
    snapshots.put_chunk(orphan, b"orphan".to_vec().into()).await.unwrap();
    // This snapshot is published and never verified.
    objects.decide(Some(Arc::new(|path: &str, _| {
        path.ends_with(".verified").then_some(ObjectFault::Refused)
    })));
    build(&snapshots, 1, 10, b"half").await.unwrap_err();
    objects.decide(None);
    objects.pass(GRACE);
    assert_eq!(snapshots.collect(GRACE).await.unwrap(), Default::default());
    objects.pass(Duration::from_secs(1));
    let collected = snapshots.collect(GRACE).await.unwrap();
    assert_eq!((collected.expired, collected.chunks), (1, 1), "its own chunk is named still");
    objects.pass(GRACE + Duration::from_secs(1));
    let collected = snapshots.collect(GRACE).await.unwrap();
    assert_eq!((collected.snapshots, collected.chunks), (1, 1));
    let names = objects.names().await;
    assert!(names.iter().all(|name| name.ends_with("/clock")), "{names:?}");
}

#[tokio::test]
async fn manifest_damaged_in_transit_costs_no_chunk_at_a_collection() {
    for fault in [ObjectFault::Cut, ObjectFault::Changed, ObjectFault::Refused] {
        let (objects, snapshots) = world();
        let first = build(&snapshots, 1, 10, b"some bytes of it").await.unwrap();
        objects.pass(2 * GRACE);
        objects.decide(Some(Arc::new(move |path: &str, _| {
            path.ends_with(".manifest").then_some(fault)
        })));
        snapshots.collect(GRACE).await.unwrap_err();
        objects.decide(None);
        assert_eq!(bytes_of(&snapshots, &first).await, b"some bytes of it", "{fault:?}");
        // If the manifest stays damaged, the collector removes it unread, with its chunks, a grace
        // period after its expiry.
        let names = objects.names().await;
        let manifest = names.iter().find(|name| name.ends_with(".manifest")).unwrap();
        objects.replace(manifest, "damaged".into()).await;
        assert_eq!(snapshots.collect(GRACE).await.unwrap_err().code(), ErrorCode::Corrupt);
        snapshots.expire(first.name()).await.unwrap();
        objects.pass(GRACE + Duration::from_secs(1));
        let collected = snapshots.collect(GRACE).await.unwrap();
        assert_eq!((collected.snapshots, collected.chunks), (1, 4));
    }
}

/// Faults of a list, for one object: the list misses the object, repeats it, or shows it after its
/// removal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WrongList {
    Missed,
    Repeated,
    Gone,
}

#[tokio::test]
async fn wrong_list_costs_no_valid_snapshot_at_a_collection() {
    for wrong in [WrongList::Missed, WrongList::Repeated, WrongList::Gone] {
        // The loop applies the fault to each object.
        for place in 0.. {
            let (objects, snapshots) = world();
            let old = build(&snapshots, 1, 10, b"shared and of old").await.unwrap();
            snapshots.expire(old.name()).await.unwrap();
            let first = build(&snapshots, 2, 20, b"shared by both").await.unwrap();
            let second = build(&snapshots, 3, 30, b"shared, and more").await.unwrap();
            let names = objects.names().await;
            let Some(name) = names.get(place).cloned() else { break };
            let mut snapshot_names = HashSet::new();
            ListedSnapshot::remember(&snapshots.list().await.unwrap(), &mut snapshot_names);
            let ghost = name.replace(&format!("{:016x}", second.id), "00000000000000aa");
            objects.edit_lists(Some(Arc::new(move |mut listed: Vec<_>| {
                let is_it = |object: &object_store::ObjectMeta| object.location.as_ref() == name;
                let found = listed.iter().find(|object| is_it(object)).cloned();
                match (wrong, found) {
                    (WrongList::Missed, _) => listed.retain(|object| !is_it(object)),
                    (WrongList::Repeated, found) => listed.extend(found),
                    (WrongList::Gone, Some(found)) => listed.push(object_store::ObjectMeta {
                        location: Path::from(ghost.as_str()),
                        ..found
                    }),
                    (WrongList::Gone, None) => {}
                }
                listed
            })));
            objects.pass(GRACE + Duration::from_secs(1));
            snapshots.collect_beside(GRACE, &mut snapshot_names, []).await.unwrap();
            // A reader starts with a whole snapshot.
            match snapshots.newest(Some(LOG)).await.unwrap() {
                Some(newest) => drop(bytes_of(&snapshots, &newest).await),
                None => panic!("{wrong:?} {place}: one that counts was listed"),
            }
            objects.edit_lists(None);
            snapshots.collect_beside(GRACE, &mut snapshot_names, []).await.unwrap();
            assert_eq!(newest(&snapshots).await, Some(3), "{wrong:?} {place}");
            assert_eq!(bytes_of(&snapshots, &first).await, b"shared by both", "{wrong:?} {place}");
            assert_eq!(
                bytes_of(&snapshots, &second).await,
                b"shared, and more",
                "{wrong:?} {place}"
            );
        }
    }
}

#[tokio::test]
async fn foreign_files_below_the_snapshots_are_ignored() {
    let (objects, snapshots) = world();
    let first = build(&snapshots, 1, 10, b"some bytes of it").await.unwrap();
    // The folder contains a copy of the snapshot from a time at which it had expired, and random
    // files.
    for name in objects.names().await {
        let (folder, file) = name.rsplit_once('/').unwrap();
        let file = file.replace("verified", "expired");
        objects.replace(&format!("{folder}/copied/{file}"), "copied".into()).await;
    }
    for name in ["manifests/readme", "manifests/x.manifest", "chunks/x", "chunks/x-y"] {
        objects.replace(&format!("some/folder/0000000000000007/0003/{name}"), "x".into()).await;
    }
    snapshots.now().await.unwrap();
    let names = objects.names().await;
    objects.pass(2 * GRACE);
    assert_eq!(snapshots.collect(GRACE).await.unwrap(), Default::default());
    assert_eq!(snapshots.newest(Some(LOG)).await.unwrap(), Some(first.clone()));
    assert_eq!(bytes_of(&snapshots, &first).await, b"some bytes of it");
    assert_eq!(objects.names().await, names, "it is left alone");
}

#[tokio::test]
async fn chunks_of_a_failed_snapshot_are_removed_at_once() {
    let (objects, snapshots) = world();
    let first = build(&snapshots, 1, 10, b"some").await.unwrap();
    let names = objects.names().await;
    let known_chunks = Arc::new(snapshots.known_chunks().await.unwrap());
    let upload = || ChunkUpload::new(snapshots.clone(), 2, Arc::clone(&known_chunks));
    for fault in [ObjectFault::Refused, ObjectFault::LostAnswer] {
        let mut full = upload();
        objects.decide(Some(Arc::new(move |_: &str, number| (number == 2).then_some(fault))));
        let stored = async {
            for bytes in ["some", "of", "them", "are", "stored"] {
                full.put(bytes.into()).await?;
            }
            Ok(())
        };
        // The error is returned by a later put, or here.
        let stored = stored.await;
        let ended = full.end(stored).await.unwrap_err();
        assert_eq!(ended.code(), ErrorCode::Unavailable, "{fault:?}");
        assert_eq!(objects.names().await, names, "{fault:?}");
    }
    objects.decide(None);
    let mut failed = upload();
    failed.put("others".into()).await.unwrap();
    let error = failed.end::<()>(Err(Error::not_found("the shard"))).await.unwrap_err();
    assert_eq!((error.code(), objects.names().await), (ErrorCode::NotFound, names.clone()));

    // Known chunks are not written again, unless all are written.
    let mut leaning = upload();
    let known_chunk = leaning.put("some".into()).await.unwrap();
    leaning.write_all();
    let own_chunk = leaning.put("some".into()).await.unwrap();
    leaning.end(Ok(())).await.unwrap();
    assert_eq!((known_chunk, own_chunk.written_by), (first.base.chunks[0], 2));
    assert_eq!(objects.names().await.len(), names.len() + 1);
    assert_eq!(snapshots.chunk(own_chunk).await.unwrap(), "some");
}

#[tokio::test]
async fn truncated_file_is_refused() {
    let (objects, scratch) = (Arc::new(TestObjects::default()), tempfile::tempdir().unwrap());
    objects.replace("in/users.csv", "id,age\nann,1\nbob,2\n".into()).await;
    let store = SnapshotStore::of(objects.clone(), Path::from("in"));
    let found = store.files().await.unwrap().remove(0);
    objects.decide(Some(Arc::new(|_: &str, _| Some(ObjectFault::Cut))));
    let error = store.open_file(&found, scratch.path()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    objects.decide(None);
    store.open_file(&found, scratch.path()).await.unwrap();
}

/// Proves that builders that share chunks and a collector, interleaved at every step, leave every
/// snapshot that counts whole.
#[tokio::test]
async fn concurrent_builders_and_collector_leave_valid_snapshots_whole() {
    for step in 0..24 {
        let (objects, snapshots) = world();
        let old = build(&snapshots, 1, 10, b"sharedbytes").await.unwrap();
        snapshots.expire(old.name()).await.unwrap();
        objects.pass(GRACE - Duration::from_secs(1));
        let retained = build(&snapshots, 2, 20, b"sharedother").await.unwrap();
        objects.pass(Duration::from_secs(2));
        // The collector starts at this call of the two builders.
        let (collector, waiting) = (snapshots.clone(), objects.clone());
        let collect = async move {
            while waiting.calls() < step {
                tokio::task::yield_now().await;
            }
            collector.collect(GRACE).await.unwrap();
        };
        objects.decide(None);
        let others = async {
            let first = build(&snapshots, 3, 30, b"sharedbytes and more").await.unwrap();
            let second = build(&snapshots, 4, 40, b"sharedother, bytes").await.unwrap();
            // These calls release a collector that waits for more calls than the builders make.
            for _ in 0..step {
                snapshots.now().await.unwrap();
            }
            (first, second)
        };
        let ((first, second), ()) = tokio::join!(others, collect);
        for (manifest, bytes) in [
            (&retained, &b"sharedother"[..]),
            (&first, b"sharedbytes and more"),
            (&second, b"sharedother, bytes"),
        ] {
            assert_eq!(bytes_of(&snapshots, manifest).await, bytes, "{step}");
        }
    }
}

#[tokio::test]
async fn local_folder_serves_as_a_snapshot_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("snapshots").display());
    let store = SnapshotStore::open(&url).unwrap();
    store.check().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("snapshots")).unwrap().count(), 0);
    let snapshots = store.partition(AT);
    let first = build(&snapshots, 1, 10, b"some bytes").await.unwrap();
    assert_eq!(bytes_of(&snapshots, &first).await, b"some bytes");
    // Another process finds the snapshot.
    let reopened = SnapshotStore::open(&url).unwrap().partition(AT);
    assert_eq!(reopened.newest(None).await.unwrap(), Some(first.clone()));
    reopened.expire(first.name()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let collected = reopened.collect(Duration::ZERO).await.unwrap();
    assert_eq!((collected.snapshots, collected.chunks), (1, 3));
    assert_eq!(reopened.newest(None).await.unwrap(), None);
}

#[tokio::test]
async fn folder_that_cannot_be_created_is_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let url = format!("file://{}", file.join("snapshots").display());
    let refused = SnapshotStore::open(&url).unwrap().check().await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidArgument, "{refused}");
    let message = refused.to_string();
    assert!(message.contains("file/snapshots") && message.contains("name a folder"), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn remains_of_a_killed_put_are_collected_after_the_grace() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let snapshots = SnapshotStore::open(&url).unwrap().partition(AT);
    let first = build(&snapshots, 1, 10, b"some bytes").await.unwrap();
    let partition_folder = folder.path().join(format!("{:016x}/{:04}", AT.store.0, AT.partition.0));
    // These are the object store's names for partial files, and names of foreign files.
    let abandoned = ["chunks/ab-01#1", "chunks/ab-01#12", "manifests/x.manifest#1"];
    let others = ["chunks/ab#", "chunks/#x1", "manifests/1"];
    for name in abandoned.iter().chain(&others) {
        std::fs::write(partition_folder.join(name), "half of").unwrap();
    }
    assert_eq!(snapshots.collect(GRACE).await.unwrap(), Default::default());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let collected = snapshots.collect(Duration::ZERO).await.unwrap();
    assert_eq!((collected.abandoned_uploads, collected.chunks), (3, 0));
    assert!(abandoned.iter().all(|name| !partition_folder.join(name).exists()));
    assert!(others.iter().all(|name| partition_folder.join(name).exists()));
    assert_eq!(bytes_of(&snapshots, &first).await, b"some bytes");
}

#[test]
fn urls_that_name_no_folder_are_refused() {
    for url in
        ["", "snapshots", "/var/snapshots", "ftp://host/folder", "s3:", "file//x", "memory:///"]
    {
        let error = SnapshotStore::open(url).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}: {error}");
    }
}

#[test]
fn unknown_or_incomplete_options_are_refused() {
    let option = |name: &str| [(name.to_owned(), "1".to_owned())];
    for (url, name) in [
        ("s3://bucket/folder", "AZURE_ALLOW_HTTP"),
        ("az://bucket/folder", "AWS_ALLOW_HTTP"),
        ("gs://bucket/folder", "AWS_ALLOW_HTTP"),
        ("file:///folder", "AWS_ALLOW_HTTP"),
        // A key without its account is invalid.
        ("az://bucket/folder", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("s3://bucket/folder", "AWS_ACCESS_KEY_ID"),
        ("s3://bucket/folder", "AWS_TIMEOUT"),
    ] {
        let error = SnapshotStore::open_with(url, option(name)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url} {name}: {error}");
    }
    SnapshotStore::open_with("s3://bucket/folder", option("aws_allow_http")).unwrap();
    SnapshotStore::open_with("file:///folder", []).unwrap();
}

#[test]
fn endpoint_without_tls_needs_permission() {
    let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let endpoint = "http://127.0.0.1:9000";
    for (url, options, allowing) in [
        ("s3://bucket/folder", vec![option("AWS_ENDPOINT", endpoint)], "AWS_ALLOW_HTTP"),
        ("s3://bucket/folder", vec![option("AWS_ENDPOINT_URL_S3", endpoint)], "AWS_ALLOW_HTTP"),
        (
            "az://bucket/folder",
            vec![option("AZURE_ENDPOINT", endpoint), option("AZURE_STORAGE_ACCOUNT_NAME", "me")],
            "AZURE_ALLOW_HTTP",
        ),
    ] {
        let error = SnapshotStore::open_with(url, options.clone()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.to_string().contains(allowing), "{error}");
        let allowed = options.into_iter().chain([option(allowing, "true")]);
        SnapshotStore::open_with(url, allowed).unwrap();
    }
}
