//! The rule `bazel-suites`: every test target belongs to a suite of the root package, so that
//! `bazel test //:unit //:vectors //:conformance //:torture` runs all tests. No suite is empty.

use std::collections::BTreeSet;

use super::graph::{self, Graph};
use crate::workspace::Workspace;

/// The suites of the root package.
pub const SUITES: [&str; 4] = ["unit", "vectors", "conformance", "torture"];

/// Returns a finding for each test in no suite and each suite without a test.
///
/// # Errors
/// Returns an error if Bazel cannot load a BUILD file, or a suite does not exist.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let graph = graph::load(workspace)?;
    let mut suites = Vec::new();
    for suite in SUITES {
        suites.push((suite, graph::labels(workspace, &format!("tests(//:{suite})"))?));
    }
    Ok(left_out(&graph, &suites))
}

fn left_out(graph: &Graph, suites: &[(&str, BTreeSet<String>)]) -> Vec<String> {
    let empty = suites.iter().filter(|(_, tests)| tests.is_empty());
    let mut problems: Vec<String> = empty
        .map(|(suite, _)| {
            format!("BUILD.bazel: suite //:{suite} contains no test; fix: tag one with it")
        })
        .collect();
    let tests = graph.rules.iter().filter(|(_, rule)| rule.is_test()).map(|(label, _)| label);
    for test in tests.filter(|test| !suites.iter().any(|(_, suite)| suite.contains(*test))) {
        let names = SUITES.join(", ");
        problems.push(format!(
            "{test} is in no suite; fix: tag it with one of {names}, and add it to TESTS in \
             BUILD.bazel"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, rule};
    use super::*;

    #[test]
    fn unlisted_tests_and_empty_suites_are_named() {
        let graph = graph(&[
            rule("rust_test", "//libs/a:a_test", &[]),
            rule("py_test", "//tools/b:b_test", &[]),
            rule("rust_library", "//libs/a:a", &[]),
        ]);
        let unit = BTreeSet::from(["//libs/a:a_test".to_owned()]);
        let problems = left_out(&graph, &[("unit", unit.clone()), ("torture", BTreeSet::new())]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("//:torture"), "{problems:?}");
        assert!(problems[1].contains("//tools/b:b_test"), "{problems:?}");
        let all = BTreeSet::from(["//libs/a:a_test", "//tools/b:b_test"].map(str::to_owned));
        assert_eq!(left_out(&graph, &[("unit", all)]), Vec::<String>::new());
    }
}
