//! The rule `one-definition`: a crate, a package of Java and a package of Python define the name of
//! a type once. The rule ignores tests, types that a `cfg` selects, and builders in Java, which are
//! nested in the class that they build.

use std::collections::{BTreeMap, BTreeSet};

use super::declarations::{DeclarationKind, Outline};
use super::exceptions::Violation;
use super::outline::outline;
use super::sources::SourceFile;
use crate::parallel::map_parallel;

/// The name of the rule.
pub const RULE: &str = "one-definition";

/// The name of every builder in Java; callers write it with its class (`ReaderOptions.Builder`).
const JAVA_BUILDER: &str = "Builder";

/// The places of the definitions of a name, as `file:line`.
type Places<'a> = BTreeMap<(String, String), Vec<String>>;

/// Returns a finding for each name that has two definitions.
pub fn findings(sources: &[SourceFile]) -> Vec<Violation> {
    let folders = |file: &str| -> BTreeSet<&str> {
        let heads = sources.iter().filter_map(|source| source.path.strip_suffix(file));
        heads.map(|folder| folder.trim_end_matches('/')).collect()
    };
    let (crates, packages) = (folders("/Cargo.toml"), folders("/__init__.py"));
    let read = map_parallel(sources, |source| outline(&source.path, &source.text));
    let paths = sources.iter().map(|source| source.path.as_str());
    let outlines: Vec<(&str, Outline)> = paths.zip(read).collect();
    let tests: BTreeSet<String> =
        outlines.iter().flat_map(|(path, outline)| test_files(path, outline)).collect();
    let mut places = Places::new();
    for (path, outline) in &outlines {
        let Some(scope) = scope(path, outline, &crates, &packages) else { continue };
        if is_test(path, &tests) {
            continue;
        }
        let (python, java) = (path.ends_with(".py"), path.ends_with(".java"));
        for found in &outline.declared {
            let is_builder = java && found.name == JAVA_BUILDER;
            let left_out = found.test || found.selected || (python && found.local) || is_builder;
            if found.kind == DeclarationKind::Type && !left_out {
                let key = (scope.clone(), found.name.clone());
                places.entry(key).or_default().push(format!("{path}:{}", found.line));
            }
        }
    }
    places.into_iter().filter(|(_, places)| places.len() > 1).map(finding).collect()
}

/// Returns the crate or the package that a file belongs to, `None` if it belongs to none.
fn scope(
    path: &str,
    outline: &Outline,
    crates: &BTreeSet<&str>,
    packages: &BTreeSet<&str>,
) -> Option<String> {
    let mut folders_above = ancestors(path);
    match path.rsplit_once('.')?.1 {
        "rs" => {
            let folder = folders_above.find(|folder| crates.contains(folder))?;
            path[folder.len()..].starts_with("/src/").then(|| folder.to_owned())
        }
        "java" => {
            let test = path.contains("/src/test/") || path.contains("/tests/");
            (!test && !outline.package.is_empty()).then(|| format!("package {}", outline.package))
        }
        "py" => folders_above.filter(|folder| packages.contains(folder)).last().map(str::to_owned),
        _ => None,
    }
}

/// Returns the folders above a file, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(offset, _)| &path[..offset])
}

/// Returns the paths, without an extension, of the modules that only builds of tests have.
fn test_files(path: &str, outline: &Outline) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let head = ["/lib", "/main", "/mod"].iter().find_map(|name| stem.strip_suffix(name));
    let folder = head.unwrap_or(stem);
    outline.test_modules.iter().map(|module| format!("{folder}/{module}")).collect()
}

fn is_test(path: &str, tests: &BTreeSet<String>) -> bool {
    tests.contains(path.trim_end_matches(".rs"))
        || ancestors(path).any(|folder| tests.contains(folder))
}

fn finding(((scope, name), places): ((String, String), Vec<String>)) -> Violation {
    let fix = "fix: give each a name of its own, or let them share one type";
    let message = format!("{scope} defines {name} more than once: {}; {fix}", places.join(", "));
    Violation { place: scope, text: name, message }
}
