//! `xtask bench`: every binary of a package under bench/ is a benchmark of that name. The benchmark
//! is built by the release profile, as published binaries are (tools/decisions/0011), and runs
//! under a bound. A benchmark without a result file fails; a missed goal is a result, not a
//! failure.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::workspace::{BUILD_BOUND, Package, Workspace};

/// Packages whose programs benchmarks start as separate processes.
const SERVERS: [&str; 2] = ["forebayd", "forebay-writer-service"];
/// The program that every benchmark starts, and the benchmarks that also start a writer on Kafka.
const SERVER: &str = "forebayd";
const WITH_WRITER: [&str; 2] = ["features", "writes"];
// The index benchmark fills stores of 25M documents in three languages, one launch after another.
const BENCH_BOUND: Duration = Duration::from_secs(6 * 60 * 60);
const QUICK_BOUND: Duration = Duration::from_secs(60 * 60);

/// Runs one benchmark, or all.
///
/// # Errors
/// Returns an error if no benchmark has the name, or if one fails to run or to report.
pub fn run(workspace: &Workspace, name: Option<&str>) -> Result<(), String> {
    let packages = workspace.packages()?;
    let registered = registered(&packages);
    let selected = choose(&registered, name)?;
    build(workspace, &packages, &selected)?;
    let mut failures = Vec::new();
    for name in selected {
        if let Err(problem) = run_one(workspace, name) {
            eprintln!("bench-{name}: FAILED: {problem}");
            failures.push(name);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("benchmarks failed: {failures:?}")) }
}

/// Returns the packages that contain benchmarks.
fn benches(packages: &[Package]) -> impl Iterator<Item = &Package> {
    let is_bench = |package: &&Package| package.folder.starts_with("bench/");
    packages.iter().filter(is_bench).filter(|package| !package.binaries.is_empty())
}

/// Returns the names of all benchmarks, sorted.
fn registered(packages: &[Package]) -> Vec<String> {
    let mut names: Vec<String> =
        benches(packages).flat_map(|package| package.binaries.clone()).collect();
    names.sort();
    names
}

/// Returns cargo's arguments for a build of some benchmarks and the servers that they start. Every
/// build selects the same packages, so that no dependency is compiled again for another benchmark.
fn build_arguments<'a>(packages: &'a [Package], selected: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["build", "--release", "--locked"];
    let benches = benches(packages).map(|package| package.name.as_str());
    SERVERS.into_iter().chain(benches).for_each(|name| arguments.extend(["--package", name]));
    let mut binaries = selected.to_vec();
    binaries.push(SERVER);
    let writes = selected.iter().any(|name| WITH_WRITER.contains(name));
    binaries.extend(writes.then_some("forebay-writer"));
    binaries.iter().for_each(|name| arguments.extend(["--bin", name]));
    arguments
}

fn build(workspace: &Workspace, packages: &[Package], selected: &[&str]) -> Result<(), String> {
    process::must(&mut workspace.cargo(&build_arguments(packages, selected)), BUILD_BOUND)
}

/// Returns the path of a built binary.
fn binary(workspace: &Workspace, name: &str) -> Result<PathBuf, String> {
    let path = workspace.target()?.join("release").join(name);
    if path.is_file() { Ok(path) } else { Err(format!("the build created no {}", path.display())) }
}

fn choose<'a>(registered: &'a [String], name: Option<&str>) -> Result<Vec<&'a str>, String> {
    let selected = registered.iter().map(String::as_str);
    let selected: Vec<&str> =
        selected.filter(|known| name.is_none_or(|name| name == *known)).collect();
    if selected.is_empty() {
        return Err(format!("no such benchmark; fix: name one of [{}]", registered.join(", ")));
    }
    Ok(selected)
}

fn run_one(workspace: &Workspace, name: &str) -> Result<(), String> {
    let quick = env::var("QUICK").is_ok_and(|value| value == "1");
    let command_text = format!("make bench-{name}{}", if quick { " QUICK=1" } else { "" });
    let result = workspace.root.join(format!("bench/results/latest/{name}.json"));
    if result.exists() {
        fs::remove_file(&result).map_err(|error| format!("remove the previous result: {error}"))?;
    }
    let mut command = Command::new(binary(workspace, name)?);
    command.current_dir(&workspace.root).env("FOREBAY_BENCH_COMMAND", command_text);
    process::must(&mut command, if quick { QUICK_BOUND } else { BENCH_BOUND })?;
    let text = fs::read_to_string(&result).map_err(|error| {
        format!("the benchmark wrote no result to {}: {error}", result.display())
    })?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("the result is not JSON: {error}"))?;
    match value["rows"].as_array() {
        Some(rows) if !rows.is_empty() => Ok(()),
        _ => Err("the result has no rows".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, binaries: &[&str]) -> Package {
        Package {
            name: folder.replace('/', "-"),
            folder: folder.to_owned(),
            dependencies: vec![],
            binaries: binaries.iter().map(|name| (*name).to_owned()).collect(),
            tests: vec![],
        }
    }

    #[test]
    fn binaries_under_bench_are_the_benchmarks() {
        let packages = [
            package("bench/micro", &["write-path", "freshness"]),
            package("services/writer", &["forebay-writer"]),
            package("bench/report", &[]),
        ];
        let registered = registered(&packages);
        assert_eq!(registered, ["freshness", "write-path"]);
        assert_eq!(choose(&registered, None).unwrap(), ["freshness", "write-path"]);
        assert_eq!(choose(&registered, Some("freshness")).unwrap(), ["freshness"]);
        let common_arguments = "build --release --locked --package forebayd --package \
                    forebay-writer-service --package bench-micro";
        let arguments_of = |selected: &[&str]| build_arguments(&packages, selected).join(" ");
        assert_eq!(
            arguments_of(&["freshness"]),
            format!("{common_arguments} --bin freshness --bin forebayd")
        );
        let expected =
            format!("{common_arguments} --bin writes --bin forebayd --bin forebay-writer");
        assert_eq!(arguments_of(&["writes"]), expected);
        let problem = choose(&registered, Some("speed")).unwrap_err();
        assert!(problem.contains("freshness, write-path"), "{problem}");
    }
}
