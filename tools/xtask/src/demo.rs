//! The verbs that start Forebay: set-up, the demo, the simulator and `forebayd dev`. The demo and
//! the simulator are separate programs. This file only knows their names, switches and bounds, and
//! converts their reports into suites.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::java;
use crate::process::{self, Outcome};
use crate::stage::Form;
use crate::suite::{Suite, parse_suite_lines};
use crate::suite_output::show;
use crate::workspace::Workspace;

/// Seeds of `make sim` by default.
pub const SIM_SEEDS_DEFAULT: u64 = 1000;
/// Seeds of the simulator in each form of its stage.
const SIM_SEEDS_BOUNDED: u64 = 300;
const SIM_SEEDS_LONG: u64 = 3_000;
/// The program that runs all services.
const SERVER: &str = "forebayd";
/// The simulator: `forebay-sim --seed FIRST --seeds COUNT` prints its suites in the form of
/// [`Suite`] and, on a failure, the command that replays it. With `--plants` the simulator also
/// proves that it catches planted bugs.
const SIM: &str = "forebay-sim";
/// The demo's script, run by the Python of .venv. FOREBAY_BIN names the folder of programs. SMALL=1
/// selects a part of the data, PLANT=1 a wrong document that the oracle must find, LOG=kafka a real
/// broker. The last line of a successful demo is [`DEMO_OK`].
const DEMO: &str = "tools/demo/demo.py";
const DEMO_OK: &str = "demo: OK";
/// The oracle's line about a planted document. A demo that fails without it proves nothing.
const DEMO_CAUGHT: &str = "oracle: mismatch";

const SETUP_BOUND: Duration = Duration::from_secs(40 * 60);
const DEMO_BOUND: Duration = Duration::from_secs(15 * 60);
const DEMO_SMALL_BOUND: Duration = Duration::from_secs(5 * 60);
const SIM_TEST_BOUND: Duration = Duration::from_secs(10 * 60);
const SIM_LONG_BOUND: Duration = Duration::from_secs(40 * 60);
/// Bound of `make sim`, generous because a user may run any number of seeds.
const SIM_BOUND: Duration = Duration::from_secs(12 * 60 * 60);

/// Runs the set-up script for everything that the tests need.
///
/// # Errors
/// Returns an error if the script fails; the script prints the fix.
pub fn setup(workspace: &Workspace) -> Result<(), String> {
    process::must(&mut setup_command(workspace), SETUP_BOUND)
}

fn setup_command(workspace: &Workspace) -> Command {
    let mut command = Command::new("sh");
    command.arg("tools/setup/setup.sh").current_dir(&workspace.root);
    command
}

/// Builds the demo's programs and runs the demo on this terminal.
///
/// # Errors
/// Returns an error if set-up, build or demo fails.
pub fn demo(workspace: &Workspace) -> Result<(), String> {
    process::must(setup_command(workspace).arg("demo"), SETUP_BOUND)?;
    workspace.build_demo()?;
    process::must(&mut demo_command(workspace)?, DEMO_BOUND)
}

/// Builds the server and starts `forebayd dev` on this terminal.
///
/// # Errors
/// Returns an error if the build fails, or the server cannot be started.
pub fn dev(workspace: &Workspace) -> Result<(), String> {
    workspace.build_demo()?;
    // The server replaces this process, so that Ctrl-C reaches the server alone and the terminal
    // waits until the server has drained.
    let error = Command::new(workspace.binary(SERVER)?).arg("dev").exec();
    Err(format!("start forebayd: {error}"))
}

/// Builds the simulator and runs it on this terminal.
///
/// # Errors
/// Returns an error if the build or a seed fails.
pub fn sim(workspace: &Workspace, seed: u64, seeds: u64) -> Result<(), String> {
    workspace.build_binary(SIM)?;
    process::must(&mut sim_command(workspace, seed, seeds)?, SIM_BOUND)
}

/// Runs the simulator as a stage of the tests.
///
/// # Errors
/// Returns an error if the simulator is not built, or its log cannot be written.
pub fn sim_suites(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let log = workspace.target()?.join("xtask/sim.log");
    let (seeds, bound) = match form {
        Form::Bounded => (SIM_SEEDS_BOUNDED, SIM_TEST_BOUND),
        Form::Long => (SIM_SEEDS_LONG, SIM_LONG_BOUND),
    };
    let mut command = sim_command(workspace, 1, seeds)?;
    command.arg("--plants");
    let outcome = process::capture(&mut command, &log, bound)?;
    let mut suites = parse_suite_lines(&outcome.output);
    if suites.is_empty() || (!outcome.ok && suites.iter().all(Suite::passed)) {
        suites.push(Suite::broken("sim", outcome.ending));
    }
    suites.iter().for_each(|suite| show(suite, &outcome.output));
    Ok(suites)
}

/// Runs the demo's small form as a stage of the tests, on the embedded log and on Kafka.
///
/// # Errors
/// Returns an error if the demo cannot be started, or its log cannot be written.
pub fn demo_suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    for log in ["embedded", "kafka"] {
        let name = format!("demo/{log}");
        let outcome = small_demo(workspace, &name, &[("LOG", log)])?;
        let suite = Suite::single(&name, verdict(&outcome));
        show(&suite, &outcome.output);
        suites.push(suite);
    }
    Ok(suites)
}

/// Runs the demo with a planted error. The suite passes if the demo fails for exactly that reason.
///
/// # Errors
/// Returns an error if the demo cannot be started, or its log cannot be written.
pub fn plant_suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let outcome = small_demo(workspace, "plant", &[("PLANT", "1")])?;
    let suite = Suite::single("plant", plant_verdict(&outcome));
    show(&suite, &outcome.output);
    Ok(vec![suite])
}

fn small_demo(
    workspace: &Workspace,
    name: &str,
    switches: &[(&str, &str)],
) -> Result<Outcome, String> {
    let log = workspace.target()?.join(format!("xtask/{}.log", name.replace('/', "-")));
    let mut command = demo_command(workspace)?;
    command.env_remove("LOG").env_remove("PLANT").env("SMALL", "1");
    command.envs(switches.iter().copied());
    process::capture(&mut command, &log, DEMO_SMALL_BOUND)
}

fn verdict(outcome: &Outcome) -> Result<(), String> {
    let last = outcome.output.lines().rev().find(|line| !line.trim().is_empty());
    match (outcome.ok, last) {
        (true, Some(DEMO_OK)) => Ok(()),
        (true, _) => Err(format!("the last line is not '{DEMO_OK}'")),
        (false, _) => Err(outcome.ending.clone()),
    }
}

fn plant_verdict(outcome: &Outcome) -> Result<(), String> {
    if outcome.timed_out {
        return Err(outcome.ending.clone());
    }
    if outcome.ok || outcome.output.lines().any(|line| line == DEMO_OK) {
        return Err("the demo did not find the planted wrong document".to_owned());
    }
    if outcome.output.contains(DEMO_CAUGHT) {
        return Ok(());
    }
    Err(format!("the demo failed, but not by the oracle: no line contains '{DEMO_CAUGHT}'"))
}

/// Runs the whole demo on a folder of programs. The demo writes its figures into a file.
///
/// # Errors
/// Returns an error if the demo fails.
pub fn measured(workspace: &Workspace, programs: &Path, figures: &Path) -> Result<(), String> {
    let mut command = command_on(workspace, programs)?;
    command.env("FOREBAY_DEMO_FIGURES", figures);
    process::must(&mut command, DEMO_BOUND)
}

fn demo_command(workspace: &Workspace) -> Result<Command, String> {
    command_on(workspace, &workspace.target()?.join("debug"))
}

fn command_on(workspace: &Workspace, programs: &Path) -> Result<Command, String> {
    java::package(workspace, programs)?;
    let mut command = workspace.python(&[DEMO]);
    command.env("FOREBAY_BIN", programs);
    if env::var_os("PYTHONUNBUFFERED").is_none() {
        command.env("PYTHONUNBUFFERED", "1");
    }
    Ok(command)
}

fn sim_command(workspace: &Workspace, seed: u64, seeds: u64) -> Result<Command, String> {
    let mut command = Command::new(workspace.binary(SIM)?);
    command.current_dir(&workspace.root);
    command.args(["--seed", &seed.to_string(), "--seeds", &seeds.to_string()]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ok: bool, output: &str) -> Outcome {
        let ending = if ok { "exit 0" } else { "exit 1" }.to_owned();
        Outcome { ok, timed_out: false, ending, output: output.to_owned() }
    }

    #[test]
    fn demo_passes_only_by_its_last_line() {
        assert!(verdict(&outcome(true, "a\ndemo: OK\n\n")).is_ok());
        assert!(verdict(&outcome(true, "demo: OK\nbut then\n")).is_err());
        assert!(verdict(&outcome(false, "demo: OK\n")).is_err());
    }

    #[test]
    fn planted_fault_passes_only_if_the_oracle_caught_it() {
        assert!(plant_verdict(&outcome(false, "oracle: mismatch in users 7\n")).is_ok());
        assert!(plant_verdict(&outcome(false, "connection refused\n")).is_err());
        assert!(plant_verdict(&outcome(true, "oracle: mismatch\ndemo: OK\n")).is_err());
    }
}
