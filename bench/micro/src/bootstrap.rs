//! Time of a reader until it serves the contents of a snapshot, in three cases: fetched from an
//! object store on the local disk; restarted with all files and copies, which are mapped again; and
//! restarted with only the files, none of them in the page cache, as after a restart of the
//! machine. The peer of the first case is the disk: one file of as many bytes, written in order and
//! durably.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::reads::{CheckpointOptions, ReadOptions, SnapshotStore};
use forebay::schema::{Definition, KeyType, PartitionId, StoreId, StoreSpec, Value};
use forebay::status::{Counts, PartitionStatus, ReaderStatus};
use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, Error, ErrorCode, Reader, ReaderOptions};
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};
use forebay_core::id::{FieldId, PartitionCount, PartitionRef};
use forebay_core::partition::xxh3_64;
use forebay_index::SharedCopyDirectory;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::clock::nanos;
use crate::server::{Log, Server, scratch};
use crate::{Failure, disk_baseline, runtime};

const STORE: &str = "users";
const BOOTSTRAP: &str = "bootstrap from the local object store";
const RESTART: &str = "restart with all files and copies";
const REBOOT: &str = "restart with the files alone";
const DISK: &str = "single file on the disk";
/// Time limit of one step, after which the benchmark fails.
const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// Interval of the polls of a starting reader.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Sizes of the run.
#[derive(Clone, Debug)]
pub struct BootstrapPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Number of documents.
    pub documents: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Partitions of the store.
    pub partitions: u32,
    /// Memory of the reader.
    pub memory_limit: u64,
}

/// A node with a filled store, and snapshots of the whole store.
struct BootstrapSide {
    plan: BootstrapPlan,
    server: Server,
    store: StoreId,
    snapshots: SnapshotStore,
    /// Bytes of the images.
    bytes: u64,
    _folder: TempDir,
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn run(plan: &BootstrapPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let side =
        runtime.block_on(BootstrapSide::start(plan)).map_err(|failure| failure.to_string())?;
    let folder = scratch()?;
    let mut contenders = [
        Contender::several(BOOTSTRAP, || side.measure(&runtime)),
        Contender::new(DISK, || Ok(disk_baseline::sequential(folder.path(), side.bytes)? / 1e6)),
    ];
    let rounds = interleave(plan.rounds, &mut contenders)?;
    rows(&rounds)
}

impl BootstrapSide {
    async fn start(plan: &BootstrapPlan) -> Result<Self, Failure> {
        let (definition, data) = fill(plan).await?;
        let folder = scratch()?;
        let url = format!("file://{}", folder.path().display());
        // The first snapshots contain the whole store, so each is one image.
        let settings = ["--snapshots", &url, "--snapshot-interval", "1s"];
        let server = Server::start_with(data, Log::Buffered, &settings)?;
        let snapshots = SnapshotStore::open(&url)?;
        let images = await_snapshots(&snapshots, &definition, plan.documents);
        let bytes = tokio::time::timeout(PATIENCE, images).await??;
        let (plan, store) = (plan.clone(), definition.store);
        Ok(Self { plan, server, store, snapshots, bytes, _folder: folder })
    }

    fn measure(&self, runtime: &Runtime) -> Result<Values, String> {
        let measured = runtime.block_on(async {
            let folder = scratch()?;
            let bootstrapped = self.open(folder.path()).await?;
            let restarted = self.open(folder.path()).await?;
            self.forget_copies(folder.path());
            disk_baseline::forget_cached(folder.path())?;
            let rebooted = self.open(folder.path()).await?;
            self.forget_copies(folder.path());
            Ok::<_, Failure>((bootstrapped, restarted, rebooted))
        });
        let (bootstrapped, restarted, rebooted) =
            measured.map_err(|failure| failure.to_string())?;
        let openings = [&bootstrapped, &restarted, &rebooted];
        let bootstraps = openings.map(|opening| opening.records.bootstraps);
        if bootstraps != [u64::from(self.plan.partitions), 0, 0] {
            let (records, errors) = (
                openings.map(|opening| opening.records),
                openings.map(|opening| &opening.last_error),
            );
            return Err(format!(
                "{bootstraps:?} partitions began with a snapshot; last error of each opening: \
                 {errors:?}; its records: {records:?}"
            ));
        }
        Ok(vec![
            (measure(BOOTSTRAP, RATE), self.bytes as f64 / 1e6 / bootstrapped.served),
            (measure(BOOTSTRAP, LAST_BYTE), bootstrapped.served - bootstrapped.fetched),
            (measure(RESTART, FIRST_GET), restarted.served * 1e3),
            (measure(REBOOT, FIRST_GET), rebooted.served * 1e3),
        ])
    }

    /// Removes the copies that readers share, as a restart of the machine does.
    fn forget_copies(&self, folder: &Path) {
        let partitions = PartitionCount(self.plan.partitions).partitions();
        SharedCopyDirectory::new(folder).remove(self.store, partitions);
    }

    /// Opens a reader over a folder, and closes it once all of its partitions serve and have their
    /// own checkpoints, which takes seconds.
    async fn open(&self, folder: &Path) -> Result<BootstrapTimes, Failure> {
        let options = ReaderOptions::new(STORE)
            .checkpoint(CheckpointOptions::new(folder))
            .snapshots(self.snapshots.clone())
            .memory_limit(self.plan.memory_limit);
        let (began, mut fetched) = (nanos(), FetchTimes::default());
        let seconds_until = |moment: u64| (moment - began) as f64 / 1e9;
        let reader = Reader::open(self.server.address(), options).await?;
        // Keys that most likely cover each partition; every read is awaited.
        let keys = (0..u64::from(self.plan.partitions) * 8).map(|key| key % self.plan.documents);
        let mut value = Vec::new();
        for key in keys {
            fill_value(key, self.plan.value_bytes, &mut value);
            while !holds(&reader, key, &value)? {
                let status = reader.status();
                fetched.look(&status, seconds_until(nanos()));
                if seconds_until(nanos()) > PATIENCE.as_secs_f64() {
                    return Err(format!("the reader does not serve: {status:?}").into());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        let served_after = seconds_until(nanos());
        let records = reader.metrics().counts;
        let checkpoints_written = tokio::time::timeout(PATIENCE, await_checkpoints(&reader)).await;
        checkpoints_written
            .map_err(|_| format!("the reader wrote no checkpoint: {:?}", reader.status()))?;
        reader.close(PATIENCE).await?;
        let last_error = fetched.last_error.take();
        let fetched = fetched.last(self.plan.partitions as usize);
        Ok(BootstrapTimes { fetched, served: served_after, records, last_error })
    }
}

/// Waits until every partition has a checkpoint that a reader has written.
async fn await_checkpoints(reader: &Reader) {
    let has_one = |partition: &PartitionStatus| {
        let checkpoints = partition.counts.checkpoints;
        checkpoints.written + checkpoints.restored > 0
    };
    while !reader.status().partitions.iter().all(has_one) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Time at which the image of each fetched partition was first seen to be complete.
#[derive(Default)]
struct FetchTimes {
    begun: BTreeSet<PartitionId>,
    whole: BTreeMap<PartitionId, f64>,
    /// Time of the last poll.
    looked: f64,
    /// Last reason why a partition applied nothing.
    last_error: Option<Error>,
}

impl FetchTimes {
    fn look(&mut self, status: &ReaderStatus, now: f64) {
        self.looked = now;
        for partition in &status.partitions {
            let id = partition.partition;
            if let Some(error) = &partition.last_error {
                self.last_error = Some(error.clone());
            }
            let is_whole = match partition.snapshot_download {
                Some(all) => {
                    self.begun.insert(id);
                    all.bytes == all.bytes_in_all
                }
                None => self.begun.contains(&id),
            };
            if is_whole {
                self.whole.entry(id).or_insert(now);
            }
        }
    }

    /// Returns the time at which the last of `partitions` images was complete; if that was too
    /// early to be seen, the time of the last poll before.
    fn last(&self, partitions: usize) -> f64 {
        match self.whole.len() == partitions {
            true => self.whole.values().copied().fold(0.0, f64::max),
            false => self.looked,
        }
    }
}

/// Times in seconds from the opening of a reader.
struct BootstrapTimes {
    /// Time at which the last byte of the last image was seen to be verified; if that was too early
    /// to be seen, the time of the last poll before.
    fetched: f64,
    /// Time of the first get of each partition.
    served: f64,
    /// Counts of the records of all partitions by then.
    records: Counts,
    /// Last reason why a partition applied nothing.
    last_error: Option<Error>,
}

/// Returns whether the reader returns a document; `false` while it is not ready.
fn holds(reader: &Reader, key: u64, value: &[u8]) -> Result<bool, Failure> {
    match reader.get_document(key as i64) {
        Err(error) if error.code() == ErrorCode::Unavailable => Ok(false),
        Err(error) => Err(error.into()),
        Ok(document) => {
            let found = document.as_ref().and_then(|found| found.value(FieldId(1)));
            match found {
                Some(Value::Bytes(found)) if found == value => Ok(true),
                _ => Err(format!("document {key} has another value, or none").into()),
            }
        }
    }
}

/// Fills a store, and stops the node.
async fn fill(plan: &BootstrapPlan) -> Result<(Arc<Definition>, TempDir), Failure> {
    let server = Server::start(Log::Buffered)?;
    let client = Client::connect(server.address(), ClientOptions::default()).await?;
    let spec = StoreSpec::key_value(STORE, KeyType::Int64).partitions(plan.partitions);
    let store = client.create_store(&spec).await?;
    let mut stream = store.write_stream(StreamOptions::default())?.deadline(PATIENCE);
    let mut value = Vec::new();
    for number in 0..plan.documents {
        fill_value(number, plan.value_bytes, &mut value);
        stream.send(store.put(number as i64).set("value", value.as_slice())).await?;
    }
    let summary = stream.close().await?;
    // The snapshots are created from the node's shards.
    let applied = ReadOptions::after(summary.token, PATIENCE);
    store.ordered()?.get(&applied, 0_i64).await?;
    Ok((store.definition(), server.stop()?))
}

/// Fills a value with incompressible bytes, different for each document.
fn fill_value(document: u64, bytes: usize, value: &mut Vec<u8>) {
    value.clear();
    let mut part = document;
    while value.len() < bytes {
        part = xxh3_64(&part.to_le_bytes());
        value.extend(part.to_le_bytes());
    }
    value.truncate(bytes);
}

/// Waits until there are images of `documents` documents; returns their bytes.
async fn await_snapshots(
    snapshots: &SnapshotStore,
    definition: &Definition,
    documents: u64,
) -> Result<u64, Failure> {
    loop {
        let (mut documents_stored, mut bytes) = (0, 0);
        for partition in definition.partitions.partitions() {
            let at = PartitionRef { store: definition.store, partition };
            if let Some(newest) = snapshots.partition(at).newest(None).await? {
                documents_stored += newest.base.documents;
                bytes += newest.base.bytes();
            }
        }
        if documents_stored == documents {
            return Ok(bytes);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const RATE: &str = "MB/s of images";
const LAST_BYTE: &str = "last verified byte to first get, s";
const FIRST_GET: &str = "open to the first get, ms";

fn measure(name: &str, quantity: &str) -> String {
    format!("{name}, {quantity}")
}

fn rows(rounds: &Rounds) -> Result<Vec<Row>, String> {
    let rate = measure(BOOTSTRAP, RATE);
    let row_alone = |unit, measure: String| Row::alone(&measure, unit, rounds, &measure);
    Ok(vec![
        Row::against(&rate, Unit::MegabytesPerSecond, rounds, &rate, DISK)?,
        row_alone(Unit::Seconds, measure(BOOTSTRAP, LAST_BYTE))?,
        row_alone(Unit::Milliseconds, measure(RESTART, FIRST_GET))?,
        row_alone(Unit::Milliseconds, measure(REBOOT, FIRST_GET))?,
        row_alone(Unit::MegabytesPerSecond, DISK.to_owned())?,
    ])
}
