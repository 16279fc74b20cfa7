//! The language rules: prose and names that a stranger understands. Each rule is a module with a
//! function over the tree; `lexer`, `comments`, `prose` and `sentences` read the text for them,
//! `outline` finds the types. `tests/language_test.rs` plants a violation of every rule.
//!
//! The word lists are in `tools/xtask/language/words.toml`, the exceptions in the same folder.

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
mod names;
mod outline;
mod prose;
mod rust;
mod sentences;
mod sources;
mod subjects;
mod tree;
mod words;

use self::sources::sources;

use crate::workspace::Workspace;

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
