//! The stage `java`: Maven packages the client with the built native library, also for the demo,
//! and tests that jar on its own JDK and, if it is installed next to that one, on JDK 25. The
//! second artifact, for memory segments, is built and tested only on JDK 25. Each class is a suite.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::suite::Suite;
use crate::suite_output::show;
use crate::workspace::Workspace;

/// Bound of all Java tests on one JDK; the first run also downloads Maven's plugins.
const SUITE_BOUND: Duration = Duration::from_secs(15 * 60);
const PROJECT: &str = "clients/java";
/// Maven's project of both artifacts, in that folder.
const BOTH: &str = "all.xml";
/// The newer JDK of the tests.
const NEWER_JDK: &str = "25";
/// The memory library of DataSketches supports Java up to 21.
const NOT_ON_NEWER: &str = "-Dforebay.tests.excluded=**/SketchVectorsTest.java";

/// Files that `package` writes into the project's target folder.
const STAMP: &str = "packaged.stamp";
const DEMO_JAR: &str = "forebay-client-0.1.0-demo.jar";

/// Packages the jar and runs the Java tests on it.
///
/// # Errors
/// Returns an error if Maven cannot be started.
pub fn run(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let newer_jdk_home = newer_jdk();
    println!("{}", jdks(&maven_version()?, newer_jdk_home.as_deref()));
    let mut suites = tested(workspace, "jdk", newer_jdk_home.as_deref(), &[])?;
    if let Some(newer_jdk_home) = &newer_jdk_home {
        let java = format!("-Djvm={}", newer_jdk_home.join("bin/java").display());
        let arguments = "-Dforebay.jvm.arguments=--enable-native-access=ALL-UNNAMED";
        let suite_prefix = format!("jdk{NEWER_JDK}");
        let arguments = ["-f", BOTH, &java, arguments, NOT_ON_NEWER];
        suites.extend(tested(workspace, &suite_prefix, Some(newer_jdk_home), &arguments)?);
    }
    Ok(suites)
}

/// Packages the client and the demo's reader with the library of a folder of programs, unless the
/// inputs are unchanged. Maven works offline if this machine has all files that it needs.
///
/// # Errors
/// Returns an error, with Maven's log, if Maven cannot be started or fails.
pub fn package(workspace: &Workspace, programs: &Path) -> Result<(), String> {
    let (newer_jdk_home, target) = (newer_jdk(), workspace.target()?);
    let project = workspace.root.join(PROJECT);
    let library = programs.join("libforebay_ffi.so");
    let mut stamp = format!("{newer_jdk_home:?}\n");
    for source in ["src", "pom.xml"].map(|source| project.join(source)).iter().chain([&library]) {
        add_stamp(source, &mut stamp)?;
    }
    let (stamp_file, jar) =
        (project.join("target").join(STAMP), project.join("target").join(DEMO_JAR));
    if jar.is_file() && fs::read_to_string(&stamp_file).is_ok_and(|last| last == stamp) {
        return Ok(());
    }
    let log = target.join("xtask/java/package.log");
    let goals = ["-q", "-DskipTests", "package"];
    let mut offline = maven(workspace, programs, newer_jdk_home.as_deref(), &goals);
    let mut outcome = process::capture(offline.arg("--offline"), &log, SUITE_BOUND)?;
    if !outcome.ok {
        let mut online = maven(workspace, programs, newer_jdk_home.as_deref(), &goals);
        outcome = process::capture(&mut online, &log, SUITE_BOUND)?;
    }
    if !outcome.ok {
        return Err(format!("{}package {PROJECT}: {}", outcome.output, outcome.ending));
    }
    fs::write(&stamp_file, stamp).map_err(|error| format!("{}: {error}", stamp_file.display()))
}

/// Appends name, size and time of a file, or of all files under a folder.
fn add_stamp(path: &Path, stamp: &mut String) -> Result<(), String> {
    let problem = |error| format!("{}: {error}; fix: make setup && make demo", path.display());
    let metadata = fs::metadata(path).map_err(problem)?;
    if !metadata.is_dir() {
        let changed = metadata.modified().map_err(problem)?;
        stamp.push_str(&format!("{} {} {changed:?}\n", path.display(), metadata.len()));
        return Ok(());
    }
    let mut inside: Vec<_> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(problem)?;
    inside.sort();
    inside.iter().try_for_each(|path| add_stamp(path, stamp))
}

/// Returns a command of Maven at the project. Maven uses the newer JDK where the older one cannot
/// compile.
fn maven(
    workspace: &Workspace,
    programs: &Path,
    newer_jdk_home: Option<&Path>,
    arguments: &[&str],
) -> Command {
    let mut command = Command::new("mvn");
    command.arg("-B").args(arguments).current_dir(workspace.root.join(PROJECT));
    command.arg(format!("-Dforebay.target={}", programs.display()));
    if let Some(newer_jdk_home) = newer_jdk_home {
        command.arg(format!("-Dforebay.jdk22={}", newer_jdk_home.display()));
    }
    command
}

/// Returns the output of `mvn --version`, which also names the Java that Maven runs on.
fn maven_version() -> Result<String, String> {
    let problem = |error| format!("mvn --version: {error}; fix: make setup");
    let output = Command::new("mvn").arg("--version").output().map_err(problem)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a line that names the JDKs of the tests.
fn jdks(maven_version: &str, newer_jdk_home: Option<&Path>) -> String {
    let first = maven_version.lines().find(|line| line.starts_with("Java version"));
    let first = first.unwrap_or("Java version unknown");
    match newer_jdk_home {
        Some(home) => format!(
            "java: {first}; then JDK {NEWER_JDK} at {}, with reads into memory segments",
            home.display()
        ),
        None => format!(
            "java: {first}; no JDK {NEWER_JDK} is installed next to it, so foreign functions and \
             reads into memory segments are neither built nor tested"
        ),
    }
}

fn tested(
    workspace: &Workspace,
    suite_prefix: &str,
    newer_jdk_home: Option<&Path>,
    arguments: &[&str],
) -> Result<Vec<Suite>, String> {
    let programs = workspace.target()?.join("debug");
    let mut command = maven(workspace, &programs, newer_jdk_home, &["verify"]);
    let log = workspace.target()?.join(format!("xtask/java/{suite_prefix}.log"));
    let outcome = process::capture(command.args(arguments), &log, SUITE_BOUND)?;
    let suites = suites(suite_prefix, &outcome.output, outcome.ok, &outcome.ending);
    suites.iter().for_each(|suite| show(suite, &outcome.output));
    Ok(suites)
}

/// Returns the newer JDK, if it is in the same folder as the JDK on the path.
fn newer_jdk() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let java =
        std::env::split_paths(&path).map(|folder| folder.join("java")).find(|j| j.exists())?;
    let java = fs::canonicalize(java).ok()?;
    let jdks = java.ancestors().nth(3)?;
    let mut found: Vec<_> =
        fs::read_dir(jdks).ok()?.filter_map(|jdk| Some(jdk.ok()?.path())).collect();
    found.sort();
    let named = |jdk: &&PathBuf| {
        let name = jdk.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split(['-', '.']).any(|part| part == NEWER_JDK)
    };
    found.iter().filter(named).find(|jdk| jdk.join("bin/java").exists()).cloned()
}

/// Reads Surefire's line of each class: `Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time
/// elapsed: 0.1 s <<< FAILURE! -- in io.forebay.ATest`.
fn suites(suite_prefix: &str, output: &str, ok: bool, ending: &str) -> Vec<Suite> {
    let mut suites: Vec<Suite> =
        output.lines().filter_map(|line| class_line(suite_prefix, line)).collect();
    if suites.is_empty() || (!ok && suites.iter().all(Suite::passed)) {
        suites
            .push(Suite::broken(&format!("{PROJECT}/{suite_prefix}"), format!("Maven: {ending}")));
    }
    suites
}

fn class_line(suite_prefix: &str, line: &str) -> Option<Suite> {
    let (counts, class) = line.split_once("Tests run: ")?.1.split_once(" -- in ")?;
    let mut numbers = counts.split(',').map(|part| {
        let number = part.rsplit_once(' ').map_or(part, |(_, number)| number);
        number.parse::<u64>().ok()
    });
    let mut next = || numbers.next().flatten();
    let (run, failures, errors, skipped) = (next()?, next()?, next()?, next()?);
    let class = class.trim().rsplit('.').next()?;
    Some(Suite {
        name: format!("{PROJECT}/{suite_prefix}/{class}"),
        ran: run.saturating_sub(skipped),
        failed: failures + errors,
        skipped,
        problem: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1, Time elapsed: \
        0.263 s -- in io.forebay.ATest\n[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1\n";

    #[test]
    fn jdks_of_a_run_are_named() {
        let maven = "Apache Maven 3.8.7\nJava version: 17.0.1, vendor: V, runtime: /j\nOS name\n";
        let both_jdks = jdks(maven, Some(Path::new("/jdk-25")));
        assert_eq!(
            both_jdks,
            "java: Java version: 17.0.1, vendor: V, runtime: /j; then JDK 25 at /jdk-25, with \
             reads into memory segments"
        );
        assert!(jdks(maven, None).contains("17.0.1") && jdks("", None).contains("no JDK 25"));
    }

    #[test]
    fn stamp_covers_all_files_and_a_missing_folder_names_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("A.java"), "1").unwrap();
        let stamp = || {
            let mut stamp = String::new();
            add_stamp(folder.path(), &mut stamp).map(|()| stamp)
        };
        let first = stamp().unwrap();
        assert_eq!(stamp().unwrap(), first);
        fs::write(inner.join("A.java"), "12").unwrap();
        let second = stamp().unwrap();
        assert_ne!(second, first);
        fs::write(inner.join("B.java"), "").unwrap();
        assert_ne!(stamp().unwrap(), second);
        let problem = add_stamp(&inner.join("none"), &mut String::new()).unwrap_err();
        assert!(problem.contains("fix:"), "{problem}");
    }

    #[test]
    fn each_class_is_a_suite_and_the_sum_is_not() {
        let suites = suites("jdk", GOOD, true, "exit 0");
        assert_eq!(suites.len(), 1);
        assert_eq!(suites[0].name, "clients/java/jdk/ATest");
        assert_eq!((suites[0].ran, suites[0].failed, suites[0].skipped), (2, 0, 1));
    }

    #[test]
    fn failures_and_errors_both_fail() {
        let line = "[ERROR] Tests run: 5, Failures: 1, Errors: 2, Skipped: 0, Time elapsed: 0.1 s \
            <<< FAILURE! -- in io.forebay.BTest\n";
        let suites = suites("jdk", line, false, "exit 1");
        assert_eq!((suites.len(), suites[0].ran, suites[0].failed), (1, 5, 3));
    }

    #[test]
    fn missing_tests_and_a_broken_build_are_failures() {
        assert!(!suites("jdk", "[INFO] BUILD SUCCESS\n", true, "exit 0")[0].passed());
        assert!(!suites("jdk", GOOD, false, "exit 1").iter().all(Suite::passed));
    }
}
