//! The simulator: the real client, services, log and reader on one thread, a paused clock, a model
//! of a disk and a network that breaks by the seed.
//!
//! [`run`] makes one run. Whatever it checks is in `expected`: nothing acknowledged is lost,
//! nothing is applied twice, no reader turns back, a read after a token shows the write.

mod clock;
mod expected;
mod faults;
pub mod net;
mod readers;
mod trace;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_log::disk::sim::Loss;

use self::expected::Expected;
use self::readers::{SimReader, await_ready, read_all};
use self::trace::Trace;
use self::workload::{Application, Shared, lock};
use self::world::World;

pub use self::faults::FAULT_NAMES;
pub use self::world::Plant;

/// Operations of one run, over all applications.
pub const OPERATIONS: usize = 510;
/// Faults that a run has at least.
pub const FAULTS_MIN: u64 = 3;
const APPLICATIONS: u64 = 3;
const READERS: usize = 2;
/// Longest run, in simulated time; a run that takes longer hangs.
const SIMULATED_MAX: Duration = Duration::from_secs(3_600);

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The same for two runs of one seed.
    pub digest: u64,
    /// How often each fault and recovery path fired.
    pub fired: BTreeMap<&'static str, u64>,
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The rule that it broke.
    pub what: String,
    /// What happened before.
    pub last_events: Vec<String>,
}

/// Makes one run on this thread.
///
/// # Errors
/// What broke a rule, with the events before it.
pub fn run(seed: u64) -> Result<Report, Box<Failure>> {
    run_with(seed, None, Trace::default())
}

/// Makes one run and prints each event as it comes.
///
/// # Errors
/// As [`run`].
pub fn run_printed(seed: u64) -> Result<Report, Box<Failure>> {
    run_with(seed, None, Trace::printed())
}

/// Makes one run of code with a bug; a checker worth its name fails some of them.
///
/// # Errors
/// As [`run`]: the bug was caught.
pub fn run_planted(seed: u64, plant: Plant) -> Result<Report, Box<Failure>> {
    run_with(seed, Some(plant), Trace::default())
}

fn run_with(seed: u64, plant: Option<Plant>, trace: Trace) -> Result<Report, Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()))
        .build()
        .expect("a runtime without I/O needs nothing that the host could refuse");
    runtime.block_on(async {
        let shared = Arc::new(Shared {
            world: World::new(seed, plant, trace),
            expected: Mutex::new(Expected::default()),
            readers: Mutex::new(Vec::new()),
            token: Mutex::new(None),
        });
        let ran = tokio::time::timeout(SIMULATED_MAX, simulate(&shared, seed)).await;
        let trace = &shared.world.trace;
        match ran.unwrap_or_else(|_| Err("the run hangs".to_owned())) {
            Ok(()) => Ok(Report { seed, digest: trace.digest(), fired: trace.counts() }),
            Err(what) => Err(Box::new(Failure { seed, what, last_events: trace.last_events() })),
        }
    })
}

async fn simulate(shared: &Arc<Shared>, seed: u64) -> Result<(), String> {
    let text = |error: forebay_core::Error| error.to_string();
    shared.world.start().await.map_err(text)?;
    let admin = shared.world.client().map_err(text)?;
    admin.create_store(&readers::spec()).await.map_err(text)?;
    for _ in 0..READERS {
        let reader = SimReader::open(&shared.world).await.map_err(text)?;
        lock(&shared.readers).push(reader);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let faults = tokio::spawn(faults::run(Arc::clone(shared), Arc::clone(&stop)));
    let mut applications = Vec::new();
    for number in 0..APPLICATIONS {
        let application = Application::new(Arc::clone(shared), seed, number)?;
        let operations = OPERATIONS / APPLICATIONS as usize;
        applications.push(tokio::spawn(application.run(operations)));
    }
    for application in applications {
        application.await.map_err(|error| format!("an application panicked: {error}"))??;
    }
    stop.store(true, Ordering::SeqCst);
    let fired = faults.await.map_err(|error| format!("the faults panicked: {error}"))??;
    if fired < FAULTS_MIN {
        return Err(format!("only {fired} faults fired"));
    }
    check_end(shared).await
}

/// At the end every reader, and one that starts from nothing after a last power cut, shows exactly
/// what was acknowledged.
async fn check_end(shared: &Shared) -> Result<(), String> {
    let Some(token) = lock(&shared.token).clone() else {
        return Err("nothing was written".to_owned());
    };
    let mut readers: Vec<_> =
        lock(&shared.readers).iter().map(|reader| reader.reader.clone()).collect();
    for round in ["at the end", "after a last power cut"] {
        for reader in &readers {
            await_ready(&shared.world, reader).await.map_err(|error| error.to_string())?;
            let applied = reader.wait_token(&token, Duration::from_secs(60)).await;
            applied.map_err(|error| format!("{round}: {error}"))?;
            let found = read_all(reader).map_err(|error| format!("{round}: {error}"))?;
            let checked = lock(&shared.expected).check_all(&found);
            checked.map_err(|what| format!("{round}: {what}"))?;
        }
        shared.world.power_cut(Loss::Everything).await;
        shared.world.start().await.map_err(|error| error.to_string())?;
        let fresh = SimReader::open(&shared.world).await.map_err(|error| error.to_string())?;
        readers = vec![fresh.reader];
    }
    Ok(())
}
