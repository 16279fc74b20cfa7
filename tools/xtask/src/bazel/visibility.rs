//! The rule `bazel-visibility`: visibility equals the layer table of ARCHITECTURE.md, so that Bazel
//! refuses a wrong import. A crate's library is visible to exactly the crates that may import it by
//! the table. Folders of tests and examples may import anything, as dev-dependencies may.

use std::collections::BTreeSet;

use super::graph::{self, Graph, package};
use crate::layers::{self, Layer, Layers};
use crate::workspace::Workspace;

/// Rules whose targets other crates link.
const LIBRARIES: [&str; 2] = ["rust_library", "rust_proc_macro"];
/// Folders of a crate to which the table does not apply.
const APART: [&str; 3] = ["tests", "examples", "benches"];

/// Returns a finding for each library whose visibility differs from the table.
///
/// # Errors
/// Returns an error if the table cannot be read, or Bazel cannot load a BUILD file.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    Ok(differences(&layers::table(workspace)?, &graph::load(workspace)?))
}

fn differences(layers: &Layers, graph: &Graph) -> Vec<String> {
    let packages = graph.packages();
    let mut problems = Vec::new();
    let libraries = graph.rules.iter().filter(|(_, rule)| LIBRARIES.contains(&&*rule.class));
    for (label, rule) in libraries {
        let folder = package(label);
        let row = layers.iter().find(|(_, layer)| layer.folder == folder);
        let Some((name, layer)) = row else { continue };
        let visibility = rule.list("visibility");
        for other in packages.iter().filter(|other| **other != folder && !is_apart(other)) {
            let is_allowed = may_import(layers, other, name, layer);
            let sees = visibility.iter().any(|label| shows(label, other, graph));
            if is_allowed != sees {
                problems.push(problem(label, other, sees, visibility));
            }
        }
    }
    problems
}

fn problem(label: &str, other: &str, sees: bool, visibility: &[String]) -> String {
    let (is, table) = if sees { ("is", "refuses") } else { ("is not", "allows") };
    let fix = "fix: change the visibility, or the package groups in tools/bazel";
    let now = visibility.join(", ");
    format!("{label} [{now}] {is} visible to //{other}, which the layer table {table}; {fix}")
}

/// Reports whether the table lets the package of a folder import this package.
fn may_import(layers: &Layers, folder: &str, name: &str, layer: &Layer) -> bool {
    let row = layers.iter().find(|(_, layer)| layer.folder == folder);
    row.is_some_and(|(own_name, own_layer)| {
        layers::refusal(own_name, own_layer, name, layer).is_none()
    })
}

/// Reports whether a package is `libs/core/tests` or below it.
fn is_apart(folder: &str) -> bool {
    folder.split('/').any(|part| APART.contains(&part))
}

/// Reports whether an entry of a visibility list makes its target visible to a package.
fn shows(entry: &str, other: &str, graph: &Graph) -> bool {
    match entry {
        "//visibility:public" => return true,
        "//visibility:private" => return false,
        _ => {}
    }
    match entry.rsplit_once(':') {
        Some((_, "__pkg__")) => package(entry) == other,
        Some((_, "__subpackages__")) => is_below(other, package(entry)),
        _ => graph.groups.get(entry).is_some_and(|group| holds(group, other)),
    }
}

/// Reports whether a package group contains a package. Bazel 4 prints packages without `//`.
fn holds(group: &BTreeSet<String>, other: &str) -> bool {
    let matches = |word: &str| {
        let word = word.trim_start_matches('@').trim_start_matches("//");
        match word.strip_suffix("...") {
            Some(prefix) => is_below(other, prefix.trim_end_matches('/')),
            None => word == other,
        }
    };
    let is_excluded = group.iter().filter_map(|word| word.strip_prefix('-')).any(matches);
    let is_included = group.iter().filter(|word| !word.starts_with('-')).any(|word| matches(word));
    is_included && !is_excluded
}

fn is_below(folder: &str, parent: &str) -> bool {
    parent.is_empty()
        || folder == parent
        || folder.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, group, rule};
    use super::*;

    fn layers() -> Layers {
        let rows = [
            ("forebay-core", Some(0), "libs/core"),
            ("forebay-log", Some(2), "libs/log"),
            ("forebay-writer-service", Some(4), "services/writer"),
            ("forebay-ffi", Some(5), "clients/c"),
            ("forebayd", Some(5), "services/forebayd"),
            ("xtask", None, "tools/xtask"),
        ];
        let row = |(name, level, folder): (&str, Option<u32>, &str)| {
            (name.to_owned(), Layer { level, folder: folder.to_owned() })
        };
        rows.map(row).into_iter().collect()
    }

    /// A tree with one library of each, where libs/log and the writer have the visibility given.
    fn tree(log: &str, writer: &str) -> Vec<String> {
        let patterns = ["services/writer", "clients/c", "services/forebayd/...", "//tools/xtask"];
        let graph = graph(&[
            group("//l:above_log", &patterns, &["//l:tests"]),
            group("//l:tests", &["libs/core/tests"], &[]),
            group("//l:all", &["//...", "-//libs/core", "-//tools/demo"], &[]),
            rule("rust_library", "//libs/log:forebay_log", &[("visibility", log)]),
            rule("rust_library", "//services/writer:writer", &[("visibility", writer)]),
            rule("rust_test", "//libs/core/tests:a_test", &[]),
            rule("rust_test", "//libs/core:core_test", &[]),
            rule("rust_binary", "//clients/c:c", &[]),
            rule("rust_binary", "//services/forebayd:forebayd", &[]),
            rule("rust_binary", "//tools/xtask:xtask", &[]),
            rule("py_test", "//tools/demo:test", &[]),
        ]);
        differences(&layers(), &graph)
    }

    const WRITER: &str = "//services/forebayd:__pkg__,//tools/xtask:__subpackages__";

    #[test]
    fn visibility_equal_to_the_table_has_no_problem() {
        assert_eq!(tree("//l:above_log", WRITER), Vec::<String>::new());
        assert_eq!(tree("//l:all", WRITER), Vec::<String>::new());
    }

    #[test]
    fn check_names_packages_that_see_too_much() {
        let public = tree("//visibility:public", WRITER);
        let verdicts: Vec<_> =
            public.iter().map(|problem| problem.contains("table refuses")).collect();
        assert_eq!(verdicts, [true, true], "{public:?}");
        assert!(public[0].contains("//libs/log:forebay_log") && public[0].contains("//libs/core"));
        assert!(public[1].contains("//tools/demo"), "{public:?}");
        let wide = tree("//l:above_log", &format!("{WRITER},//clients/c:__pkg__"));
        assert_eq!(wide.len(), 1, "{wide:?}");
        assert!(wide[0].contains("//clients/c"), "{wide:?}");
    }

    #[test]
    fn check_names_packages_that_see_too_little() {
        let narrow = tree("//l:above_log", "//services/forebayd:__pkg__");
        assert_eq!(narrow.len(), 1, "{narrow:?}");
        assert!(narrow[0].contains("//tools/xtask") && narrow[0].contains("allows"));
        assert_eq!(tree("", WRITER).len(), 4);
        assert_eq!(tree("//visibility:private", WRITER).len(), 4);
    }
}
