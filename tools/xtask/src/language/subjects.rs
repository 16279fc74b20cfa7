//! The rule `subjects`: a sentence names its subject, so it does not begin with a question word or
//! a pronoun. The rule applies to comments, docstrings, Markdown and the messages of a program.

use super::exceptions::Violation;
use super::sentences::sentences;
use super::words::words;
use super::{SourceFile, each, messages, prose};

/// The name of the rule.
pub const RULE: &str = "subjects";
/// Characters of a sentence that a finding quotes.
const QUOTED_MAX: usize = 60;

/// Returns a finding for each sentence.
pub fn findings(sources: &[SourceFile]) -> Vec<Violation> {
    each(sources, of_file).concat()
}

fn of_file(source: &SourceFile) -> Vec<Violation> {
    let mut findings = Vec::new();
    for block in prose::blocks(&source.path, &source.text) {
        let sentences = sentences(&block).into_iter();
        for sentence in sentences.filter(|sentence| sentence.first.is_some_and(is_starter)) {
            findings.push(finding(source, block.line(sentence.start), sentence.text));
        }
    }
    let messages = messages::messages(source).into_iter();
    findings.extend(messages.map(|message| finding(source, message.line, message.text)));
    findings
}

/// Reports whether a sentence may not begin with a word.
pub fn is_starter(word: &str) -> bool {
    words().starters.contains(&word.to_ascii_lowercase())
}

fn finding(source: &SourceFile, line: usize, sentence: &str) -> Violation {
    let mut text: String = sentence.chars().take(QUOTED_MAX).collect();
    if text.len() < sentence.len() {
        text.push_str("...");
    }
    let fix = "fix: name the component first (CONTRIBUTING.md, rule 1)";
    let message =
        format!("{}:{line}: the sentence \"{text}\" begins without a subject; {fix}", source.path);
    Violation { place: source.path.clone(), text, message }
}
