//! `cargo run -p xtask -- <verb>`: the one entry to everything the Makefile offers. This file only
//! reads the command line; the work is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{
    bazel, bench, check, demo, fuzz, language, layers, nightly, package, sanitize, schedules,
    stages, tidy, unit, workspace::Workspace,
};

#[derive(Parser)]
#[command(about = "Forebay's workshop; `make help` lists the everyday verbs")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what the tree needs and check the versions of the toolchains
    Setup,
    /// Run every stage of the tests, or only those named
    Test {
        /// Run only this stage (may be repeated); `list` prints the stages
        #[arg(long)]
        only: Vec<String>,
    },
    /// Build and run the tests of one package, with the features of the whole tree
    TestPackage {
        /// The package, such as forebay-writer-service
        package: String,
    },
    /// Run the long forms of the tests and the measures of the build (ONLY=tests runs one part)
    Nightly {
        /// Run only the part of this name
        #[arg(long, env = "ONLY")]
        only: Option<String>,
    },
    /// Build the release package, with RocksDB compiled in
    Package,
    /// Format, lints, layers, tidiness, types, the Bazel graph: seconds
    Check {
        /// Run only this rule (may be repeated); a name that is none prints those there are
        #[arg(long)]
        only: Vec<String>,
    },
    /// Hold the crates against the layer table of ARCHITECTURE.md
    Layers,
    /// Hold the sources against the house rules
    Tidy,
    /// Measure the sentences without a subject and the types with a bare name
    Language {
        /// Fail above the limits of 4 % and 1 %
        #[arg(long)]
        gate: bool,
        /// Print tools/xtask/language/exceptions.toml with all present findings on names
        #[arg(long, hide = true)]
        list: bool,
    },
    /// `bazel test //...` by this machine's Bazel, on what cargo has built
    Bazel,
    /// Plant every fault of tools/bazel/faults.toml in a copy of the tree, and see each one caught
    BazelPlant {
        /// Plant only the fault of this name
        only: Option<String>,
    },
    /// The main job on a real data set (LOG=kafka, PLANT=1, SMALL=1 are read by the demo itself)
    Demo,
    /// Run one benchmark, or all of them (QUICK=1 for the minutes-long form)
    Bench {
        /// The benchmark's name, or none for all
        name: Option<String>,
    },
    /// Run every fuzz target for a while
    Fuzz {
        /// How many seconds for each target
        #[arg(long, env = "FUZZ_SECONDS", default_value_t = fuzz::SECONDS_DEFAULT)]
        seconds: u64,
    },
    /// The index under AddressSanitizer and ThreadSanitizer
    Sanitize,
    /// The index's readers, writers and killed holders in many orders (SEED=9 SEEDS=1 replays one)
    Schedules,
    /// Run the simulator over many seeds
    Sim {
        /// How many seeds
        #[arg(long, env = "SEEDS", default_value_t = demo::SIM_SEEDS_DEFAULT)]
        seeds: u64,
        /// The first seed; a failure prints the value that replays it
        #[arg(long, env = "SEED", default_value_t = 1)]
        seed: u64,
    },
    /// Build and start `forebayd dev` in the foreground
    Dev,
}

fn main() -> ExitCode {
    let workspace = match Workspace::here() {
        Ok(workspace) => workspace,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let result = match Arguments::parse().verb {
        Verb::Setup => demo::setup(&workspace),
        Verb::Test { only } => stages::run(&workspace, &only),
        Verb::TestPackage { package } => unit::run_package(&workspace, &package),
        Verb::Nightly { only } => nightly::run(&workspace, only.as_deref()),
        Verb::Package => package::run(&workspace),
        Verb::Check { only } => check::run(&workspace, &only),
        Verb::Layers => layers::run(&workspace),
        Verb::Tidy => tidy::run(&workspace),
        Verb::Language { gate, list } => language::run(&workspace, gate, list),
        Verb::Bazel => bazel::run::run(&workspace),
        Verb::BazelPlant { only } => bazel::plant::run(&workspace, only.as_deref()),
        Verb::Demo => demo::demo(&workspace),
        Verb::Bench { name } => bench::run(&workspace, name.as_deref()),
        Verb::Fuzz { seconds } => fuzz::run(&workspace, seconds),
        Verb::Sanitize => sanitize::run(&workspace),
        Verb::Schedules => schedules::run(&workspace),
        Verb::Sim { seeds, seed } => demo::sim(&workspace, seed, seeds),
        Verb::Dev => demo::dev(&workspace),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
