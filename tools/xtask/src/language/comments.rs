//! Finds the comments and docstrings of a source file, as passages: lines of text without the marks
//! of the language, so that one set of rules reads them all.

use super::lexer::{self, Lines, Span, SpanKind, Syntax};

/// The markup of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markup {
    /// Markdown, and plain text that borrows its lists and backticks.
    Markdown,
    /// HTML with tags such as `@param` and `{@code ...}`.
    Javadoc,
}

/// Neighbouring lines of text that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage<'a> {
    /// The markup.
    pub markup: Markup,
    /// Each line's number and text.
    pub lines: Vec<(usize, &'a str)>,
}

/// Returns every comment and docstring of a file, or nothing for a language that is not known.
#[must_use]
pub fn passages<'a>(path: &str, source: &'a str) -> Vec<Passage<'a>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match Syntax::of(path) {
        Some(syntax) => lexed(source, syntax),
        None if name == "Makefile" => by_line(source, true),
        None if [".sh", ".yaml", ".yml"].iter().any(|end| name.ends_with(end)) => {
            by_line(source, false)
        }
        None => Vec::new(),
    }
}

/// A line comment that has no code before it and the mark that it starts with.
#[derive(PartialEq, Eq)]
struct LastLine<'a> {
    line: usize,
    mark: &'a str,
}

fn lexed(source: &str, syntax: Syntax) -> Vec<Passage<'_>> {
    let spans = lexer::spans(source, syntax);
    let lines = Lines::of(source);
    let markup = if syntax == Syntax::Java { Markup::Javadoc } else { Markup::Markdown };
    let code = if syntax == Syntax::Python { lexer::code(source, &spans) } else { String::new() };
    let mut found: Vec<Passage<'_>> = Vec::new();
    let mut last: Option<LastLine<'_>> = None;
    for span in spans {
        let line = lines.number(span.start);
        let before = source[lines.start(span.start)..span.start].trim();
        let text = &source[span.start..span.end];
        match span.kind {
            SpanKind::Line => {
                let mark = mark(text);
                let body = &text[mark.len()..];
                let body = (line, body.strip_prefix(' ').unwrap_or(body));
                let next = LastLine { line: line - 1, mark };
                match found.last_mut().filter(|_| before.is_empty() && last == Some(next)) {
                    Some(passage) => passage.lines.push(body),
                    None => found.push(Passage { markup, lines: vec![body] }),
                }
                last = before.is_empty().then_some(LastLine { line, mark });
            }
            SpanKind::Block => found.push(Passage { markup, lines: block(text, line) }),
            SpanKind::Literal if is_docstring(&code, before, text, span) => {
                let indent = span.start - lines.start(span.start);
                found.push(Passage { markup, lines: docstring(text, line, indent) });
            }
            SpanKind::Literal => {}
        }
    }
    found
}

/// Returns the mark of a line comment: `//!`, any run of slashes, any run of hashes.
fn mark(text: &str) -> &str {
    let run = text.len() - text.trim_start_matches(['/', '#']).len();
    let bang = usize::from(text[run..].starts_with('!'));
    &text[..run + bang]
}

fn block(text: &str, line: usize) -> Vec<(usize, &str)> {
    let inside = text.trim_start_matches('/').trim_start_matches(['*', '!']);
    let inside = inside.trim_end_matches('/').trim_end_matches('*');
    let indent_of = |line: &'_ str| -> usize {
        let rest = line.trim_start();
        let rest = rest.strip_prefix('*').unwrap_or(rest);
        line.len() - rest.strip_prefix(' ').unwrap_or(rest).len()
    };
    inside
        .lines()
        .enumerate()
        .map(|(place, text)| (line + place, &text[indent_of(text)..]))
        .collect()
}

/// Reports whether a literal is a docstring: in three quotes, at the start of a line, and not
/// inside an expression.
fn is_docstring(code: &str, before: &str, text: &str, span: Span) -> bool {
    let tripled = text.starts_with("\"\"\"") || text.starts_with("'''");
    if !tripled || !matches!(before, "" | "r") || code.is_empty() {
        return false;
    }
    let code_before = code[..span.start - before.len()].trim_end();
    !code_before.ends_with(['(', '[', '{', ',', '=', '+', '%'])
}

fn docstring(text: &str, line: usize, indent: usize) -> Vec<(usize, &str)> {
    let inside = text.get(3..text.len().saturating_sub(3)).unwrap_or_default();
    let dedented = |text: &'_ str| -> usize {
        text.bytes().take(indent).take_while(|byte| *byte == b' ').count()
    };
    inside
        .lines()
        .enumerate()
        .map(|(place, text)| (line + place, &text[dedented(text)..]))
        .collect()
}

/// Returns the lines that are comments as a whole and, in a Makefile, the help after `##`.
fn by_line(source: &str, help: bool) -> Vec<Passage<'_>> {
    let mut found: Vec<Passage<'_>> = Vec::new();
    let mut last = 0;
    for (place, line) in source.lines().enumerate().filter(|(_, line)| !line.starts_with("#!")) {
        let number = place + 1;
        let text = line.trim_start();
        if text.starts_with('#') {
            let body = text.trim_start_matches('#');
            let body = (number, body.strip_prefix(' ').unwrap_or(body));
            match found.last_mut().filter(|_| last + 1 == number) {
                Some(passage) => passage.lines.push(body),
                None => found.push(Passage { markup: Markup::Markdown, lines: vec![body] }),
            }
            last = number;
        } else if let Some((_, text)) = line.split_once(": ## ").filter(|_| help) {
            found.push(Passage { markup: Markup::Markdown, lines: vec![(number, text)] });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(path: &str, source: &'a str) -> Vec<Vec<(usize, &'a str)>> {
        passages(path, source).into_iter().map(|passage| passage.lines).collect()
    }

    #[test]
    fn neighbouring_lines_of_one_marker_form_one_passage() {
        let source = "//! a\n//! b\n\n/// c\nlet s = \"// d\"; // e\n// f\n";
        let expected = [vec![(1, "a"), (2, "b")], vec![(4, "c")], vec![(5, "e")], vec![(6, "f")]];
        assert_eq!(lines("a.rs", source), expected);
    }

    #[test]
    fn block_comments_lose_their_stars() {
        let source = "/** a\n * b\n */\nint x; /* c */\n";
        assert_eq!(lines("A.java", source), [vec![(1, "a"), (2, "b"), (3, "")], vec![(4, "c ")]]);
    }

    #[test]
    fn docstrings_are_distinguished_from_other_strings() {
        let source = "'''a'''\nx = \"\"\"b\"\"\"\ndef f():\n    \"\"\"c\n\n    d\"\"\"\n    \
            g(\n\"\"\"e\"\"\")\n# h\n";
        let expected = [vec![(1, "a")], vec![(4, "c"), (5, ""), (6, "d")], vec![(9, "h")]];
        assert_eq!(lines("a.py", source), expected);
    }

    #[test]
    fn scripts_and_makefiles_are_read_by_line() {
        assert_eq!(lines("a.sh", "#!/bin/sh\n# a\n# b\nx # c\n"), [[(2, "a"), (3, "b")]]);
        assert_eq!(lines("Makefile", "# a\nb: ## c\n"), [[(1, "a")], [(2, "c")]]);
    }
}
