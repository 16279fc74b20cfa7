//! The simulator: the real client, services, log and readers on one thread with a paused clock,
//! over models of disks and a network that break by the seed.
//!
//! [`run`] executes one run. Three applications and an administrator write one store of three
//! partitions: upserts, increments, puts, deletes, batches, conditions, times to live, races, and a
//! field that is added and dropped. Three readers follow the store: a plain one, one with a filter,
//! and one that resumes from checkpoints on a disk of its own. The faults of [`FAULT_NAMES`] fire
//! during the run.
//!
//! The checks during a run (`expected`):
//!
//! - a read shows a state that its key had, and never an earlier state than the same reader has
//!   shown;
//! - a read after a token or a barrier shows exactly the newest state;
//! - a read with an age bound shows no state that was replaced before the bound;
//! - a reader never says *absent* of a document that a caught-up reader must know;
//! - conditions have the right outcome;
//! - positions never fall.
//!
//! At the end every reader equals the naive [model](forebay_testkit::model) of the log, and so does
//! a fresh reader after a last power cut (`oracle`). Some runs then lose a partition's log
//! altogether (`lost_log`).
//!
//! The checks are checked as well: [`Plant`] names bugs, each planted by a wrapper at a seam of the
//! product, and the checker must catch each within [`PLANT_SEEDS_MAX`] seeds. A new fault needs a
//! name and a match arm in `faults`; a new plant needs a name in `plant` and the code that acts as
//! the bug; a path that must fire at least once in a set of runs is listed in [`RECOVERIES`].

mod acknowledgement;
mod admin;
mod clock;
mod expected_state;
mod faults;
mod lost_log;
pub mod net;
mod oracle;
mod plant;
mod readers;
mod records;
mod store;
mod trace;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_log::disk::sim::Loss;

use self::expected_state::{ExpectedState, ShownHistory};
use self::readers::{ROLES, Role, SimReader};
use self::records::RecordCounter;
use self::trace::Trace;
use self::workload::{Application, WorkloadState, lock};
use self::world::World;

pub use self::faults::FAULT_NAMES;
pub use self::plant::Plant;

/// Operations of one run, over all applications and the administrator.
pub const OPERATIONS: usize = 3 * APPLICATION_OPERATIONS + ADMIN_OPERATIONS;
/// Minimum number of faults of a run.
pub const FAULTS_MIN: u64 = 3;
/// Number of seeds within which each planted bug must be caught.
pub const PLANT_SEEDS_MAX: u64 = 200;
const APPLICATIONS: u64 = 3;
const APPLICATION_OPERATIONS: usize = 164;
const ADMIN_OPERATIONS: usize = 20;
/// Longest run, in simulated time; a longer run hangs.
const SIMULATED_MAX: Duration = Duration::from_secs(3_600);
/// Fraction of runs that lose a log at their end: one in this many.
const LOST_LOG_EVERY: u64 = 4;

const _: () = assert!(OPERATIONS >= 500);

/// Recovery paths and kinds of reads that a set of runs must cover, in addition to every fault.
pub const RECOVERIES: [&str; 49] = [
    "append_delayed",
    "append_in_doubt_appended",
    "append_in_doubt_late",
    "append_in_doubt_lost",
    "append_refused",
    "answer_delayed",
    "alteration not certain",
    "barrier refused",
    "batch accepted in part",
    "bounds_refused",
    "checkpoint block repaired",
    "checkpoint not written",
    "checkpoint restored",
    "checkpoint written",
    "condition failed",
    "connection broken",
    "connection refused",
    "copy built anew",
    "damaged checkpoint ignored",
    "duplicate skipped",
    "field added and dropped",
    "file left torn by a power cut",
    "local read",
    "log lost, token lost",
    "log replaced or cut under a reader",
    "log stopped for good",
    "node started after a failed sync",
    "node started again",
    "partition not followed",
    "race for a key",
    "read after token",
    "read of the latest",
    "read refused as stale",
    "read refused while bootstrapping",
    "read that did not come in time",
    "read within its age",
    "read_delayed",
    "read_refused",
    "reader opened again",
    "sync failed",
    "tail held up",
    "tail held up and gone on",
    "torn tail cut",
    "transfer stalled",
    "write of unknown outcome",
    "write pushed back",
    "write resolved by its retry",
    "write to a full disk",
    "write unavailable",
];

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Digest of the events; equal for two runs of one seed.
    pub digest: u64,
    /// Number of times that each fault and recovery path fired.
    pub event_counts: BTreeMap<&'static str, u64>,
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// Rule that the run broke.
    pub broken_rule: String,
    /// Last events before the failure.
    pub last_events: Vec<String>,
}

/// Executes one run on this thread.
///
/// # Errors
/// Returns the broken rule, with the events before it.
pub fn run(seed: u64) -> Result<Report, Box<Failure>> {
    run_with(seed, None, Trace::default())
}

/// Executes one run and prints each event.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn run_printed(seed: u64) -> Result<Report, Box<Failure>> {
    run_with(seed, None, Trace::printed())
}

/// Executes one run of code with a planted bug; a useful checker fails some of these runs.
///
/// # Errors
/// Returns the errors of [`run`]: the bug was caught.
pub fn run_planted(seed: u64, plant: Plant) -> Result<Report, Box<Failure>> {
    run_with(seed, Some(plant), Trace::default())
}

fn run_with(seed: u64, plant: Option<Plant>, trace: Trace) -> Result<Report, Box<Failure>> {
    let counter = RecordCounter::new(trace.clone());
    tracing::subscriber::with_default(counter, || run_recorded(seed, plant, trace))
}

fn run_recorded(seed: u64, plant: Option<Plant>, trace: Trace) -> Result<Report, Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()))
        .build()
        .expect("a runtime without I/O needs nothing that the host could refuse");
    runtime.block_on(async {
        let shared = Arc::new(WorkloadState {
            world: World::new(seed, plant, trace),
            expected: Mutex::new(ExpectedState::default()),
            readers: Mutex::new(Vec::new()),
            token: Mutex::new(None),
            races: Mutex::new(0),
        });
        let result = tokio::time::timeout(SIMULATED_MAX, simulate(&shared, seed)).await;
        lock(&shared.readers).iter().for_each(|reader| reader.count(&shared.world));
        shared.world.count_faults();
        let trace = &shared.world.trace;
        match result.unwrap_or_else(|_| Err("the run hangs".to_owned())) {
            Ok(()) => Ok(Report { seed, digest: trace.digest(), event_counts: trace.counts() }),
            Err(broken_rule) => {
                Err(Box::new(Failure { seed, broken_rule, last_events: trace.last_events() }))
            }
        }
    })
}

async fn simulate(shared: &Arc<WorkloadState>, seed: u64) -> Result<(), String> {
    let text = |error: forebay_core::Error| error.to_string();
    shared.world.start().await.map_err(text)?;
    let admin = shared.world.client().map_err(text)?;
    admin.create_store(&store::spec()).await.map_err(text)?;
    for role in ROLES {
        let reader = SimReader::open(&shared.world, role, ShownHistory::default()).await;
        lock(&shared.readers).push(reader.map_err(text)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let faults = tokio::spawn(faults::run(Arc::clone(shared), Arc::clone(&stop)));
    let mut applications = Vec::new();
    for number in 0..APPLICATIONS {
        let application = Application::new(Arc::clone(shared), seed, number)?;
        applications.push(tokio::spawn(application.run(APPLICATION_OPERATIONS)));
    }
    let administrator = Application::new(Arc::clone(shared), seed, APPLICATIONS)?;
    applications.push(tokio::spawn(administrator.administer(ADMIN_OPERATIONS)));
    for application in applications {
        application.await.map_err(|error| format!("an application panicked: {error}"))??;
    }
    stop.store(true, Ordering::SeqCst);
    let fault_count = faults.await.map_err(|error| format!("the faults panicked: {error}"))??;
    if fault_count < FAULTS_MIN {
        return Err(format!("only {fault_count} faults fired"));
    }
    check_end(shared).await?;
    if shared.world.draw(LOST_LOG_EVERY) == 0 {
        lost_log::run(shared).await?;
    }
    Ok(())
}

/// Checks the end of a run: every reader, and one that starts from nothing after a last power cut,
/// shows exactly the acknowledged state.
async fn check_end(shared: &WorkloadState) -> Result<(), String> {
    let text = |error: forebay_core::Error| error.to_string();
    let readers: Vec<_> =
        lock(&shared.readers).iter().map(|reader| reader.reader.clone()).collect();
    oracle::check(shared, &readers)
        .await
        .map_err(|violation| format!("at the end: {violation}"))?;
    shared.world.power_cut(Loss::Everything).await;
    shared.world.start().await.map_err(text)?;
    let last_reader = SimReader::open(&shared.world, Role::Plain, ShownHistory::default()).await;
    let last_reader = last_reader.map_err(text)?.reader;
    let checked = oracle::check(shared, &[last_reader]).await;
    checked.map_err(|violation| format!("after a last power cut: {violation}"))
}
