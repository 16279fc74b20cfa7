//! `xtask schedules`: shuttle runs the index's readers, writers and killed owners in many orders.
//! Only the index is built again, into a folder that no other build uses. The test itself plants
//! the faults that the orders must reveal.

use std::path::Path;
use std::process::Command;

use crate::suite::Suite;
use crate::suite_output::show;
use crate::unit;
use crate::workspace::Workspace;

const PACKAGE: &str = "forebay-index";
const TEST: &str = "schedules";
/// Flags that make the index yield to shuttle.
const FLAGS: &str = "--cfg forebay_shuttle";
/// End of a passed test's line that finds a planted fault; without the flag there is no such test.
const FOUND: &str = "_is_found ... ok";

/// Runs the schedules on this terminal; the variables `SEED` and `SEEDS` select the orders.
///
/// # Errors
/// Returns an error if the build fails, an order reveals a fault, or no order reveals a planted
/// one.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let failures = suites(workspace)?.iter().filter(|suite| !suite.passed()).count();
    if failures == 0 { Ok(()) } else { Err("schedules: a test failed; see above".to_owned()) }
}

/// Runs the schedules as a stage of the tests.
///
/// # Errors
/// Returns an error if the build fails.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let logs = target.join("xtask/schedules");
    let mut suites = Vec::new();
    for binary in unit::build_binaries(&mut build(workspace, &target), &logs.join("build.json"))? {
        let name = format!("{PACKAGE}/{}-shuttle", binary.what);
        let mut command = binary.command();
        command.args(["--test-threads=1"]).env("RUST_BACKTRACE", "0");
        let (mut suite, output) = unit::run_one(name, &logs, &mut command)?;
        suite.problem = suite.problem.or_else(|| problem(&output));
        show(&suite, &output);
        suites.push(suite);
    }
    Ok(suites)
}

fn build(workspace: &Workspace, target: &Path) -> Command {
    let form = ["test", "--package", PACKAGE, "--test", TEST, "--no-run", "--locked"];
    let mut command = workspace.cargo(&form);
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", target.join("schedules"));
    command
}

fn problem(output: &str) -> Option<String> {
    let is_on = output.lines().any(|line| line.ends_with(FOUND));
    (!is_on).then(|| format!("the tests found no planted fault; fix: build with {FLAGS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_a_found_planted_fault_is_a_problem() {
        let found = "running 2 tests\ntest planted_copy_without_comparison_is_found ... ok\n";
        assert_eq!(problem(found), None);
        let without_fault = found.replace("ok", "FAILED");
        assert!(problem(&without_fault).unwrap().contains("planted"));
        assert!(problem("running 0 tests\n").is_some());
    }

    #[test]
    fn schedules_build_in_their_own_target_folder() {
        let workspace = Workspace { root: std::env::temp_dir() };
        let command = build(&workspace, Path::new("target"));
        let has_variable = |name: &str, value: &str| {
            let value = Some(std::ffi::OsStr::new(value));
            command.get_envs().any(|(key, found)| key == name && found == value)
        };
        assert!(
            has_variable("CARGO_TARGET_DIR", "target/schedules")
                && has_variable("RUSTFLAGS", FLAGS)
        );
    }
}
