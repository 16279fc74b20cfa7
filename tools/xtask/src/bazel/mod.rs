//! Bazel beside cargo. The BUILD files are for two Bazels (tools/decisions/0016); here this
//! machine's runs them through `tools/bazel/host.sh`, and rules of `xtask check` hold them against
//! what the tree says elsewhere: cargo, the layer table, the pins. One job per file; the rules that
//! look at targets read them from one query ([`graph`]).

pub mod deps;
pub mod format;
pub mod graph;
pub mod pins;
pub mod plant;
pub mod results;
pub mod run;
pub mod sources;
pub mod suites;
pub mod visibility;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::workspace::Workspace;

/// The front of this machine's Bazel.
const HOST: &str = "tools/bazel/host.sh";
/// Bound of a question to Bazel, its start included.
const QUERY_BOUND: Duration = Duration::from_secs(5 * 60);

/// Bazel with a command and its arguments.
fn host(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.arg(HOST).args(arguments).current_dir(&workspace.root);
    command
}

/// Where a job of this module logs.
fn log(workspace: &Workspace, name: &str) -> Result<PathBuf, String> {
    Ok(workspace.target()?.join("xtask/bazel").join(name))
}
