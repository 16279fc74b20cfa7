//! `xtask schedules`: the index's readers, writers and killed holders in many orders, by shuttle.
//! As with the sanitizers the index alone is built once more, into a folder that no other build
//! uses. The faults that the orders must show are planted by the test itself.

use std::path::Path;
use std::process::Command;

use crate::stages::show;
use crate::suite::Suite;
use crate::unit;
use crate::workspace::Workspace;

const PACKAGE: &str = "forebay-index";
const TEST: &str = "schedules";
/// What gives the index its turns.
const FLAGS: &str = "--cfg forebay_shuttle";
/// How the lines of the tests end that find a planted fault; without the flag there are none.
const FOUND: &str = "_is_found ... ok";

/// Runs it on this terminal; `SEED` and `SEEDS` of the environment say which orders.
///
/// # Errors
/// The build fails, or an order shows a fault, or none shows one that was planted.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let failed = suites(workspace)?.iter().filter(|suite| !suite.passed()).count();
    if failed == 0 { Ok(()) } else { Err("schedules: a test failed; see above".to_owned()) }
}

/// It, as a stage of the tests.
///
/// # Errors
/// The build fails.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let logs = target.join("xtask/schedules");
    let mut suites = Vec::new();
    for binary in unit::built(&mut build(workspace, &target), &logs.join("build.json"))? {
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
    (!is_on).then(|| "no planted fault was found: is the flag on?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_found_no_planted_fault_is_a_problem() {
        let found = "running 2 tests\ntest a_copy_that_is_not_compared_is_found ... ok\n";
        assert_eq!(problem(found), None);
        let none = found.replace("ok", "FAILED");
        assert!(problem(&none).unwrap().contains("planted"));
        assert!(problem("running 0 tests\n").is_some());
    }

    #[test]
    fn it_builds_apart_from_everything_else() {
        let workspace = Workspace { root: std::env::temp_dir() };
        let command = build(&workspace, Path::new("target"));
        let own = |name: &str, value: &str| {
            let value = Some(std::ffi::OsStr::new(value));
            command.get_envs().any(|(key, found)| key == name && found == value)
        };
        assert!(own("CARGO_TARGET_DIR", "target/schedules") && own("RUSTFLAGS", FLAGS));
    }
}
