//! Pushes of files at a node: in every format, refused for their content, interrupted and resumed,
//! killed, and with repartitions.

#[path = "../daemon/mod.rs"]
mod daemon;
mod files;
mod partitions;
mod processes;
#[path = "../repartition/mod.rs"]
mod repartition;
mod repartition_backups;
mod repartition_kills;
#[path = "../served_node/mod.rs"]
mod served_node;
#[path = "../small_disk/mod.rs"]
mod small_disk;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::schema::{
    FieldType, KeyType, KeyValue, ScalarType, StoreOptions, StoreSpec, Value, VectorType,
};
use forebay::writes::WriteResult;
use forebay::{Reader, ReaderOptions};
use forebay_core::ErrorCode;
use forebay_core::clock::{Clock, SystemClock};
use forebay_log::{ChangeLog, MemoryLog};
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{
    ColumnNames, Push, PushLimits, PushParts, PushProgress, SnapshotOptions, Snapshots,
};
use forebay_testkit::objects::{Decide, ObjectFault, TestObjects};
use object_store::path::Path as ObjectPath;
use served_node::ServedNode;

use files::{Files, ROWS, expected};
use small_disk::{SmallDisk, run_again_where_mounting_is_permitted};

const LONG: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 3;

/// Returns the definition of a store with a field of each kind.
fn spec() -> StoreSpec {
    let scalar = FieldType::Scalar;
    let mut spec = StoreSpec::documents("users", KeyType::String)
        .partitions(PARTITIONS)
        .field("member", scalar(ScalarType::Bool))
        .field("age", scalar(ScalarType::Int32))
        .field("seen", scalar(ScalarType::Timestamp))
        .field("score", scalar(ScalarType::Float64))
        .field("name", scalar(ScalarType::String))
        .field("tags", FieldType::List(ScalarType::String))
        .field("embedding", FieldType::Vector(VectorType::F32, 4));
    spec.options = StoreOptions { versioned: true, ..StoreOptions::default() };
    spec
}

struct World {
    clock: Arc<dyn Clock>,
    log: Arc<dyn ChangeLog>,
    objects: Arc<TestObjects>,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self::at(Arc::new(SystemClock))
    }

    /// Creates a world with this clock.
    fn at(clock: Arc<dyn Clock>) -> Self {
        let log = Arc::new(MemoryLog::new(Arc::clone(&clock)));
        Self { clock, log, objects: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    async fn start(&self) -> (ServedNode, PushParts) {
        self.start_with(None).await
    }

    async fn start_with(&self, log_retention_us: Option<i64>) -> (ServedNode, PushParts) {
        self.start_with_options(StoreOptions { log_retention_us, ..spec().options }).await
    }

    async fn start_with_options(&self, options: StoreOptions) -> (ServedNode, PushParts) {
        let snapshots = SnapshotStore::of(self.objects.clone(), ObjectPath::from("snapshots"));
        let (node, parts) = self.restart(snapshots).await;
        let spec = StoreSpec { options, ..spec() };
        node.client().await.create_store(&spec).await.unwrap();
        (node, parts)
    }

    async fn restart(&self, snapshots: SnapshotStore) -> (ServedNode, PushParts) {
        let data = self.folder.path().join("data");
        let clock = Arc::clone(&self.clock);
        let node = ServedNode::start_at(&self.log, &data, Some(snapshots), clock).await;
        let options = SnapshotOptions::new(LONG, 3).unwrap();
        let parts = push_parts(&node, options, &data);
        (node, parts)
    }

    fn fail(&self, fault: Option<ObjectFault>) {
        let decide = |fault| Arc::new(move |_: &str, _| Some(fault)) as Decide;
        self.objects.decide(fault.map(decide));
    }

    /// Returns the number of remaining folders of pushes.
    fn count_folders(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path().join("data")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("push-")).count()
    }
}

/// Returns the dependencies of a node's pushes, which spill rows to this folder.
fn push_parts(node: &ServedNode, options: SnapshotOptions, scratch: &Path) -> PushParts {
    let service = node.node.snapshot_parts(&node.address, options).unwrap();
    PushParts { service, scratch: scratch.to_owned() }
}

/// Starts the snapshot service of a node.
fn maintain(node: &ServedNode, options: SnapshotOptions) -> Snapshots {
    Snapshots::maintain(node.node.snapshot_parts(&node.address, options).unwrap())
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn push(name: &str, inputs: &[&Path]) -> Push {
    Push {
        store: "users".to_owned(),
        push_as: Some(name.to_owned()),
        partitions: None,
        inputs: inputs.iter().map(|path| url(path)).collect(),
        format: None,
        columns: ColumnNames { key: "id".to_owned(), ignored: BTreeSet::new() },
        limits: PushLimits::default(),
    }
}

fn quiet(_: PushProgress) {}

async fn reader(address: &str, name: &str) -> Reader {
    let reader = Reader::open(address, ReaderOptions::new(name)).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader
}

/// Returns a document by the names of its fields.
fn read_fields(reader: &Reader, key: &str) -> Option<BTreeMap<String, Value>> {
    let document = reader.get_document(KeyValue::String(key)).unwrap()?;
    let fields = reader.definition().fields.clone();
    let value = |field: &forebay_core::schema::Field| {
        Some((field.name.clone(), document.value(field.id)?.clone()))
    };
    Some(fields.iter().filter_map(value).collect())
}

fn assert_is_whole(reader: &Reader, has: impl Fn(&str) -> bool) {
    for row in 0..ROWS {
        let mut fields = expected(row);
        fields.retain(|name, _| has(name));
        assert_eq!(read_fields(reader, &format!("user-{row}")), Some(fields), "row {row}");
    }
    assert_eq!(read_fields(reader, "nobody"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_every_format_become_the_same_store() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    for (name, path) in files.write_all_formats() {
        let result = parts.push(&push(name, &[&path]), quiet).await.unwrap();
        assert_eq!((result.documents, result.partitions), (ROWS, PARTITIONS), "{name}");
        assert_is_whole(&reader(&node.address, name).await, |_| true);
    }
    // CSV has neither lists nor vectors.
    let csv = files.csv();
    parts.push(&push("csv", &[&csv]), quiet).await.unwrap();
    let is_scalar = |name: &str| !["tags", "embedding"].contains(&name);
    assert_is_whole(&reader(&node.address, "csv").await, is_scalar);
    assert_eq!(world.count_folders(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_store_behaves_like_a_created_store() {
    let (world, files) = (World::new(), Files::new());
    let (mut node, parts) = world.start().await;
    let folder = files.parts(5);
    let calls = AtomicUsize::new(0);
    let tell = |progress: PushProgress| {
        calls.fetch_add(1, Ordering::Relaxed);
        assert!(progress.bytes <= progress.bytes_in_all && progress.partitions == 7);
    };
    let ask = Push { partitions: Some(7), ..push("users-2", &[&folder]) };
    let result = parts.push(&ask, tell).await.unwrap();
    assert_eq!((result.documents, result.partitions), (ROWS, 7));
    assert!(calls.load(Ordering::Relaxed) >= 12);
    assert_is_whole(&reader(&node.address, "users-2").await, |_| true);

    let client = node.client().await;
    let store = client.store("users-2").await.unwrap();
    assert_eq!(store.definition().options, spec().options);
    let failed_write = store.upsert("user-1").increment("age", 1).if_absent().send().await.unwrap();
    assert!(
        matches!(failed_write.result, WriteResult::ConditionFailed(Some(_))),
        "{failed_write:?}"
    );
    let write = store.upsert("user-1").increment("age", 1).send().await.unwrap();
    let follower = reader(&node.address, "users-2").await;
    follower.await_token(&write.token, LONG).await.unwrap();
    let Value::Int32(age) = expected(1)["age"] else { panic!("an age") };
    assert_eq!(read_fields(&follower, "user-1").unwrap()["age"], Value::Int32(age + 1));

    // The store's shards bootstrap from the push, even if they are rebuilt.
    node.end().await;
    let options = SnapshotOptions::new(LONG, 3).unwrap();
    let (snapshots, data) = (parts.service.snapshots.clone(), world.folder.path().join("other"));
    let node = ServedNode::start_with(&world.log, &data, Some(snapshots)).await;
    assert_eq!(read_fields(&reader(&node.address, "users-2").await, "user-1").unwrap().len(), 7);
    let parts = push_parts(&node, options, &data);
    let error = parts.push(&ask, quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_files_leave_nothing_behind() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let csv = files.csv();
    let limits = |rows_min, rows_max, name: &str, rate| {
        let null_rates_max = BTreeMap::from([(name.to_owned(), rate)]);
        PushLimits { rows_min, rows_max, null_rates_max }
    };
    let with_limits = |limits| Push { limits, ..push("new", &[&csv]) };
    let repeated_key = files.text("twice.csv", "id,age\nann,1\nbob,2\nann,3\n");
    let no_key = files.text("nobody.csv", "id,age\nann,1\n,2\n");
    let no_number = files.text("words.csv", "id,age\nann,one\n");
    let large = files.text("large.jsonl", "{\"id\":\"ann\",\"age\":3000000000}\n");
    let short = files.text("short.jsonl", "{\"id\":\"ann\",\"embedding\":[1,2]}\n");
    let unknown_column = files.text("unknown.csv", "id,size\nann,1\n");
    let json = files.text("unknown.jsonl", "{\"id\":\"ann\",\"size\":1}\n");
    let truncated_file = files.write_truncated();
    let other = files.text("notes.txt", "hello");
    let before = world.objects.names().await;
    for (ask, words) in [
        (push("new", &[&csv, &repeated_key]), "twice.csv, row 3"),
        (push("new", &[&no_key]), "row 2: the row has no key"),
        (push("new", &[&no_number]), "one"),
        (push("new", &[&large]), "3000000000"),
        (push("new", &[&short]), "embedding"),
        (push("new", &[&unknown_column]), "no field of this column's name"),
        (push("new", &[&json]), "size"),
        (push("new", &[&truncated_file]), "correct the file"),
        (push("new", &[&other]), "the format of"),
        (push("new", &[]), "name the files"),
        (Push { columns: ColumnNames::default(), ..push("new", &[&csv]) }, "holds the key"),
        (with_limits(limits(ROWS + 1, None, "age", 1.0)), "rows, not"),
        (with_limits(limits(0, Some(ROWS - 1), "age", 1.0)), "rows, not"),
        (with_limits(limits(0, None, "name", 0.1)), "have no value"),
    ] {
        let error = parts.push(&ask, quiet).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!(
            (world.objects.names().await, world.count_folders()),
            (before.clone(), 0),
            "{words}"
        );
    }
    let missing_path = world.folder.path().join("nowhere");
    let error = parts.push(&push("new", &[&missing_path]), quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    assert!(node.client().await.store("new").await.is_err());

    let ignored = BTreeSet::from(["size".to_owned()]);
    let columns = ColumnNames { key: "id".to_owned(), ignored };
    for (name, file) in [("of-csv", &unknown_column), ("of-json", &json)] {
        let ask = Push { columns: columns.clone(), ..push(name, &[file]) };
        assert_eq!(parts.push(&ask, quiet).await.unwrap().documents, 1);
    }
    let ask = with_limits(limits(ROWS, Some(ROWS), "name", 0.5));
    assert_eq!(parts.push(&ask, quiet).await.unwrap().documents, ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_push_resumes_and_is_invisible_until_complete() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let client = node.client().await;
    let ask = push("new", &[&files.parts(4)]);
    for (fault, partitions) in [(ObjectFault::Refused, 1), (ObjectFault::Changed, 2)] {
        let reads = AtomicUsize::new(0);
        let result = parts
            .push(&ask, |progress| {
                reads.fetch_add(
                    usize::from(progress.bytes < progress.bytes_in_all),
                    Ordering::Relaxed,
                );
                world.fail((progress.partitions_done == partitions).then_some(fault));
            })
            .await;
        world.fail(None);
        assert!(result.is_err(), "{fault:?}");
        assert_eq!(client.store("new").await.unwrap_err().code(), ErrorCode::NotFound);
        assert_eq!(world.count_folders(), 1);
    }
    // Files that were read are not read again.
    let rows = AtomicUsize::new(usize::MAX);
    let tell = |progress: PushProgress| {
        rows.fetch_min(progress.rows as usize, Ordering::Relaxed);
    };
    parts.push(&ask, tell).await.unwrap();
    assert_eq!(rows.load(Ordering::Relaxed), ROWS as usize);
    assert_is_whole(&reader(&node.address, "new").await, |_| true);
    assert_eq!(world.count_folders(), 0);
    // The name is free again, and the same push creates another store.
    client.delete_store("new").await.unwrap();
    parts.push(&ask, quiet).await.unwrap();
    assert_is_whole(&reader(&node.address, "new").await, |_| true);
}

const DISK_BYTES: usize = 16 << 20;
/// Filler that leaves less space than the rows need.
const FILLER_BYTES: usize = DISK_BYTES - (64 << 10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_without_disk_space_reports_it_and_succeeds_once_there_is_space() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "push_without_disk_space_reports_it_and_succeeds_once_there_is_space";
        return run_again_where_mounting_is_permitted(test);
    };
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let parts = PushParts { scratch: disk.path().to_owned(), ..parts };
    let ask = push("new", &[&files.parts(4)]);
    disk.fill(FILLER_BYTES);
    let error = parts.push(&ask, quiet).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert!(error.message().contains("look at the disk"), "{error}");
    let entry_count = std::fs::read_dir(disk.path()).unwrap().count();
    assert_eq!(entry_count, 1, "but for what fills the disk, what was kept of it is gone");
    let client = node.client().await;
    assert_eq!(client.store("new").await.unwrap_err().code(), ErrorCode::NotFound);
    disk.free();
    assert_eq!(parts.push(&ask, quiet).await.unwrap().documents, ROWS);
    assert_is_whole(&reader(&node.address, "new").await, |_| true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_push_on_two_hosts_creates_one_store_with_whole_versions() {
    let (world, files) = (World::new(), Files::new());
    let (node, parts) = world.start().await;
    let other = tempfile::tempdir().unwrap();
    let other_parts = PushParts { scratch: other.path().to_owned(), ..parts.clone() };
    let folder = files.parts(3);
    let ask = push("new", &[&folder]);
    let results = tokio::join!(parts.push(&ask, quiet), other_parts.push(&ask, quiet));
    let (first, second) = match results {
        (Ok(result), failure) | (failure, Ok(result)) => (result, failure.unwrap_err()),
        results => panic!("{results:?}"),
    };
    assert_eq!((first.documents, second.code()), (ROWS, ErrorCode::Conflict), "{second}");
    assert_is_whole(&reader(&node.address, "new").await, |_| true);

    let ask = Push { push_as: None, ..ask };
    let (first, second) = tokio::join!(parts.push(&ask, quiet), other_parts.push(&ask, quiet));
    let mut numbers = [first.unwrap(), second.unwrap()].map(|result| result.version.0);
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3], "each is a version of its own");
    assert_is_whole(&reader(&node.address, "users").await, |_| true);
    assert_eq!((world.count_folders(), std::fs::read_dir(other.path()).unwrap().count()), (0, 0));
}
