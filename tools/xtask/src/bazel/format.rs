//! The rule `bazel-format`: BUILD files have buildifier's format and cause none of its warnings.

use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::workspace::Workspace;

const BOUND: Duration = Duration::from_secs(2 * 60);
/// Path at which set-up installs buildifier, below cargo's target folder.
const BUILDIFIER: &str = "tools/buildifier";
/// The stand-ins of rule sets, which only Bazel 4 reads. They use functions that later versions of
/// Bazel no longer have.
const HOST: &str = "tools/bazel/host/";
const HOST_WARNINGS: &str = "-warnings=-attr-cfg,-native-java-info,-native-py,-native-sh-binary,\
    -function-docstring-args,-function-docstring-return";
const NAMES: [&str; 7] = [
    "BUILD",
    "BUILD.bazel",
    "MODULE.bazel",
    "WORKSPACE",
    "WORKSPACE.bazel",
    "WORKSPACE.bzlmod",
    "REPO.bazel",
];

/// Returns a finding for each change and each warning of buildifier.
///
/// # Errors
/// Returns an error if git cannot list the files, or buildifier is not installed.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let program = workspace.target()?.join(BUILDIFIER);
    if !program.is_file() {
        return Err(format!("{} is not installed; fix: make setup", program.display()));
    }
    let files = workspace.files()?.into_iter().filter(|file| is_bazel(file));
    let (host, own_files): (Vec<String>, Vec<String>) =
        files.partition(|file| file.starts_with(HOST));
    let mut problems = Vec::new();
    for (files, warnings) in [(own_files, "-warnings=default"), (host, HOST_WARNINGS)] {
        if files.is_empty() {
            return Err("the tree has no BUILD files".to_owned());
        }
        let mut command = Command::new(&program);
        command.args(["-mode=check", "-lint=warn", warnings]).args(&files);
        let log = super::log(workspace, "buildifier.log")?;
        let outcome = process::capture(command.current_dir(&workspace.root), &log, BOUND)?;
        problems.extend(findings(&outcome.output, outcome.ok, &outcome.ending, &files));
    }
    Ok(problems)
}

fn is_bazel(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    NAMES.contains(&name) || name.ends_with(".bzl")
}

/// Returns the findings in an output. The line of a finding begins with its file; the lines below
/// quote the manual.
fn findings(output: &str, ok: bool, ending: &str, files: &[String]) -> Vec<String> {
    const FIX: &str = "fix: target/tools/buildifier -lint=fix FILE, and what it still reports";
    let opens = |line: &&str| {
        let file = line.split([':', ' ']).next().unwrap_or_default();
        files.iter().any(|known| known == file)
    };
    let mut found: Vec<String> =
        output.lines().filter(opens).map(|line| format!("{line}; {FIX}")).collect();
    if !ok && found.is_empty() {
        found.push(format!("buildifier: {ending}: {output}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bazel_files_are_recognized_by_name() {
        for file in ["BUILD.bazel", "libs/core/BUILD.bazel", "tools/a.bzl", "MODULE.bazel"] {
            assert!(is_bazel(file), "{file}");
        }
        assert!(!is_bazel("tools/bazel/host.bazelrc") && !is_bazel("libs/BUILD.md"));
    }

    #[test]
    fn silent_formatter_passes_only_with_a_good_exit() {
        let files = ["libs/core/BUILD.bazel".to_owned()];
        assert_eq!(findings("", true, "exit 0", &files), Vec::<String>::new());
        assert_eq!(findings("", false, "exit 4", &files).len(), 1);
        let output = "libs/core/BUILD.bazel # reformat\nlibs/core/BUILD.bazel:4: x: y\nmore\n";
        let found = findings(output, false, "exit 4", &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|line| line.contains("BUILD.bazel") && line.contains("fix:")));
    }
}
