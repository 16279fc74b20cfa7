//! The exceptions from the language rules, in `tools/xtask/language/exceptions.toml`: a section
//! for each rule, in it a place (a file, a crate, a package) and the excepted texts. An entry that
//! excepts nothing is a finding itself, so that the file only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

use toml::Table;

use crate::workspace::Workspace;

/// The file of exceptions.
const FILE: &str = "tools/xtask/language/exceptions.toml";
/// The rules that may have a section.
const RULES: [&str; 5] =
    ["citations", "commit-subjects", "one-definition", "subjects", "type-names"];
const HEAD: &str = "\
# Exceptions from the language rules of `make check`, a section for each rule. The list only
# shrinks: an entry that excepts nothing fails. `xtask language --list` prints the file.
";

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The file, crate or package.
    pub place: String,
    /// The name, sentence or citation.
    pub text: String,
    /// The finding in words, with its fix.
    pub message: String,
}

type Entries = BTreeSet<(String, String)>;

/// Returns the messages of the findings that are not excepted, and of the entries to remove.
///
/// # Errors
/// Returns an error if the file of exceptions cannot be read.
pub fn apply(
    workspace: &Workspace,
    rule: &str,
    findings: Vec<Violation>,
) -> Result<Vec<String>, String> {
    let entries = entries(workspace, rule)?;
    let mut used_entries = Entries::new();
    let mut messages = Vec::new();
    for finding in findings {
        let entry = (finding.place, finding.text);
        if entries.contains(&entry) {
            used_entries.insert(entry);
        } else {
            messages.push(finding.message);
        }
    }
    for (place, text) in entries.difference(&used_entries) {
        messages
            .push(format!("{FILE}: [{rule}] {place:?}: {text:?} excepts nothing; fix: remove it"));
    }
    Ok(messages)
}

fn entries(workspace: &Workspace, rule: &str) -> Result<Entries, String> {
    let text = match fs::read_to_string(workspace.root.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Entries::new()),
        Err(error) => return Err(format!("read {FILE}: {error}")),
    };
    let table: Table = text.parse().map_err(|error| format!("read {FILE}: {error}"))?;
    if let Some(name) = table.keys().find(|name| !RULES.contains(&name.as_str())) {
        return Err(format!("{FILE}: no rule [{name}]; fix: name one of {}", RULES.join(", ")));
    }
    let Some(section) = table.get(rule) else { return Ok(Entries::new()) };
    let section = section.as_table().ok_or_else(|| format!("{FILE}: [{rule}] is no table"))?;
    let mut entries = Entries::new();
    for (place, texts) in section {
        let texts = texts.as_array().map_or(&[][..], Vec::as_slice);
        if texts.is_empty() || texts.iter().any(|text| !text.is_str()) {
            return Err(format!("{FILE}: [{rule}] {place:?} is no list of texts"));
        }
        let texts = texts.iter().filter_map(|text| text.as_str());
        entries.extend(texts.map(|text| (place.clone(), text.to_owned())));
    }
    Ok(entries)
}

/// Returns a file of exceptions for all findings of some rules.
pub fn listing(findings: &[(&str, Vec<Violation>)]) -> String {
    let mut text = HEAD.to_owned();
    for (rule, findings) in findings {
        let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for finding in findings {
            places.entry(&finding.place).or_default().insert(&finding.text);
        }
        text.push_str(&format!("\n[{rule}]\n"));
        for (place, texts) in places {
            let texts: Vec<&str> = texts.into_iter().collect();
            text.push_str(&format!("{place:?} = {texts:?}\n"));
        }
    }
    text
}
