//! The rule `subjects`: a sentence names its subject, so it does not begin with a question word or
//! a pronoun. The rule applies to comments, docstrings, Markdown and the messages of a program.

use super::exceptions::Violation;
use super::lexer::{Lines, SpanKind, Syntax, spans};
use super::outline::outline;
use super::prose;
use super::sentences::sentences;
use super::sources::SourceFile;
use super::words::is_starter;
use crate::parallel::map_parallel;

/// The name of the rule.
pub const RULE: &str = "subjects";
/// Characters of a sentence that a finding quotes.
const QUOTED_MAX: usize = 60;
/// Words that make a literal a sentence, at least.
const WORDS_MIN: usize = 3;

/// Returns a finding for each sentence.
pub fn findings(sources: &[SourceFile]) -> Vec<Violation> {
    map_parallel(sources, of_file).concat()
}

fn of_file(source: &SourceFile) -> Vec<Violation> {
    let mut findings = Vec::new();
    for block in prose::blocks(&source.path, &source.text) {
        let sentences = sentences(&block).into_iter();
        for sentence in sentences.filter(|sentence| sentence.first.is_some_and(is_starter)) {
            findings.push(finding(source, block.line(sentence.start), sentence.text));
        }
    }
    let messages = messages(source).into_iter();
    findings.extend(messages.map(|message| finding(source, message.line, message.text)));
    findings
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

/// A message that begins without a subject.
struct Message<'a> {
    /// The line, from 1.
    line: usize,
    /// The literal without its quotes.
    text: &'a str,
}

/// Returns the messages of a Rust source that begin without a subject: string literals that read
/// like a sentence. A test's literals are no messages.
fn messages(source: &SourceFile) -> Vec<Message<'_>> {
    let path = &source.path;
    let is_test =
        path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("_test.rs");
    if is_test || !path.ends_with(".rs") || !path.contains("/src/") {
        return Vec::new();
    }
    let literals = spans(&source.text, Syntax::Rust).into_iter();
    let literals = literals.filter(|span| span.kind == SpanKind::Literal);
    let mut found: Vec<(usize, &str)> = literals
        .map(|span| (span.start, source.text[span.start..span.end].trim_matches(['r', '#', '"'])))
        .filter(|(_, text)| lacks_subject(text))
        .collect();
    if !found.is_empty() {
        let tests = outline(&source.path, &source.text).tests;
        found
            .retain(|(offset, _)| !tests.iter().any(|(start, end)| (start..end).contains(&offset)));
    }
    let lines = Lines::of(&source.text);
    found.into_iter().map(|(offset, text)| Message { line: lines.number(offset), text }).collect()
}

/// Reports whether a literal begins with a starter and a word in lower case.
fn lacks_subject(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    // A keyword of SQL is in capitals throughout.
    let shouted = first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_uppercase());
    text.starts_with(first)
        && !shouted
        && is_starter(first)
        && second.starts_with(|c: char| c.is_ascii_lowercase())
        && words.count() + 2 >= WORDS_MIN
}
