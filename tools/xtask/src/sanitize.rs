//! `xtask sanitize`: the index's tests under AddressSanitizer and ThreadSanitizer, on the stable
//! toolchain. Of all crates only the index shares memory between threads by rules of its own, so it
//! alone is built once more for each of the two, into folders that no other build uses.
//!
//! A sanitizer that sees nothing passes everything. So each must find a fault that is planted for
//! it: the index built with `--cfg forebay_planted="..."` reuses memory under a reader, or lets a
//! reader find a slot before the record behind it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::form::Form;
use crate::process::{self, Outcome};
use crate::side_by_side::side_by_side;
use crate::stages::show;
use crate::suite::Suite;
use crate::unit;
use crate::workspace::Workspace;

const PACKAGE: &str = "forebay-index";
/// The tests of the index that are run: all that readers and writers do at the same time, and all
/// that decides where bytes are.
const TESTS: &str =
    "--lib --test concurrent_reads --test image --test live --test mending --test model --no-run";
/// The part that the bounded form runs, under AddressSanitizer: it sees a change of memory layout.
const TESTS_BOUNDED: &str = "--lib --no-run";
/// Random histories of the model; each costs many times what it does without a sanitizer.
const MODEL_CASES: &str = "32";
/// Bound of the one test that runs into a planted fault.
const PLANTED_BOUND: Duration = Duration::from_secs(5 * 60);

/// A sanitizer, and the fault that it must find.
struct Sanitizer {
    /// As rustc calls it.
    name: &'static str,
    /// Flags of rustc beside `-Zsanitizer`.
    flags: &'static str,
    /// The environment variable with its options, and these.
    options: (&'static str, &'static str),
    planted: &'static str,
    /// The test that runs into the planted fault.
    test: &'static str,
    /// What it says then.
    finding: &'static str,
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        flags: "",
        options: ("ASAN_OPTIONS", "detect_stack_use_after_return=1"),
        planted: "use-after-free",
        test: "table::tests::a_guard_keeps_what_it_found_and_lets_go_of_nothing_else",
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
        test: "table::tests::readers_beside_growth_and_reclaim_miss_nothing",
        finding: "WARNING: ThreadSanitizer: data race",
    },
];

/// Runs everything, on this terminal.
///
/// # Errors
/// A build fails, a sanitizer finds something, or not what was planted.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let failed = suites(workspace, Form::Long)?.iter().filter(|suite| !suite.passed()).count();
    if failed == 0 { Ok(()) } else { Err(format!("sanitize: {failed} suites failed; see above")) }
}

/// The stage of the tests, or everything: both sanitizers side by side, since each runs one test at
/// a time.
///
/// # Errors
/// A build fails.
pub fn suites(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    let (sanitizers, tests) = match form {
        Form::Bounded => (&SANITIZERS[..1], TESTS_BOUNDED),
        Form::Long => (&SANITIZERS[..], TESTS),
    };
    side_by_side(
        sanitizers,
        |sanitizer| suites_of(workspace, sanitizer, tests),
        |_, ran| {
            suites.extend(ran?);
            Ok(())
        },
    )?;
    Ok(suites)
}

fn suites_of(
    workspace: &Workspace,
    sanitizer: &Sanitizer,
    tests: &str,
) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    let logs = logs(workspace)?;
    let mut build = sanitizer.cargo(workspace, "test")?;
    let log = logs.join(format!("{}-build.json", sanitizer.name));
    for binary in unit::built(build.args(tests.split(' ')), &log)? {
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

/// Plants the sanitizer's fault and sees that it is found.
fn planted(workspace: &Workspace, sanitizer: &Sanitizer) -> Result<Suite, String> {
    let logs = logs(workspace)?;
    let name = format!("{}-{}", sanitizer.name, sanitizer.planted);
    let mut build = sanitizer.cargo(workspace, "rustc")?;
    build.args(["--lib", "--profile", "test"]);
    // A flag of the index alone: what it depends on is that of the build before.
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
    /// Cargo with this sanitizer on. It instruments what runs on the target and not what only runs
    /// in the build, so the target must be named.
    fn cargo(&self, workspace: &Workspace, verb: &str) -> Result<Command, String> {
        let Self { name, flags, .. } = self;
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let form = [verb, "--package", PACKAGE, "--locked", "--target", &target];
        let mut command = workspace.cargo(&form);
        let flags = format!("-Zsanitizer={name} --cfg forebay_sanitize=\"{name}\" {flags}");
        // The switch is not stable, but the compiler is: the sanitizers' runtimes come with it.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags.trim());
        command.env("CARGO_TARGET_DIR", self.folder(&workspace.target()?));
        Ok(command)
    }

    /// Where it builds, in cargo's target folder.
    fn folder(&self, target: &Path) -> PathBuf {
        target.join("sanitize").join(self.name)
    }

    /// Makes a test binary's run one that this sanitizer understands.
    fn prepare(&self, command: &mut Command) {
        let (variable, options) = self.options;
        command.env(variable, options).env("PROPTEST_CASES", MODEL_CASES);
        // One test at a time: an index's memory may lie where that of an earlier test lay, and the
        // sanitizers do not see it go.
        command.arg("--test-threads=1");
    }

    fn verdict(&self, outcome: &Outcome) -> Result<(), String> {
        match (outcome.ok, outcome.output.contains(self.finding)) {
            (false, true) => Ok(()),
            (true, true) => Err("the finding did not fail the run".to_owned()),
            (_, false) => Err(format!(
                "{} did not find the planted {}: is it on? ({})",
                self.name, self.planted, outcome.ending
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_fault_must_be_found_and_fail_the_run() {
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
    fn each_sanitizer_builds_apart_from_everything_else() {
        let target = Path::new("target");
        let folders = SANITIZERS.map(|sanitizer| sanitizer.folder(target));
        assert_ne!(folders[0], folders[1]);
        assert!(folders.iter().all(|folder| folder.starts_with(target) && folder != target));
    }
}
