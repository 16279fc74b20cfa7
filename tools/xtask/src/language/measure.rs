//! The two measures of the language: the share of sentences that begin without a subject, and the
//! share of types with a bare name. Reviews take them over the Rust sources of the libraries,
//! services and clients, line by line; the second row is over all that the rules read.

use std::collections::BTreeMap;

use super::declarations::DeclarationKind;
use super::outline::outline;
use super::prose::blocks;
use super::sentences::sentences;
use super::sources::SourceFile;
use super::words::words;

/// Sentences without a subject, at most, in percent.
const SENTENCES_MAX: f64 = 4.0;
/// Types with a bare name, at most, in percent.
const TYPES_MAX: f64 = 1.0;
/// Names that are printed.
const NAMES_MAX: usize = 25;

/// The counts of one measure.
#[derive(Default)]
struct Tally {
    sentences: usize,
    without: usize,
    with_what: usize,
    types: usize,
    bare: usize,
    names: BTreeMap<String, usize>,
}

/// Prints the measures.
///
/// # Errors
/// Returns an error if a share is above its limit and `gate` is set.
pub fn run(sources: &[SourceFile], gate: bool) -> Result<(), String> {
    let mut own_tally = Tally::default();
    for source in sources.iter().filter(|source| is_ours(&source.path)) {
        own_tally.sentences_by_line(&source.text);
        source.text.lines().filter_map(declared).for_each(|name| own_tally.count_type(name));
    }
    let mut total = Tally::default();
    for source in sources {
        for block in blocks(&source.path, &source.text) {
            sentences(&block).iter().for_each(|sentence| total.count(sentence.first));
        }
        let declared = outline(&source.path, &source.text).declared;
        let types = declared.iter().filter(|found| found.kind == DeclarationKind::Type);
        types.for_each(|found| total.count_type(&found.name));
    }
    println!("names: {}", own_tally.most_frequent_names());
    println!("rust: {}", own_tally.in_words());
    println!("all: {}", total.in_words());
    let is_within = [&own_tally, &total].iter().all(|counts| counts.is_within());
    if is_within || !gate {
        return Ok(());
    }
    Err(format!("above the limits of {SENTENCES_MAX} % and {TYPES_MAX} %"))
}

fn is_ours(path: &str) -> bool {
    let top = ["libs/", "services/", "clients/"].iter().any(|top| path.starts_with(top));
    top && path.contains("/src/") && path.ends_with(".rs")
}

fn share(part: usize, total: usize) -> f64 {
    100.0 * part as f64 / total.max(1) as f64
}

impl Tally {
    fn is_within(&self) -> bool {
        share(self.without, self.sentences) <= SENTENCES_MAX
            && share(self.bare, self.types) <= TYPES_MAX
    }

    fn in_words(&self) -> String {
        format!(
            "{} sentences, {:.1} % begin without a subject ({:.1} % with What); {} of {} types \
             ({:.1} %) are bare participles or function words",
            self.sentences,
            share(self.without, self.sentences),
            share(self.with_what, self.sentences),
            self.bare,
            self.types,
            share(self.bare, self.types),
        )
    }

    fn most_frequent_names(&self) -> String {
        let mut names: Vec<(&String, &usize)> = self.names.iter().collect();
        names.sort_by(|left, right| right.1.cmp(left.1));
        let names = names.iter().take(NAMES_MAX).map(|(name, count)| format!("{name}x{count}"));
        names.collect::<Vec<_>>().join(" ")
    }

    fn count(&mut self, first: Option<&str>) {
        let word = first.unwrap_or_default().to_ascii_lowercase();
        let lists = words();
        self.sentences += 1;
        self.with_what += usize::from(word == "what");
        let has_no_subject = lists.starters.contains(&word) || lists.weak_starters.contains(&word);
        self.without += usize::from(has_no_subject);
    }

    fn count_type(&mut self, name: &str) {
        self.types += 1;
        if words().measured_names.contains(&name.to_lowercase()) {
            self.bare += 1;
            *self.names.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Tally the sentences of the line comments of a Rust source, as reviews do: a block ends
    /// with its comment, at an empty line, and before a heading, a row and a list item.
    fn sentences_by_line(&mut self, source: &str) {
        let (mut block, mut fenced) = (Vec::new(), false);
        for line in source.lines() {
            let Some(text) = line.trim_start().strip_prefix("//") else {
                fenced = false;
                self.flush(&mut block);
                continue;
            };
            let text = text.strip_prefix(['/', '!']).unwrap_or(text).trim();
            if text.starts_with("```") {
                fenced = !fenced;
                self.flush(&mut block);
                continue;
            }
            if fenced {
                continue;
            }
            let is_boundary = text.starts_with(['#', '|']);
            if text.is_empty() || is_boundary || text.starts_with("- ") || text.starts_with("* ") {
                self.flush(&mut block);
            }
            if !text.is_empty() && !is_boundary {
                block.push(text.trim_matches(['-', '*', ' ']));
            }
        }
        self.flush(&mut block);
    }

    fn flush(&mut self, block: &mut Vec<&str>) {
        let text = without_code(&block.join(" "));
        block.clear();
        let mut start = 0;
        for (offset, _) in text.match_indices(' ').chain([(text.len(), "")]) {
            let is_end = offset == text.len()
                || (text[..offset].trim_end().ends_with(['.', '!', '?', ':', ';'])
                    && text[offset + 1..].starts_with(|c: char| c.is_ascii_uppercase()));
            if !is_end {
                continue;
            }
            let parts =
                text[start..offset].split(|c: char| !(c.is_ascii_alphabetic() || c == '\''));
            let words: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            if words.len() >= 3 {
                self.count(words.first().copied());
            }
            start = offset;
        }
    }
}

/// Returns the text with `CODE` in place of what is between two backticks.
fn without_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let part = |(place, part): (usize, &&str)| match place % 2 {
        0 => (*part).to_owned(),
        _ if place == last => format!("`{part}"),
        _ => "CODE".to_owned(),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Returns the name of the struct, enum or trait that a line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map(|(_, rest)| rest)?,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let kinds = ["struct ", "enum ", "trait "];
    let rest = kinds.iter().find_map(|kind| line.trim_start().strip_prefix(kind))?.trim_start();
    let length =
        rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let name = &rest[..length];
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}
