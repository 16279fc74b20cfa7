//! Splits a block into sentences and finds the word that each one begins with.

use super::prose::{Block, BlockKind};

/// A sentence of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence<'a> {
    /// The offset in the block.
    pub start: usize,
    /// The text as written.
    pub text: &'a str,
    /// The first word, `None` if the sentence begins with code, a number or a quotation.
    pub first: Option<&'a str>,
    /// The count of words.
    pub words: usize,
}

/// Returns the sentences of a block, none of a row. Fragments of fewer than three words are no
/// sentences, except in headings.
#[must_use]
pub fn sentences(block: &Block) -> Vec<Sentence<'_>> {
    let words_min = if block.kind == BlockKind::Heading { 2 } else { 3 };
    let ranges = if block.kind == BlockKind::Row { Vec::new() } else { ranges(&block.masked) };
    let all = ranges.into_iter().map(|(start, end)| {
        let masked = &block.masked[start..end];
        let text = block.text[start..end].trim();
        let first = first_word(masked).filter(|word| {
            let lower = word.starts_with(|c: char| c.is_ascii_lowercase());
            !(lower && start == 0 && block.continues)
        });
        Sentence { start, text, first, words: words(masked) }
    });
    all.filter(|sentence| sentence.words >= words_min).collect()
}

/// Splits at the space between a mark that ends a sentence and a capital letter.
fn ranges(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = 0;
    for (offset, _) in text.match_indices(' ') {
        if !may_begin(text.as_bytes().get(offset + 1)) {
            continue;
        }
        let sentence_end =
            text[start..offset].trim_end_matches([')', '"', '\'', '*', '_', ']', ' ']);
        let next_sentence = text[offset + 1..].trim_start_matches(['(', '*', '_', '[']);
        if sentence_end.ends_with(['.', '!', '?', ':', ';'])
            && next_sentence.starts_with(|c: char| c.is_ascii_uppercase())
        {
            found.push((start, offset));
            start = offset + 1;
        }
    }
    found.push((start, text.len()));
    found
}

/// Reports whether a byte can begin a sentence, so that most spaces are passed over quickly.
fn may_begin(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_uppercase() || b"(*_[".contains(byte))
}

/// Returns the word that a sentence begins with, before an apostrophe. A name with other marks
/// inside, such as `one-way` or `of_val`, is not a word by itself.
fn first_word(sentence: &str) -> Option<&str> {
    let text = sentence.trim_start_matches([' ', '(', '[', '*', '_', '~', '-', '–', '—', '>', '+']);
    let length = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = text.split_at(length);
    let mut after = rest.chars();
    let is_whole = match after.next() {
        Some('-' | '.' | '/' | ':') => !after.next().is_some_and(char::is_alphanumeric),
        Some('_' | '(' | '0'..='9') => false,
        _ => true,
    };
    (length > 0 && is_whole && !rest.starts_with("::")).then_some(word)
}

/// Counts runs of letters and apostrophes.
fn words(text: &str) -> usize {
    let (mut count, mut inside) = (0, false);
    for byte in text.bytes() {
        let part = byte.is_ascii_alphabetic() || byte == b'\'';
        count += usize::from(part && !inside);
        inside = part;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::prose::blocks;
    use super::*;

    fn firsts(source: &str) -> Vec<Option<String>> {
        let blocks = blocks("a.md", source);
        let all = blocks.iter().flat_map(sentences);
        all.map(|sentence| sentence.first.map(str::to_owned)).collect()
    }

    fn expect(source: &str, expected: &[Option<&str>]) {
        let expected: Vec<Option<String>> =
            expected.iter().map(|word| word.map(str::to_owned)).collect();
        assert_eq!(firsts(source), expected);
    }

    #[test]
    fn sentences_end_before_a_capital_letter() {
        expect("The log is one, e.g. this. (What a\nday!) It rains.", &[Some("The"), Some("What")]);
        expect("It is so: **What** is `a. B` worth", &[Some("It"), Some("What")]);
    }

    #[test]
    fn first_word_is_read_whole() {
        expect("What's in a name", &[Some("What")]);
        expect("One-way streets are long", &[None]);
        expect("`What` is in a name", &[Some("CCCCCC")]);
        expect("8 of them are long", &[None]);
        expect("\"What is it\" asks for more", &[None]);
        expect("of_val is a name", &[None]);
    }

    #[test]
    fn continued_sentence_has_no_first_word() {
        expect("A b c\n```\nd\n```\nof which e is one", &[Some("A"), None]);
    }

    #[test]
    fn headings_are_sentences_and_table_rows_are_not() {
        expect("# What now\n\n| What a row |\n", &[Some("What")]);
    }
}
