//! The tree as cargo describes it: packages, their folders and first-party edges, and the target
//! folder. `cargo metadata --no-deps` gives all of it without a lock and without the network. All
//! commands of cargo and of the tree's Python are created here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::process;

/// Bound of a cold build of the whole tree.
pub const BUILD_BOUND: Duration = Duration::from_secs(50 * 60);

/// The packages that the demo runs: server, Rust programs, and the modules of Java and Python.
const DEMO_PACKAGES: [&str; 4] = ["forebay-demo", "forebay-ffi", "forebay-python", "forebayd"];
/// The programs that the demo starts.
const DEMO_BINARIES: [&str; 3] = ["demo_load", "demo_reader", "forebayd"];

/// The tree that the build tool works on.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// The folder of the root manifest.
    pub root: PathBuf,
}

/// A first-party package.
#[derive(Clone, Debug)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// The folder, relative to the root, with forward slashes.
    pub folder: String,
    /// The dependencies, of all kinds.
    pub dependencies: Vec<Dependency>,
    /// The names of the binaries.
    pub binaries: Vec<String>,
    /// The names of the tests in `tests/`.
    pub tests: Vec<String>,
}

/// An edge from a package to a dependency.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The name of the dependency.
    pub name: String,
    /// Whether the edge exists only for tests, examples and benchmarks.
    pub dev: bool,
    /// Whether the edge exists only for the build script.
    pub build: bool,
    /// Whether a cargo feature enables the edge.
    pub optional: bool,
    /// Whether the dependency is in this tree.
    pub first_party: bool,
}

impl Workspace {
    /// Finds the tree that contains the current folder.
    ///
    /// # Errors
    /// Returns an error if no folder at or above the current one is a Cargo workspace.
    pub fn here() -> Result<Self, String> {
        let start =
            env::current_dir().map_err(|error| format!("read the current folder: {error}"))?;
        for folder in start.ancestors() {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            if manifest.lines().any(|line| line == "[workspace]") {
                return Ok(Self { root: folder.to_path_buf() });
            }
        }
        Err(format!("no Cargo workspace at or above {}", start.display()))
    }

    /// Returns `cargo` at the root, without the variables that `cargo run` sets: they would change
    /// the fingerprints of build scripts, and cargo would compile these again.
    #[must_use]
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        clean(&mut command).args(arguments).current_dir(&self.root);
        command
    }

    /// Returns the interpreter of `.venv`, at the root.
    #[must_use]
    pub fn python(&self, arguments: &[&str]) -> Command {
        let mut command = self.interpreter(Path::new(".venv/bin/python"));
        command.args(arguments);
        command
    }

    /// Returns another interpreter, at the root; a relative path begins at the root.
    #[must_use]
    pub fn interpreter(&self, path: &Path) -> Command {
        let mut command = Command::new(self.root.join(path));
        clean(&mut command).current_dir(&self.root);
        command
    }

    /// Builds everything by the common invocation (tools/decisions/0002).
    ///
    /// # Errors
    /// Returns an error if the build fails or reaches its bound.
    pub fn build(&self) -> Result<(), String> {
        let mut command = self.cargo(&["build", "--workspace", "--all-targets", "--locked"]);
        process::must(&mut command, BUILD_BOUND)
    }

    /// Builds the programs that `make demo` starts, and the native modules of its readers. These
    /// packages have the features of the whole tree, so no later build compiles a dependency again.
    ///
    /// # Errors
    /// Returns an error if the build fails or reaches its bound.
    pub fn build_demo(&self) -> Result<(), String> {
        let mut command = self.cargo(&["build", "--locked", "--lib"]);
        command.args(DEMO_PACKAGES.iter().flat_map(|name| ["--package", name]));
        command.args(DEMO_BINARIES.iter().flat_map(|name| ["--bin", name]));
        process::must(&mut command, BUILD_BOUND)
    }

    /// Builds a program with the features of the whole tree.
    ///
    /// # Errors
    /// Returns an error if the build fails or reaches its bound.
    pub fn build_binary(&self, name: &str) -> Result<(), String> {
        let form = ["build", "--workspace", "--locked", "--bin", name];
        process::must(&mut self.cargo(&form), BUILD_BOUND)
    }

    /// Returns the first-party packages, sorted by name.
    ///
    /// # Errors
    /// Returns an error if `cargo metadata` fails.
    pub fn packages(&self) -> Result<Vec<Package>, String> {
        let metadata = self.metadata()?;
        let mut packages: Vec<Package> =
            array(&metadata, "packages").iter().map(|value| self.package(value)).collect();
        packages.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(packages)
    }

    /// Returns cargo's target folder, as `CARGO_TARGET_DIR` and the configuration set it.
    ///
    /// # Errors
    /// Returns an error if `cargo metadata` fails.
    pub fn target(&self) -> Result<PathBuf, String> {
        Ok(PathBuf::from(text(&self.metadata()?, "target_directory")))
    }

    /// Returns the path of a built binary.
    ///
    /// # Errors
    /// Returns an error if the binary does not exist.
    pub fn binary(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.target()?.join("debug").join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(format!("{name} is not built; fix: make setup && make test"))
    }

    /// Returns the tracked files and the new ones that git does not ignore, relative and sorted.
    ///
    /// # Errors
    /// Returns an error if git is missing, or the tree is not a repository.
    pub fn files(&self) -> Result<Vec<String>, String> {
        let mut command = Command::new("git");
        command.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
        let listing = process::read(command.current_dir(&self.root))?;
        let names = listing.split('\0').filter(|name| !name.is_empty());
        let mut files: Vec<String> =
            names.filter(|name| self.root.join(name).is_file()).map(str::to_owned).collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    fn metadata(&self) -> Result<Value, String> {
        let mut command = self.cargo(&["metadata", "--no-deps", "--format-version", "1"]);
        let text = process::read(&mut command)?;
        serde_json::from_str(&text).map_err(|error| format!("read cargo metadata: {error}"))
    }

    fn package(&self, value: &Value) -> Package {
        let manifest = PathBuf::from(text(value, "manifest_path"));
        let folder = manifest.parent().unwrap_or(Path::new("")).to_path_buf();
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let folder = folder.canonicalize().unwrap_or(folder);
        let folder = folder.strip_prefix(&root).unwrap_or(&folder);
        let named = |kind: &str| -> Vec<String> {
            let targets = array(value, "targets").iter();
            let of_kind =
                targets.filter(|target| array(target, "kind").iter().any(|word| word == kind));
            of_kind.map(|target| text(target, "name").to_owned()).collect()
        };
        Package {
            name: text(value, "name").to_owned(),
            folder: folder.to_string_lossy().replace('\\', "/"),
            dependencies: array(value, "dependencies").iter().map(dependency).collect(),
            binaries: named("bin"),
            tests: named("test"),
        }
    }
}

/// Removes the variables about the package xtask that `cargo run` sets.
fn clean(command: &mut Command) -> &mut Command {
    const PREFIXES: [&str; 5] =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"];
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name.as_ref());
        }
    }
    command
}

fn dependency(value: &Value) -> Dependency {
    Dependency {
        name: text(value, "name").to_owned(),
        dev: value["kind"] == "dev",
        build: value["kind"] == "build",
        optional: value["optional"] == true,
        first_party: value["path"].is_string(),
    }
}

/// Returns the array in a field, empty if there is none.
#[must_use]
pub fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text in a field, empty if there is none.
#[must_use]
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
