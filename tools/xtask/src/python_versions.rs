//! Tests of the Python client on the other Pythons that set-up found, each with an environment
//! below cargo's target folder. Python 3.11 and newer load the module of the ordinary build. Older
//! Pythons have no stable ABI with buffers, so this file compiles a module for each, even if that
//! Python is not on this machine, and stores it next to the programs with the version in its name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::parallel::run_parallel;
use crate::process;
use crate::pytest::{Interpreter, run_tests};
use crate::stage::Form;
use crate::suite::Suite;
use crate::workspace::{BUILD_BOUND, Workspace};

/// The folder of the Python client.
const CLIENT: &str = "clients/python";
/// Pythons that need a separate module, as minor versions of 3.
const OWN_MODULE: [u32; 2] = [9, 10];
/// Cargo's target for such a module (clients/python/Cargo.toml). The other packages have the
/// features of the whole build, so that cargo compiles only PyO3 and the module.
const TARGET: &str = "forebay_one_version";
const FEATURES: &str = "forebay-python/one-version,forebay-testkit/default";

/// Compiles the older Pythons' modules, and runs the client's tests on all Pythons found. The
/// bounded form tests only the oldest and the newest.
///
/// # Errors
/// Returns an error if a module does not compile, or an environment is broken.
pub fn run(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let target = workspace.target()?;
    let found = choose_minors(found(&target.join("pythons")), form);
    let own_minors: Vec<u32> = match form {
        Form::Long => OWN_MODULE.to_vec(),
        Form::Bounded => OWN_MODULE.iter().copied().filter(|minor| found.contains(minor)).collect(),
    };
    for minor in &own_minors {
        build(workspace, &target, *minor)?;
    }
    for minor in own_minors.iter().filter(|minor| !found.contains(minor)) {
        println!("python: 3.{minor} is not on this machine: its module is compiled, not tested");
    }
    let mut suites = Vec::new();
    run_parallel(
        &found,
        |minor| tested_on(workspace, &target, *minor),
        |_, suite| {
            suites.push(suite?);
            Ok(())
        },
    )?;
    Ok(suites)
}

/// Returns the Pythons of a form; if only one was found, both forms test it.
fn choose_minors(found: Vec<u32>, form: Form) -> Vec<u32> {
    match (form, found.as_slice()) {
        (Form::Bounded, [oldest, .., newest]) => vec![*oldest, *newest],
        _ => found,
    }
}

fn tested_on(workspace: &Workspace, target: &Path, minor: u32) -> Result<Suite, String> {
    let path = target.join(format!("pythons/3.{minor}/bin/python"));
    let script = "import platform, numpy; print(platform.python_version(), numpy.__version__)";
    let versions = process::read(workspace.interpreter(&path).args(["-c", script]))
        .map_err(|problem| format!("{problem}; fix: make setup"))?;
    let (python, numpy) = versions.trim().split_once(' ').unwrap_or_default();
    println!("python: {CLIENT} on Python {python} with NumPy {numpy}");
    let interpreter = Interpreter { path, version: Some(format!("3.{minor}")) };
    run_tests(workspace, CLIENT, &interpreter)
}

/// Returns the minor versions of the environments in a folder, the oldest first.
fn found(environments: &Path) -> Vec<u32> {
    let minor = |entry: fs::DirEntry| -> Option<u32> {
        let name = entry.file_name().into_string().ok()?;
        let minor = name.strip_prefix("3.")?.parse().ok()?;
        entry.path().join("forebay.stamp").is_file().then_some(minor)
    };
    let entries = fs::read_dir(environments).into_iter().flatten();
    let mut minors: Vec<u32> = entries.filter_map(|entry| minor(entry.ok()?)).collect();
    minors.sort_unstable();
    minors
}

/// Builds the module of an older Python. PyO3 reads the description of that Python from a file that
/// this function writes, so that the Python need not be installed.
fn build(workspace: &Workspace, target: &Path, minor: u32) -> Result<(), String> {
    let config_file = target.join(format!("xtask/python/pyo3-3.{minor}.txt"));
    let description = format!(
        "implementation=CPython\nversion=3.{minor}\nshared=true\npointer_width=64\n\
         suppress_build_script_link_lines=true\n"
    );
    // Cargo compiles PyO3 again if this file changes, even if only its time changes.
    if fs::read_to_string(&config_file).ok().as_ref() != Some(&description) {
        write(&config_file, &description)?;
    }
    let mut command = workspace.cargo(&["build", "--workspace", "--locked", "--example", TARGET]);
    command.args(["--no-default-features", "--features", FEATURES]);
    process::must(command.env("PYO3_CONFIG_FILE", &config_file), BUILD_BOUND)?;
    let (built_folder, module) = modules(&target.join("debug"), minor);
    // A process may have the old file mapped, so the file is replaced, never overwritten.
    let beside = module.with_extension("new");
    let copied = fs::copy(&built_folder, &beside).and_then(|_| fs::rename(&beside, &module));
    copied.map_err(|error| format!("{}: {error}", module.display()))
}

/// Returns the path of cargo's output and the path at which the development install looks for it.
fn modules(programs: &Path, minor: u32) -> (PathBuf, PathBuf) {
    let built_library = programs.join(format!("examples/lib{TARGET}.so"));
    (built_library, programs.join(format!("libforebay_cp3{minor}.so")))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_found_in_version_order() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(found(&folder.path().join("none")), [0; 0]);
        for name in ["3.13", "3.9", "3.10", "other", "3.x"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("forebay.stamp"), "").unwrap();
        }
        fs::create_dir(folder.path().join("3.12")).unwrap();
        assert_eq!(found(folder.path()), [9, 10, 13]);
        assert_eq!(choose_minors(vec![9, 10, 13], Form::Bounded), [9, 13]);
        assert_eq!(choose_minors(vec![13], Form::Bounded), [13]);
        assert_eq!(choose_minors(vec![9, 10, 13], Form::Long), [9, 10, 13]);
    }
}
