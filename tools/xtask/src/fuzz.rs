//! `xtask fuzz`: builds the fuzz targets of tools/fuzz with coverage, on the stable toolchain, and
//! runs each for a bounded time from its committed corpus. The first target is a canary that the
//! fuzzer must find, because a fuzzer without coverage would pass everything.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::parallel::run_parallel;
use crate::process::{self, Outcome};
use crate::suite::Suite;
use crate::suite_output::show;
use crate::workspace::{BUILD_BOUND, Workspace};

/// Seconds for each target by default.
pub const SECONDS_DEFAULT: u64 = 10;
const PACKAGE: &str = "forebay-fuzz";
const FOLDER: &str = "tools/fuzz";
/// Time that a target may take, in addition to its seconds, to load its corpus and to end.
const GRACE: Duration = Duration::from_secs(120);
const CANARY: &str = "canary";
const CANARY_FOUND: &str = "the canary is found";
const CANARY_SECONDS: u64 = 60;
/// Text that libFuzzer prints before the number of inputs that it ran.
const EXECUTED: &str = "stat::number_of_executed_units:";

/// Builds and runs every target for this many seconds, on this terminal.
///
/// # Errors
/// Returns an error if the build or a target fails.
pub fn run(workspace: &Workspace, seconds: u64) -> Result<(), String> {
    let failures = fuzz(workspace, seconds)?.iter().filter(|suite| !suite.passed()).count();
    if failures == 0 { Ok(()) } else { Err(format!("fuzz: {failures} targets failed; see above")) }
}

/// Runs every target for the default time, as a stage of the long tests.
///
/// # Errors
/// Returns an error if the build fails.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    fuzz(workspace, SECONDS_DEFAULT)
}

fn fuzz(workspace: &Workspace, seconds: u64) -> Result<Vec<Suite>, String> {
    let targets = targets(workspace)?;
    build(workspace, &targets)?;
    let mut suites = Vec::new();
    let run = |target: &String| {
        let is_canary = target == CANARY;
        let seconds = if is_canary { CANARY_SECONDS } else { seconds };
        let outcome = run_one(workspace, target, seconds)?;
        let result = if is_canary { canary_verdict(&outcome) } else { verdict(&outcome, target) };
        Ok((Suite::single(&format!("fuzz/{target}"), result), outcome.output))
    };
    run_parallel(&targets, run, |_, ran: Result<_, String>| {
        let (suite, output) = ran?;
        show(&suite, &output);
        suites.push(suite);
        Ok(())
    })?;
    Ok(suites)
}

/// Returns the targets' names, the canary first.
fn targets(workspace: &Workspace) -> Result<Vec<String>, String> {
    let packages = workspace.packages()?;
    let package = packages.into_iter().find(|package| package.name == PACKAGE);
    let binaries = package.ok_or_else(|| format!("no package {PACKAGE}"))?.binaries;
    let names = binaries.iter().filter_map(|name| name.strip_prefix("fuzz_"));
    let mut targets: Vec<String> = names.map(str::to_owned).collect();
    targets.sort_by_key(|name| (name != CANARY, name.clone()));
    if targets.first().is_some_and(|name| name == CANARY) && targets.len() > 1 {
        return Ok(targets);
    }
    Err(format!("{PACKAGE} has no fuzz targets or no canary: {targets:?}"))
}

/// Builds all targets at once. Dependencies are those of every other build; Forebay's crates are
/// compiled again, with coverage.
fn build(workspace: &Workspace, targets: &[String]) -> Result<(), String> {
    let form = ["build", "--workspace", "--locked", "--features", "forebay-fuzz/fuzz"];
    let mut command = workspace.cargo(&form);
    command.args(targets.iter().flat_map(|target| ["--bin".to_owned(), format!("fuzz_{target}")]));
    let wrapper = workspace.root.join(FOLDER).join("coverage.sh");
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    process::must(&mut command, BUILD_BOUND)
}

fn run_one(workspace: &Workspace, target: &str, seconds: u64) -> Result<Outcome, String> {
    let work = workspace.target()?.join("fuzz").join(target);
    let found = work.join("corpus");
    fs::create_dir_all(&found).map_err(|error| format!("make {}: {error}", found.display()))?;
    let mut command = Command::new(workspace.binary(&format!("fuzz_{target}"))?);
    command.current_dir(&workspace.root);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", work.display()));
    command.args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    // The canary starts from an empty corpus; the other targets start from their earlier findings.
    let checked_in = Path::new(FOLDER).join("corpus").join(target);
    if target != CANARY {
        command.arg(&found).arg(checked_in);
    }
    let log = workspace.target()?.join("xtask/fuzz").join(format!("{target}.log"));
    process::capture(&mut command, &log, Duration::from_secs(seconds) + GRACE)
}

fn verdict(outcome: &Outcome, target: &str) -> Result<(), String> {
    if !outcome.ok {
        let input = outcome.output.lines().find_map(|line| line.split_once("written to "));
        let input = input.map_or("the input above", |(_, path)| path);
        let replay = format!("replay: target/debug/fuzz_{target} {input}");
        let fix = format!("fix: correct the code, and add the input to {FOLDER}/corpus/{target}");
        return Err(format!("{}; {replay}; {fix}", outcome.ending));
    }
    let executed = outcome.output.lines().find_map(|line| line.strip_prefix(EXECUTED));
    match executed.and_then(|number| number.trim().parse::<u64>().ok()) {
        Some(1..) => Ok(()),
        _ => Err("the target ran no input".to_owned()),
    }
}

fn canary_verdict(outcome: &Outcome) -> Result<(), String> {
    if !outcome.ok && outcome.output.contains(CANARY_FOUND) {
        return Ok(());
    }
    Err(format!(
        "the fuzzer did not find the canary; fix: build with coverage ({})",
        outcome.ending
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ok: bool, output: &str) -> Outcome {
        let (ending, output) = ("exit code 77".to_owned(), output.to_owned());
        Outcome { ok, timed_out: false, ending, output }
    }

    #[test]
    fn fuzz_target_passes_if_it_ran_without_a_crash() {
        let ran = "INFO: Seed: 1\nstat::number_of_executed_units: 435\n";
        assert_eq!(verdict(&outcome(true, ran), "row_decode"), Ok(()));
        let idle = "stat::number_of_executed_units: 0\n";
        assert!(verdict(&outcome(true, idle), "row_decode").is_err());
        assert!(verdict(&outcome(true, ""), "row_decode").is_err());
    }

    #[test]
    fn crash_names_the_input_that_replays_it() {
        let crash = "panicked\nartifact_prefix='x'; Test unit written to target/fuzz/a/crash-1\n";
        let problem = verdict(&outcome(false, crash), "a").unwrap_err();
        assert!(problem.contains("target/debug/fuzz_a target/fuzz/a/crash-1"), "{problem}");
    }

    #[test]
    fn canary_that_survives_is_a_failure() {
        assert!(canary_verdict(&outcome(true, "Done 5 runs")).is_err());
        assert!(canary_verdict(&outcome(false, "ERROR: out-of-memory")).is_err());
        assert_eq!(canary_verdict(&outcome(false, "panicked: the canary is found")), Ok(()));
    }
}
