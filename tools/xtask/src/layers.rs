//! The rule `layers`: ARCHITECTURE.md has two tables between markers, `layers` (package, level,
//! folder) and `absences` (package, names that its normal dependency tree must never reach). The
//! rule compares both with `cargo metadata` and `cargo tree`.

use std::collections::BTreeMap;
use std::fs;

use crate::process;
use crate::workspace::{Package, Workspace};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// A row of the layer table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The level; `None` is `dev`, which only tests import.
    pub level: Option<u32>,
    /// The package's folder, relative to the root.
    pub folder: String,
}

/// The layer table, by package name.
pub type Layers = BTreeMap<String, Layer>;

/// Returns a finding for every wrong edge.
///
/// # Errors
/// Returns an error if the tables cannot be read, or cargo fails.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let document = document(workspace)?;
    let layers = layer_table(&document)?;
    let packages = workspace.packages()?;
    let mut problems = Vec::new();
    for package in &packages {
        problems.extend(package_problems(workspace, package, &layers));
    }
    for row in rows(&document, "absences")? {
        let [name, excluded, ..] = row.as_slice() else {
            return Err(format!("{DOCUMENT}: a row of absences needs two cells: {row:?}"));
        };
        if packages.iter().any(|package| package.name == *name) {
            problems.extend(find_reached(workspace, name, excluded)?);
        }
    }
    Ok(problems)
}

/// Returns the layer table of ARCHITECTURE.md.
///
/// # Errors
/// Returns an error if the document or its table cannot be read.
pub fn table(workspace: &Workspace) -> Result<Layers, String> {
    layer_table(&document(workspace)?)
}

fn document(workspace: &Workspace) -> Result<String, String> {
    fs::read_to_string(workspace.root.join(DOCUMENT))
        .map_err(|error| format!("read {DOCUMENT}: {error}"))
}

fn package_problems(workspace: &Workspace, package: &Package, layers: &Layers) -> Vec<String> {
    let Some(own_layer) = layers.get(&package.name) else {
        let fix = "add a row to its layer table, or rename the package";
        return vec![format!("{} is not in {DOCUMENT}; fix: {fix}", package.name)];
    };
    let mut problems = Vec::new();
    if own_layer.folder != package.folder {
        let (name, folder) = (&package.name, &package.folder);
        problems.push(format!(
            "{name} is in {folder}, but {DOCUMENT} says {}; fix: change the row",
            own_layer.folder
        ));
    }
    for dependency in package.dependencies.iter().filter(|edge| edge.first_party && !edge.dev) {
        let Some(other) = layers.get(&dependency.name) else { continue };
        if let Some(reason) = refusal(&package.name, own_layer, &dependency.name, other) {
            let place = place(workspace, package, &dependency.name);
            let (from, to) = (label(&package.name, own_layer), label(&dependency.name, other));
            problems.push(format!("{from} may not import {to}: {reason}: {place}"));
        }
    }
    problems
}

/// Returns why an edge is refused. Only this function contains the layering rule.
#[must_use]
pub fn refusal(
    package: &str,
    own_layer: &Layer,
    name: &str,
    other: &Layer,
) -> Option<&'static str> {
    let service = |folder: &str| folder.starts_with("services/");
    let Some(other_level) = other.level else {
        let own_is_dev = own_layer.level.is_none();
        return (!own_is_dev).then_some("dev crates are only for dev-dependencies");
    };
    let own_level = own_layer.level?;
    if other_level >= own_level {
        return Some("a crate imports only lower levels");
    }
    let may_import_services = package == "forebayd";
    if service(&other.folder) && !may_import_services && name != package {
        return Some("only forebayd imports services");
    }
    None
}

fn label(name: &str, layer: &Layer) -> String {
    match layer.level {
        Some(level) => format!("{name} (L{level})"),
        None => format!("{name} (dev)"),
    }
}

/// Returns the place of an edge, such as `libs/index/Cargo.toml:14`.
fn place(workspace: &Workspace, package: &Package, dependency: &str) -> String {
    let manifest = format!("{}/Cargo.toml", package.folder);
    let text = fs::read_to_string(workspace.root.join(&manifest)).unwrap_or_default();
    let found = text.lines().position(|line| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    });
    found.map_or(manifest.clone(), |line| format!("{manifest}:{}", line + 1))
}

/// Returns a finding for each package that `name` reaches but must not. `excluded` is a list with
/// commas; a word that ends in `*` is a prefix.
fn find_reached(workspace: &Workspace, name: &str, excluded: &str) -> Result<Vec<String>, String> {
    let form = ["tree", "--locked", "-e", "normal", "--prefix", "none", "--format", "{p}"];
    let mut command = workspace.cargo(&form);
    command.args(["-p", name]);
    let tree = process::read(&mut command)?;
    let mut found: Vec<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    found.sort_unstable();
    found.dedup();
    let mut problems = Vec::new();
    for word in excluded.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        for dependency in found.iter().filter(|package| matches(word, package)) {
            let fix =
                format!("fix: remove an edge of `cargo tree -e normal -p {name} -i {dependency}`");
            problems.push(format!("{name} reaches {dependency}, which it may never reach; {fix}"));
        }
    }
    Ok(problems)
}

fn matches(word: &str, package: &str) -> bool {
    match word.strip_suffix('*') {
        Some(beginning) => package.starts_with(beginning),
        None => package == word,
    }
}

fn layer_table(document: &str) -> Result<Layers, String> {
    let mut layers = Layers::new();
    for row in rows(document, "layers")? {
        let [name, level, folder, ..] = row.as_slice() else {
            return Err(format!("{DOCUMENT}: a layer row needs three cells: {row:?}"));
        };
        let level = match level.as_str() {
            "dev" => None,
            other => {
                let number = other.strip_prefix('L').and_then(|number| number.parse().ok());
                Some(number.ok_or_else(|| format!("{DOCUMENT}: no level '{other}' ({name})"))?)
            }
        };
        let folder = folder.trim_end_matches('/').to_owned();
        if layers.insert(name.clone(), Layer { level, folder }).is_some() {
            return Err(format!("{DOCUMENT}: {name} has two rows"));
        }
    }
    Ok(layers)
}

/// Returns the body rows of the Markdown table between `<!-- NAME:begin -->` and `<!-- NAME:end
/// -->`, without code quotes.
fn rows(document: &str, name: &str) -> Result<Vec<Vec<String>>, String> {
    let inside = document
        .split_once(&format!("<!-- {name}:begin -->"))
        .and_then(|(_, rest)| rest.split_once(&format!("<!-- {name}:end -->")))
        .map(|(inside, _)| inside)
        .ok_or_else(|| format!("{DOCUMENT} has no table between its '{name}' markers"))?;
    let lines = inside.lines().map(str::trim).filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.trim_matches('|');
        line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>()
    };
    let body: Vec<Vec<String>> = lines.skip(2).map(cells).collect();
    if body.is_empty() { Err(format!("{DOCUMENT}: the '{name}' table is empty")) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(level: Option<u32>, folder: &str) -> Layer {
        Layer { level, folder: folder.to_owned() }
    }

    #[test]
    fn layer_rule_refuses_forbidden_edges() {
        let index = layer(Some(1), "libs/index");
        let log = layer(Some(2), "libs/log");
        let core = layer(Some(0), "libs/core");
        let testkit = layer(None, "libs/testkit");
        let writer = layer(Some(4), "services/writer");
        assert!(refusal("forebay-index", &index, "forebay-core", &core).is_none());
        assert!(refusal("forebay-index", &index, "forebay-log", &log).is_some());
        assert!(refusal("forebay-index", &index, "forebay-index", &index).is_some());
        assert!(refusal("forebay-index", &index, "forebay-testkit", &testkit).is_some());
        let bench = layer(None, "bench/micro");
        assert!(refusal("forebay-bench-micro", &bench, "forebay-testkit", &testkit).is_none());
        let service = "forebay-writer-service";
        assert!(refusal("forebay-bench-micro", &bench, service, &writer).is_none());
        let dev = layer(Some(5), "services/forebayd");
        assert!(refusal("forebayd", &dev, service, &writer).is_none());
        let ffi = layer(Some(5), "clients/c");
        assert!(refusal("forebay-ffi", &ffi, service, &writer).is_some());
        let features = layer(Some(4), "services/features");
        assert!(refusal("forebay-features-service", &features, service, &writer).is_some());
    }

    #[test]
    fn tables_are_read_between_their_markers() {
        let document = "| a | b |\n<!-- layers:begin -->\n| package | level | folder |\n\
            |---|---|---|\n| `forebay-core` | L0 | libs/core/ | ids |\n\
            | xtask | dev | tools/xtask |\n<!-- layers:end -->\n";
        let layers = layer_table(document).unwrap();
        assert_eq!(layers["forebay-core"], layer(Some(0), "libs/core"));
        assert_eq!(layers["xtask"], layer(None, "tools/xtask"));
        assert!(layer_table("no markers").is_err());
        assert!(layer_table(&document.replace("L0", "low")).is_err());
        assert!(layer_table(&document.replace("xtask", "forebay-core")).is_err());
    }

    #[test]
    fn star_matches_the_rest_of_a_name() {
        assert!(matches("datafusion*", "datafusion-common"));
        assert!(matches("rocksdb", "rocksdb") && !matches("rocksdb", "librocksdb-sys"));
    }
}
