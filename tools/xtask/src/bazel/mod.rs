//! Bazel next to cargo. The BUILD files are for two versions of Bazel (tools/decisions/0016). This
//! module runs them with this machine's Bazel by `tools/bazel/host.sh`. Rules of `xtask check`
//! compare the BUILD files with cargo, the layer table and the pins. Each file has one task; all
//! rules about targets read the same query ([`graph`]).

pub mod deps;
pub mod format;
pub mod graph;
pub mod mutation_test;
pub mod pins;
pub mod results;
pub mod run;
pub mod sources;
pub mod suites;
pub mod visibility;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::workspace::Workspace;

/// The script that runs this machine's Bazel.
const HOST: &str = "tools/bazel/host.sh";
/// Bound of a query, the start of Bazel included.
const QUERY_BOUND: Duration = Duration::from_secs(5 * 60);

/// Returns Bazel with a command and its arguments.
fn host(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.arg(HOST).args(arguments).current_dir(&workspace.root);
    command
}

/// Returns the path of a log of this module.
fn log(workspace: &Workspace, name: &str) -> Result<PathBuf, String> {
    Ok(workspace.target()?.join("xtask/bazel").join(name))
}
