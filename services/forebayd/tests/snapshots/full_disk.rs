//! Full disks: a reader's during a bootstrap, and the object store's during builds and backups.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use forebay::reads::CheckpointOptions;
use forebay::schema::{FieldType, KeyType, KeyValue, StoreSpec, Value};
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions, Store};
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_core::key_order::DOCUMENTS as DOCUMENTS_FROM;
use forebay_snapshot::{ChunkId, PartitionSnapshots, RemoteShardExport, SnapshotStore};
use forebay_wire::shard_copy::copy_endpoint;

use crate::daemon::{Daemon, FOREBAYD};
use crate::small_disk::{SmallDisk, run_again_where_mounting_is_permitted};
use crate::users::reader_of;
use crate::{LONG, World};

const DISK_BYTES: usize = 24 << 20;
/// Filler that leaves space for a part of the image.
const FILLER_BYTES: usize = 20 << 20;
pub const DOCUMENTS: i64 = 1_000;
const VALUE_BYTES: usize = 8 << 10;
/// Size of a disk for a whole shard, twice during its compaction.
const SHARD_DISK_BYTES: usize = 96 << 20;
/// Size of a disk for everything that is built in the end.
const OBJECTS_DISK_BYTES: usize = 128 << 20;
/// Space for some chunks of a build, but not for all.
const ROOM_BYTES: usize = 6 << 20;

/// Returns incompressible bytes.
fn value(key: i64) -> Vec<u8> {
    let entropy = SeededEntropy::new(key as u64);
    (0..VALUE_BYTES / 8).flat_map(|_| entropy.next_u64().unwrap().to_le_bytes()).collect()
}

pub async fn eventually(description: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("{description} does not come"));
}

/// Creates a store of one partition, whose log is trimmed directly up to its newest snapshot.
pub async fn create_store(client: &Client) -> (Store, PartitionRef) {
    let bytes = FieldType::BYTES;
    let mut spec = StoreSpec::documents("blobs", KeyType::Int64).partitions(1).field("blob", bytes);
    spec.options.log_retention_us = Some(0);
    let store = client.create_store(&spec).await.unwrap();
    let at = PartitionRef { store: store.definition().store, partition: PartitionId(0) };
    (store, at)
}

pub async fn put(store: &Store, keys: Range<i64>) {
    for keys in keys.collect::<Vec<_>>().chunks(100) {
        let mut batch = store.batch();
        for key in keys {
            batch.add(store.put(*key).set("blob", value(*key))).unwrap();
        }
        assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
    }
}

/// Returns the number of documents in the newest snapshot's image and deltas.
async fn count_documents(snapshots: &PartitionSnapshots) -> u64 {
    let newest = snapshots.newest(None).await.unwrap();
    newest.map_or(0, |newest| newest.base.documents + newest.delta_documents())
}

pub fn assert_holds(reader: &Reader, keys: Range<i64>) {
    let field = reader.definition().field("blob").unwrap().id;
    for key in keys {
        let document = reader.get_document(KeyValue::Int64(key)).unwrap().unwrap();
        assert_eq!(document.value(field), Some(&Value::Bytes(value(key))), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_on_a_full_disk_reports_it_and_bootstraps_once_there_is_space() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "full_disk::\
            reader_on_a_full_disk_reports_it_and_bootstraps_once_there_is_space";
        return run_again_where_mounting_is_permitted(test);
    };
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, _maintenance) = world.start(data.path(), Duration::from_millis(100)).await;
    let (store, at) = create_store(&node.client().await).await;
    put(&store, 0..DOCUMENTS).await;
    let snapshots = world.store.partition(at);
    let is_whole = async || count_documents(&snapshots).await >= DOCUMENTS as u64;
    eventually("a snapshot of all", is_whole).await;
    let is_trimmed = async || world.log.bounds(at).await.unwrap().start > Offset(0);
    eventually("a log that begins behind it", is_trimmed).await;
    disk.fill(FILLER_BYTES);
    let options = ReaderOptions::new("blobs")
        .snapshots(world.store.clone())
        .checkpoint(CheckpointOptions::new(disk.path()));
    let reader = Reader::open(&node.address, options).await.unwrap();
    eventually("a second attempt", async || {
        reader.status().partitions[0].counts.bootstraps_failed > 1
    })
    .await;
    let status = reader.status().partitions.remove(0);
    let last_error = status.last_error.unwrap();
    assert_eq!(last_error.code(), ErrorCode::LimitExceeded, "{last_error}");
    assert!(last_error.message().contains("no room for a snapshot"), "{last_error}");
    assert!(reader.get_document(KeyValue::Int64(1)).is_err(), "it has nothing to answer with");
    disk.free();
    reader.await_ready(LONG).await.unwrap();
    assert!(reader.status().partitions[0].counts.bootstraps > 0);
    assert_holds(&reader, 0..DOCUMENTS);
}

/// Returns the number of documents of a frozen shard, whose rows are all verified.
async fn documents(shard: &mut RemoteShardExport) -> u64 {
    // Rows may be received twice.
    let mut keys = BTreeSet::new();
    let read = shard.read(|key, _| {
        keys.insert(key.to_vec());
        Ok(())
    });
    read.await.unwrap();
    keys.iter().filter(|key| key.first() == Some(&DOCUMENTS_FROM)).count() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shard_whose_disk_fills_while_frozen_loses_nothing() {
    let Some(disk) = SmallDisk::mount(SHARD_DISK_BYTES) else {
        let test = "full_disk::shard_whose_disk_fills_while_frozen_loses_nothing";
        return run_again_where_mounting_is_permitted(test);
    };
    let world = World::new();
    let (node, maintenance) = world.start(disk.path(), Duration::from_millis(100)).await;
    let (store, at) = create_store(&node.client().await).await;
    put(&store, 0..DOCUMENTS).await;
    let snapshots = world.store.partition(at);
    eventually("a snapshot of all", async || count_documents(&snapshots).await >= DOCUMENTS as u64)
        .await;
    let channel = copy_endpoint(&node.address).unwrap().connect_lazy();
    let mut frozen =
        RemoteShardExport::freeze(channel, "blobs", None, at.partition, 0).await.unwrap();

    disk.fill(SHARD_DISK_BYTES);
    let failed_count = maintenance.counts().builds_failed;
    put(&store, DOCUMENTS..3 * DOCUMENTS).await;
    eventually("a build that is refused", async || {
        maintenance.counts().builds_failed > failed_count
    })
    .await;
    assert_eq!(documents(&mut frozen).await, DOCUMENTS as u64);
    assert!(count_documents(&snapshots).await < 3 * DOCUMENTS as u64);
    assert_holds(&reader_of("blobs", &node.address, &world.store).await, 0..3 * DOCUMENTS);

    disk.free();
    eventually("a snapshot of all", async || {
        count_documents(&snapshots).await >= 3 * DOCUMENTS as u64
    })
    .await;
    assert_eq!(documents(&mut frozen).await, DOCUMENTS as u64, "it was opened again meanwhile");
    frozen.end().await;
    assert_holds(&reader_of("blobs", &node.address, &world.store).await, 0..3 * DOCUMENTS);
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A node with its snapshots and backups on a separate disk.
struct OnDisk {
    node: Daemon,
    /// The folders of the snapshots and of the backups.
    folders: [PathBuf; 2],
    stores: [SnapshotStore; 2],
    _data: tempfile::TempDir,
}

impl OnDisk {
    fn start(disk: &SmallDisk) -> Self {
        let data = tempfile::tempdir().unwrap();
        let folders = ["snapshots", "backups"].map(|name| disk.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let urls = folders.each_ref().map(|folder| format!("file://{}", folder.display()));
        let data_arguments =
            ["--data-dir", data.path().to_str().unwrap(), "--durability", "buffered"];
        let snapshot_arguments =
            ["--snapshots", &urls[0], "--snapshot-interval", "1s", "--backups", &urls[1]];
        let node =
            Daemon::start(&[&data_arguments[..], &snapshot_arguments].concat(), "127.0.0.1:0");
        let stores = urls.map(|url| SnapshotStore::open(&url).unwrap());
        Self { node, folders, stores, _data: data }
    }

    /// Runs a command about the store; returns its output.
    fn ask(&self, command: &[&str], arguments: &[&str]) -> Output {
        let mut process = Command::new(FOREBAYD);
        process.args(command).args(["--node", &self.node.address, "--store", "blobs"]);
        process.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn run(&self, command: &[&str], arguments: &[&str]) -> String {
        let output = self.ask(command, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns whether both folders hold exactly the chunks of complete, published snapshots.
    async fn is_tidy(&self, at: PartitionRef) -> bool {
        for (store, folder) in self.stores.iter().zip(&self.folders) {
            let (snapshots, mut chunks) = (store.partition(at), Vec::new());
            for snapshot in snapshots.list().await.unwrap() {
                let manifest = snapshots.read(snapshot.name).await.unwrap();
                chunks.extend(manifest.chunks().copied());
            }
            for backup in store.backups("blobs").await.unwrap() {
                chunks.extend(backup.partitions[0].log.iter().map(|segment| segment.chunk));
            }
            snapshots.read_back(chunks.clone()).await.unwrap();
            let name = |chunk: &ChunkId| format!("{}-{:016x}", chunk.hash, chunk.written_by);
            let chunks: BTreeSet<_> = chunks.iter().map(name).collect();
            let stored_files = files(&folder.join(format!("{:016x}", at.store.0)));
            let stored_files =
                stored_files.iter().filter(|path| path.parent().unwrap().ends_with("chunks"));
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            if stored_files.map(name).collect::<BTreeSet<_>>() != chunks {
                return false;
            }
        }
        true
    }
}

fn is_full(message: &str) -> bool {
    message.contains("LimitExceeded") && message.contains("make room")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_starts_with_a_full_store_and_builds_once_there_is_space() {
    let Some(disk) = SmallDisk::mount_without_room() else {
        let test = "full_disk::node_starts_with_a_full_store_and_builds_once_there_is_space";
        return run_again_where_mounting_is_permitted(test);
    };
    let data = tempfile::tempdir().unwrap();
    let url = format!("file://{}", disk.path().join("snapshots").display());
    let data_arguments = ["--data-dir", data.path().to_str().unwrap(), "--durability", "buffered"];
    let snapshot_arguments = ["--snapshots", &url, "--snapshot-interval", "1s"];
    let node = Daemon::start(&[&data_arguments[..], &snapshot_arguments].concat(), "127.0.0.1:0");
    let log = node.read_log();
    let is_told = |line: &str| line.contains("folder not usable yet") && is_full(line);
    assert!(log.lines().any(is_told), "{log}");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    let (store, at) = create_store(&client).await;
    put(&store, 0..DOCUMENTS / 10).await;

    disk.make_room();
    let snapshots = SnapshotStore::open(&url).unwrap().partition(at);
    eventually("a snapshot", async || count_documents(&snapshots).await >= DOCUMENTS as u64 / 10)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_on_a_full_disk_refuses_builds_whole_and_accepts_them_later() {
    let Some(disk) = SmallDisk::mount(OBJECTS_DISK_BYTES) else {
        let test = "full_disk::\
            store_on_a_full_disk_refuses_builds_whole_and_accepts_them_later";
        return run_again_where_mounting_is_permitted(test);
    };
    let on_disk = OnDisk::start(&disk);
    let address = &on_disk.node.address;
    let client = Client::connect(address, ClientOptions::default()).await.unwrap();
    let (store, at) = create_store(&client).await;
    put(&store, 0..DOCUMENTS / 2).await;
    let snapshots = on_disk.stores[0].partition(at);
    let first = async || count_documents(&snapshots).await >= DOCUMENTS as u64 / 2;
    eventually("a first snapshot", first).await;
    let backup_output = on_disk.run(&["backup", "take"], &[]);
    let used_bytes: u64 =
        files(disk.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    disk.fill(OBJECTS_DISK_BYTES - ROOM_BYTES - used_bytes as usize);

    put(&store, DOCUMENTS / 2..2 * DOCUMENTS).await;
    let is_told = async || {
        let log = on_disk.node.read_log();
        log.lines().any(|line| line.contains("snapshot build failed") && is_full(line))
    };
    eventually("a build that is refused", is_told).await;
    let output = on_disk.ask(&["backup", "take"], &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && is_full(&stderr), "{stderr}");
    assert_eq!(on_disk.run(&["backup", "list"], &[]).lines().count(), 1);
    eventually("nothing but what counts", async || on_disk.is_tidy(at).await).await;
    assert!(count_documents(&snapshots).await < 2 * DOCUMENTS as u64);
    assert_holds(&reader_of("blobs", address, &on_disk.stores[0]).await, 0..2 * DOCUMENTS);

    disk.free();
    let all = async || count_documents(&snapshots).await >= 2 * DOCUMENTS as u64;
    eventually("a snapshot of all", all).await;
    on_disk.run(&["backup", "take"], &[]);
    eventually("nothing but what counts", async || on_disk.is_tidy(at).await).await;
    let first = backup_output.split_whitespace().nth(1).unwrap();
    for (name, backup, documents) in
        [("first", &["--backup", first][..], DOCUMENTS / 2), ("newest", &[], 2 * DOCUMENTS)]
    {
        on_disk.run(&["restore"], &[&["--to", name], backup].concat());
        assert_holds(&reader_of(name, address, &on_disk.stores[0]).await, 0..documents);
    }
}
