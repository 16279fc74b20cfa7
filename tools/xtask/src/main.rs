//! `cargo run -p xtask -- <verb>`: the program behind every target of the Makefile. This file only
//! reads the command line; the library does the work.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{
    bazel, bench, check, demo, fuzz, language, nightly, package, sanitize, schedules, stages, unit,
    workspace::Workspace,
};

#[derive(Parser)]
#[command(about = "Forebay's build tool; `make help` lists the everyday commands")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install the tools that the tree needs and check the versions of the toolchains
    Setup,
    /// Run all stages of the tests, or only the named ones
    Test {
        /// Run only this stage (may be repeated); `list` prints the stages
        #[arg(long)]
        only: Vec<String>,
    },
    /// Build and run the tests of a package, with the features of the whole tree
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
    /// Check format, lints, language, layers, tidiness, types and the Bazel graph, in seconds
    Check {
        /// Run only this rule (may be repeated); an unknown name prints the names of all rules
        #[arg(long)]
        only: Vec<String>,
    },
    /// Print the shares of sentences without a subject and of types with a bare name
    Language {
        /// Fail above the limits of 4 % and 1 %
        #[arg(long)]
        gate: bool,
        /// Print tools/xtask/language/exceptions.toml with all present findings on names
        #[arg(long, hide = true)]
        list: bool,
    },
    /// Run `bazel test //...` with this machine's Bazel, on the crates that cargo has built
    Bazel,
    /// Mutation-test BUILD files: plant each fault of tools/bazel/faults.toml in a copy of the tree
    BazelMutationTest {
        /// Plant only the fault of this name
        only: Option<String>,
    },
    /// Run the main job on a real data set (the demo reads LOG=kafka, PLANT=1 and SMALL=1)
    Demo,
    /// Run a benchmark, or all of them (QUICK=1 selects the form that takes minutes)
    Bench {
        /// The benchmark's name; without a name all run
        name: Option<String>,
    },
    /// Run every fuzz target for some seconds
    Fuzz {
        /// Seconds for each target
        #[arg(long, env = "FUZZ_SECONDS", default_value_t = fuzz::SECONDS_DEFAULT)]
        seconds: u64,
    },
    /// Test the index under AddressSanitizer and ThreadSanitizer
    Sanitize,
    /// Test the index's readers, writers and killed owners in many orders (SEED=9 SEEDS=1)
    Schedules,
    /// Run the simulator over many seeds
    Sim {
        /// Number of seeds
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
        Verb::Language { gate, list } => language::run(&workspace, gate, list),
        Verb::Bazel => bazel::run::run(&workspace),
        Verb::BazelMutationTest { only } => bazel::mutation_test::run(&workspace, only.as_deref()),
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
