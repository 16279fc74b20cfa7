//! The part `tests` measures the waiting times of a newcomer and a developer, in a fresh clone with
//! an empty target folder, and compares them with limits.
//!
//! 1. Cold `make demo`.
//! 2. Cold `make test`: the run after the demo, plus the build that the demo did for it.
//! 3. Warm `make test`.
//! 4. The tests of a package after a change of one line in `services/writer`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::record::PartReport;
use crate::clock::Stopwatch;
use crate::process;
use crate::suite::Suite;
use crate::workspace::Workspace;

/// The file and the package of the changed line.
const CHANGED: &str = "services/writer/src/writer.rs";
const CHANGED_PACKAGE: &str = "forebay-writer-service";
/// Limits of the four measures, in seconds, on two cores.
const DEMO_COLD_S: u64 = 15 * 60;
const TEST_COLD_S: u64 = 45 * 60;
const TEST_WARM_S: u64 = 20 * 60;
const CHANGE_S: u64 = 90;
const STEP_BOUND: Duration = Duration::from_secs(60 * 60);

/// Takes the four measures.
///
/// # Errors
/// Returns an error if the clone cannot be created, or a step fails.
pub(super) fn run(workspace: &Workspace) -> Result<PartReport, String> {
    let folder = workspace.target()?.join("nightly");
    let (tree, target) = (folder.join("tree"), folder.join("target"));
    clone(workspace, &folder, &tree)?;
    let timed = |command: &str, arguments: &[&str]| {
        let watch = Stopwatch::start();
        let mut step = Command::new(command);
        step.args(arguments).current_dir(&tree).env("CARGO_TARGET_DIR", &target);
        process::must(&mut step, STEP_BOUND)?;
        Ok::<Duration, String>(watch.elapsed())
    };
    let demo = timed("make", &["demo"])?;
    let demo_run = timed("make", &["demo"])?;
    let test_after_demo = timed("make", &["test"])?;
    let warm = timed("make", &["test"])?;
    change_line(&tree)?;
    let xtask = ["run", "--quiet", "--locked", "--package", "xtask", "--", "test-package"];
    let changed = timed("cargo", &[&xtask[..], &[CHANGED_PACKAGE]].concat())?;
    let cold = test_after_demo + demo.saturating_sub(demo_run);
    let measures = [
        ("cold make demo", demo, DEMO_COLD_S),
        ("cold make test", cold, TEST_COLD_S),
        ("warm make test", warm, TEST_WARM_S),
        ("change of services/writer", changed, CHANGE_S),
    ];
    let mut outcome = PartReport::default();
    outcome.measured.push(format!("warm make demo {} s", demo_run.as_secs()));
    for (name, time, limit_s) in measures {
        outcome.measured.push(format!("{name} {} s", time.as_secs()));
        let is_within = time.as_secs() <= limit_s;
        let verdict =
            if is_within { Ok(()) } else { Err(format!("{} s > {limit_s} s", time.as_secs())) };
        outcome.suites.push(Suite::single(&format!("nightly/{name}"), verdict));
    }
    Ok(outcome)
}

/// Clones the committed tree and removes the target folder.
fn clone(workspace: &Workspace, folder: &Path, tree: &Path) -> Result<(), String> {
    if folder.exists() {
        // Bazel makes its outputs read-only.
        let mut unlock = Command::new("chmod");
        process::read(unlock.args(["-R", "u+w"]).arg(folder))?;
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut command = Command::new("git");
    command.args(["clone", "--quiet", "--shared"]).arg(&workspace.root).arg(tree);
    process::must(&mut command, STEP_BOUND)
}

fn change_line(tree: &Path) -> Result<(), String> {
    let path = tree.join(CHANGED);
    let problem = |error| format!("{CHANGED}: {error}");
    let text = fs::read_to_string(&path).map_err(problem)?;
    fs::write(&path, format!("{text}\nconst _: u8 = 1;\n")).map_err(problem)
}
