//! The rule `citations`: the targets of links, Markdown files, decisions and paths that a text
//! cites are in the tree. A path with a placeholder and a path that git ignores are no citations.

use std::collections::BTreeSet;
use std::process::Command;

use super::exceptions::Violation;
use super::links;
use super::prose::{self, Block};
use super::sources::SourceFile;
use super::tree::{Tree, is_number, normal};
use crate::parallel::map_parallel;
use crate::workspace::Workspace;

/// The name of the rule.
pub const RULE: &str = "citations";
/// Parts of a path that stand for any name.
const PLACEHOLDERS: [&str; 12] =
    ["CRATE", "FILE", "FOLDER", "LANG", "N", "NAME", "NNNN", "PACKAGE", "PID", "TRIPLE", "X", "Y"];
/// The last part of the name of a suite of tests, which follows a folder.
const SUITES: [&str; 2] = ["pytest", "unit"];
/// Ends of the names of files that are cited without their folder's name at the top level.
const EXTENSIONS: [&str; 12] =
    ["bazel", "bzl", "c", "go", "h", "java", "json", "proto", "py", "rs", "sh", "toml"];

/// A citation whose target does not exist.
struct BrokenCitation {
    at: usize,
    text: String,
    problem: String,
}

/// Returns a finding for each citation that leads to nothing in the tree.
///
/// # Errors
/// Returns an error if git cannot list the files.
pub fn findings(workspace: &Workspace, sources: &[SourceFile]) -> Result<Vec<Violation>, String> {
    let files = workspace.files()?;
    let tree = Tree::new(&files, sources);
    let mut findings = map_parallel(sources, |source| tree.of_file(source)).concat();
    let ignored = ignored(workspace, &findings);
    findings.retain(|finding| !ignored.contains(finding.text.trim_end_matches('/')));
    Ok(findings)
}

/// Returns the citations that are paths of generated files, as git ignores them.
fn ignored(workspace: &Workspace, findings: &[Violation]) -> BTreeSet<String> {
    let paths: BTreeSet<&str> = findings.iter().map(|found| found.text.as_str()).collect();
    let paths: Vec<&str> =
        paths.into_iter().filter(|path| is_path(path) && !path.starts_with('.')).collect();
    if paths.is_empty() {
        return BTreeSet::new();
    }
    let mut command = Command::new("git");
    command.args(["check-ignore", "--"]).args(paths).current_dir(&workspace.root);
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    let listing = String::from_utf8_lossy(&output).into_owned();
    listing.lines().map(|path| path.trim_end_matches('/').to_owned()).collect()
}

fn is_path(text: &str) -> bool {
    text.contains('/') && text.bytes().all(is_path_byte)
}

fn is_path_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'/')
}

impl Tree<'_> {
    fn of_file(&self, source: &SourceFile) -> Vec<Violation> {
        let mut findings = Vec::new();
        for block in prose::blocks(&source.path, &source.text) {
            for citation in self.broken_citations(&source.path, &block) {
                let line = block.line(citation.at);
                let fix = "fix: cite a path of the tree, or remove the citation";
                let message = format!("{}:{line}: {}; {fix}", source.path, citation.problem);
                let place = source.path.clone();
                findings.push(Violation { place, text: citation.text, message });
            }
        }
        findings
    }

    fn broken_citations(&self, path: &str, block: &Block) -> Vec<BrokenCitation> {
        let mut found = Vec::new();
        let mut text = block.text.clone();
        if path.ends_with(".md") {
            for link in links::links(block) {
                found.extend(self.broken_link(path, link.start, link.target));
                let end = link.start + link.target.len();
                text.replace_range(link.start..end, &" ".repeat(link.target.len()));
            }
        }
        if text.contains('/') || text.contains(".md") {
            self.paths(path, &text, &mut found);
        }
        self.decisions(&text, &mut found);
        found.extend(style_rules(&text));
        found
    }

    fn broken_link(&self, path: &str, offset: usize, target: &str) -> Option<BrokenCitation> {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let file = match file.strip_prefix('/') {
            Some(file) => normal("", file),
            None if file.is_empty() => Some(path.to_owned()),
            None => normal(folder, file),
        };
        let file = file.filter(|file| self.has(file));
        let Some(file) = file else {
            let problem = format!("the link to {target} leads to no file");
            return Some(BrokenCitation { at: offset, text: target.to_owned(), problem });
        };
        let anchors = self.anchors.get(file.as_str()).filter(|_| !anchor.is_empty())?;
        let problem = format!("the link to {target} leads to no heading");
        (!anchors.contains(anchor)).then(|| BrokenCitation {
            at: offset,
            text: target.to_owned(),
            problem,
        })
    }

    /// Finds the Markdown files and paths of a text among the runs of characters that a path may
    /// have.
    fn paths(&self, path: &str, text: &str, found: &mut Vec<BrokenCitation>) {
        let bytes = text.as_bytes();
        let mut offset = 0;
        while offset < bytes.len() {
            let start = offset;
            while offset < bytes.len() && is_path_byte(bytes[offset]) {
                offset += 1;
            }
            let run = &text[start..offset];
            if run.len() > 2 && run.contains(['/', '.']) {
                let before = text[..start].chars().next_back();
                let after = text[offset..].chars().next();
                let quoted = before == Some('`') && matches!(after, Some('`' | ':' | '#'));
                if !is_part(run, before, after) {
                    let cited = run.trim_end_matches('.');
                    found.extend(self.broken_path(path, start, cited, quoted));
                }
            }
            while offset < bytes.len() && !is_path_byte(bytes[offset]) {
                offset += 1;
            }
        }
    }

    fn broken_path(
        &self,
        path: &str,
        offset: usize,
        cited: &str,
        quoted: bool,
    ) -> Option<BrokenCitation> {
        let parts = cited.split(|c: char| !c.is_ascii_alphanumeric());
        if parts.clone().any(|part| PLACEHOLDERS.contains(&part)) || cited.contains("...") {
            return None;
        }
        let name = cited.rsplit('/').next().unwrap_or(cited);
        if SUITES.contains(&name.split('-').next().unwrap_or(name)) {
            return None;
        }
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        let below_top = cited.split_once('/').is_some_and(|(top, _)| self.folders.contains(top));
        let is_known = EXTENSIONS.contains(&extension);
        let decision = cited.strip_prefix("tools/decisions/").filter(|rest| is_number(rest));
        let exists = if let Some(number) = decision {
            self.decisions.contains(number)
        } else if extension == "md" && !stem.is_empty() {
            self.is_near(path, cited) || self.names.get(cited) == Some(&1)
        } else if below_top && (quoted || is_known) {
            self.is_near(path, cited)
        } else if quoted && is_known && cited.contains('/') && !stem.is_empty() {
            self.is_near(path, cited) || self.has_end(cited)
        } else {
            true
        };
        let problem = format!("{cited} is not in the tree");
        (!exists).then(|| BrokenCitation { at: offset, text: cited.to_owned(), problem })
    }

    fn decisions(&self, text: &str, found: &mut Vec<BrokenCitation>) {
        for (offset, number) in decision_numbers(text) {
            if !self.decisions.contains(number) {
                let text = format!("ADR {number}");
                let problem = format!("there is no {text}");
                found.push(BrokenCitation { at: offset, text, problem });
            }
        }
    }
}

/// Returns the numbers of `ADR NNNN`, and of more numbers after commas, `and`, `or` and `to`.
fn decision_numbers(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (start, mark) in text.match_indices("ADR") {
        let mut rest = &text[start + mark.len()..];
        loop {
            rest = rest.trim_start_matches(['s', ' ', '-', ',']);
            let joints = ["and ", "or ", "to "];
            let joined = joints.iter().find_map(|joint| rest.strip_prefix(joint));
            rest = joined.unwrap_or(rest);
            if rest.bytes().take_while(u8::is_ascii_digit).count() != 4 {
                break;
            }
            found.push((start, &rest[..4]));
            rest = &rest[4..];
        }
    }
    found
}

/// Reports whether a run is a part of something longer: an address, a label, a pattern.
fn is_part(run: &str, before: Option<char>, after: Option<char>) -> bool {
    run.starts_with('/')
        || matches!(
            before,
            Some('@' | '*' | '{' | '}' | '<' | '>' | '$' | '~' | '+' | '\\' | ':' | '%' | '…')
        )
        || matches!(after, Some('*' | '{' | '<' | '$' | '…' | '@' | '%'))
        || (run.ends_with('/') && after.is_some_and(|c| c == '['))
}

/// Finds citations of the rules of style, which are not in the tree.
fn style_rules(text: &str) -> Vec<BrokenCitation> {
    let rules = text.match_indices("style rule ");
    let numbered = rules.filter(|(offset, mark)| {
        text[offset + mark.len()..].starts_with(|c: char| c.is_ascii_digit())
    });
    let citation_at = |(offset, _)| {
        let problem = "the rules of style have no numbers in the tree".to_owned();
        BrokenCitation { at: offset, text: "style rule".to_owned(), problem }
    };
    numbered.map(citation_at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_numbers_are_found_in_lists() {
        let text = "ADR 0001, ADRs 0002, 0003 and 0004, ADR-0005 (2024), ADR NNNN";
        let numbers: Vec<&str> =
            decision_numbers(text).into_iter().map(|(_, number)| number).collect();
        assert_eq!(numbers, ["0001", "0002", "0003", "0004", "0005"]);
    }
}
