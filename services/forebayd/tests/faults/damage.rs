//! Damaged files of the embedded log under a real forebayd. Torn tails are truncated; all other
//! damage ends the process with an error that names file and byte, at start or when a read finds
//! it.

use std::path::{Path, PathBuf};

use forebay::schema::{FieldType, KeyType, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Client, ClientOptions, Reader, ReaderOptions, Store};

use crate::daemon::{Daemon, LONG, read_error};

const VALUE_BYTES: usize = 9 << 20;
/// Number of values of this size that fill one segment and begin the next.
const VALUES: i64 = 9;

fn start(data_dir: &Path, listen: &str) -> Daemon {
    Daemon::start(&["--data-dir", data_dir.to_str().unwrap()], listen)
}

fn refused_on(data_dir: &Path) -> String {
    read_error(&["dev", "--listen", "127.0.0.1:0", "--data-dir", data_dir.to_str().unwrap()])
}

async fn create(daemon: &Daemon) -> Store {
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let spec =
        StoreSpec::documents("blobs", KeyType::Int64).partitions(1).field("blob", FieldType::BYTES);
    client.create_store(&spec).await.unwrap()
}

async fn write(store: &Store, keys: std::ops::Range<i64>, bytes: usize) -> Token {
    let mut token = None;
    for key in keys {
        let blob = Value::Bytes(vec![key as u8; bytes]);
        token = Some(store.upsert(key).set("blob", blob).send().await.unwrap().token);
    }
    token.unwrap()
}

/// Returns the segments of the store's only partition, in order.
fn segments(data_dir: &Path, store: &Store) -> Vec<PathBuf> {
    let store = store.definition().store;
    let dir = data_dir.join("logs").join(format!("{:016x}", store.0)).join("0000");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    // The write is in place, so a process that has the file open sees it.
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options().write(true).open(path).unwrap(),
        &bytes[at..=at],
        at as u64,
    )
    .unwrap();
}

fn assert_names(told: &str, path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(told.contains("Corrupt") && told.contains(name) && told.contains("at byte"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_tail_is_cut_and_damage_before_it_is_fatal_at_start() {
    let data = tempfile::tempdir().unwrap();
    let mut daemon = start(data.path(), "127.0.0.1:0");
    let store = create(&daemon).await;
    let token = write(&store, 0..20, 1_000).await;
    let address = daemon.kill();
    let path = segments(data.path(), &store).pop().unwrap();
    // The remains of a torn write of a frame.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend([0x7f; 500]);
    std::fs::write(&path, &bytes).unwrap();
    daemon = start(data.path(), &address);
    let reader = Reader::open(&address, ReaderOptions::new("blobs")).await.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    assert!((0..20_i64).all(|key| reader.get_document(key).unwrap().is_some()));
    write(&store, 20..22, 1_000).await;
    daemon.kill();
    flip(&path, 5_000);
    let told = refused_on(data.path());
    assert_names(&told, &path);
    assert!(!told.contains("ready"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_a_sealed_segment_ends_the_process_at_its_read() {
    let data = tempfile::tempdir().unwrap();
    let daemon = start(data.path(), "127.0.0.1:0");
    let store = create(&daemon).await;
    let token = write(&store, 0..VALUES, VALUE_BYTES).await;
    let served = Reader::open(&daemon.address, ReaderOptions::new("blobs")).await.unwrap();
    served.await_token(&token, LONG).await.unwrap();
    let files = segments(data.path(), &store);
    assert_eq!(files.len(), 2, "{files:?}");
    // Damage while the process runs: the next read of the damaged bytes finds it.
    flip(&files[0], 10 << 20);
    let fresh = Reader::open(&daemon.address, ReaderOptions::new("blobs")).await.unwrap();
    let ended = tokio::task::spawn_blocking(|| daemon.wait()).await.unwrap();
    assert!(!ended.success());
    assert!(fresh.get_document(0_i64).is_err(), "absent is not said of what cannot be read");
    assert!(served.get_document(0_i64).unwrap().is_some(), "what was read before is served");
    // Damage at start: the open reads no sealed segment, but the node's own replica does if it has
    // no shards.
    std::fs::remove_dir_all(data.path().join("shards")).unwrap();
    assert_names(&refused_on(data.path()), &files[0]);
}
