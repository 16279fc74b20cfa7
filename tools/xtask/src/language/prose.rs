//! Reads passages and Markdown files into blocks: paragraphs, list items, headings and rows of
//! tables. Code fences and indented code are no prose, and code spans are masked.

use super::comments::{self, Markup, Passage};
use super::mask::mask;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A paragraph, or the first paragraph of a list item.
    Paragraph,
    /// A heading.
    Heading,
    /// A row of a table, or a definition of a link.
    Row,
}

/// Text that belongs together, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The kind.
    pub kind: BlockKind,
    /// The text as written, with a space for each line break.
    pub text: String,
    /// The text with code spans masked, byte by byte.
    pub masked: String,
    /// Whether a fence, a table or a list comes before it, so that it may continue a sentence.
    pub continues: bool,
    lines: Vec<(usize, usize)>,
}

impl Block {
    /// Returns the line of the file that holds an offset of the text.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        let place = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines[place.max(1) - 1].1
    }
}

/// Returns the prose of a file: all of a Markdown file, the comments of any other.
#[must_use]
pub fn blocks(path: &str, source: &str) -> Vec<Block> {
    let passages = if path.ends_with(".md") {
        let lines = source.lines().enumerate().map(|(place, line)| (place + 1, line));
        vec![Passage { markup: Markup::Markdown, lines: lines.collect() }]
    } else {
        comments::passages(path, source)
    };
    passages.iter().flat_map(of_passage).collect()
}

fn of_passage(passage: &Passage<'_>) -> Vec<Block> {
    let mut reader = Reader::default();
    for (number, line) in &passage.lines {
        match passage.markup {
            Markup::Markdown => reader.markdown(*number, line),
            Markup::Javadoc => reader.javadoc(*number, line),
        }
    }
    reader.close();
    for block in &mut reader.blocks {
        block.masked = mask(&block.text, passage.markup);
    }
    reader.blocks
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    open: Option<Block>,
    /// The mark that ends the present fence or comment of HTML.
    until: Option<&'static str>,
    in_list: bool,
    continues: bool,
}

impl Reader {
    fn markdown(&mut self, number: usize, line: &str) {
        let text = line.trim();
        if self.hidden(text, &[("```", "```"), ("~~~", "~~~"), ("<!--", "-->")]) {
            return;
        }
        let indent = line.len() - line.trim_start().len();
        if text.is_empty() || is_rule(text) {
            return self.close();
        }
        let item = item(text);
        if self.open.is_none() && item.is_none() {
            self.in_list &= indent > 0;
            if !self.in_list && (indent >= 4 || line.starts_with('\t')) || text.starts_with(">>> ")
            {
                self.continues = true;
                return;
            }
        }
        if text.starts_with('|') || is_definition(text) {
            self.close();
            self.add(BlockKind::Row, number, text);
            self.close();
        } else if let Some(heading) = heading(text) {
            self.close();
            self.add(BlockKind::Heading, number, heading);
            self.close();
        } else if let Some(item) = item {
            self.close();
            self.in_list = true;
            self.add(BlockKind::Paragraph, number, item);
        } else {
            self.add(BlockKind::Paragraph, number, text.trim_start_matches("> "));
        }
    }

    fn javadoc(&mut self, number: usize, line: &str) {
        let text = line.trim();
        if self.hidden(text, &[("<pre>", "</pre>")]) {
            return;
        }
        if text.is_empty() {
            return self.close();
        }
        let opens = ["<p>", "<li>", "<h2>", "<h3>", "<dt>", "<dd>"];
        if let Some(tag) = opens.iter().find(|tag| text.starts_with(**tag)) {
            self.close();
            self.add(BlockKind::Paragraph, number, &text[tag.len()..]);
        } else if let Some(rest) = text.strip_prefix('@') {
            self.close();
            self.add(BlockKind::Paragraph, number, described(rest));
        } else {
            self.add(BlockKind::Paragraph, number, text);
        }
    }

    /// Reports whether a line belongs to a fence or to a comment of HTML.
    fn hidden(&mut self, text: &str, fences: &[(&str, &'static str)]) -> bool {
        if let Some(mark) = self.until {
            if text.contains(mark) {
                self.until = None;
            }
            return true;
        }
        let Some((open, close)) = fences.iter().find(|(open, _)| text.starts_with(open)) else {
            return false;
        };
        self.close();
        self.continues = true;
        self.until = (!text[open.len()..].contains(close)).then_some(*close);
        true
    }

    fn add(&mut self, kind: BlockKind, number: usize, text: &str) {
        let continues = self.continues;
        let block = self.open.get_or_insert_with(|| Block {
            kind,
            text: String::new(),
            masked: String::new(),
            continues,
            lines: Vec::new(),
        });
        if !block.text.is_empty() {
            block.text.push(' ');
        }
        block.lines.push((block.text.len(), number));
        block.text.push_str(text);
    }

    fn close(&mut self) {
        if let Some(block) = self.open.take() {
            self.continues = self.in_list || block.kind == BlockKind::Row;
            self.blocks.push(block);
        }
    }
}

/// Returns the text of a list item.
fn item(text: &str) -> Option<&str> {
    if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        return Some(rest.trim_start());
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text[digits..].strip_prefix(". ").or_else(|| text[digits..].strip_prefix(") "));
    rest.filter(|_| (1..=2).contains(&digits)).map(str::trim_start)
}

fn heading(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches('#');
    let level = text.len() - rest.len();
    rest.strip_prefix(' ').filter(|_| (1..=6).contains(&level)).map(str::trim)
}

/// Reports whether a line is a rule, or underlines a heading.
fn is_rule(text: &str) -> bool {
    text.len() >= 3 && ['-', '=', '*', '_'].iter().any(|mark| text.chars().all(|c| c == *mark))
}

/// Reports whether a line defines a link: `[name]: target`.
fn is_definition(text: &str) -> bool {
    text.starts_with('[') && text.split_once("]: ").is_some_and(|(name, _)| !name.contains(' '))
}

/// Returns the description after a tag of Javadoc: `param name What it is` gives `What it is`.
fn described(tag: &str) -> &str {
    let (name, rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    match name {
        "param" | "throws" | "exception" => {
            rest.trim_start().split_once(char::is_whitespace).map_or("", |(_, text)| text)
        }
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, source: &str) -> Vec<(usize, String)> {
        blocks(path, source).into_iter().map(|block| (block.line(0), block.text)).collect()
    }

    fn expect(path: &str, source: &str, expected: &[(usize, &str)]) {
        let expected: Vec<(usize, String)> =
            expected.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
        assert_eq!(texts(path, source), expected);
    }

    #[test]
    fn markdown_is_read_by_block() {
        let source =
            "# A b\n\nC\nd.\n- e\n  f\n\n      g\n1. h\n\n| i | j |\n\n```\nk\n```\n\n    l\n";
        let expected = [(1, "A b"), (3, "C d."), (5, "e f"), (8, "g"), (9, "h"), (11, "| i | j |")];
        expect("a.md", source, &expected);
    }

    #[test]
    fn hidden_text_is_no_prose() {
        let source = "<!-- a -->\n<!--\nb\n-->\nc\n---\n[d]: e.md\n";
        expect("a.md", source, &[(5, "c"), (7, "[d]: e.md")]);
        expect("a.rs", "/// a\n/// ```\n/// b\n/// ```\n/// c\n", &[(1, "a"), (5, "c")]);
    }

    #[test]
    fn javadoc_tags_start_blocks() {
        let source =
            "/**\n * A.\n * <p>B\n * c.\n * <pre>d\n * </pre>\n * @param e f\n * @return g\n */";
        expect("A.java", source, &[(2, "A."), (3, "B c."), (7, "f"), (8, "g")]);
    }

    #[test]
    fn offsets_map_to_lines() {
        let block = &blocks("a.rs", "// ab\n// cd\n")[0];
        assert_eq!((block.text.as_str(), block.line(1), block.line(3)), ("ab cd", 1, 2));
    }
}
