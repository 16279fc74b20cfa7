//! `forebay-sim`: executes runs of the simulator, seed by seed, and reports the faults and recovery
//! paths that fired.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use forebay_simulator::{FAULT_NAMES, PLANT_SEEDS_MAX, Plant, RECOVERIES};

/// Number of runs below which a fault may not have fired by chance.
const SEEDS_THAT_FIRE_ALL: u64 = 100;

/// Runs the whole of Forebay in one thread, once per seed, with faults, against a checker.
#[derive(Parser)]
struct Options {
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Number of parallel runs, each on a thread of its own [default: one per core].
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Print the digest of each run; runs of the same seed by the same build have equal digests.
    #[arg(long)]
    digests: bool,
    /// Print every event, one run after the other.
    #[arg(long)]
    trace: bool,
    /// Run with each of the planted bugs, too, and fail if one of them is not caught.
    #[arg(long)]
    plants: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = if options.trace { NonZeroUsize::MIN } else { options.jobs.unwrap_or_else(cores) };
    let mut is_green = make_runs(&options, jobs);
    if options.plants {
        is_green &= catch_plants(jobs);
    }
    if is_green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Calls `work` with each number below `count` once, on this many threads.
fn on_threads(jobs: NonZeroUsize, count: u64, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

/// Executes all runs; returns whether all of them kept every rule and covered every path.
fn make_runs(options: &Options, jobs: NonZeroUsize) -> bool {
    let event_counts = Mutex::new(BTreeMap::<&str, u64>::new());
    let failures = AtomicU64::new(0);
    on_threads(jobs, options.seeds, |number| {
        let seed = options.seed.saturating_add(number);
        let run =
            if options.trace { forebay_simulator::run_printed } else { forebay_simulator::run };
        match run(seed) {
            Ok(report) => {
                if options.digests {
                    println!("digest {:016x} of seed {seed}", report.digest);
                }
                let mut event_counts =
                    event_counts.lock().expect("no thread panics while it counts");
                for (event, times) in report.event_counts {
                    *event_counts.entry(event).or_default() += times;
                }
            }
            Err(failure) => {
                failures.fetch_add(1, Ordering::Relaxed);
                let mut lines = failure.last_events;
                lines.push(format!("seed {seed}: {}", failure.broken_rule));
                lines.push(format!("replay: make sim SEED={seed} SEEDS=1"));
                println!("{}", lines.join("\n"));
            }
        }
    });
    let (event_counts, failures) =
        (event_counts.into_inner().unwrap_or_default(), failures.into_inner());
    for (event, times) in &event_counts {
        println!("fired {times:>9}  {event}");
    }
    println!("suite sim/seeds: ran {}, failed {failures}", options.seeds);
    if options.seeds < SEEDS_THAT_FIRE_ALL {
        return failures == 0;
    }
    let all: Vec<_> = FAULT_NAMES.iter().chain(&RECOVERIES).collect();
    let silent_events: Vec<_> =
        all.iter().filter(|event| !event_counts.contains_key(**event)).collect();
    silent_events.iter().for_each(|event| println!("never fired: {event}"));
    println!("suite sim/coverage: ran {}, failed {}", all.len(), silent_events.len());
    failures == 0 && silent_events.is_empty()
}

/// Executes runs with each of the planted bugs until one run catches it; returns whether all bugs
/// were caught.
fn catch_plants(jobs: NonZeroUsize) -> bool {
    let survivors = AtomicU64::new(0);
    on_threads(jobs, Plant::ALL.len() as u64, |number| {
        let plant = Plant::ALL[number as usize];
        let failure = (1..=PLANT_SEEDS_MAX)
            .find_map(|seed| forebay_simulator::run_planted(seed, plant).err());
        match failure {
            Some(failure) => {
                println!(
                    "plant {plant:?}: caught by seed {}: {}",
                    failure.seed, failure.broken_rule
                );
            }
            None => {
                survivors.fetch_add(1, Ordering::Relaxed);
                println!("plant {plant:?}: not caught by {PLANT_SEEDS_MAX} seeds");
            }
        }
    });
    let survivors = survivors.into_inner();
    println!("suite sim/plants: ran {}, failed {survivors}", Plant::ALL.len());
    survivors == 0
}
