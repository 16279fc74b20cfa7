//! `xtask package`: builds the release of everything to publish, with RocksDB compiled in, as a
//! folder and an archive below cargo's target folder. The command publishes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::workspace::{BUILD_BOUND, Workspace};

/// Packages with programs, and packages with a library for another language.
const PROGRAMS: [&str; 5] = [
    "forebay-features-service",
    "forebay-replicator-service",
    "forebay-snapshot-service",
    "forebay-writer-service",
    "forebayd",
];
const LIBRARIES: [&str; 2] = ["forebay-ffi", "forebay-python"];
/// The package of the demo's programs, also built, so that the demo can run on the release build.
const DEMO: &str = "forebay-demo";
/// The contents of the archive: files of the build, and files of the tree.
const BUILT: [(&str, &str); 7] = [
    ("forebay-features", "bin"),
    ("forebay-replicator", "bin"),
    ("forebay-snapshot", "bin"),
    ("forebay-writer", "bin"),
    ("forebayd", "bin"),
    ("libforebay_ffi.so", "lib"),
    ("libforebay_python.so", "lib"),
];
const COPIED: [(&str, &str); 3] =
    [("LICENSE", "."), ("CHANGELOG.md", "."), ("clients/c/include/forebay.h", "include")];
/// A program that uses RocksDB and must not load it from a file.
const CHECKED: &str = "forebayd";

/// Builds the archive and prints its path.
///
/// # Errors
/// Returns an error if the build fails, or a program still loads RocksDB from a file.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let target = build(workspace)?;
    let needed = needed(&target.join("release").join(CHECKED))?;
    if needed.contains("librocksdb") {
        return Err(format!(
            "{CHECKED} loads RocksDB from a file; fix: build with ROCKSDB_COMPILE=1: {needed}"
        ));
    }
    println!("package: {}", archive(workspace, &target)?.display());
    Ok(())
}

/// Builds by the release profile and returns the target folder. Only packages use that folder,
/// because a build with RocksDB compiled in would replace the benchmarks' build.
///
/// # Errors
/// Returns an error if the build fails or reaches its bound.
pub fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let target = workspace.target()?.join("package");
    let mut command = workspace.cargo(&["build", "--release", "--locked", "--lib", "--bins"]);
    let packages = PROGRAMS.iter().chain(&LIBRARIES).chain([&DEMO]);
    command.args(packages.flat_map(|name| ["--package", name]));
    command.env("ROCKSDB_COMPILE", "1").env("CARGO_TARGET_DIR", &target);
    process::must(&mut command, BUILD_BOUND)?;
    Ok(target)
}

/// Returns the shared libraries that a program loads.
fn needed(program: &Path) -> Result<String, String> {
    let mut command = Command::new("readelf");
    let text = process::read(command.arg("-d").arg(program))?;
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn archive(workspace: &Workspace, target: &Path) -> Result<PathBuf, String> {
    let name = format!("forebay-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let folder = target.join(&name);
    let programs = BUILT.iter().map(|(file, to)| (target.join("release").join(file), to));
    let copied = COPIED.iter().map(|(file, to)| (workspace.root.join(file), to));
    for (file, to) in programs.chain(copied) {
        let to = folder.join(to);
        let named = file.file_name().map(|name| to.join(name)).unwrap_or_default();
        let copied = fs::create_dir_all(&to).and_then(|()| fs::copy(&file, named));
        copied.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let archive = target.join(format!("{name}.tar.gz"));
    let mut command = Command::new("tar");
    command.arg("-czf").arg(&archive).arg("-C").arg(target).arg(&name);
    process::read(&mut command)?;
    Ok(archive)
}
