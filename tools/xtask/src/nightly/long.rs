//! The part `long`: the fuzz targets, and the long form of every stage of which `make test` runs
//! the bounded form.

use super::record::PartReport;
use crate::stage::{Form, Run};
use crate::suite::Suite;
use crate::workspace::Workspace;
use crate::{bazel, demo, fuzz, python, sanitize};

const STAGES: &[(&str, Run)] = &[
    ("fuzz", fuzz::suites),
    ("sanitize", sanitize::suites),
    ("python", |tree| python::run(tree, Form::Long)),
    ("sim", |tree| demo::sim_suites(tree, Form::Long)),
    ("bazel", |tree| bazel::run::suites(tree, Form::Long)),
    ("bazel-mutation-test", |tree| bazel::mutation_test::suites(tree, Form::Long)),
];

/// Runs the stages, one after the other. A stage that fails as a whole counts one failure.
///
/// # Errors
/// Returns an error if the tree does not build.
pub(super) fn run(workspace: &Workspace) -> Result<PartReport, String> {
    demo::setup(workspace)?;
    workspace.build()?;
    let mut outcome = PartReport::default();
    for (name, stage) in STAGES {
        println!("stage {name}: starts");
        match stage(workspace) {
            Ok(suites) => outcome.suites.extend(suites),
            Err(problem) => {
                println!("stage {name}: FAILED: {problem}");
                outcome.suites.push(Suite::broken(name, problem));
            }
        }
    }
    Ok(outcome)
}
