//! Cost of a push for a reader: a version of mostly unchanged documents is pushed next to the live
//! version. The node, the reader and the push are separate processes, and documents are read, and
//! some are written, all the time.
//!
//! A round is one push and its consequences: the version becomes live, the reader answers from it,
//! the previous version is dropped as at the end of the rollback window, and the reader's copies of
//! it leave its memory.

pub mod documents;
mod memory;
mod process;
pub mod reads;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::{Client, ClientOptions, Store};
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::memory::{MemorySample, Watch};
use self::process::{PATIENCE, ReaderProcess, forebayd};
use self::reads::Stretch;
use crate::clock::nanos;
use crate::server::{Log, Server, scratch};
use crate::{Failure, runtime};

const STORE: &str = "users";
/// Interval of polls for a version to become live.
const LOOK_SOON: Duration = Duration::from_millis(1);
/// Time between two batches of writes, each of which most likely goes to all partitions.
const WRITE_EVERY: Duration = Duration::from_millis(20);
/// Documents of a batch: always the same, and none of them is pushed.
const WRITTEN: i64 = 64;

/// Sizes and durations of the run.
#[derive(Clone, Debug)]
pub struct PushPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Shapes of documents, pushed one after the other.
    pub shapes: Vec<DocumentShape>,
    /// Partitions of the store.
    pub partitions: u32,
    /// Undisturbed time before a push, and before the previous version is dropped.
    pub steady: Duration,
    /// Program of the reader process.
    pub reader: PathBuf,
}

/// Documents of one kind.
#[derive(Clone, Copy, Debug)]
pub struct DocumentShape {
    /// Number of documents.
    pub documents: u64,
    /// Bytes of each text.
    pub text_bytes: usize,
}

impl DocumentShape {
    fn measure(&self, quantity: &str) -> String {
        format!("push of 5 % changed, rows of {} B, {quantity}", self.text_bytes)
    }
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a push fails, or the reader does not follow; the message has the shape and the round.
pub fn run(plan: &PushPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let mut rows = Vec::new();
    for shape in &plan.shapes {
        let side = runtime.block_on(PushSide::start(plan, *shape));
        let mut side = side.map_err(|failure| failure.to_string())?;
        let name = format!("rows of {} B", shape.text_bytes);
        let round = || side.round(&runtime, plan);
        let rounds = interleave(plan.rounds, &mut [Contender::several(&name, round)])?;
        rows.extend(rows_of(shape, &rounds)?);
    }
    Ok(rows)
}

/// A node with a store, and a reader of it.
struct PushSide {
    shape: DocumentShape,
    server: Server,
    store: Store,
    /// Live version.
    version: u64,
    reader: ReaderProcess,
    watch: Watch,
    files: TempDir,
    _folders: [TempDir; 2],
}

/// The measurements of one round.
#[derive(Debug, Default)]
struct PushRound {
    rows_per_s: f64,
    flip_ms: f64,
    before: Stretch,
    pushed: Stretch,
    around: Stretch,
    leaving: Stretch,
    /// Longest batch of writes before the push, and during it.
    writes_ms: [f64; 2],
    memory: [Vec<MemorySample>; 4],
}

impl PushSide {
    async fn start(plan: &PushPlan, shape: DocumentShape) -> Result<Self, Failure> {
        let (snapshots, directory, files) = (scratch()?, scratch()?, scratch()?);
        let url = format!("file://{}", snapshots.path().display());
        let server = Server::start_with(scratch()?, Log::Buffered, &["--snapshots", &url])?;
        let client = Client::connect(server.address(), ClientOptions::default()).await?;
        let spec = StoreSpec::documents(STORE, KeyType::Int64)
            .partitions(plan.partitions)
            .field("text", FieldType::STRING);
        let store = client.create_store(&spec).await?;
        let version = documents::FIRST;
        push(&server, shape, version, files.path()).await?;
        drop_version(&server, version - 1).await?;
        let arguments = [
            server.address(),
            STORE,
            &url,
            &directory.path().display().to_string(),
            &shape.documents.to_string(),
        ];
        let reader = ReaderProcess::start(&plan.reader, &arguments).await?;
        let watch = Watch::start(reader.id())?;
        let _folders = [snapshots, directory];
        Ok(Self { shape, server, store, version, reader, watch, files, _folders })
    }

    fn round(&mut self, runtime: &Runtime, plan: &PushPlan) -> Result<Values, String> {
        let measured = runtime.block_on(async {
            let writes = Writes::start(&self.store);
            let measured = self.measure(plan, &writes).await?;
            writes.end().await?;
            Ok::<_, Failure>(measured)
        });
        let measured = measured.map_err(|failure| failure.to_string())?;
        values(&self.shape, &measured)
    }

    async fn measure(&mut self, plan: &PushPlan, writes: &Writes) -> Result<PushRound, Failure> {
        let mut measured = PushRound::default();
        self.version += 1;
        let (version, path) = (self.version, self.files.path());
        let file = write_file(self.shape, version, path).await?;
        self.reader.stretch().await?;
        writes.longest_ms();
        let steady = nanos();
        tokio::time::sleep(plan.steady).await;
        measured.before = self.reader.stretch().await?;
        measured.writes_ms[0] = writes.longest_ms();

        self.reader.expect(version)?;
        let began = nanos();
        let live = tokio::spawn(not_live_until(self.store.clone(), version));
        push_file(&self.server, version, &file).await?;
        measured.rows_per_s = file.documents as f64 / ((nanos() - began) as f64 / 1e9);
        let flipped = self.reader.flip().await?;
        measured.flip_ms = flipped.saturating_sub(live.await??) as f64 / 1e6;
        measured.around = self.reader.around().await?;
        let both_since = nanos();
        tokio::time::sleep(plan.steady).await;
        measured.pushed = self.reader.stretch().await?;
        measured.writes_ms[1] = writes.longest_ms();

        let leaving = nanos();
        drop_version(&self.server, version - 1).await?;
        self.reader.stands_alone(plan.partitions as usize).await?;
        tokio::time::sleep(plan.steady).await;
        measured.leaving = self.reader.stretch().await?;
        let samples_between = |from, to| self.watch.between(from, to);
        measured.memory = [
            samples_between(steady, began)?,
            samples_between(began, leaving)?,
            samples_between(both_since, leaving)?,
            samples_between(leaving, nanos())?,
        ];
        Ok(measured)
    }
}

/// A file of documents.
struct DocumentFile {
    path: PathBuf,
    documents: u64,
}

async fn write_file(
    shape: DocumentShape,
    version: u64,
    folder: &Path,
) -> Result<DocumentFile, Failure> {
    let path = folder.join(format!("{version}.csv"));
    let to = path.clone();
    let write = move || documents::write(&to, version, shape.documents, shape.text_bytes);
    let documents = tokio::task::spawn_blocking(write).await??;
    Ok(DocumentFile { path, documents })
}

/// Pushes a file as the next version, waits for the command, and removes the file.
async fn push_file(server: &Server, version: u64, file: &DocumentFile) -> Result<(), Failure> {
    let path = file.path.display().to_string();
    let arguments = ["push", "--node", server.address(), "--store", STORE, "--key", "id", &path];
    let output = forebayd(&arguments).await?;
    std::fs::remove_file(&file.path)?;
    let expected = format!("pushed version {version} of {STORE} with {} documents", file.documents);
    if output.contains(&expected) {
        Ok(())
    } else {
        Err(format!("{output:?}, not {expected:?}").into())
    }
}

async fn push(
    server: &Server,
    shape: DocumentShape,
    version: u64,
    folder: &Path,
) -> Result<(), Failure> {
    let file = write_file(shape, version, folder).await?;
    push_file(server, version, &file).await
}

async fn drop_version(server: &Server, version: u64) -> Result<(), Failure> {
    let number = version.to_string();
    let arguments = ["version", "drop", "--node", server.address(), "--store", STORE, &number];
    forebayd(&arguments).await.map(drop)
}

/// Returns the time at which a version was last seen not to be live yet.
async fn not_live_until(store: Store, version: u64) -> Result<u64, Failure> {
    let wait = async {
        let mut last_not_live = nanos();
        loop {
            let asked_at = nanos();
            if u64::from(store.refresh().await?.versions.live().number.0) == version {
                return Ok(last_not_live);
            }
            last_not_live = asked_at;
            tokio::time::sleep(LOOK_SOON).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await?
}

/// Writes that continue until they are ended, so that the reader has entries to apply.
struct Writes {
    ended: Arc<AtomicBool>,
    /// Nanoseconds of the longest batch since the last query.
    longest: Arc<AtomicU64>,
    writing: JoinHandle<forebay::Result<()>>,
}

impl Writes {
    fn start(store: &Store) -> Self {
        let (store, must_end) = (store.clone(), Arc::new(AtomicBool::new(false)));
        let longest = Arc::new(AtomicU64::new(0));
        let writing = tokio::spawn({
            let (must_end, longest) = (Arc::clone(&must_end), Arc::clone(&longest));
            async move {
                for number in 0_u64.. {
                    if must_end.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut batch = store.batch();
                    for key in 1..=WRITTEN {
                        batch.add(store.upsert(-key).set("text", format!("{number}")))?;
                    }
                    let began = nanos();
                    let outcome = batch.send().await?;
                    longest.fetch_max(nanos() - began, Ordering::Relaxed);
                    outcome.results.into_iter().try_for_each(|result| result.map(drop))?;
                    tokio::time::sleep(WRITE_EVERY).await;
                }
                Ok(())
            }
        });
        Self { ended: must_end, longest, writing }
    }

    fn longest_ms(&self) -> f64 {
        self.longest.swap(0, Ordering::Relaxed) as f64 / 1e6
    }

    async fn end(self) -> Result<(), Failure> {
        self.ended.store(true, Ordering::Relaxed);
        Ok(self.writing.await??)
    }
}

const BEFORE: &str = "memory before, bytes";
const PEAK: &str = "memory at its peak, bytes";
const BOTH: &str = "memory with both versions, bytes";
const LEAVING: &str = "memory at its peak once the version before has gone, bytes";
const OWN_BEFORE: &str = "memory of the process's own before, bytes";
const OWN_PEAK: &str = "memory of the process's own at its peak, bytes";
const MAPPED_BEFORE: &str = "memory with mapped files before, bytes";
const MAPPED_PEAK: &str = "memory with mapped files at its peak, bytes";
const INDEX_BEFORE: &str = "index of the version before, bytes in use";
const INDEX: &str = "index of the new version next to it, bytes in use";
const RATE: &str = "rows/s";
const FLIP: &str = "version live to the reader's change, at most, ms";
const FAILED: &str = "reads that failed";
const READS_BEFORE: &str = "reads before";
const READS: &str = "reads around the change";
const HELD_UP_BEFORE: &str = "a partition applies nothing before, longest, ms";
const HELD_UP_PUSHED: &str = "a partition applies nothing while the push is made, longest, ms";
const HELD_UP: &str = "a partition applies nothing once the version before has gone, longest, ms";
const WRITE_BEFORE: &str = "a batch of writes before, longest, ms";
const WRITE_PUSHED: &str = "a batch of writes while the push is made, longest, ms";
const AGE: &str = "age of the reader once the version before has gone, highest, ms";
const P99: &str = "p99, us";
const LONGEST: &str = "longest, us";

fn values(shape: &DocumentShape, measured: &PushRound) -> Result<Values, String> {
    let [steady, pushed_samples, both_samples, leaving] = &measured.memory;
    let maximum = |samples: &[MemorySample], quantity: fn(&MemorySample) -> f64| {
        samples.iter().map(quantity).fold(0.0, f64::max)
    };
    let PushRound { before, around: reads_around, .. } = measured;
    let failed_reads = before.failed + measured.pushed.failed + measured.leaving.failed;
    let values = [
        (BEFORE.to_owned(), middle(steady, MemorySample::held)),
        (PEAK.to_owned(), maximum(pushed_samples, MemorySample::held)),
        (BOTH.to_owned(), middle(both_samples, MemorySample::held)),
        (LEAVING.to_owned(), maximum(leaving, MemorySample::held)),
        (OWN_BEFORE.to_owned(), middle(steady, |sample| sample.own as f64)),
        (OWN_PEAK.to_owned(), maximum(pushed_samples, |sample| sample.own as f64)),
        (MAPPED_BEFORE.to_owned(), middle(steady, MemorySample::all)),
        (MAPPED_PEAK.to_owned(), maximum(pushed_samples, MemorySample::all)),
        (INDEX_BEFORE.to_owned(), before.used),
        (INDEX.to_owned(), measured.pushed.used),
        (RATE.to_owned(), measured.rows_per_s),
        (FLIP.to_owned(), measured.flip_ms),
        (FAILED.to_owned(), failed_reads as f64),
        (format!("{READS_BEFORE}, {P99}"), before.p99_us),
        (format!("{READS}, {P99}"), reads_around.p99_us),
        (format!("{READS_BEFORE}, {LONGEST}"), before.longest_us),
        (format!("{READS}, {LONGEST}"), reads_around.longest_us),
        (HELD_UP_BEFORE.to_owned(), before.held_up_ms),
        (HELD_UP_PUSHED.to_owned(), measured.pushed.held_up_ms),
        (HELD_UP.to_owned(), measured.leaving.held_up_ms),
        (WRITE_BEFORE.to_owned(), measured.writes_ms[0]),
        (WRITE_PUSHED.to_owned(), measured.writes_ms[1]),
        (AGE.to_owned(), measured.leaving.age_ms),
    ];
    Ok(values.into_iter().map(|(label, value)| (shape.measure(&label), value)).collect())
}

/// Returns the median of the samples.
fn middle(samples: &[MemorySample], quantity: fn(&MemorySample) -> f64) -> f64 {
    let mut all: Vec<f64> = samples.iter().map(quantity).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn rows_of(shape: &DocumentShape, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let row_against = |unit, measure: &str, peer: &str| {
        let (measure, peer) = (shape.measure(measure), shape.measure(peer));
        Row::against(&measure, unit, rounds, &measure, &peer)
    };
    let row_alone = |unit, measure: &str| {
        let measure = shape.measure(measure);
        Row::alone(&measure, unit, rounds, &measure)
    };
    let (reads, before) =
        (|label| format!("{READS}, {label}"), |label| format!("{READS_BEFORE}, {label}"));
    Ok(vec![
        row_against(Unit::Bytes, PEAK, BEFORE)?,
        row_against(Unit::Bytes, BOTH, BEFORE)?,
        row_against(Unit::Bytes, LEAVING, BEFORE)?,
        row_against(Unit::Bytes, OWN_PEAK, OWN_BEFORE)?,
        row_against(Unit::Bytes, MAPPED_PEAK, MAPPED_BEFORE)?,
        row_against(Unit::Bytes, INDEX, INDEX_BEFORE)?,
        row_alone(Unit::PerSecond, RATE)?,
        row_alone(Unit::Milliseconds, FLIP)?,
        row_alone(Unit::Count, FAILED)?,
        row_against(Unit::Microseconds, &reads(P99), &before(P99))?,
        row_against(Unit::Microseconds, &reads(LONGEST), &before(LONGEST))?,
        row_against(Unit::Milliseconds, HELD_UP_PUSHED, HELD_UP_BEFORE)?,
        row_against(Unit::Milliseconds, HELD_UP, HELD_UP_BEFORE)?,
        row_against(Unit::Milliseconds, WRITE_PUSHED, WRITE_BEFORE)?,
        row_alone(Unit::Milliseconds, AGE)?,
    ])
}

#[cfg(test)]
mod tests {
    use forebay_bench_report::Goals;
    use forebay_testkit::tree;

    use super::*;

    #[test]
    fn goals_name_the_push_rows() {
        let root = tree::root_of(Goals::FILE).unwrap();
        let goals = Goals::load(&root).unwrap();
        let of_goals: Vec<_> = goals.of("push").iter().map(|g| g.measure.clone()).collect();
        let shapes = [350, 50].map(|text_bytes| DocumentShape { documents: 1, text_bytes });
        let of_shape = |shape: DocumentShape| [PEAK, FAILED].map(|label| shape.measure(label));
        assert_eq!(shapes.into_iter().flat_map(of_shape).collect::<Vec<_>>(), of_goals);
    }

    #[test]
    fn middle_of_the_samples_is_their_median() {
        let samples =
            [3, 9, 1].map(|own_bytes| MemorySample { own: own_bytes, ..MemorySample::default() });
        assert_eq!(middle(&samples, MemorySample::held), 3.0);
    }
}
