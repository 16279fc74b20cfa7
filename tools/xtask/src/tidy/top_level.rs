//! The top level of the tree is fixed, because a newcomer sees it first. A tool that needs another
//! file at the top level requires a change of these lists.

/// Names that the top level must have.
const REQUIRED: [&str; 17] = [
    ".ci",
    "ARCHITECTURE.md",
    "BUILD.bazel",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "WORKSPACE",
    "bench",
    "clients",
    "infra",
    "libs",
    "proto",
    "services",
    "tools",
];

/// Names that the top level may have: files that tools require in the root.
const ALLOWED: [&str; 16] = [
    ".bazelignore",
    ".bazelrc",
    ".bazelversion",
    ".cargo",
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    "Cargo.lock",
    "MODULE.bazel",
    "WORKSPACE.bzlmod",
    "clippy.toml",
    "go.mod",
    "go.sum",
    "pom.xml",
    "pyproject.toml",
    "rustfmt.toml",
];

/// Returns a finding for each missing and each superfluous name.
pub fn problems(files: &[String]) -> Vec<String> {
    let mut names: Vec<&str> =
        files.iter().map(|file| file.split('/').next().unwrap_or(file)).collect();
    names.dedup();
    let extra = names.iter().filter(|name| !REQUIRED.contains(name) && !ALLOWED.contains(name));
    let fix = "fix: move it into one of the folders (the top level is fixed)";
    let mut problems: Vec<String> =
        extra.map(|name| format!("{name}: no name of the top level; {fix}")).collect();
    let missing = REQUIRED.iter().filter(|name| !names.contains(name));
    problems.extend(missing.map(|name| format!("{name}: missing from the top level")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_level_lists_do_not_overlap() {
        assert!(REQUIRED.iter().all(|name| !ALLOWED.contains(name)));
    }

    #[test]
    fn whole_top_level_has_no_problem() {
        let files: Vec<String> = REQUIRED.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(problems(&files), Vec::<String>::new());
        assert_eq!(problems(&files[1..]).len(), 1);
    }
}
