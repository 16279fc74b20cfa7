//! The pushed data: files of documents, of which each version changes and drops a few.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use forebay_core::partition::xxh3_64;

/// Number of documents for each document that a version changes.
pub const CHANGED_ONE_IN: u64 = 20;
/// Number of documents for each document that a version drops.
pub const GONE_ONE_IN: u64 = 100;
/// The first version that is pushed: the store starts with an empty version.
pub const FIRST: u64 = 2;
/// Most versions after the first. A document whose key modulo [`GONE_ONE_IN`] is not below this
/// number is never dropped.
pub const MORE_MAX: u64 = 40;

/// Returns whether a version has a document.
#[must_use]
pub fn has(version: u64, key: u64) -> bool {
    let dropped_in = key % GONE_ONE_IN;
    dropped_in >= MORE_MAX || dropped_in >= version - FIRST
}

/// Returns the number of documents that a version has out of `documents`.
#[must_use]
pub fn count(version: u64, documents: u64) -> u64 {
    (0..documents).filter(|key| has(version, *key)).count() as u64
}

/// Returns the version in which a document was last changed.
#[must_use]
pub fn changed_in(version: u64, key: u64) -> u64 {
    let versions_since = (version + CHANGED_ONE_IN - key % CHANGED_ONE_IN) % CHANGED_ONE_IN;
    version.checked_sub(versions_since).map_or(FIRST, |changed| changed.max(FIRST))
}

/// Returns the document with the lowest key that every version has and this version changes.
#[must_use]
pub fn probe(version: u64) -> u64 {
    (MORE_MAX..).find(|key| key % CHANGED_ONE_IN == version % CHANGED_ONE_IN).unwrap_or(MORE_MAX)
}

/// Returns the beginning of a document's text.
#[must_use]
pub fn beginning(version: u64, key: u64) -> String {
    format!("{key}.{}.", changed_in(version, key))
}

/// Writes the text of a document: `bytes` characters that hardly any compression makes smaller.
pub fn text(version: u64, key: u64, bytes: usize, text: &mut String) {
    text.clear();
    text.push_str(&beginning(version, key));
    let mut part = xxh3_64(text.as_bytes());
    while text.len() < bytes {
        // Writing to memory cannot fail.
        let _ = write!(text, "{part:016x}");
        part = xxh3_64(&part.to_le_bytes());
    }
    text.truncate(bytes);
}

/// Writes a version's documents to a file of comma-separated values; returns their number.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, version: u64, documents: u64, bytes: usize) -> std::io::Result<u64> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut line, mut documents_written) = (String::new(), 0);
    file.write_all(b"id,text\n")?;
    for key in (0..documents).filter(|key| has(version, *key)) {
        text(version, key, bytes, &mut line);
        writeln!(file, "{key},{line}")?;
        documents_written += 1;
    }
    file.flush()?;
    Ok(documents_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: u64 = 10_000;

    fn text_of(version: u64, key: u64) -> String {
        let mut document_text = String::new();
        text(version, key, 50, &mut document_text);
        document_text
    }

    #[test]
    fn each_version_changes_one_in_20_and_drops_one_in_100() {
        assert_eq!(count(FIRST, DOCUMENTS), DOCUMENTS);
        for version in FIRST + 1..FIRST + MORE_MAX {
            let is_changed = |key: &u64| text_of(version, *key) != text_of(version - 1, *key);
            let changed = (0..DOCUMENTS).filter(is_changed).count() as u64;
            assert_eq!(changed * CHANGED_ONE_IN, DOCUMENTS, "version {version}");
            let dropped = count(version - 1, DOCUMENTS) - count(version, DOCUMENTS);
            assert_eq!(dropped * GONE_ONE_IN, DOCUMENTS, "version {version}");
            assert!(is_changed(&probe(version)) && has(version + 1, probe(version)));
        }
    }

    #[test]
    fn text_has_its_length_and_names_its_version() {
        for (version, key) in [(FIRST, 0), (7, 40_000_007)] {
            let text = text_of(version, key);
            assert!(text.len() == 50 && text.starts_with(&beginning(version, key)), "{text}");
        }
    }
}
