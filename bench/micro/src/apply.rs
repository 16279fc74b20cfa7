//! Speed of a reader that applies its log: the whole reader compared with decoding alone, the fold
//! alone and the index alone, and the bootstrap of a reader from the log's start as users run it. A
//! real writer has written the entries into a real log.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::environment::{SystemClock, SystemEntropy};
use forebay::schema::PartitionId;
use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{ClientBatch, Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState, Record, RowLookup};
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_entries::CatalogFollower;
use forebay_index::{Index, PartitionWriter};
use forebay_log::disk::RealDisk;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, LogRecord, MemoryLog, ReadLimit};
use forebay_reader::{LogBarriers, ReaderParts};
use forebay_wire::entry::{decode_entry, encode_entry};
use tokio::runtime::Runtime;

use crate::clock::seconds;
use crate::server::{Log, Server};
use crate::{Failure, data, runtime};

/// Name of the store.
const STORE: &str = "users";
/// Time limit of one step, after which the benchmark fails.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of one read of the log.
const READ_BYTES: usize = 1024 * 1024;
/// The log does not change while it is read, so any staleness bound will do.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);

const LOCAL: &str = "bootstrap from an embedded log in process";
const REMOTE: &str = "bootstrap over the change stream";

/// Sizes of the run.
#[derive(Clone, Debug)]
pub struct ApplyPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Changes in the log.
    pub changes: u64,
    /// Changes of one entry; each size is a shape.
    pub shapes: Vec<usize>,
}

/// Every record of a store's log, by partition, with the control log.
struct StoredLog {
    store: StoreId,
    control: Vec<Bytes>,
    partitions: Vec<Vec<LogRecord>>,
    changes: u64,
    bytes: u64,
}

/// The work and the time of one contender in one round.
struct Pace<'a> {
    stored_log: &'a StoredLog,
    entries: u64,
    seconds: f64,
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn run(plan: &ApplyPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let failure_text = |failure: Failure| failure.to_string();
    let server = runtime.block_on(fill(plan.changes)).map_err(failure_text)?;
    // The log exists twice: a log has one process, and each of two bootstraps needs its own.
    let twin = crate::server::copy_of(server.data())?;
    let log = runtime.block_on(open_log(twin.path())).map_err(failure_text)?;
    let stored_log = runtime.block_on(StoredLog::read(&*log)).map_err(failure_text)?;
    let shapes: Vec<(usize, StoredLog)> = plan
        .shapes
        .iter()
        .map(|changes| Ok((*changes, stored_log.with_entries_of(*changes)?)))
        .collect::<forebay::Result<_>>()
        .map_err(|error| error.to_string())?;
    let mut contenders = Vec::new();
    for (changes, shape_log) in &shapes {
        contenders.extend(steps(*changes, shape_log));
    }
    contenders.push(Contender::several(LOCAL, || {
        let log = Arc::clone(&log);
        let run = || runtime.block_on(bootstrap_from(log));
        stored_log.paced(run)?.values(LOCAL)
    }));
    contenders.push(Contender::several(REMOTE, || {
        let run = || runtime.block_on(bootstrap_over(server.address()));
        stored_log.paced(run)?.values(REMOTE)
    }));
    let rounds = interleave(plan.rounds, &mut contenders)?;
    drop(contenders);
    runtime.block_on(log.close());
    rows(plan, &rounds)
}

/// Starts a server and writes the changes by one stream.
async fn fill(changes: u64) -> Result<Server, Failure> {
    let server = Server::start(Log::Buffered)?;
    let client = Client::connect(server.address(), ClientOptions::default()).await?;
    let store = data::open_store(&client, STORE).await?;
    let mut stream = store.write_stream(StreamOptions::default())?.deadline(PATIENCE);
    for number in 0..changes {
        stream.send(data::write(&store, number)).await?;
    }
    stream.close().await?;
    Ok(server)
}

async fn open_log(folder: &std::path::Path) -> Result<Arc<EmbeddedLog>, Failure> {
    let options = EmbeddedOptions::new(folder);
    let log = EmbeddedLog::open(Arc::new(RealDisk), Arc::new(SystemClock), options).await?;
    Ok(Arc::new(log))
}

impl StoredLog {
    async fn read(log: &dyn ChangeLog) -> Result<Self, Failure> {
        let control = read_all(log, PartitionRef::CONTROL).await?;
        let catalog = follow(Arc::new(memory_of(&control).await?)).await?;
        let store = catalog.catalog().store_by_name(STORE)?.definition.store;
        let mut partitions = Vec::new();
        for partition in PartitionCount(data::PARTITIONS).partitions() {
            partitions.push(read_all(log, PartitionRef { store, partition }).await?);
        }
        let control = control.into_iter().map(|record| record.entry).collect();
        Ok(Self::of(store, control, partitions)?)
    }

    fn of(
        store: StoreId,
        control: Vec<Bytes>,
        partitions: Vec<Vec<LogRecord>>,
    ) -> forebay::Result<Self> {
        let (mut changes, mut bytes) = (0, 0);
        for record in partitions.iter().flatten() {
            bytes += record.entry.len() as u64;
            changes += decode_entry(&record.entry)?.change_count() as u64;
        }
        Ok(Self { store, control, partitions, changes, bytes })
    }

    /// Returns the same changes in the same order, `changes` in each entry.
    fn with_entries_of(&self, changes: usize) -> forebay::Result<Self> {
        let split = |records: &Vec<LogRecord>| split(records, changes);
        let partitions = self.partitions.iter().map(split).collect::<forebay::Result<_>>()?;
        Self::of(self.store, self.control.clone(), partitions)
    }

    fn entries(&self) -> u64 {
        self.partitions.iter().map(|records| records.len() as u64).sum()
    }

    /// Runs a function over all records, and times it.
    fn paced(&self, run: impl FnOnce() -> Result<(), Failure>) -> Result<Pace<'_>, String> {
        let (seconds, result) = seconds(run);
        result.map_err(|failure| failure.to_string())?;
        Ok(Pace { stored_log: self, entries: self.entries(), seconds })
    }
}

impl Pace<'_> {
    fn values(&self, name: &str) -> Result<Values, String> {
        let per_second = |count: u64| count as f64 / self.seconds;
        Ok(vec![
            (measure(name, "entries/s"), per_second(self.entries)),
            (measure(name, "changes/s"), per_second(self.stored_log.changes)),
            (measure(name, "MB/s"), per_second(self.stored_log.bytes) / 1e6),
        ])
    }
}

fn measure(name: &str, quantity: &str) -> String {
    format!("{name}, {quantity}")
}

async fn read_all(log: &dyn ChangeLog, at: PartitionRef) -> Result<Vec<LogRecord>, Failure> {
    let limit = ReadLimit { bytes_max: READ_BYTES, wait_max: Duration::ZERO };
    let (mut all, mut from) = (Vec::new(), Offset(0));
    loop {
        let records = log.read(at, from, limit).await?.records;
        let Some(last) = records.last() else { return Ok(all) };
        from = last.offset.next();
        all.extend(records);
    }
}

fn split(records: &[LogRecord], changes: usize) -> forebay::Result<Vec<LogRecord>> {
    let mut split = Vec::new();
    let mut push = |append_time: Timestamp, entry: &Entry| {
        let offset = Offset(split.len() as u64);
        split.push(LogRecord { offset, append_time, entry: encode_entry(entry)? });
        Ok::<(), forebay::Error>(())
    };
    for record in records {
        let entry = decode_entry(&record.entry)?;
        let EntryBody::Changes(batches) = entry.body else {
            push(record.append_time, &entry)?;
            continue;
        };
        let mut part = Entry { body: EntryBody::Barrier, ..entry };
        for ClientBatch { client, changes: all } in batches {
            for chunk in all.chunks(changes) {
                let chunk = ClientBatch { client, changes: chunk.to_vec() };
                part.body = EntryBody::Changes(vec![chunk]);
                push(record.append_time, &part)?;
            }
        }
    }
    Ok(split)
}

/// Returns the steps of applying, each alone, on one thread, and the reader that performs all of
/// them.
fn steps(changes: usize, stored_log: &StoredLog) -> Vec<Contender<'_>> {
    let named = |step: &str| step_name(step, changes);
    let (reader, all, decode) = (named(READER), named(ALL_STEPS), named(DECODE));
    let (fold, index) = (named(FOLD), named(INDEX));
    vec![
        Contender::several(&reader.clone(), move || {
            let (runtime, log) = memory_log(stored_log).map_err(|failure| failure.to_string())?;
            let run = || runtime.block_on(bootstrap_from(log));
            stored_log.paced(run)?.values(&reader)
        }),
        Contender::several(&all.clone(), move || {
            let mut copy = Copy::empty(stored_log).map_err(|failure| failure.to_string())?;
            stored_log.paced(|| copy.apply_all(stored_log))?.values(&all)
        }),
        Contender::several(&decode.clone(), move || {
            stored_log.paced(|| decode_all(stored_log))?.values(&decode)
        }),
        Contender::several(&fold.clone(), move || {
            let prepared = Copy::empty(stored_log).and_then(|copy| copy.prepare(stored_log));
            let (prepared, _) = prepared.map_err(|failure| failure.to_string())?;
            stored_log.paced(|| prepared.fold_all())?.values(&fold)
        }),
        Contender::several(&index.clone(), move || {
            let prepared = Copy::empty(stored_log).and_then(|copy| copy.prepare(stored_log));
            let (_, effects) = prepared.map_err(|failure| failure.to_string())?;
            let mut copy = Copy::empty(stored_log).map_err(|failure| failure.to_string())?;
            stored_log.paced(|| copy.write_all(&effects))?.values(&index)
        }),
    ]
}

const READER: &str = "reader";
const ALL_STEPS: &str = "decode, fold and index";
const DECODE: &str = "decode alone";
const FOLD: &str = "fold alone";
const INDEX: &str = "index alone";
const STEPS: [&str; 5] = [READER, ALL_STEPS, DECODE, FOLD, INDEX];

fn step_name(step: &str, changes: usize) -> String {
    format!("{step}, entries of {changes}")
}

fn decode_all(stored_log: &StoredLog) -> Result<(), Failure> {
    for record in stored_log.partitions.iter().flatten() {
        std::hint::black_box(decode_entry(&record.entry)?);
    }
    Ok(())
}

/// A copy of a store without a reader around it.
struct Copy {
    index: Index,
    partitions: Vec<(PartitionState, PartitionWriter)>,
}

/// Decoded records, the rows before them, and the states that they are folded into.
struct Folds {
    index: Index,
    partitions: Vec<(PartitionState, Rows, Vec<Record>)>,
}

/// The effects of a fold, each with the state after it.
type Effects = Vec<Vec<(FoldEffects, PartitionState)>>;

/// Existing rows without an index: none is known. An upsert of all fields gives the same row.
struct Rows;

impl RowLookup for Rows {
    fn row(&self, _key: &[u8]) -> forebay_core::Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

impl Copy {
    fn empty(stored_log: &StoredLog) -> Result<Self, Failure> {
        let count = PartitionCount(data::PARTITIONS);
        let definition = data::spec(STORE).define(stored_log.store)?;
        let index = Index::new([SchemaAt::of(definition)], count.partitions(), 7)?;
        let mut partitions = Vec::new();
        for partition in count.partitions() {
            let at = PartitionRef { store: stored_log.store, partition };
            partitions.push((PartitionState::new(at, count), index.writer(partition)?));
        }
        Ok(Self { index, partitions })
    }

    fn apply_all(&mut self, stored_log: &StoredLog) -> Result<(), Failure> {
        for ((state, writer), records) in self.partitions.iter_mut().zip(&stored_log.partitions) {
            for record in records {
                let effects = state.apply(decoded(record), writer, self.index.schemas());
                let effects = effects.map_err(|error| format!("{error:?}"))?;
                writer.apply(&effects, state)?;
            }
        }
        self.check(stored_log)
    }

    /// Prepares everything that the fold and the index need to run alone.
    fn prepare(mut self, stored_log: &StoredLog) -> Result<(Folds, Effects), Failure> {
        let mut effects = Vec::new();
        let mut folds = Vec::new();
        for ((state, _), records) in self.partitions.iter_mut().zip(&stored_log.partitions) {
            folds.push((state.clone(), Rows, records.iter().map(decoded).collect()));
            let mut of_partition = Vec::new();
            for record in records {
                let effect = state.apply(decoded(record), &Rows, self.index.schemas());
                let effect = effect.map_err(|error| format!("{error:?}"))?;
                of_partition.push((effect, state.clone()));
            }
            effects.push(of_partition);
        }
        Ok((Folds { index: self.index, partitions: folds }, effects))
    }

    fn write_all(&mut self, effects: &Effects) -> Result<(), Failure> {
        for ((_, writer), effects) in self.partitions.iter_mut().zip(effects) {
            for (effect, state) in effects {
                writer.apply(effect, state)?;
            }
        }
        Ok(())
    }

    /// Checks the number of documents, because a fold that skips changes would be fast.
    fn check(&self, stored_log: &StoredLog) -> Result<(), Failure> {
        let documents: u64 = self.partitions.iter().map(|(_, w)| w.usage().documents).sum();
        let expected = stored_log.changes.min(data::KEYS);
        if documents == expected {
            return Ok(());
        }
        Err(format!("applied {documents} documents of {expected}").into())
    }
}

impl Folds {
    fn fold_all(self) -> Result<(), Failure> {
        for (mut state, rows, records) in self.partitions {
            for record in records {
                let effects = state.apply(record, &rows, self.index.schemas());
                std::hint::black_box(effects.map_err(|error| format!("{error:?}"))?);
            }
        }
        Ok(())
    }
}

fn decoded(record: &LogRecord) -> Record {
    let entry = decode_entry(&record.entry);
    Record { offset: record.offset, append_time: record.append_time, entry }
}

/// Creates a log in memory with all records, and one thread that reads it.
fn memory_log(stored_log: &StoredLog) -> Result<(Runtime, Arc<MemoryLog>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = runtime.block_on(async {
        let control = stored_log.control.iter().map(|entry| LogRecord {
            offset: Offset(0),
            append_time: Timestamp::MIN,
            entry: entry.clone(),
        });
        let log = memory_of(&control.collect::<Vec<_>>()).await?;
        log.create(stored_log.store, PartitionCount(data::PARTITIONS)).await?;
        for (partition, records) in stored_log.partitions.iter().enumerate() {
            let at =
                PartitionRef { store: stored_log.store, partition: PartitionId(partition as u32) };
            for record in records {
                log.append(at, record.entry.clone()).await?;
            }
        }
        Ok::<_, Failure>(log)
    })?;
    Ok((runtime, Arc::new(log)))
}

/// Creates a log in memory with this control log.
async fn memory_of(control: &[LogRecord]) -> Result<MemoryLog, Failure> {
    let log = MemoryLog::new(Arc::new(SystemClock));
    for record in control {
        log.append(PartitionRef::CONTROL, record.entry.clone()).await?;
    }
    Ok(log)
}

async fn follow(log: Arc<dyn ChangeLog>) -> Result<Arc<CatalogFollower>, Failure> {
    let end = log.bounds(PartitionRef::CONTROL).await?.end;
    let catalog = Arc::new(CatalogFollower::start(log, Arc::new(SystemEntropy)));
    catalog.wait_applied(end, PATIENCE).await?;
    Ok(catalog)
}

fn options() -> ReaderOptions {
    ReaderOptions::new(STORE).ready_max_staleness(AGE)
}

/// Opens a reader on a log of this process and waits until it is ready.
async fn bootstrap_from(log: Arc<dyn ChangeLog>) -> Result<(), Failure> {
    let parts = ReaderParts {
        catalog: follow(Arc::clone(&log)).await?,
        barriers: Arc::new(LogBarriers(Arc::clone(&log))),
        log,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        disk: None,
        replicator: None,
    };
    let reader = forebay_reader::Reader::open(options(), parts).await?;
    Ok(reader.await_ready(PATIENCE).await?)
}

/// Opens a reader as an application does and waits until it is ready.
async fn bootstrap_over(address: &str) -> Result<(), Failure> {
    let reader = Reader::open(address, options()).await?;
    Ok(reader.await_ready(PATIENCE).await?)
}

fn rows(plan: &ApplyPlan, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for changes in &plan.shapes {
        for step in STEPS {
            let name = step_name(step, *changes);
            let peer = match step {
                READER | ALL_STEPS => Some(step_name(DECODE, *changes)),
                _ => None,
            };
            add(&mut rows, &name, peer.as_deref(), rounds)?;
        }
        let (reader, index) = (step_name(READER, *changes), step_name(INDEX, *changes));
        let (reader, index) = (measure(&reader, "changes/s"), measure(&index, "changes/s"));
        let row = format!("{reader}, against the index");
        rows.push(Row::against(&row, Unit::PerSecond, rounds, &reader, &index)?);
    }
    let decode = plan.shapes.last().map(|changes| step_name(DECODE, *changes));
    for name in [LOCAL, REMOTE] {
        add(&mut rows, name, decode.as_deref(), rounds)?;
    }
    Ok(rows)
}

fn add(rows: &mut Vec<Row>, name: &str, peer: Option<&str>, rounds: &Rounds) -> Result<(), String> {
    let units = [
        ("entries/s", Unit::PerSecond),
        ("changes/s", Unit::PerSecond),
        ("MB/s", Unit::MegabytesPerSecond),
    ];
    for (quantity, unit) in units {
        let own_measure = measure(name, quantity);
        rows.push(match peer.map(|peer| measure(peer, quantity)) {
            Some(peer) => Row::against(&own_measure, unit, rounds, &own_measure, &peer)?,
            None => Row::alone(&own_measure, unit, rounds, &own_measure)?,
        });
    }
    Ok(())
}
