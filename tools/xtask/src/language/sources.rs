//! The files that the rules read.

use std::fs;

use crate::workspace::Workspace;

/// A file of the tree with its text.
pub struct SourceFile {
    /// The path from the root.
    pub path: String,
    /// The text.
    pub text: String,
}

/// Reads every text file of the tree.
///
/// # Errors
/// Returns an error if git cannot list the files.
pub fn sources(workspace: &Workspace) -> Result<Vec<SourceFile>, String> {
    let files = workspace.files()?.into_iter();
    let read = |path: String| {
        let text = fs::read_to_string(workspace.root.join(&path)).ok()?;
        Some(SourceFile { path, text })
    };
    Ok(files.filter_map(read).collect())
}
