//! The Java tests: Maven runs them against the library and the `forebayd` that the build has made,
//! on the JDK that it runs on and on JDK 25 where one stands beside it. One suite per class.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::stages::show;
use crate::suite::Suite;
use crate::workspace::Workspace;

/// Bound of all Java tests on one JDK; the first run resolves Maven's plugins too.
const SUITE_BOUND: Duration = Duration::from_secs(15 * 60);
const PROJECT: &str = "clients/java";
/// The newer JDK to test on.
const NEWER_JDK: &str = "25";

/// Runs the Java tests.
///
/// # Errors
/// Maven cannot be started.
pub fn run(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let mut suites = tested(workspace, "jdk", None)?;
    if let Some(java) = newer_java() {
        suites.extend(tested(workspace, &format!("jdk{NEWER_JDK}"), Some(&java))?);
    }
    Ok(suites)
}

fn tested(workspace: &Workspace, on: &str, java: Option<&Path>) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let mut command = Command::new("mvn");
    command.args(["-B", "test"]).current_dir(workspace.root.join(PROJECT));
    command.arg(format!("-Dforebay.target={}", target.join("debug").display()));
    if let Some(java) = java {
        command.arg(format!("-Djvm={}", java.display()));
    }
    let log = target.join(format!("xtask/java/{on}.log"));
    let outcome = process::capture(&mut command, &log, SUITE_BOUND)?;
    let suites = suites(on, &outcome.output, outcome.ok, &outcome.ending);
    suites.iter().for_each(|suite| show(suite, &outcome.output));
    Ok(suites)
}

/// The newer JDK's `java`, in the folder that the JDK on the path stands in.
fn newer_java() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let java =
        std::env::split_paths(&path).map(|folder| folder.join("java")).find(|j| j.exists())?;
    let java = fs::canonicalize(java).ok()?;
    let jdks = java.ancestors().nth(3)?;
    let mut found: Vec<_> =
        fs::read_dir(jdks).ok()?.filter_map(|jdk| Some(jdk.ok()?.path())).collect();
    found.sort();
    let named = |jdk: &&PathBuf| {
        let name = jdk.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split(['-', '.']).any(|part| part == NEWER_JDK)
    };
    let java =
        found.iter().filter(named).map(|jdk| jdk.join("bin/java")).find(|java| java.exists())?;
    Some(java)
}

/// Reads Surefire's line per class: `Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time
/// elapsed: 0.1 s <<< FAILURE! -- in io.forebay.ATest`.
fn suites(on: &str, output: &str, ok: bool, ending: &str) -> Vec<Suite> {
    let mut suites: Vec<Suite> = output.lines().filter_map(|line| class_line(on, line)).collect();
    if suites.is_empty() || (!ok && suites.iter().all(Suite::passed)) {
        suites.push(Suite::broken(&format!("{PROJECT}/{on}"), format!("Maven: {ending}")));
    }
    suites
}

fn class_line(on: &str, line: &str) -> Option<Suite> {
    let (counts, class) = line.split_once("Tests run: ")?.1.split_once(" -- in ")?;
    let mut numbers = counts.split(',').map(|part| {
        let number = part.rsplit_once(' ').map_or(part, |(_, number)| number);
        number.parse::<u64>().ok()
    });
    let mut next = || numbers.next().flatten();
    let (run, failures, errors, skipped) = (next()?, next()?, next()?, next()?);
    let class = class.trim().rsplit('.').next()?;
    Some(Suite {
        name: format!("{PROJECT}/{on}/{class}"),
        ran: run.saturating_sub(skipped),
        failed: failures + errors,
        skipped,
        problem: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1, Time elapsed: \
        0.263 s -- in io.forebay.ATest\n[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1\n";

    #[test]
    fn each_class_is_a_suite_and_the_sum_is_none() {
        let suites = suites("jdk", GOOD, true, "exit 0");
        assert_eq!(suites.len(), 1);
        assert_eq!(suites[0].name, "clients/java/jdk/ATest");
        assert_eq!((suites[0].ran, suites[0].failed, suites[0].skipped), (2, 0, 1));
    }

    #[test]
    fn failures_and_errors_both_fail() {
        let bad = "[ERROR] Tests run: 5, Failures: 1, Errors: 2, Skipped: 0, Time elapsed: 0.1 s \
            <<< FAILURE! -- in io.forebay.BTest\n";
        let suites = suites("jdk", bad, false, "exit 1");
        assert_eq!((suites.len(), suites[0].ran, suites[0].failed), (1, 5, 3));
    }

    #[test]
    fn nothing_ran_and_a_build_that_broke_are_failures() {
        assert!(!suites("jdk", "[INFO] BUILD SUCCESS\n", true, "exit 0")[0].passed());
        assert!(!suites("jdk", GOOD, false, "exit 1").iter().all(Suite::passed));
    }
}
