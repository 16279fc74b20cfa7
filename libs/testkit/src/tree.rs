//! Locations of the repository's files and of build outputs. Cargo and `xtask` run a test in its
//! package's folder, inside the repository. Bazel runs it in a tree of its own (the runfiles),
//! which contains only what the target declares.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Bazel's variable for the folder above a test's runfiles.
const RUNFILES: &str = "TEST_SRCDIR";
/// Bazel's variable for the repository that `bazel run` was started in.
const REPOSITORY: &str = "BUILD_WORKSPACE_DIRECTORY";
/// Environment variable of a Bazel target for [`built`]: paths in its runfiles, separated by
/// spaces.
const BUILT: &str = "FOREBAY_BUILT";

/// Returns the absolute path of a tracked file or folder, which is named from the repository's
/// root.
///
/// # Errors
/// Returns an error if the path is not at or above the current folder; under Bazel, if it is not in
/// the target's data.
pub fn find(path: &str) -> Result<PathBuf, String> {
    Ok(root_of(path)?.join(path))
}

/// Returns the root from which [`find`] resolves a file or folder: the repository, or Bazel's
/// runfiles.
///
/// # Errors
/// Returns the errors of [`find`].
pub fn root_of(path: &str) -> Result<PathBuf, String> {
    let start = match env::var_os(REPOSITORY) {
        Some(repository) if !is_bazel_test() => PathBuf::from(repository),
        _ => current_folder()?,
    };
    // Bazel's runfiles may be inside the repository, and above them are undeclared files.
    let top = env::var_os(RUNFILES).and_then(|top| fs::canonicalize(top).ok());
    let is_inside = |folder: &&Path| top.as_ref().is_none_or(|top| folder.starts_with(top));
    let found = start.ancestors().take_while(is_inside).find(|folder| folder.join(path).exists());
    let fix = "run it inside the repository; under Bazel, declare it as data";
    let problem = || format!("no {path} at or above {}; fix: {fix}", start.display());
    found.map(Path::to_path_buf).ok_or_else(problem)
}

/// Returns the absolute path of another build output: a program, an example or a shared library, by
/// its file name.
///
/// # Errors
/// Returns an error if the output is not built; under Bazel, if it is not in the target's data.
pub fn built(name: &str) -> Result<PathBuf, String> {
    let paths = match env::var(BUILT) {
        Ok(list) => declared_paths(&list)?,
        Err(_) if is_bazel_test() => Vec::new(),
        Err(_) => next_to_this_program(name)?,
    };
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|file| file == name);
    let found = paths.into_iter().filter(is_it).find(|path| path.is_file());
    let fix =
        "build with --all-targets, as every command of this tree does; under Bazel, declare it";
    found.ok_or_else(|| format!("no {name} next to this program; fix: {fix}"))
}

/// Returns a folder that set-up filled inside cargo's target folder; set-up marks a complete
/// folder.
///
/// # Errors
/// Returns an error if set-up did not run, or did not include tests (`setup.sh demo`).
pub fn fetched(name: &str) -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let targets = program.ancestors().skip(1).map(Path::to_path_buf).chain(find("target").ok());
    let mut folders = targets.map(|target| target.join(name));
    let found = folders.find(|folder| folder.join("forebay.stamp").is_file());
    found.ok_or_else(|| format!("target/{name} is not there; fix: make setup"))
}

/// Returns the absolute paths of a list of paths in Bazel's runfiles, as `$(rootpaths ...)` gives
/// it: the caller may start programs in other folders.
///
/// # Errors
/// Returns an error if the current folder cannot be read.
pub fn declared_paths(list: &str) -> Result<Vec<PathBuf>, String> {
    let current_folder = current_folder()?;
    Ok(list.split_whitespace().map(|path| current_folder.join(path)).collect())
}

/// Returns whether Bazel runs this as a test, which then sees only what it declares.
#[must_use]
pub fn is_bazel_test() -> bool {
    env::var_os(RUNFILES).is_some()
}

/// Returns the candidate paths of a build output of cargo, from a test (in `target/debug/deps`) or
/// from a program.
fn next_to_this_program(name: &str) -> Result<Vec<PathBuf>, String> {
    let program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let folders = program.ancestors().skip(1).take(2);
    Ok(folders.flat_map(|at| [at.join(name), at.join("examples").join(name)]).collect())
}

fn current_folder() -> Result<PathBuf, String> {
    env::current_dir().map_err(|error| format!("read the current folder: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_found_from_a_package_folder_and_from_the_root() {
        let path = find("proto/vectors/row.json").unwrap();
        assert!(path.is_absolute() && path.is_file(), "{}", path.display());
        let problem = find("proto/vectors/no-such.json").unwrap_err();
        assert!(problem.contains("proto/vectors/no-such.json"), "{problem}");
    }

    #[test]
    fn error_names_the_missing_program() {
        let problem = built("no-such-program").unwrap_err();
        assert!(problem.contains("no-such-program") && problem.contains("fix:"), "{problem}");
    }

    #[test]
    fn error_names_the_missing_data_set() {
        let problem = fetched("no/such/folder").unwrap_err();
        assert!(problem.contains("target/no/such/folder"), "{problem}");
        assert!(problem.contains("make setup"), "{problem}");
    }

    #[test]
    fn declared_paths_are_made_absolute() {
        let current_folder = current_folder().unwrap();
        let paths = declared_paths("a/b ../c").unwrap();
        assert_eq!(paths, [current_folder.join("a/b"), current_folder.join("../c")]);
    }
}
