//! The rule `tidy`: house rules that a program can check. Each is a function over a file or over
//! the tree, and every finding names file, line and limit. `tests/tidy_test.rs` plants a violation
//! of each rule.

mod file;
mod functions;
mod manifests;
mod top_level;
mod word;

use std::fs;

use crate::workspace::Workspace;

/// Returns every finding.
///
/// # Errors
/// Returns an error if git cannot list the files.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let files = workspace.files()?;
    let mut problems = top_level::problems(&files);
    problems.extend(manifests::problems(workspace, &files));
    for path in &files {
        // A binary file, such as a golden vector, has no lines to check.
        let Ok(text) = fs::read_to_string(workspace.root.join(path)) else { continue };
        problems.extend(file::problems(path, &text));
    }
    Ok(problems)
}
