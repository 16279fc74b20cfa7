//! `xtask bazel`: `bazel test //...` by this machine's Bazel, which takes the third-party crates
//! that cargo has built, so cargo goes first, in its one form (tools/decisions/0002).

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::results;
use crate::process;
use crate::stages::show;
use crate::suite::{Counts, Suite};
use crate::workspace::Workspace;

/// Bound of the whole run, cold: our own crates are compiled once more, and all tests run.
const BOUND: Duration = Duration::from_secs(40 * 60);

/// Builds, tests, and prints the closing line.
///
/// # Errors
/// A target does not build, or a test fails; everything is printed by then.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    workspace.build()?;
    let mut counts = Counts::default();
    suites(workspace)?.iter().for_each(|suite| counts.add(suite.counts()));
    println!("{counts}");
    if counts.failed == 0 { Ok(()) } else { Err("bazel test //... fails; see above".to_owned()) }
}

/// `bazel test //...` as a stage of the tests: one suite per test target, and one for what is
/// built without being a test.
///
/// # Errors
/// Bazel cannot be started, or its events cannot be read.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let events = super::log(workspace, "events.json")?;
    let mut command = test(workspace, &events.to_string_lossy());
    let outcome = process::capture(&mut command, &super::log(workspace, "test.log")?, BOUND)?;
    let told = fs::read_to_string(&events)
        .map_err(|error| format!("{}: {error}\n{}", outcome.ending, outcome.output))?;
    let targets = results::targets(&told);
    let mut suites = Vec::new();
    for (label, target) in &targets {
        let (suite, output) = results::suite(label, target);
        show(&suite, &output);
        suites.push(suite);
    }
    let cached = targets.values().filter(|target| target.cached).count();
    println!("bazel: {} test targets, {cached} unchanged since their last run", targets.len());
    let whole = whole(&suites, outcome.ok, &outcome.ending);
    show(&whole, &outcome.output);
    suites.push(whole);
    Ok(suites)
}

fn test(workspace: &Workspace, events: &str) -> Command {
    let events = format!("--build_event_json_file={events}");
    super::host(workspace, &["test", "--keep_going", &events, "//..."])
}

/// Bazel's own verdict: it knows of targets that are no tests and yet do not build.
fn whole(suites: &[Suite], ok: bool, ending: &str) -> Suite {
    let tests_pass = suites.iter().all(Suite::passed);
    let result = match (ok, suites.is_empty()) {
        (true, true) => Err("it found no test at all".to_owned()),
        (false, _) if tests_pass => Err(format!("{ending}; what it built beside the tests fails")),
        _ => Ok(()),
    };
    Suite::single("bazel//...", result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bazels_own_verdict_counts_when_the_tests_are_silent() {
        let good = [Suite::single("bazel//a:a_test", Ok(()))];
        let bad = [Suite::single("bazel//a:a_test", Err("it died".to_owned()))];
        assert!(whole(&good, true, "exit 0").passed());
        assert!(!whole(&good, false, "exit 1").passed());
        assert!(!whole(&[], true, "exit 0").passed());
        assert!(whole(&bad, false, "exit 3").passed());
    }
}
