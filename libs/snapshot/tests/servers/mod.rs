//! Requirements on every object store, checked on a real server: the life cycle of a snapshot,
//! lists of more than one page, and all failures of the connection.

use std::sync::OnceLock;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{LogId, Offset};
use forebay_core::limits::{SNAPSHOT_CHUNK_BYTES, SNAPSHOT_RETRY_MS};
use forebay_snapshot::{ChunkId, Manifest, PartitionSnapshots, SnapshotName, SnapshotStore};
use forebay_testkit::object_servers::{ObjectServer, ObjectServerKind};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::{Instant, timeout};

use crate::tiny::{AT, LOG, build, bytes_of, manifest};

/// Longest time until a dead server is reported: the retry time, and the delays of a busy machine.
const TOLD_MAX: Duration = Duration::from_millis(SNAPSHOT_RETRY_MS + 15_000);
/// Shortest time for which the client retries.
const TRIED_MIN: Duration = Duration::from_millis(SNAPSHOT_RETRY_MS);
/// Longest wait for the store's clock, which has a resolution of one second.
const CLOCK_MAX: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 16;

/// The tests of a server of this kind, whose list pages contain this number of objects, and one
/// request to which removes at most that number of objects.
macro_rules! object_server_tests {
    ($kind:expr, $page:expr, $removed:expr) => {
        #[tokio::test]
        async fn snapshots_live_from_build_to_collection() {
            servers::life(servers::shared($kind)).await;
        }

        #[tokio::test]
        async fn lists_longer_than_a_page_are_complete() {
            servers::pages(servers::shared($kind), $page, $removed).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn exactly_one_publisher_of_a_manifest_succeeds() {
            servers::race(servers::shared($kind)).await;
        }

        #[tokio::test]
        async fn wrong_credentials_are_reported() {
            servers::credentials(servers::shared($kind)).await;
        }

        #[tokio::test]
        async fn missing_bucket_is_reported() {
            servers::no_bucket(servers::shared($kind)).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn server_outage_during_a_build_is_reported_and_survived() {
            servers::outage($kind).await;
        }

        #[tokio::test]
        async fn hanging_server_is_reported() {
            servers::hang($kind).await;
        }
    };
}
pub(crate) use object_server_tests;

/// Returns the server that is shared by the tests that do not disturb it; each of them has its own
/// bucket.
pub fn shared(kind: ObjectServerKind) -> &'static ObjectServer {
    static SERVER: OnceLock<ObjectServer> = OnceLock::new();
    SERVER.get_or_init(|| ObjectServer::start(kind).unwrap())
}

fn open(url: &str, options: Vec<(String, String)>) -> SnapshotStore {
    SnapshotStore::open_with(url, options).unwrap()
}

/// Waits until every written object is older than the store's current time.
async fn later(snapshots: &PartitionSnapshots) {
    let begun = snapshots.now().await.unwrap();
    let passed = async {
        while snapshots.now().await.unwrap() <= begun {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(CLOCK_MAX, passed).await.expect("the store's clock goes on");
}

/// Returns a whole chunk that does not compress.
fn large_chunk() -> Vec<u8> {
    let entropy = SeededEntropy::new(7);
    let words = (0..SNAPSHOT_CHUNK_BYTES / 8).map(|_| entropy.next_u64().unwrap().to_le_bytes());
    words.flatten().collect()
}

pub async fn life(server: &ObjectServer) {
    let url = server.make_bucket("life").unwrap();
    let store = open(&url, server.options());
    store.check().await.unwrap();
    let snapshots = store.partition(AT);
    assert_eq!(snapshots.newest(None).await.unwrap(), None);
    let first = build(&snapshots, 1, 10, b"sharemine").await.unwrap();
    let second = build(&snapshots, 2, 20, b"share!your").await.unwrap();
    assert_eq!(second.base.chunks[0].written_by, 1, "the first chunk is the same in both");
    // Another process finds the snapshot.
    let other = open(&url, server.options()).partition(AT);
    assert_eq!(other.newest(Some(LOG)).await.unwrap(), Some(second.clone()));
    assert_eq!(bytes_of(&other, &first).await, b"sharemine");
    assert_eq!(bytes_of(&other, &second).await, b"share!your");
    // A manifest is written once; publishing the same manifest again repeats a request whose answer
    // was lost.
    other.publish(&first).await.unwrap();
    let another = Manifest { store: "another".into(), ..first.clone() };
    let error = other.publish(&another).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    let bytes = large_chunk();
    let id = ChunkId::of(&bytes, 3);
    snapshots.put_chunk(id, bytes.clone().into()).await.unwrap();
    assert_eq!(snapshots.chunk(id).await.unwrap(), bytes);
    // Expired snapshots and unnamed chunks are removed; shared chunks stay.
    snapshots.expire(first.name()).await.unwrap();
    snapshots.expire(first.name()).await.unwrap();
    assert_eq!(bytes_of(&snapshots, &first).await, b"sharemine");
    later(&snapshots).await;
    let collected = snapshots.collect(Duration::ZERO).await.unwrap();
    assert_eq!((collected.snapshots, collected.chunks), (1, 3));
    assert_eq!(snapshots.collect(Duration::ZERO).await.unwrap(), Default::default());
    for result in
        [snapshots.read(first.name()).await.map(drop), snapshots.chunk(id).await.map(drop)]
    {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    }
    assert_eq!(snapshots.newest(None).await.unwrap(), Some(second.clone()));
    assert_eq!(bytes_of(&snapshots, &second).await, b"share!your");
    // A build continues with the existing chunks, and another partition has none of them.
    build(&snapshots, 4, 40, b"share!more").await.unwrap();
    assert_eq!(snapshots.list().await.unwrap().len(), 2);
    let other_snapshots = store.partition(forebay_core::id::PartitionRef {
        partition: forebay_core::id::PartitionId(4),
        ..AT
    });
    assert_eq!(other_snapshots.newest(None).await.unwrap(), None);
}

pub async fn pages(server: &ObjectServer, page: u64, removed: u64) {
    let url = server.make_bucket("pages").unwrap();
    let snapshots = open(&url, server.options()).partition(AT);
    let newest = build(&snapshots, 1, 10, b"some bytes of it").await.unwrap();
    // Marks of removed snapshots precede the newest one by name, in the same list.
    let marks = (0..page + 5).map(|offset| SnapshotName {
        log_id: LogId(1),
        offset_applied: Offset(offset),
        ..newest.name()
    });
    assert!(LOG > LogId(1));
    let marked = stream::iter(marks).map(|name| snapshots.expire(name));
    marked.buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
    assert_eq!(snapshots.newest(None).await.unwrap(), Some(newest.clone()));
    assert_eq!(snapshots.list().await.unwrap().len(), 1);
    // The number of chunks exceeds what one request removes.
    let orphans: Vec<_> = (0..removed + 50).map(|word| word.to_le_bytes()).collect();
    let puts = stream::iter(&orphans)
        .map(|bytes| snapshots.put_chunk(ChunkId::of(bytes, 2), bytes.to_vec().into()));
    puts.buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
    later(&snapshots).await;
    let collected = snapshots.collect(Duration::ZERO).await.unwrap();
    assert_eq!(collected.chunks, orphans.len() as u64);
    assert_eq!(bytes_of(&snapshots, &newest).await, b"some bytes of it");
    assert_eq!(snapshots.collect(Duration::ZERO).await.unwrap(), Default::default());
}

pub async fn race(server: &ObjectServer) {
    let url = server.make_bucket("race").unwrap();
    let snapshots = open(&url, server.options()).partition(AT);
    let chunk = ChunkId::of(b"some bytes", 1);
    snapshots.put_chunk(chunk, b"some bytes".to_vec().into()).await.unwrap();
    let mut answered = 0;
    for round in 0..20 {
        let manifest = manifest(round, round, vec![chunk]);
        // The manifests have one name and different contents.
        let publish = |number| {
            let manifest = Manifest { store: format!("store_{number}"), ..manifest.clone() };
            let snapshots = snapshots.clone();
            tokio::spawn(async move { snapshots.publish(&manifest).await })
        };
        let (mut published, mut unanswered) = (0, 0);
        for publishing in (0..AT_ONCE).map(publish).collect::<Vec<_>>() {
            match publishing.await.unwrap() {
                Ok(()) => published += 1,
                // The outcome of a request is unknown if the server has hung for long.
                Err(error) if error.code() == ErrorCode::Unavailable => unanswered += 1,
                Err(error) => assert_eq!(error.code(), ErrorCode::Conflict, "{error}"),
            }
        }
        assert!(published == 1 || (published == 0 && unanswered > 0), "round {round}: {published}");
        answered += usize::from(unanswered == 0);
    }
    assert!(answered > 0, "no round had all its answers");
}

/// Returns the error of every call while the connection is broken.
async fn refusals(snapshots: &PartitionSnapshots) -> Vec<forebay_core::Error> {
    let chunk = ChunkId::of(b"some bytes", 1);
    vec![
        snapshots.newest(None).await.unwrap_err(),
        snapshots.now().await.unwrap_err(),
        snapshots.chunk(chunk).await.unwrap_err(),
        snapshots.put_chunk(chunk, b"some bytes".to_vec().into()).await.unwrap_err(),
        snapshots.publish(&manifest(1, 10, vec![chunk])).await.unwrap_err(),
        snapshots.expire(manifest(1, 10, vec![chunk]).name()).await.unwrap_err(),
        snapshots.collect(Duration::ZERO).await.unwrap_err(),
    ]
}

pub async fn credentials(server: &ObjectServer) {
    let url = server.make_bucket("credentials").unwrap();
    let mut options = server.options();
    for (name, value) in &mut options {
        if name.contains("SECRET") || name.contains("ACCOUNT_KEY") {
            *value = value.chars().rev().collect();
        }
    }
    assert_ne!(options, server.options());
    let store = open(&url, options);
    let checked = store.check().await.unwrap_err();
    for error in refusals(&store.partition(AT)).await.into_iter().chain([checked]) {
        // Azurite has no error name of its own for a wrong key.
        let code = match server.kind() {
            ObjectServerKind::S3 => ErrorCode::Unauthenticated,
            ObjectServerKind::Azure => ErrorCode::PermissionDenied,
        };
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains("credentials"), "{error}");
    }
}

pub async fn no_bucket(server: &ObjectServer) {
    let store = open(&server.url("not-there"), server.options());
    let checked = store.check().await.unwrap_err();
    for error in refusals(&store.partition(AT)).await.into_iter().chain([checked]) {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.to_string().contains("create the bucket"), "{error}");
    }
}

pub async fn outage(kind: ObjectServerKind) {
    let server = ObjectServer::start(kind).unwrap();
    let url = server.make_bucket("outage").unwrap();
    let snapshots = open(&url, server.options()).partition(AT);
    build(&snapshots, 1, 10, b"the one before").await.unwrap();
    let to = snapshots.clone();
    let builder = tokio::spawn(async move {
        for id in 2.. {
            let bytes = format!("those of {id}, a build among many");
            if let Err(error) = build(&to, id, id * 10, bytes.as_bytes()).await {
                return error;
            }
        }
        unreachable!("builds go on for ever")
    });
    while snapshots.newest(None).await.unwrap().is_none_or(|manifest| manifest.id < 3) {
        assert!(!builder.is_finished(), "the builds go through for now");
    }
    match kind {
        ObjectServerKind::S3 => server.kill().unwrap(),
        // After SIGKILL, Azurite loses acknowledged data.
        ObjectServerKind::Azure => server.stop().unwrap(),
    }
    let error = timeout(TOLD_MAX, builder).await.expect("it is told in time").unwrap();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let begun = Instant::now();
    let result = timeout(TOLD_MAX, snapshots.newest(None)).await.expect("it is told in time");
    assert_eq!(result.unwrap_err().code(), ErrorCode::Unavailable);
    assert!(begun.elapsed() >= TRIED_MIN, "a shorter outage is outlived: {:?}", begun.elapsed());
    server.restart().unwrap();
    let manifest = snapshots.newest(None).await.unwrap().expect("what counted counts");
    assert!(manifest.id >= 3, "{}", manifest.id);
    bytes_of(&snapshots, &manifest).await;
    let next = build(&snapshots, 9_999, 99_990, b"the one behind").await.unwrap();
    assert_eq!(snapshots.newest(None).await.unwrap(), Some(next));
}

pub async fn hang(kind: ObjectServerKind) {
    let server = ObjectServer::start(kind).unwrap();
    let url = server.make_bucket("hang").unwrap();
    let name = match kind {
        ObjectServerKind::S3 => "AWS_TIMEOUT",
        ObjectServerKind::Azure => "AZURE_TIMEOUT",
    };
    let mut options = server.options();
    options.push((name.to_owned(), "1 s".to_owned()));
    let snapshots = open(&url, options).partition(AT);
    let first = build(&snapshots, 1, 10, b"some bytes").await.unwrap();
    server.hold().unwrap();
    let result = timeout(TOLD_MAX, snapshots.newest(None)).await.expect("it is told in time");
    assert_eq!(result.unwrap_err().code(), ErrorCode::Unavailable);
    // The client does not retry the creation of an object whose outcome is unknown.
    let other = manifest(2, 20, Vec::new()).name();
    let marked = timeout(TOLD_MAX, snapshots.expire(other)).await.expect("it is told in time");
    assert_eq!(marked.unwrap_err().code(), ErrorCode::Unavailable);
    server.go_on().unwrap();
    assert_eq!(snapshots.newest(None).await.unwrap(), Some(first));
}
