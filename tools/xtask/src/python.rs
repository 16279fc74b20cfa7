//! The stage `python`: every folder named `tests` with files `test_*.py` is a suite. The pytest of
//! .venv runs the suite from the parent folder, which is also on the import path. FOREBAY_BIN names
//! cargo's output folder, with the programs and the Python client's native module. The client's
//! suite then runs on the other Pythons, too.

use std::collections::BTreeSet;

use crate::parallel::run_parallel;
use crate::pytest::{Interpreter, run_tests};
use crate::python_versions;
use crate::stage::Form;
use crate::suite::Suite;
use crate::workspace::Workspace;

/// Runs every folder of Python tests, and the client's tests on the other Pythons.
///
/// # Errors
/// Returns an error if there is no test, git cannot list the files, or [`python_versions::run`]
/// fails.
pub fn run(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let folders: Vec<String> = folders(&workspace.files()?).into_iter().collect();
    if folders.is_empty() {
        return Err("the tree has no Python test; fix: add tests/test_NAME.py".to_owned());
    }
    let own_interpreter = Interpreter { path: ".venv/bin/python".into(), version: None };
    let mut suites = Vec::new();
    run_parallel(
        &folders,
        |folder| run_tests(workspace, folder, &own_interpreter),
        |_, suite| {
            suites.push(suite?);
            Ok(())
        },
    )?;
    suites.extend(python_versions::run(workspace, form)?);
    Ok(suites)
}

/// Returns the parents of all `tests` folders with tests.
fn folders(files: &[String]) -> BTreeSet<String> {
    let test = |file: &String| {
        let (folder, name) = file.rsplit_once("/tests/")?;
        let is_test = name.starts_with("test_") && name.ends_with(".py");
        is_test.then(|| folder.to_owned())
    };
    files.iter().filter_map(test).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_tests_are_found_once() {
        let files =
            ["tools/demo/tests/test_a.py", "tools/demo/tests/test_b.py", "tools/c/test_d.py"]
                .map(str::to_owned);
        assert_eq!(folders(&files).into_iter().collect::<Vec<_>>(), ["tools/demo"]);
    }
}
