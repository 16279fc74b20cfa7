//! The stage `unit`: cargo builds the test binaries, and the stage runs each by itself, so that
//! every suite has the name of its package, a log and a bound. Two binaries run at a time, because
//! many wait for processes that they start. A binary without tests is left out only if its sources
//! contain none and its package has tests elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::engine_logs;
use crate::parallel::{processors, run_parallel};
use crate::process;
use crate::suite::{Counts, Suite, parse_libtest, parse_suite_lines};
use crate::suite_output::show;
use crate::workspace::{BUILD_BOUND, Workspace, array, text};

/// Bound of one test binary.
const SUITE_BOUND: Duration = Duration::from_secs(15 * 60);

/// Path of cargo's messages of the build, below the target folder.
const BUILD_LOG: &str = "xtask/unit/build.json";

/// A built test binary.
#[derive(Clone, Debug)]
pub(crate) struct TestBinary {
    package: String,
    folder: PathBuf,
    /// The suite: `unit` for the library, `bin-NAME` for a program, else the file's name in tests/.
    pub(crate) what: String,
    source: PathBuf,
    executable: PathBuf,
}

/// Builds and runs all test binaries, and prints each suite's line as it ends.
///
/// # Errors
/// Returns an error if the build fails or a log cannot be written. A failed suite is a result.
pub fn run(
    workspace: &Workspace,
    show: &mut dyn FnMut(&Suite, &str),
) -> Result<Vec<Suite>, String> {
    let logs = workspace.target()?.join("xtask/unit");
    let mut suites = Vec::new();
    let mut ran_by_package: BTreeMap<String, u64> = BTreeMap::new();
    run_parallel(
        &test_binaries(workspace)?,
        |binary| {
            let mut command = binary.command();
            engine_logs::redirect(workspace, &mut command)?;
            run_one(binary.suite(), &logs, &mut command)
        },
        |binary, ran| {
            let (suite, output) = ran?;
            *ran_by_package.entry(binary.package.clone()).or_default() += suite.ran;
            if suite.ran > 0 || suite.problem.is_some() || !may_be_empty(binary) {
                show(&suite, &output);
                suites.push(suite);
            }
            Ok(())
        },
    )?;
    for (package, _) in ran_by_package.into_iter().filter(|(_, ran)| *ran == 0) {
        let suite = Suite::broken(
            &format!("{package}/any"),
            "the package has no tests; fix: add one".to_owned(),
        );
        show(&suite, "");
        suites.push(suite);
    }
    Ok(suites)
}

/// Builds and runs the test binaries of a package, and prints the closing line. Cargo selects by
/// target and not by package, so that every dependency has the features of the whole tree.
///
/// # Errors
/// Returns an error if the tree has no such package, or the build or a test fails.
pub fn run_package(workspace: &Workspace, name: &str) -> Result<(), String> {
    let packages = workspace.packages()?;
    let package = packages.iter().find(|package| package.name == name);
    let package =
        package.ok_or_else(|| format!("no package {name}; fix: name one of ARCHITECTURE.md"))?;
    let logs = workspace.target()?.join("xtask/unit");
    let mut command = workspace.cargo(&["test", "--workspace", "--locked", "--no-run", "--lib"]);
    command.args(package.tests.iter().flat_map(|test| ["--test", test]));
    command.args(package.binaries.iter().flat_map(|binary| ["--bin", binary]));
    let binaries = build_binaries(&mut command, &logs.join("package.json"))?;
    // Most tests of a service wait for processes, and this command runs one binary at a time.
    let threads = 2 * processors();
    let mut counts = Counts::default();
    for binary in binaries.iter().filter(|binary| binary.package == name) {
        let mut command = binary.command();
        command.env("RUST_TEST_THREADS", threads.to_string());
        let (suite, output) = run_one(binary.suite(), &logs, &mut command)?;
        if suite.ran > 0 || !may_be_empty(binary) {
            show(&suite, &output);
            counts.add(suite.counts());
        }
    }
    println!("{counts}");
    if counts.failed == 0 { Ok(()) } else { Err(format!("tests of {name} fail; see above")) }
}

/// Reports whether an earlier run, or another command of cargo, has built the test binaries.
///
/// # Errors
/// Returns an error if `cargo metadata` fails.
pub fn was_built(workspace: &Workspace) -> Result<bool, String> {
    let target = workspace.target()?;
    if target.join(BUILD_LOG).is_file() {
        return Ok(true);
    }
    let packages = workspace.packages()?;
    let tests = packages.iter().flat_map(|package| &package.tests);
    Ok(holds_binaries(&target.join("debug/deps"), tests.map(String::as_str)))
}

/// Reports whether a folder of cargo holds a binary, `NAME-HASH`, of each of these tests. The
/// messages of a check (`NAME-HASH.rmeta`) and the lists of inputs have an extension.
fn holds_binaries<'a>(folder: &Path, mut tests: impl Iterator<Item = &'a str>) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let built_names: BTreeSet<String> = names
        .filter(|name| !name.contains('.'))
        .filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned()))
        .collect();
    tests.all(|test| built_names.contains(&test.replace('-', "_")))
}

fn test_binaries(workspace: &Workspace) -> Result<Vec<TestBinary>, String> {
    let log = workspace.target()?.join(BUILD_LOG);
    // `--all-targets` would also build the test binaries of targets whose manifest says
    // `test = false` (tools/decisions/0002).
    let form = ["test", "--workspace", "--tests", "--locked", "--no-run"];
    build_binaries(&mut workspace.cargo(&form), &log)
}

/// Runs a build and returns its test binaries, in order.
///
/// # Errors
/// Returns an error if the build fails, or builds no test binary.
pub(crate) fn build_binaries(command: &mut Command, log: &Path) -> Result<Vec<TestBinary>, String> {
    built_with(command, &[], log)
}

/// Does the same as [`build_binaries`], with flags for the compiler of the binary's crate
/// (`cargo rustc`).
///
/// # Errors
/// Returns the errors of [`build_binaries`].
pub(crate) fn built_with(
    command: &mut Command,
    flags: &[&str],
    log: &Path,
) -> Result<Vec<TestBinary>, String> {
    command.arg("--message-format=json-render-diagnostics");
    if !flags.is_empty() {
        command.arg("--").args(flags);
    }
    let outcome = process::capture(command, log, BUILD_BOUND)?;
    if !outcome.ok {
        let words: Vec<&str> =
            outcome.output.lines().filter(|line| !line.starts_with('{')).collect();
        return Err(format!("the tests do not build: {}\n{}", outcome.ending, words.join("\n")));
    }
    let messages = outcome.output.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut binaries: Vec<TestBinary> = messages.filter_map(|value| test_binary(&value)).collect();
    binaries.sort_by(|left, right| (&left.package, &left.what).cmp(&(&right.package, &right.what)));
    if binaries.is_empty() {
        return Err("cargo built no test binary".to_owned());
    }
    Ok(binaries)
}

/// Reads one message of cargo. Benchmarks are built with the tests, but are no tests. A target
/// whose manifest says `test = false` is tested elsewhere, such as the Python module by pytest.
fn test_binary(message: &Value) -> Option<TestBinary> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let target = &message["target"];
    let kind = array(target, "kind").first()?.as_str()?;
    if !is_test || kind == "bench" || target["test"] == false {
        return None;
    }
    let name = text(target, "name");
    let binary_kind = match kind {
        "bin" => format!("bin-{name}"),
        "test" | "example" => name.to_owned(),
        _ => "unit".to_owned(),
    };
    let manifest = Path::new(text(message, "manifest_path"));
    Some(TestBinary {
        package: package_name(text(message, "package_id")),
        folder: manifest.parent()?.to_path_buf(),
        what: binary_kind,
        source: PathBuf::from(text(target, "src_path")),
        executable: PathBuf::from(message["executable"].as_str()?),
    })
}

/// Returns the package of an id: `path+file:///tree/libs/core#forebay-core@0.1.0`, or
/// `...tools/xtask#0.1.0` if the folder has the package's name.
fn package_name(id: &str) -> String {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

impl TestBinary {
    /// Returns the name of the suite.
    fn suite(&self) -> String {
        format!("{}/{}", self.package, self.what)
    }

    /// Returns the command by which cargo would run the binary.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("CARGO_PKG_NAME", &self.package);
        command
    }
}

/// Runs a binary by this command as the suite of this name; returns suite and output.
///
/// # Errors
/// Returns an error if the binary cannot be started, or the log cannot be written.
pub(crate) fn run_one(
    name: String,
    logs: &Path,
    command: &mut Command,
) -> Result<(Suite, String), String> {
    let log = logs.join(format!("{}.log", name.replace('/', "-")));
    let outcome = process::capture(command, &log, SUITE_BOUND)?;
    let mut found = parse_libtest(&outcome.output);
    if found.is_empty() {
        // A custom harness, such as that of a fuzz target, prints lines `suite NAME: ...`.
        found = parse_suite_lines(&outcome.output);
    }
    let mut suite = Suite { name, ..Suite::default() };
    for part in &found {
        suite.ran += part.ran;
        suite.failed += part.failed;
        suite.skipped += part.skipped;
        suite.problem = suite.problem.or_else(|| part.problem.clone());
    }
    if found.is_empty() {
        suite.problem = Some(format!("the binary reported no result: {}", outcome.ending));
    } else if !outcome.ok && suite.failed == 0 {
        suite.problem = Some(outcome.ending);
    }
    Ok((suite, outcome.output))
}

/// Reports whether a binary may be empty: a unit-test binary whose sources contain no test may, a
/// file in tests/ may not.
fn may_be_empty(binary: &TestBinary) -> bool {
    if binary.source.starts_with(binary.folder.join("tests")) {
        return false;
    }
    let source_folder = binary.folder.join("src");
    let beside_library = source_folder.join("lib.rs").is_file() && binary.what != "unit";
    if beside_library { !holds_tests(&binary.source) } else { !any_holds_tests(&source_folder) }
}

fn any_holds_tests(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .any(|path| if path.is_dir() { any_holds_tests(&path) } else { holds_tests(&path) })
}

fn holds_tests(path: &Path) -> bool {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let source = fs::read_to_string(path).unwrap_or_default();
    is_rust
        && source.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("#[test]") || (line.starts_with("#[") && line.contains("::test"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(folder: &Path, source: &str, binary_kind: &str) -> TestBinary {
        TestBinary {
            package: "forebay-x".to_owned(),
            folder: folder.to_path_buf(),
            what: binary_kind.to_owned(),
            source: folder.join(source),
            executable: PathBuf::from("sh"),
        }
    }

    #[test]
    fn package_names_come_from_both_forms_of_the_id() {
        assert_eq!(package_name("path+file:///t/libs/core#forebay-core@0.1.0"), "forebay-core");
        assert_eq!(package_name("path+file:///t/tools/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn build_is_whole_once_each_test_has_a_binary() {
        let folder = tempfile::tempdir().unwrap();
        let tests = || ["codec_test", "round-trip"].into_iter();
        assert!(!holds_binaries(&folder.path().join("missing"), tests()));
        for name in ["codec_test-0a1b", "round_trip-2c3d.d", "libround_trip-2c3d.rmeta"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(!holds_binaries(folder.path(), tests()));
        fs::write(folder.path().join("round_trip-2c3d"), "").unwrap();
        assert!(holds_binaries(folder.path(), tests()));
    }

    #[test]
    fn empty_binary_passes_only_without_tests_in_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("src");
        fs::create_dir_all(source.join("deep")).unwrap();
        fs::write(source.join("lib.rs"), "mod deep;").unwrap();
        fs::write(source.join("main.rs"), "fn main() {}").unwrap();
        assert!(may_be_empty(&binary(folder.path(), "src/lib.rs", "unit")));
        fs::write(source.join("deep/mod.rs"), "    #[tokio::test]\n    async fn a() {}").unwrap();
        assert!(!may_be_empty(&binary(folder.path(), "src/lib.rs", "unit")));
        assert!(may_be_empty(&binary(folder.path(), "src/main.rs", "bin-x")));
        assert!(!may_be_empty(&binary(folder.path(), "tests/a.rs", "a")));
    }

    #[test]
    fn dead_binary_is_a_failed_suite() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("dies.sh");
        fs::write(&script, "#!/bin/sh\necho 'running 2 tests'\nexit 101\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode).unwrap();
        let mut dying = binary(folder.path(), "tests/a.rs", "a");
        dying.executable = script;
        let logs = folder.path().join("logs");
        let (suite, output) = run_one("x".to_owned(), &logs, &mut dying.command()).unwrap();
        assert!(!suite.passed());
        assert!(output.contains("running 2 tests"));
    }

    #[test]
    fn cargo_messages_list_tests_without_benchmarks() {
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "profile": {"test": test},
                "package_id": "path+file:///t/libs/core#forebay-core@0.1.0",
                "manifest_path": "/t/libs/core/Cargo.toml", "executable": "/t/x",
                "target": {"kind": [kind], "name": "codec_test", "src_path": "/t/x.rs"},
            })
        };
        assert_eq!(test_binary(&message("test", true)).unwrap().what, "codec_test");
        assert_eq!(test_binary(&message("lib", true)).unwrap().what, "unit");
        assert!(test_binary(&message("bench", true)).is_none());
        assert!(test_binary(&message("bin", false)).is_none());
    }
}
