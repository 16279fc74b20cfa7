//! Every crate's manifest inherits the workspace's lints. The crates that may contain unsafe code
//! cannot relax an inherited `forbid`, so they repeat the whole table and differ only in that lint.

use std::fs;

use toml::{Table, Value};

use crate::workspace::Workspace;

/// Folders that may contain unsafe code.
pub const UNSAFE_FOLDERS: [&str; 3] = ["libs/index/", "clients/c/", "clients/python/"];
const UNSAFE_LINT: &str = "unsafe_code";

/// Returns a finding for each manifest whose lints differ from the workspace's.
pub fn problems(workspace: &Workspace, files: &[String]) -> Vec<String> {
    let house = read(workspace, "Cargo.toml");
    let house = house.get("workspace").and_then(|table| table.get("lints")).cloned();
    let house = house.unwrap_or_else(|| Value::Table(Table::new()));
    let crates = files.iter().filter(|file| file.ends_with("/Cargo.toml"));
    crates.filter_map(|file| problem(file, &read(workspace, file), &house)).collect()
}

fn read(workspace: &Workspace, file: &str) -> Table {
    let text = fs::read_to_string(workspace.root.join(file)).unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn problem(file: &str, manifest: &Table, house: &Value) -> Option<String> {
    let lints = manifest.get("lints");
    if lints.and_then(|lints| lints.get("workspace")) == Some(&Value::Boolean(true)) {
        return None;
    }
    let fenced = UNSAFE_FOLDERS.iter().any(|folder| file.starts_with(folder));
    if !fenced {
        return Some(format!(
            "{file}: the crate does not inherit lints; fix: [lints] workspace = true"
        ));
    }
    let own_lints = lints.cloned().unwrap_or_else(|| Value::Table(Table::new()));
    let is_same = without_unsafe(&own_lints) == without_unsafe(house);
    (!is_same).then(|| {
        format!("{file}: lints differ from the workspace's by more than {UNSAFE_LINT}; fix: copy")
    })
}

fn without_unsafe(lints: &Value) -> Value {
    let mut lints = lints.clone();
    if let Some(rust) = lints.get_mut("rust").and_then(Value::as_table_mut) {
        rust.remove(UNSAFE_LINT);
    }
    lints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn lints_are_inherited_or_copied_inside_the_fence() {
        let house = table("[rust]\nunsafe_code = 'forbid'\nmissing_docs = 'warn'\n");
        let house = Value::Table(house);
        let inherits = table("[lints]\nworkspace = true\n");
        let copies = table("[lints.rust]\nunsafe_code = 'allow'\nmissing_docs = 'warn'\n");
        let weaker = table("[lints.rust]\nunsafe_code = 'allow'\n");
        assert!(problem("libs/core/Cargo.toml", &inherits, &house).is_none());
        assert!(problem("libs/core/Cargo.toml", &copies, &house).is_some());
        assert!(problem("libs/core/Cargo.toml", &table(""), &house).is_some());
        assert!(problem("libs/index/Cargo.toml", &copies, &house).is_none());
        assert!(problem("libs/index/Cargo.toml", &weaker, &house).is_some());
    }
}
