//! `xtask sanitize`, a part of `make nightly`: the index's tests under AddressSanitizer and
//! ThreadSanitizer, on the stable toolchain. The index is the only crate with its own rules for
//! memory that threads share, so only the index is built again for each sanitizer, into folders
//! that no other build uses.
//!
//! A sanitizer that detects nothing passes everything. Each sanitizer must therefore find a planted
//! fault: the index built with `--cfg forebay_planted="..."` reuses memory under a reader, or
//! publishes a slot before its record.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::parallel::run_parallel;
use crate::process::{self, Outcome};
use crate::suite::Suite;
use crate::suite_output::show;
use crate::unit;
use crate::workspace::Workspace;

const PACKAGE: &str = "forebay-index";
/// Tests of the index that the sanitizers run: all but the schedules, which run on one thread.
const TESTS: &str = "--lib --test index --no-run";
/// Random histories of the model; a sanitizer slows each down many times.
const MODEL_CASES: &str = "32";
/// Bound of the test that executes a planted fault.
const PLANTED_BOUND: Duration = Duration::from_secs(5 * 60);

/// A sanitizer, and the fault that it must find.
struct Sanitizer {
    /// The name that rustc uses.
    name: &'static str,
    /// Flags of rustc in addition to `-Zsanitizer`.
    flags: &'static str,
    /// The environment variable for options, and the options.
    options: (&'static str, &'static str),
    planted: &'static str,
    /// The test that executes the planted fault.
    test: &'static str,
    /// The sanitizer's report of the planted fault.
    finding: &'static str,
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        flags: "",
        options: ("ASAN_OPTIONS", "detect_stack_use_after_return=1"),
        planted: "use-after-free",
        test: "table::tests::guard_pins_only_its_retired_memory",
        finding: "ERROR: AddressSanitizer: use-after-poison",
    },
    Sanitizer {
        name: "thread",
        // The standard library comes without the sanitizer.
        flags: "-Cunsafe-allow-abi-mismatch=sanitizer",
        // Paths are relative to the crate, where tests run.
        options: (
            "TSAN_OPTIONS",
            "suppressions=tests/thread-sanitizer.supp:allow_addr2line=1:print_suppressions=0:\
                halt_on_error=1",
        ),
        planted: "race",
        test: "table::tests::readers_during_growth_and_reclaim_miss_no_document",
        finding: "WARNING: ThreadSanitizer: data race",
    },
];

/// Runs both sanitizers on this terminal.
///
/// # Errors
/// Returns an error if a build fails, a sanitizer reports a fault, or misses a planted one.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let failures = suites(workspace)?.iter().filter(|suite| !suite.passed()).count();
    if failures == 0 {
        Ok(())
    } else {
        Err(format!("sanitize: {failures} suites failed; see above"))
    }
}

/// Runs both sanitizers side by side, because each runs one test at a time.
///
/// # Errors
/// Returns an error if a build fails.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    run_parallel(
        &SANITIZERS,
        |sanitizer| suites_of(workspace, sanitizer),
        |_, ran| {
            suites.extend(ran?);
            Ok(())
        },
    )?;
    Ok(suites)
}

fn suites_of(workspace: &Workspace, sanitizer: &Sanitizer) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    let logs = logs(workspace)?;
    let mut build = sanitizer.cargo(workspace, "test")?;
    let log = logs.join(format!("{}-build.json", sanitizer.name));
    for binary in unit::build_binaries(build.args(TESTS.split(' ')), &log)? {
        let name = format!("{PACKAGE}/{}-{}", binary.what, sanitizer.name);
        let mut command = binary.command();
        sanitizer.prepare(&mut command);
        let (suite, output) = unit::run_one(name, &logs, &mut command)?;
        show(&suite, &output);
        suites.push(suite);
    }
    suites.push(planted(workspace, sanitizer)?);
    Ok(suites)
}

fn logs(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target()?.join("xtask/sanitize"))
}

/// Plants the sanitizer's fault and checks that the sanitizer finds it.
fn planted(workspace: &Workspace, sanitizer: &Sanitizer) -> Result<Suite, String> {
    let logs = logs(workspace)?;
    let name = format!("{}-{}", sanitizer.name, sanitizer.planted);
    let mut build = sanitizer.cargo(workspace, "rustc")?;
    build.args(["--lib", "--profile", "test"]);
    // The flag is for the index alone, so the dependencies of the previous build are reused.
    let flag = format!("forebay_planted=\"{}\"", sanitizer.planted);
    let binaries =
        unit::built_with(&mut build, &["--cfg", &flag], &logs.join(format!("{name}.json")))?;
    let binary = binaries.first().ok_or_else(|| format!("{name}: no test binary"))?;
    let mut command = binary.command();
    sanitizer.prepare(&mut command);
    command.args(["--exact", sanitizer.test]);
    let log = logs.join(format!("{name}.log"));
    let outcome = process::capture(&mut command, &log, PLANTED_BOUND)?;
    let suite = Suite::single(&format!("sanitize/{name}"), sanitizer.verdict(&outcome));
    show(&suite, &outcome.output);
    Ok(suite)
}

impl Sanitizer {
    /// Returns cargo with this sanitizer on. The sanitizer instruments code for a named target and
    /// no code that only runs in the build, so the command names the target.
    fn cargo(&self, workspace: &Workspace, verb: &str) -> Result<Command, String> {
        let Self { name, flags, .. } = self;
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let form = [verb, "--package", PACKAGE, "--locked", "--target", &target];
        let mut command = workspace.cargo(&form);
        let flags = format!("-Zsanitizer={name} --cfg forebay_sanitize=\"{name}\" {flags}");
        // The switch is unstable, but the stable compiler comes with the sanitizers' runtimes.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags.trim());
        command.env("CARGO_TARGET_DIR", self.folder(&workspace.target()?));
        Ok(command)
    }

    /// Returns the folder of this sanitizer's build, in cargo's target folder.
    fn folder(&self, target: &Path) -> PathBuf {
        target.join("sanitize").join(self.name)
    }

    /// Sets the sanitizer's options for the run of a test binary.
    fn prepare(&self, command: &mut Command) {
        let (variable, options) = self.options;
        command.env(variable, options).env("PROPTEST_CASES", MODEL_CASES);
        // Tests run one at a time: an index may reuse the addresses of an earlier test's index, and
        // the sanitizers do not notice that the earlier memory was unmapped.
        command.arg("--test-threads=1");
    }

    fn verdict(&self, outcome: &Outcome) -> Result<(), String> {
        match (outcome.ok, outcome.output.contains(self.finding)) {
            (false, true) => Ok(()),
            (true, true) => {
                Err("the sanitizer reported the planted fault but the run did not fail".to_owned())
            }
            (_, false) => Err(format!(
                "{} did not find the planted {}; fix: build with the sanitizer ({})",
                self.name, self.planted, outcome.ending
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_fault_must_be_found_and_fail_the_run() {
        let outcome = |ok, output: &str| {
            let (ending, output) = ("exit code 66".to_owned(), output.to_owned());
            Outcome { ok, timed_out: false, ending, output }
        };
        for sanitizer in SANITIZERS {
            let found = format!("noise\n==1==\n{} (pid=1)\n", sanitizer.finding);
            assert_eq!(sanitizer.verdict(&outcome(false, &found)), Ok(()));
            assert!(sanitizer.verdict(&outcome(true, &found)).is_err());
            for silent in [outcome(true, "ok"), outcome(false, "a test failed by itself")] {
                let problem = sanitizer.verdict(&silent).unwrap_err();
                assert!(problem.contains(sanitizer.planted), "{problem}");
            }
        }
    }

    #[test]
    fn each_sanitizer_builds_in_its_own_folder() {
        let target = Path::new("target");
        let folders = SANITIZERS.map(|sanitizer| sanitizer.folder(target));
        assert_ne!(folders[0], folders[1]);
        assert!(folders.iter().all(|folder| folder.starts_with(target) && folder != target));
    }
}
