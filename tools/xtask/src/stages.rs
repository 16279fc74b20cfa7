//! `xtask test` runs the stages of one table. To add a stage (another language, another kind of
//! test), write a function that returns its suites and add an entry with a budget to `STAGES`. A
//! stage that fails as a whole counts one failure. If a stage fails, the stages that need it do not
//! run and count as skipped.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::stage::{Form, Run, Stage};
use crate::suite::{Counts, Suite, parse_libtest};
use crate::suite_output::{ended, failures, show, tell_again};
use crate::workspace::{BUILD_BOUND, Workspace};
use crate::{
    bazel, check, compiled_twice, demo, engine_logs, java, process, python, schedules, stage_times,
    unit,
};

const fn stage(
    name: &'static str,
    needs: &'static [&'static str],
    budget_s: (u64, u64),
    run: Run,
) -> Stage {
    Stage { name, needs, budget_s, run }
}

/// All stages, in order.
pub const STAGES: &[Stage] = &[
    stage("setup", &[], (60, 10), |tree| demo::setup(tree).map(|()| vec![])),
    stage("build", &["setup"], (960, 50), |tree| tree.build().map(|()| vec![])),
    stage("check", &["setup"], (240, 50), |tree| check::suites(tree, &[])),
    stage("unit", &["build"], (520, 520), |tree| unit::run(tree, &mut show)),
    stage("doc", &["build"], (100, 30), doc),
    stage("schedules", &["build"], (100, 40), schedules::suites),
    stage("python", &["build"], (150, 150), |tree| python::run(tree, Form::Bounded)),
    stage("java", &["build"], (110, 110), java::run),
    stage("sim", &["build"], (80, 80), |tree| demo::sim_suites(tree, Form::Bounded)),
    stage("demo", &["build"], (60, 60), demo::demo_suites),
    stage("plant", &["build"], (20, 20), demo::plant_suites),
    stage("bazel", &["build"], (100, 20), |tree| bazel::run::suites(tree, Form::Bounded)),
    stage("bazel-mutation-test", &["bazel"], (60, 40), |tree| {
        bazel::mutation_test::suites(tree, Form::Bounded)
    }),
    stage("engine", &["unit"], (5, 5), engine_logs::suites),
    stage("once", &["build"], (5, 5), compiled_twice::suites),
];

/// Runs all stages, or only the named ones, and prints times and the closing line.
///
/// # Errors
/// Returns an error if a suite or stage failed, after everything is printed.
pub fn run(workspace: &Workspace, only: &[String]) -> Result<(), String> {
    if only.iter().any(|name| name == "list") {
        STAGES.iter().for_each(|stage| println!("{}", stage.name));
        return Ok(());
    }
    if let Some(name) = only.iter().find(|name| !STAGES.iter().any(|stage| stage.name == **name)) {
        return Err(format!("no stage {name}; fix: name one that `xtask test --only list` prints"));
    }
    let selected =
        STAGES.iter().filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name));
    let selected: Vec<&Stage> = selected.collect();
    compiled_twice::mark(workspace)?;
    engine_logs::clear(workspace)?;
    let is_cold = !unit::was_built(workspace)?;
    let (counts, times) = walk(workspace, &selected);
    stage_times::report(workspace, STAGES, is_cold, &times)?;
    let failure_text = failures();
    if !failure_text.is_empty() {
        println!("{failure_text}");
    }
    println!("{counts}");
    if counts.failed == 0 { Ok(()) } else { Err("the tests fail; see above".to_owned()) }
}

/// The stages that ran, with their times.
type Times<'a> = Vec<(&'a Stage, Duration)>;

/// Runs the stages; returns the counts of their suites, and the stages that ran.
fn walk<'a>(workspace: &Workspace, stages: &[&'a Stage]) -> (Counts, Times<'a>) {
    let mut counts = Counts::default();
    let mut failed_stages: BTreeSet<&str> = BTreeSet::new();
    let mut times: Times<'a> = Vec::new();
    for stage in stages {
        if let Some(need) = stage.needs.iter().find(|need| failed_stages.contains(*need)) {
            println!("stage {}: not run, because stage {need} failed", stage.name);
            counts.skipped += 1;
            failed_stages.insert(stage.name);
            continue;
        }
        println!("stage {}: starts", stage.name);
        let watch = Stopwatch::start();
        match (stage.run)(workspace) {
            Ok(suites) => suites.iter().for_each(|suite| counts.add(suite.counts())),
            Err(problem) => {
                println!("stage {}: FAILED: {problem}", stage.name);
                tell_again(&format!("stage {}", stage.name), &problem);
                counts.failed += 1;
                failed_stages.insert(stage.name);
            }
        }
        times.push((*stage, watch.elapsed()));
    }
    (counts, times)
}

/// Runs the doc tests, then builds the documentation, in which a warning fails. A crate without doc
/// tests is no suite; a tree without doc tests fails.
fn doc(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let logs = workspace.target()?.join("xtask/doc");
    let mut command = workspace.cargo(&["test", "--workspace", "--doc", "--locked"]);
    command.arg("--no-fail-fast");
    // Rustdoc runs a test from a temporary folder, where the run path of programs finds no RocksDB.
    // Cargo itself adds RocksDB's folder only if the target folder is the tree's own.
    command.env("LD_LIBRARY_PATH", workspace.target()?.join("rocksdb"));
    let outcome = process::capture(&mut command, &logs.join("tests.log"), BUILD_BOUND)?;
    let mut suites = doc_suites(&outcome.output, outcome.ok, &outcome.ending);
    suites.iter().for_each(|suite| show(suite, &outcome.output));
    let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    let outcome = process::capture(&mut command, &logs.join("rustdoc.log"), BUILD_BOUND)?;
    let rustdoc = Suite::single("rustdoc", ended(outcome.ok, &outcome.ending));
    show(&rustdoc, &outcome.output);
    suites.push(rustdoc);
    Ok(suites)
}

fn doc_suites(output: &str, ok: bool, ending: &str) -> Vec<Suite> {
    let all = parse_libtest(output).into_iter();
    let mut suites: Vec<Suite> = all
        .filter(|suite| suite.ran > 0 || suite.problem.is_some())
        .map(|suite| Suite { name: format!("{}/doc", suite.name.replace('_', "-")), ..suite })
        .collect();
    let nothing_failed = suites.iter().all(Suite::passed);
    if suites.is_empty() || (!ok && nothing_failed) {
        suites.push(Suite::broken("doc", format!("the doc tests reported no result: {ending}")));
    }
    suites
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> Workspace {
        Workspace { root: std::env::temp_dir() }
    }

    fn good(_: &Workspace) -> Result<Vec<Suite>, String> {
        Ok(vec![Suite { name: "a".to_owned(), ran: 3, failed: 1, ..Suite::default() }])
    }

    fn bad(_: &Workspace) -> Result<Vec<Suite>, String> {
        Err("broken".to_owned())
    }

    #[test]
    fn failed_need_skips_all_dependent_stages() {
        let stages = [
            stage("one", &[], (1, 1), good),
            stage("two", &[], (1, 1), bad),
            stage("three", &["two"], (1, 1), good),
            stage("four", &["three"], (1, 1), good),
        ];
        let (counts, _) = walk(&nowhere(), &stages.iter().collect::<Vec<_>>());
        assert_eq!(counts, Counts { passed: 2, failed: 2, skipped: 2 });
    }

    #[test]
    fn unknown_stage_is_an_error_that_names_the_fix() {
        let problem = run(&nowhere(), &["units".to_owned()]).unwrap_err();
        assert!(problem.contains("--only list"), "{problem}");
    }

    #[test]
    fn every_need_precedes_its_stage_in_the_table() {
        for (place, stage) in STAGES.iter().enumerate() {
            for need in stage.needs {
                assert!(STAGES[..place].iter().any(|earlier| earlier.name == *need), "{need}");
            }
        }
    }

    #[test]
    fn tree_without_doc_tests_fails() {
        let empty = "   Doc-tests forebay_core\n\nrunning 0 tests\n\ntest result: ok. 0 passed; \
            0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert!(!doc_suites(empty, true, "exit 0")[0].passed());
        let some_passed = empty.replace("0 passed", "2 passed");
        let suites = doc_suites(&some_passed, true, "exit 0");
        assert_eq!(suites[0].to_string(), "suite forebay-core/doc: ran 2, failed 0");
        assert!(!doc_suites(&some_passed, false, "exit 101").iter().all(Suite::passed));
    }
}
