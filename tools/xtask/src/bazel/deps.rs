//! The rule `bazel-deps`: a crate's Cargo.toml and BUILD file name the same dependencies. Cargo's
//! list is right by definition. The rule compares one kind of dependency at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{self, BuildRule, Graph, package};
use crate::workspace::{Package, Workspace};

/// Folders of a crate whose targets may use dev-dependencies; they have separate BUILD files.
const APART: [&str; 3] = ["tests", "examples", "benches"];
const LISTS: [&str; 2] = ["deps", "proc_macro_deps"];

/// Returns a finding for each dependency that only one side has.
///
/// # Errors
/// Returns an error if cargo or Bazel cannot load the tree.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    Ok(differences(&workspace.packages()?, &graph::load(workspace)?))
}

fn differences(packages: &[Package], graph: &Graph) -> Vec<String> {
    let by_folder: BTreeMap<&str, &str> =
        packages.iter().map(|package| (package.folder.as_str(), package.name.as_str())).collect();
    packages.iter().flat_map(|package| package_problems(package, &by_folder, graph)).collect()
}

/// The dependencies of the targets of a crate, by kind.
#[derive(Default)]
struct TargetDeps {
    normal: BTreeSet<String>,
    dev: BTreeSet<String>,
    build: BTreeSet<String>,
    targets: usize,
}

fn package_problems(
    crate_package: &Package,
    by_folder: &BTreeMap<&str, &str>,
    graph: &Graph,
) -> Vec<String> {
    let mut target_deps = collect_deps(crate_package, by_folder, graph);
    let build_file = format!("{}/BUILD.bazel", crate_package.folder);
    if target_deps.targets == 0 {
        return vec![format!(
            "{build_file} has no target of {}; fix: add its targets",
            crate_package.name
        )];
    }
    let edges = |test: fn(&crate::workspace::Dependency) -> bool| -> BTreeSet<String> {
        let edges = crate_package.dependencies.iter().filter(|edge| test(edge));
        edges.map(|edge| edge.name.clone()).collect()
    };
    let normal = edges(|edge| !edge.dev && !edge.build);
    let needed = edges(|edge| !edge.dev && !edge.build && !edge.optional);
    let dev = edges(|edge| edge.dev);
    let build = edges(|edge| edge.build);
    target_deps.dev.remove(&crate_package.name);
    let may_dev: BTreeSet<String> = dev.union(&normal).cloned().collect();
    let only_dev: BTreeSet<String> = dev.difference(&normal).cloned().collect();
    let mut problems = Vec::new();
    let mut say = |kind: &str, listed: &BTreeSet<String>, allowed, required: &BTreeSet<String>| {
        for extra in listed.difference(allowed) {
            let fix = format!(
                "fix: remove it, or add it to [{kind}] of {}/Cargo.toml",
                crate_package.folder
            );
            problems.push(format!("{build_file}: {extra} is not in [{kind}] of cargo; {fix}"));
        }
        for missing in required.difference(listed) {
            let fix = "fix: add it there, or remove it from Cargo.toml";
            problems.push(format!("{build_file}: {missing} of [{kind}] is in no target; {fix}"));
        }
    };
    say("dependencies", &target_deps.normal, &normal, &needed);
    say("dev-dependencies", &target_deps.dev, &may_dev, &only_dev);
    say("build-dependencies", &target_deps.build, &build, &build);
    problems
}

fn collect_deps(
    crate_package: &Package,
    by_folder: &BTreeMap<&str, &str>,
    graph: &Graph,
) -> TargetDeps {
    let mut target_deps = TargetDeps::default();
    for (label, rule) in &graph.rules {
        let Some(kind) = kind(crate_package, label, rule) else { continue };
        let list = match kind {
            Kind::Normal => &mut target_deps.normal,
            Kind::Dev => &mut target_deps.dev,
            Kind::Build => &mut target_deps.build,
        };
        target_deps.targets += 1;
        let labels = LISTS.iter().flat_map(|list| rule.list(list));
        list.extend(labels.filter_map(|label| named(label, by_folder, crate_package, kind)));
    }
    target_deps
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Dev,
    Build,
}

/// Returns the kind of a target's dependencies, `None` if the target is not of this crate.
fn kind(crate_package: &Package, label: &str, rule: &BuildRule) -> Option<Kind> {
    let inside = package(label).strip_prefix(crate_package.folder.as_str())?;
    let subfolder = inside.strip_prefix('/').map(|rest| rest.split('/').next().unwrap_or(rest));
    match rule.class.as_str() {
        "cargo_build_script" => inside.is_empty().then_some(Kind::Build),
        class if !class.starts_with("rust_") => None,
        _ if subfolder.is_some_and(|folder| APART.contains(&folder)) => Some(Kind::Dev),
        _ if !inside.is_empty() => None,
        _ if rule.is_test() => Some(Kind::Dev),
        _ => Some(Kind::Normal),
    }
}

/// Returns cargo's name of a label; `None` for parts of the crate itself, such as its build script
/// or, for a program, its library.
fn named(
    label: &str,
    by_folder: &BTreeMap<&str, &str>,
    crate_package: &Package,
    kind: Kind,
) -> Option<String> {
    if let Some(name) = label.strip_prefix("@crates//:") {
        return Some(name.to_owned());
    }
    let folder = package(label);
    if folder == crate_package.folder && kind != Kind::Dev {
        return None;
    }
    // Helpers of tests are below their crate's folder.
    if folder.strip_prefix(crate_package.folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    {
        return None;
    }
    Some(by_folder.get(folder).map_or_else(|| label.to_owned(), |name| (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, rule};
    use super::*;
    use crate::workspace::Dependency;

    fn edge(name: &str) -> Dependency {
        let (dev, build) = (false, false);
        Dependency { name: name.to_owned(), dev, build, optional: false, first_party: false }
    }

    fn crate_of(name: &str, folder: &str, dependencies: Vec<Dependency>) -> Package {
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Package { name, folder, dependencies, binaries: vec![], tests: vec![] }
    }

    fn packages() -> Vec<Package> {
        let dev = |name| Dependency { dev: true, ..edge(name) };
        let build = |name| Dependency { build: true, ..edge(name) };
        let optional = Dependency { optional: true, ..edge("libfuzzer-sys") };
        let edges =
            vec![edge("serde"), edge("forebay-b"), dev("proptest"), build("protox"), optional];
        vec![crate_of("forebay-a", "libs/a", edges), crate_of("forebay-b", "libs/b", vec![])]
    }

    fn tree(library: &str, test: &str, script: &str) -> Vec<String> {
        let graph = graph(&[
            rule("rust_library", "//libs/a:forebay_a", &[("deps", library)]),
            rule("rust_test", "//libs/a/tests:x_test", &[("deps", test)]),
            rule("cargo_build_script", "//libs/a:build_script", &[("deps", script)]),
            rule("rust_library", "//libs/b:forebay_b", &[]),
        ]);
        differences(&packages(), &graph)
    }

    const LIBRARY: &str = "@crates//:serde,//libs/b:forebay_b,:build_script,//libs/a:build_script";
    const TEST: &str = "//libs/a:forebay_a,@crates//:proptest,@crates//:serde";

    fn assert_only(problems: &[String], words: &[&str]) {
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(words.iter().all(|word| problems[0].contains(word)), "{problems:?}");
    }

    #[test]
    fn equal_dependency_lists_have_no_problem() {
        let library = LIBRARY.replace(":build_script,", "");
        assert_eq!(tree(&library, TEST, "@crates//:protox"), Vec::<String>::new());
    }

    #[test]
    fn check_names_missing_dependencies_with_their_file() {
        let library = LIBRARY.replace(":build_script,", "");
        let protox = "@crates//:protox";
        let extended_library = format!("{library},@crates//:tokio");
        assert_only(
            &tree(&extended_library, TEST, protox),
            &["libs/a/BUILD.bazel", "tokio", "[dependencies]"],
        );
        assert_only(&tree("@crates//:serde", TEST, protox), &["forebay-b", "in no target"]);
        let dev = ["proptest", "[dev-dependencies]"];
        assert_only(&tree(&library, "//libs/a:forebay_a", protox), &dev);
        assert_only(
            &tree(&library, &format!("{TEST},@crates//:csv"), protox),
            &["csv", "remove it"],
        );
        assert_only(&tree(&library, TEST, ""), &["protox", "[build-dependencies]"]);
    }

    #[test]
    fn crate_without_targets_is_named() {
        let graph = graph(&[rule("rust_library", "//libs/b:forebay_b", &[])]);
        assert_only(&differences(&packages(), &graph), &["libs/a/BUILD.bazel", "forebay-a"]);
    }
}
