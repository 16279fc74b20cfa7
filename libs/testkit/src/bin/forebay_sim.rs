//! `forebay-sim`: makes runs of the simulator, seed after seed, and says what fired.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use forebay_testkit::sim::{self, FAULT_NAMES};

/// Recovery paths that a set of runs must have gone through, beside every fault.
const RECOVERIES: [&str; 14] = [
    "node started again",
    "log stopped after a failed sync",
    "write of unknown outcome",
    "read after token",
    "local read",
    "append_refused",
    "append_in_doubt_appended",
    "append_in_doubt_lost",
    "append_in_doubt_late",
    "append_delayed",
    "answer_delayed",
    "read_refused",
    "read_delayed",
    "bounds_refused",
];
/// Runs below which a fault may not have fired by chance.
const SEEDS_THAT_FIRE_ALL: u64 = 20;

/// Runs the whole of Forebay in one thread, once per seed, with faults, against a checker.
#[derive(Parser)]
struct Options {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Print every event as it comes.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut fired = BTreeMap::<&str, u64>::new();
    let (mut ran, mut failed) = (0, 0);
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        ran += 1;
        let run = if options.trace { sim::run_printed } else { sim::run };
        match run(seed) {
            Ok(report) => report.fired.into_iter().for_each(|(what, times)| {
                *fired.entry(what).or_default() += times;
            }),
            Err(failure) => {
                failed += 1;
                failure.last_events.iter().for_each(|event| println!("{event}"));
                println!("seed {seed}: {}", failure.what);
                println!("replay: make sim SEED={seed} SEEDS=1");
            }
        }
    }
    for (what, times) in &fired {
        println!("fired {times:>9}  {what}");
    }
    let silent = FAULT_NAMES.iter().chain(&RECOVERIES).filter(|what| !fired.contains_key(*what));
    let silent: Vec<_> = silent.copied().collect();
    let must_fire = options.seeds >= SEEDS_THAT_FIRE_ALL;
    if must_fire {
        silent.iter().for_each(|what| println!("never fired: {what}"));
    }
    let silent = if must_fire { silent.len() } else { 0 };
    println!("suite sim/seeds: ran {ran}, failed {failed}");
    if must_fire {
        let all = FAULT_NAMES.len() + RECOVERIES.len();
        println!("suite sim/coverage: ran {all}, failed {silent}");
    }
    if failed == 0 && silent == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
