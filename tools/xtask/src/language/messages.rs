//! The messages of a program: string literals of its sources that read like a sentence. A test's
//! literals are no messages.

use super::SourceFile;
use super::declarations::outline;
use super::lexer::{Lines, SpanKind, Syntax, spans};
use super::subjects::is_starter;

/// Words that make a literal a sentence, at least.
const WORDS_MIN: usize = 3;

/// A message that begins without a subject.
pub struct Message<'a> {
    /// The line, from 1.
    pub line: usize,
    /// The literal without its quotes.
    pub text: &'a str,
}

/// Returns the messages of a Rust source that begin without a subject.
pub fn messages(source: &SourceFile) -> Vec<Message<'_>> {
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
        found.retain(|(at, _)| !tests.iter().any(|(start, end)| (start..end).contains(&at)));
    }
    let lines = Lines::of(&source.text);
    found.into_iter().map(|(at, text)| Message { line: lines.number(at), text }).collect()
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
