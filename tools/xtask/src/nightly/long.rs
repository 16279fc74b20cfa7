//! The part `long`: every stage whose bounded form runs in `make test`, in its long form, and the
//! fuzz targets.

use super::PartReport;
use crate::form::Form;
use crate::suite::Suite;
use crate::workspace::Workspace;
use crate::{bazel, demo, fuzz, python, sanitize, stages};

const STAGES: &[(&str, stages::Run)] = &[
    ("fuzz", fuzz::suites),
    ("sanitize", |tree| sanitize::suites(tree, Form::Long)),
    ("python", |tree| python::run(tree, Form::Long)),
    ("sim", |tree| demo::sim_suites(tree, Form::Long)),
    ("bazel", |tree| bazel::run::suites(tree, Form::Long)),
    ("bazel-plant", |tree| bazel::plant::suites(tree, Form::Long)),
];

/// Runs them, one after the other; a stage that breaks counts one failure.
///
/// # Errors
/// The tree does not build.
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
