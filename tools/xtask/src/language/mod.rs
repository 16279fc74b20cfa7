//! The language rules: prose and names that a stranger understands. Each rule is a module with a
//! function over the tree; `lexer`, `comments`, `prose` and `sentences` read the text for them,
//! `declarations` the types. `tests/language_test.rs` plants a violation of every rule.
//!
//! The word lists are in `tools/xtask/language/words.toml`, the exceptions in the same folder.

mod anchors;
mod citations;
mod comments;
mod commits;
mod declarations;
mod definitions;
mod exceptions;
mod java;
pub(crate) mod lexer;
mod links;
mod mask;
mod measure;
mod messages;
mod names;
mod prose;
mod rust;
mod sentences;
mod subjects;
mod tree;
mod words;

use std::{fs, panic, thread};

use crate::workspace::Workspace;

/// A file of the tree with its text.
struct SourceFile {
    path: String,
    text: String,
}

/// Finds sentences that begin without a subject, in comments, docstrings, Markdown and messages.
///
/// # Errors
/// Returns an error if git cannot list the files, or a list cannot be read.
pub fn subjects(workspace: &Workspace) -> Result<Vec<String>, String> {
    let findings = subjects::findings(&sources(workspace)?);
    exceptions::apply(workspace, subjects::RULE, findings)
}

/// Finds types, modules and files that are named by a participle or a function word.
///
/// # Errors
/// Returns an error if git cannot list the files, or a list cannot be read.
pub fn type_names(workspace: &Workspace) -> Result<Vec<String>, String> {
    exceptions::apply(workspace, names::RULE, names::findings(&sources(workspace)?))
}

/// Finds type names that a crate, a package of Java or a package of Python defines twice.
///
/// # Errors
/// Returns an error if git cannot list the files, or a list cannot be read.
pub fn one_definition(workspace: &Workspace) -> Result<Vec<String>, String> {
    exceptions::apply(workspace, definitions::RULE, definitions::findings(&sources(workspace)?))
}

/// Finds links and citations whose target is not in the tree.
///
/// # Errors
/// Returns an error if git cannot list the files, or a list cannot be read.
pub fn citations(workspace: &Workspace) -> Result<Vec<String>, String> {
    let findings = citations::findings(workspace, &sources(workspace)?)?;
    exceptions::apply(workspace, citations::RULE, findings)
}

/// Finds commits whose subject is too long or no imperative.
///
/// # Errors
/// Returns an error if a list cannot be read.
pub fn commit_subjects(workspace: &Workspace) -> Result<Vec<String>, String> {
    match commits::findings(workspace) {
        Ok(findings) => exceptions::apply(workspace, commits::RULE, findings),
        Err(note) => {
            println!("check/{}: {note}", commits::RULE);
            Ok(Vec::new())
        }
    }
}

/// Prints the share of sentences without a subject and of types with a bare name; with `list`,
/// prints the present findings of the rules on names in the form of the file of exceptions.
///
/// # Errors
/// Returns an error if a list cannot be read or, with `gate`, if a share is above its limit.
pub fn run(workspace: &Workspace, gate: bool, list: bool) -> Result<(), String> {
    let sources = sources(workspace)?;
    if list {
        let findings = [
            (names::RULE, names::findings(&sources)),
            (definitions::RULE, definitions::findings(&sources)),
        ];
        print!("{}", exceptions::listing(&findings));
        return Ok(());
    }
    measure::run(&sources, gate)
}

/// Reads every text file of the tree.
fn sources(workspace: &Workspace) -> Result<Vec<SourceFile>, String> {
    let files = workspace.files()?.into_iter();
    let read = |path: String| {
        let text = fs::read_to_string(workspace.root.join(&path)).ok()?;
        Some(SourceFile { path, text })
    };
    Ok(files.filter_map(read).collect())
}

/// Applies a function to every file, on all processors, and returns the results in order.
fn each<T: Send>(sources: &[SourceFile], read: impl Fn(&SourceFile) -> T + Sync) -> Vec<T> {
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
