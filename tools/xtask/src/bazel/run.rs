//! `xtask bazel`: `bazel test //...` with this machine's Bazel. Bazel uses the third-party crates
//! that cargo has built, so cargo builds first, by the common invocation (tools/decisions/0002). As
//! a stage of the tests it runs the suite `//:smoke`, targets of Rust, Java and Python that need no
//! server: cargo has just tested the same sources, and rules of `xtask check` check the graph.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::results;
use crate::process;
use crate::stage::Form;
use crate::suite::{Counts, Suite};
use crate::suite_output::show;
use crate::workspace::Workspace;

/// Bound of a cold run: Bazel compiles Forebay's crates and runs all tests.
const BOUND: Duration = Duration::from_secs(40 * 60);

/// The targets of the two forms.
const SMOKE: &str = "//:smoke";
const ALL: &str = "//...";

/// The test of the stand-in of rules_go, a dozen runs of Bazel on a small workspace.
const GO_FIXTURE: &str = "tools/bazel/go_fixture_test.sh";
const GO_FIXTURE_BOUND: Duration = Duration::from_secs(15 * 60);

/// Builds, tests, and prints the closing line.
///
/// # Errors
/// Returns an error if a target does not build or a test fails, after everything is printed.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    workspace.build()?;
    let mut counts = Counts::default();
    suites(workspace, Form::Long)?.iter().for_each(|suite| counts.add(suite.counts()));
    println!("{counts}");
    if counts.failed == 0 { Ok(()) } else { Err("bazel test //... fails; see above".to_owned()) }
}

/// Runs `bazel test` in the bounded or the long form. Each test target is a suite; one more suite
/// is for targets that are built but are no tests.
///
/// # Errors
/// Returns an error if Bazel cannot be started, or its events cannot be read.
pub fn suites(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let events = super::log(workspace, "events.json")?;
    let mut command = test(workspace, &events.to_string_lossy(), form);
    let outcome = process::capture(&mut command, &super::log(workspace, "test.log")?, BOUND)?;
    let event_text = fs::read_to_string(&events)
        .map_err(|error| format!("{}: {error}\n{}", outcome.ending, outcome.output))?;
    let targets = results::targets(&event_text);
    let mut suites = Vec::new();
    for (label, target) in &targets {
        let (suite, output) = results::suite(label, target);
        show(&suite, &output);
        suites.push(suite);
    }
    let cached = targets.values().filter(|target| target.cached).count();
    println!("bazel: {} test targets, {cached} unchanged since their last run", targets.len());
    let total = total_suite(&suites, outcome.ok, &outcome.ending);
    show(&total, &outcome.output);
    suites.push(total);
    if form == Form::Long {
        suites.push(go_fixture(workspace)?);
    }
    Ok(suites)
}

/// Tests the stand-in of rules_go on a small workspace, until the tree has a target in Go.
fn go_fixture(workspace: &Workspace) -> Result<Suite, String> {
    let mut command = Command::new("sh");
    command.arg(GO_FIXTURE).current_dir(&workspace.root);
    let log = super::log(workspace, "go_fixture.log")?;
    let outcome = process::capture(&mut command, &log, GO_FIXTURE_BOUND)?;
    let suite = go_fixture_suite(&outcome.output, outcome.ok, &outcome.ending);
    show(&suite, &outcome.output);
    Ok(suite)
}

/// Reads the last line of that test: `go_fixture: 10 passed, 0 failed`.
fn go_fixture_suite(output: &str, ok: bool, ending: &str) -> Suite {
    let name = "bazel/go_fixture".to_owned();
    let count = |line: &str| line.strip_prefix("go_fixture: ")?.split_once(' ')?.0.parse().ok();
    match output.lines().rev().find_map(count) {
        Some(ran) if ok => Suite { name, ran, ..Suite::default() },
        _ => Suite::broken(&name, ending.to_owned()),
    }
}

fn test(workspace: &Workspace, events: &str, form: Form) -> Command {
    let events = format!("--build_event_json_file={events}");
    // The few tests of the bounded form compile longer than they run.
    let (mode, targets) = if form == Form::Long { ("opt", ALL) } else { ("fastbuild", SMOKE) };
    let mode = format!("--compilation_mode={mode}");
    super::host(workspace, &["test", "--keep_going", &mode, &events, targets])
}

/// Returns the suite of Bazel's exit status, which also covers targets that are no tests.
fn total_suite(suites: &[Suite], ok: bool, ending: &str) -> Suite {
    let tests_pass = suites.iter().all(Suite::passed);
    let result = match (ok, suites.is_empty()) {
        (true, true) => Err("Bazel found no test".to_owned()),
        (false, _) if tests_pass => Err(format!("{ending}; a target that is no test fails")),
        _ => Ok(()),
    };
    Suite::single("bazel//...", result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bazels_own_verdict_counts_when_the_tests_are_silent() {
        let passing = [Suite::single("bazel//a:a_test", Ok(()))];
        let failing = [Suite::single("bazel//a:a_test", Err("it died".to_owned()))];
        assert!(total_suite(&passing, true, "exit 0").passed());
        assert!(!total_suite(&passing, false, "exit 1").passed());
        assert!(!total_suite(&[], true, "exit 0").passed());
        assert!(total_suite(&failing, false, "exit 3").passed());
    }

    #[test]
    fn go_fixture_counts_its_own_faults() {
        let passing = go_fixture_suite("a\ngo_fixture: 10 passed, 0 failed\n", true, "exit 0");
        assert_eq!((passing.ran, passing.passed()), (10, true));
        assert!(!go_fixture_suite("go_fixture: the fixture fails\n", false, "exit 1").passed());
        assert!(!go_fixture_suite("", true, "exit 0").passed());
    }
}
