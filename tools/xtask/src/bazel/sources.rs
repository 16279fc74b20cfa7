//! The rule `bazel-sources`: every source is in a target. Bazel silently ignores a file that no
//! target names.

use std::collections::BTreeSet;

use super::graph::{self, Graph};
use crate::workspace::Workspace;

/// Extensions of source files.
const EXTENSIONS: [&str; 9] = ["rs", "java", "py", "pyi", "proto", "go", "c", "h", "sh"];
/// Folders of which tests read every file.
const FOLDERS: [&str; 2] = ["proto/vectors/", "tools/fuzz/corpus/"];
/// The stand-ins, which are separate repositories: no target of the tree can use their files.
const APART: &str = "tools/bazel/host/";

/// Returns a finding for each source in no target.
///
/// # Errors
/// Returns an error if git cannot list the files, or Bazel cannot load a BUILD file.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    Ok(uncovered(&workspace.files()?, &graph::load(workspace)?))
}

fn uncovered(files: &[String], graph: &Graph) -> Vec<String> {
    let inputs = graph.rules.values().flat_map(|rule| &rule.inputs);
    let covered: BTreeSet<String> = inputs.filter_map(|label| file(label)).collect();
    let packages = graph.packages();
    let missing = files.iter().filter(|file| is_source(file) && !covered.contains(*file));
    let problem = |file: &String| {
        let folder = owner(file, &packages);
        format!("{file} is in no target; fix: add it to srcs or data in {folder}")
    };
    missing.map(problem).collect()
}

/// Returns the BUILD file that a source belongs to.
fn owner(file: &str, packages: &BTreeSet<&str>) -> String {
    let mut folder = file;
    while let Some((parent, _)) = folder.rsplit_once('/') {
        if packages.contains(parent) {
            return format!("{parent}/BUILD.bazel");
        }
        folder = parent;
    }
    "BUILD.bazel".to_owned()
}

/// Returns the file of a label: `//libs/core:src/lib.rs` is `libs/core/src/lib.rs`; `None` for a
/// file of another repository.
fn file(label: &str) -> Option<String> {
    let (package, name) = label.strip_prefix("//")?.split_once(':')?;
    Some(if package.is_empty() { name.to_owned() } else { format!("{package}/{name}") })
}

fn is_source(file: &str) -> bool {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_listed = FOLDERS.iter().any(|folder| file.starts_with(folder)) && extension != "bazel";
    !file.starts_with(APART) && (is_listed || EXTENSIONS.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture;
    use super::*;

    #[test]
    fn source_outside_all_targets_is_named_with_its_build_file() {
        let lists = [("srcs", "//libs/a:src/lib.rs,//:root.py,@x//:libs/a/src/far.rs")];
        let graph = fixture::graph(&[fixture::rule("rust_library", "//libs/a:a", &lists)]);
        let files = [
            "libs/a/src/lib.rs",
            "root.py",
            "libs/a/src/far.rs",
            "libs/a/README.md",
            "tools/bazel/host/rules_x/a.sh",
            "proto/vectors/a.json",
            "proto/vectors/BUILD.bazel",
        ];
        let problems = uncovered(&files.map(str::to_owned), &graph);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("libs/a/src/far.rs"), "{problems:?}");
        assert!(problems[0].contains("in libs/a/BUILD.bazel"), "{problems:?}");
        assert!(problems[1].contains("proto/vectors/a.json"), "{problems:?}");
    }
}
