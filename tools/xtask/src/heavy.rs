//! The heavy dependencies take minutes to compile, so each is compiled once (tools/decisions/0002):
//! one set of features, one form of invocation, shared by tests, demo, wheel and jar. The last
//! stage looks at what the run has built. To watch another one, add its row to `HEAVY`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::stages::show;
use crate::suite::Suite;
use crate::workspace::{Workspace, text};

/// A dependency and what compiling it leaves in a profile's folder. The star stands for the hash
/// that differs with features, flags and profile; a Rust library has `deps/libNAME-*.rlib`.
struct Heavy {
    package: &'static str,
    artifact: &'static str,
}

const RDKAFKA: &Heavy =
    &Heavy { package: "rdkafka-sys", artifact: "build/rdkafka-sys-*/out/src/librdkafka.a" };
const ROCKSDB: &Heavy =
    &Heavy { package: "librocksdb-sys", artifact: "build/librocksdb-sys-*/out/librocksdb.a" };
const HEAVY: &[&Heavy] = &[RDKAFKA, ROCKSDB];

/// Its time of change says when the run began.
const MARK: &str = "xtask/run-began";

/// Notes that a run begins: what is built from now on is this run's.
///
/// # Errors
/// The note cannot be written.
pub fn mark(workspace: &Workspace) -> Result<(), String> {
    let mark = workspace.target()?.join(MARK);
    let folder = mark.parent().unwrap_or(&mark);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&mark, b""));
    written.map_err(|error| format!("write {}: {error}", mark.display()))
}

/// A suite for each heavy dependency: the run compiled it once, or found it compiled.
///
/// # Errors
/// The target folder is unknown, or no run was marked.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let began = changed(&target.join(MARK)).ok_or("no run was marked as begun")?;
    let mut suites = Vec::new();
    for heavy in HEAVY {
        let verdict = compiled_once(&target, heavy, began);
        let found = verdict.clone().err().unwrap_or_default();
        let suite = Suite::single(&format!("once/{}", heavy.package), verdict);
        show(&suite, &found);
        suites.push(suite);
    }
    Ok(suites)
}

fn compiled_once(target: &Path, heavy: &Heavy, began: SystemTime) -> Result<(), String> {
    let Heavy { package, artifact } = heavy;
    let profiles = profiles(target);
    let all: Vec<PathBuf> = profiles.iter().flat_map(|folder| matches(folder, artifact)).collect();
    if all.is_empty() {
        return Err(format!("nothing built it, or {artifact} is no longer what that leaves"));
    }
    let is_new = |path: &&PathBuf| changed(path).is_some_and(|time| time >= began);
    let new: Vec<String> =
        all.iter().filter(is_new).map(|path| path.display().to_string()).collect();
    if new.len() <= 1 {
        return Ok(());
    }
    let forms: Vec<String> = profiles.iter().flat_map(|folder| forms(folder, package)).collect();
    Err(format!(
        "compiled {} times in this run; fix: give every invocation the same features and flags \
         (tools/decisions/0002)\n{}\nbuilt as:\n{}",
        new.len(),
        new.join("\n"),
        forms.join("\n")
    ))
}

/// The folders that cargo builds a profile in: `target/debug`, `target/TRIPLE/release`.
fn profiles(target: &Path) -> Vec<PathBuf> {
    let first = children(target);
    let second: Vec<PathBuf> = first.iter().flat_map(|folder| children(folder)).collect();
    first.into_iter().chain(second).filter(|folder| folder.join(".fingerprint").is_dir()).collect()
}

/// The paths that a pattern with one star stands for.
fn matches(profile: &Path, pattern: &str) -> Vec<PathBuf> {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let (folder, stem) = before.rsplit_once('/').unwrap_or(("", before));
    let named = |path: &Path, end: &str| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(stem) && name.ends_with(end)
    };
    let entries = children(&profile.join(folder)).into_iter();
    match after.strip_prefix('/') {
        Some(inner) => entries
            .filter(|path| named(path, ""))
            .map(|path| path.join(inner))
            .filter(|path| path.is_file())
            .collect(),
        None => entries.filter(|path| named(path, after)).collect(),
    }
}

/// Features and flags of every library that cargo built of a package, as its fingerprints tell.
fn forms(profile: &Path, package: &str) -> Vec<String> {
    let libraries = matches(&profile.join(".fingerprint"), &format!("{package}-*"));
    let files = libraries.iter().flat_map(|folder| children(folder));
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("lib-") && name.ends_with(".json")
    };
    let told = files.filter(is_library).filter_map(|path| {
        let value: Value = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
        let (features, flags) = (text(&value, "features"), &value["rustflags"]);
        Some(format!("{}: features {features}, rustflags {flags}", path.display()))
    });
    told.collect()
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
    use super::*;

    fn build(target: &Path, profile: &str, path: &str, content: &str) -> PathBuf {
        fs::create_dir_all(target.join(profile).join(".fingerprint")).unwrap();
        let file = target.join(profile).join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        file
    }

    fn library(target: &Path, profile: &str, hash: &str) -> PathBuf {
        build(target, profile, &RDKAFKA.artifact.replace('*', hash), "")
    }

    #[test]
    fn a_second_build_is_named_with_features_and_flags() {
        let folder = tempfile::tempdir().unwrap();
        let began = changed(&library(folder.path(), "debug", "12ab")).unwrap();
        assert_eq!(compiled_once(folder.path(), RDKAFKA, began), Ok(()));
        library(folder.path(), "triple/release", "34cd");
        let form = r#"{"features": "[\"ssl\"]", "rustflags": ["-g"]}"#;
        let fingerprint = ".fingerprint/rdkafka-sys-34cd/lib-rdkafka_sys.json";
        build(folder.path(), "triple/release", fingerprint, form);
        let problem = compiled_once(folder.path(), RDKAFKA, began).unwrap_err();
        for word in ["2 times", "rdkafka-sys-12ab", "rdkafka-sys-34cd", "ssl", "-g"] {
            assert!(problem.contains(word), "{problem}");
        }
    }

    #[test]
    fn what_earlier_runs_left_is_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let old = library(folder.path(), "debug", "12ab");
        let began = changed(&old).unwrap();
        let before = began - std::time::Duration::from_secs(60);
        let times = fs::FileTimes::new().set_modified(before);
        fs::File::options().write(true).open(&old).unwrap().set_times(times).unwrap();
        library(folder.path(), "debug", "34cd");
        assert_eq!(compiled_once(folder.path(), RDKAFKA, began), Ok(()));
    }

    #[test]
    fn a_pattern_that_finds_nothing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let mark = build(folder.path(), "debug", "mark", "");
        let problem = compiled_once(folder.path(), RDKAFKA, changed(&mark).unwrap()).unwrap_err();
        assert!(problem.contains(RDKAFKA.artifact), "{problem}");
    }

    #[test]
    fn a_rust_library_is_found_by_its_own_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let heavy = Heavy { package: "datafusion", artifact: "deps/libdatafusion-*.rlib" };
        let first = build(folder.path(), "debug", "deps/libdatafusion-1.rlib", "");
        build(folder.path(), "debug", "deps/libdatafusion_common-1.rlib", "");
        build(folder.path(), "debug", "deps/libdatafusion-2.rmeta", "");
        let began = changed(&first).unwrap();
        assert_eq!(compiled_once(folder.path(), &heavy, began), Ok(()));
        build(folder.path(), "debug", "deps/libdatafusion-2.rlib", "");
        assert!(compiled_once(folder.path(), &heavy, began).is_err());
    }
}
