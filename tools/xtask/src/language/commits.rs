//! The rule `commit-subjects`: the subject of a commit is an imperative of at most 72 characters.
//! The rule applies to commits after the last tag and after the rule itself, except merges.

use std::process::Command;

use super::exceptions::Violation;
use super::words::{is_starter, words};
use crate::process;
use crate::workspace::Workspace;

/// The name of the rule.
pub const RULE: &str = "commit-subjects";
/// Characters of a subject, at most.
const SUBJECT_MAX: usize = 72;
/// The file whose first commit introduced the rule.
const INTRODUCTION: &str = "tools/xtask/src/language/commits.rs";

/// Returns a finding for each commit with a wrong subject.
///
/// # Errors
/// Returns a note if there is no history to judge.
pub fn findings(workspace: &Workspace) -> Result<Vec<Violation>, String> {
    if git(workspace, &["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
        return Err("a shallow clone has no history to judge".to_owned());
    }
    let introduction = ["log", "--diff-filter=A", "--format=%H", "--", INTRODUCTION];
    let introduction = git(workspace, &introduction)?;
    let tag = git(workspace, &["describe", "--tags", "--abbrev=0"]).unwrap_or_default();
    let known_lines: Vec<&str> = introduction.lines().chain(tag.lines()).collect();
    if known_lines.is_empty() {
        return Err("neither a tag nor a commit introduces the rule yet".to_owned());
    }
    let mut arguments = vec!["log", "--no-merges", "--format=%H %s", "HEAD", "--not"];
    arguments.extend(known_lines);
    let log = git(workspace, &arguments)?;
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    Ok(commits.filter_map(|(hash, subject)| finding(hash, subject)).collect())
}

fn git(workspace: &Workspace, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    process::read(command.args(arguments).current_dir(&workspace.root))
        .map_err(|problem| format!("no history to judge: {problem}"))
}

fn finding(hash: &str, subject: &str) -> Option<Violation> {
    let problem = problem(subject)?;
    let short = hash.get(..12).unwrap_or(hash);
    let fix = "fix: write an imperative of at most 72 characters, such as \"Name the lock\"";
    let message = format!("commit {short}: the subject \"{subject}\" {problem}; {fix}");
    Some(Violation { place: hash.to_owned(), text: subject.to_owned(), message })
}

/// Returns why a subject is refused.
fn problem(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        return Some(format!("has {length} characters (limit {SUBJECT_MAX})"));
    }
    if !subject.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Some("does not begin with a capital letter".to_owned());
    }
    if subject.ends_with('.') {
        return Some("ends with a period".to_owned());
    }
    let length = subject.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = subject.split_at(length);
    let lower = word.to_ascii_lowercase();
    let inflected = ["ed", "ing", "s"].iter().any(|end| lower.ends_with(end));
    let inflected = inflected && !words().imperatives.contains(&lower);
    let is_verb = rest.starts_with(' ') && !inflected && !is_starter(word);
    (!is_verb).then(|| "does not begin with an imperative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imperatives_are_distinguished_from_other_subjects() {
        for subject in ["Name the lock", "Pass the key to the reader", "Embed the lists"] {
            assert_eq!(problem(subject), None, "{subject}");
        }
        let long = format!("Name {}", "x".repeat(68));
        for subject in [
            "Names the lock",
            "Named the lock",
            "Naming the lock",
            "name the lock",
            "Name the lock.",
            "What names the lock",
            "Lock: name it",
            &long,
        ] {
            assert!(problem(subject).is_some(), "{subject}");
        }
    }
}
