//! The files that the rules read.

use std::{fs, panic, thread};

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

/// Applies a function to every file, on all processors, and returns the results in order.
pub fn each<T: Send>(sources: &[SourceFile], read: impl Fn(&SourceFile) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = |first: usize| {
        let places = (first..sources.len()).step_by(threads);
        places.map(|place| (place, read(&sources[place]))).collect::<Vec<_>>()
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let share = &share;
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|result| result.unwrap_or_else(|panic| panic::resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}
