//! The rule `bazel-pins`: no tool here resolves the pins of MODULE.bazel, so the rule compares them
//! with the manifests of cargo, Maven, pip and Go. The comparison is a Python script, because
//! MODULE.bazel has the syntax of Python.

use std::time::Duration;

use crate::process;
use crate::workspace::Workspace;

const BOUND: Duration = Duration::from_secs(60);
const SCRIPT: &str = "tools/bazel/pins.py";

/// Returns a finding for each pin that differs.
///
/// # Errors
/// Returns an error if the script cannot be started, or crashes.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut command = workspace.python(&[SCRIPT]);
    let log = super::log(workspace, "pins.log")?;
    let outcome = process::capture(&mut command, &log, BOUND)?;
    findings(&outcome.output, outcome.ok, &outcome.ending)
}

/// Returns the findings of the script, which prints `pins: FINDING` for each and fails if there is
/// one.
fn findings(output: &str, ok: bool, ending: &str) -> Result<Vec<String>, String> {
    let found: Vec<String> =
        output.lines().filter_map(|line| line.strip_prefix("pins: ")).map(str::to_owned).collect();
    if ok == found.is_empty() {
        return Ok(found);
    }
    Err(format!("{SCRIPT}: {ending}\n{}", output.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_script_is_an_error() {
        assert_eq!(findings("", true, "exit 0").unwrap(), Vec::<String>::new());
        assert_eq!(findings("pins: a\npins: b\n", false, "exit 1").unwrap(), ["a", "b"]);
        assert!(findings("Traceback\n", false, "exit 1").is_err());
        assert!(findings("pins: a\n", true, "exit 0").is_err());
    }
}
