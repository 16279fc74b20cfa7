//! The stage `once`: a run compiles each library once (tools/decisions/0002). Cargo compiles a
//! dependency again for each other set of features or flags, which can cost minutes. Every
//! invocation of a run must therefore use the same features and flags. The stage reads cargo's
//! fingerprints of the libraries that the run compiled.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::suite::Suite;
use crate::suite_output::show;
use crate::workspace::{Workspace, text};

/// Folder of cargo's target that holds the dev profile.
const PROFILE: &str = "debug";
/// File whose modification time is the start of the run.
const MARK: &str = "xtask/run-began";
/// Libraries that may be compiled twice: xtask is built before the tree, with the features that it
/// needs itself, and the modules of the oldest Pythons have a separate binding.
const EXEMPT: [&str; 23] = [
    "clap",
    "clap_builder",
    "clap_derive",
    "memchr",
    "pyo3",
    "pyo3-build-config",
    "pyo3-ffi",
    "pyo3-macros",
    "pyo3-macros-backend",
    "python",
    "roxmltree",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_json",
    "serde_spanned",
    "syn",
    "toml",
    "toml_datetime",
    "toml_parser",
    "toml_writer",
    "winnow",
    "xtask",
];

/// A compilation of a library.
#[derive(Debug, PartialEq, Eq)]
struct Compilation {
    /// The folder that holds its `src`, without the version's registry.
    source: String,
    /// Features and flags, as a message shows them.
    form: String,
}

/// Records the start of a run. Every library that is compiled later belongs to the run.
///
/// # Errors
/// Returns an error if the mark cannot be written.
pub fn mark(workspace: &Workspace) -> Result<(), String> {
    let mark = workspace.target()?.join(MARK);
    let folder = mark.parent().unwrap_or(&mark);
    let write_result = fs::create_dir_all(folder).and_then(|()| fs::write(&mark, b""));
    write_result.map_err(|error| format!("write {}: {error}", mark.display()))
}

/// Returns a suite that fails if the run compiled a library twice.
///
/// # Errors
/// Returns an error if the target folder is unknown, or no run was marked.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let began = changed(&target.join(MARK)).ok_or("no run was marked; fix: run `xtask test`")?;
    let found = problems(&target.join(PROFILE), began)?;
    let result = if found.is_empty() { Ok(()) } else { Err("see the findings".to_owned()) };
    let suite = Suite::single("once/libraries", result);
    show(&suite, &found.join("\n"));
    Ok(vec![suite])
}

/// Returns the libraries of a profile that were compiled more than once since a moment.
///
/// # Errors
/// Returns an error if there is no fingerprint of a library, as after a change of cargo's layout.
pub fn problems(profile: &Path, run_start: SystemTime) -> Result<Vec<String>, String> {
    let fingerprints = fingerprints(profile);
    if fingerprints.is_empty() {
        let folder = profile.join(".fingerprint");
        return Err(format!("{} contains no fingerprint of a library", folder.display()));
    }
    let new =
        fingerprints.iter().filter(|path| changed(path).is_some_and(|time| time >= run_start));
    let mut groups: BTreeMap<(String, String), Vec<Compilation>> = BTreeMap::new();
    for path in new {
        if let Some((key, compilation)) = read(profile, path) {
            groups.entry(key).or_default().push(compilation);
        }
    }
    let compiled_twice = groups.values().filter(|all| all.len() > 1 && !is_exempt(&all[0].source));
    Ok(compiled_twice.map(|all| finding(all)).collect())
}

fn is_exempt(source: &str) -> bool {
    let name = source.rsplit('/').next().unwrap_or(source);
    EXEMPT.iter().any(|exempt| {
        let rest = name.strip_prefix(exempt);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(is_version))
    })
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn finding(all: &[Compilation]) -> String {
    let forms: Vec<String> =
        all.iter().map(|compilation| format!("    {}", compilation.form)).collect();
    format!(
        "{} was compiled {} times in this run; fix: give every invocation of cargo the same \
         features and flags (tools/decisions/0002)\n{}",
        all[0].source,
        all.len(),
        forms.join("\n")
    )
}

/// Returns the fingerprints of libraries: files named `lib-NAME.json`.
fn fingerprints(profile: &Path) -> Vec<PathBuf> {
    let folders = children(&profile.join(".fingerprint"));
    let files = folders.iter().flat_map(|folder| children(folder));
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("lib-") && name.ends_with(".json")
    };
    files.filter(is_library).collect()
}

/// Reads a fingerprint; returns `None` if its library was removed. The key is the source and the
/// number of the profile: build scripts and checks without code have other profiles.
fn read(profile: &Path, fingerprint: &Path) -> Option<((String, String), Compilation)> {
    let value: Value = serde_json::from_str(&fs::read_to_string(fingerprint).ok()?).ok()?;
    let library = fingerprint.file_stem()?.to_str()?.strip_prefix("lib-")?.to_owned();
    let hash = fingerprint.parent()?.file_name()?.to_str()?.rsplit('-').next()?.to_owned();
    let inputs = profile.join("deps").join(format!("{library}-{hash}.d"));
    let source = source(&fs::read_to_string(inputs).ok()?)?;
    let number = format!("{} {}", value["profile"], value["target"]);
    let (features, flags) = (text(&value, "features"), &value["rustflags"]);
    let form = format!("features {features}, flags {flags}, in {}", fingerprint.display());
    Some(((source.clone(), number), Compilation { source, form }))
}

/// Returns the folder of a package from rustc's list of inputs: `OUTPUT: FOLDER/src/lib.rs ...`.
fn source(inputs: &str) -> Option<String> {
    let first = inputs.lines().next()?.split_once(": ")?.1.split(' ').next()?;
    let (folder, _) = first.rsplit_once("/src/").or_else(|| first.rsplit_once('/'))?;
    Some(folder.to_owned())
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process;

    const MANIFEST: &str = "[workspace]\nmembers = [\"low\", \"one\", \"two\"]\nresolver = \"3\"\n";
    const PACKAGE: &str = "[package]\nversion = \"0.1.0\"\nedition = \"2024\"\nname = ";

    /// A workspace of three libraries, of which `two` turns a feature of `low` on.
    fn workspace() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, content: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("Cargo.toml", MANIFEST);
        write("low/Cargo.toml", &format!("{PACKAGE}\"low\"\n[features]\nmore = []\n"));
        let low = "[dependencies]\nlow = { path = \"../low\"";
        write("one/Cargo.toml", &format!("{PACKAGE}\"one\"\n{low} }}\n"));
        write("two/Cargo.toml", &format!("{PACKAGE}\"two\"\n{low}, features = [\"more\"] }}\n"));
        ["low", "one", "two"].iter().for_each(|name| write(&format!("{name}/src/lib.rs"), ""));
        folder
    }

    fn build(folder: &Path, arguments: &[&str]) {
        let mut command = Command::new("cargo");
        command.arg("build").arg("--offline").args(arguments).current_dir(folder);
        command.env("CARGO_TARGET_DIR", folder.join("target"));
        process::read(&mut command).unwrap();
    }

    #[test]
    fn second_set_of_features_is_found_and_named() {
        let folder = workspace();
        let profile = folder.path().join("target/debug");
        build(folder.path(), &["--workspace"]);
        assert_eq!(problems(&profile, SystemTime::UNIX_EPOCH).unwrap(), Vec::<String>::new());
        build(folder.path(), &["--package", "one"]);
        let found = problems(&profile, SystemTime::UNIX_EPOCH).unwrap();
        let low = found.iter().find(|line| line.contains("low was compiled 2 times")).unwrap();
        assert!(low.contains("more"), "{low}");
        let newest = fingerprints(&profile).iter().filter_map(|path| changed(path)).max().unwrap();
        let later_time = newest + std::time::Duration::from_secs(1);
        assert_eq!(problems(&profile, later_time).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn folder_without_fingerprints_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(problems(folder.path(), SystemTime::UNIX_EPOCH).is_err());
    }

    #[test]
    fn exempt_library_is_recognized_by_its_whole_name() {
        assert!(is_exempt("/r/serde-1.0.2") && is_exempt("/t/clients/python"));
        assert!(!is_exempt("/r/serde-saphyr-2.2.0") && !is_exempt("/r/tokio-1.54.1"));
    }
}
