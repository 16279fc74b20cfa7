//! Files of declarations: YAML documents, separated by lines `---`, each of which declares one
//! feature view. A file is read as a whole before any of its views is applied.

use forebay_core::limits::{VIEW_FILE_BYTES_MAX, VIEW_FILE_DOCUMENTS_MAX};
use forebay_core::view::{ViewSpecError, ViewSpecPath};
use forebay_core::{Error, Result};

use super::declaration::{Declaration, no_view};

/// A document of a file: the declaration of one feature view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDocument {
    /// Number of the document in its file, from 1; empty documents have no number.
    pub number: usize,
    /// Name of the view.
    pub name: String,
    /// Number of the declaration's first line in the file.
    pub first_line: u32,
    /// The declaration.
    pub text: String,
}

impl ViewDocument {
    /// Adds the number of the document to an error.
    pub fn locate(&self, error: Error) -> Error {
        in_document(self.number, error)
    }
}

/// Reads the documents of a file in their order; skips empty documents.
///
/// # Errors
/// `InvalidArgument` with document, line and column of the first invalid part, for two documents of
/// one view, and for a file without a document or not in UTF-8; `LimitExceeded` for a file that is
/// too long or has too many documents.
pub fn read_view_documents(file: &[u8]) -> Result<Vec<ViewDocument>> {
    check_limit("the file is too long; divide the file", file.len(), VIEW_FILE_BYTES_MAX)?;
    let file = std::str::from_utf8(file).map_err(|_| {
        Error::invalid_argument("the file is not UTF-8; write the declarations in UTF-8")
    })?;
    let texts = split(file);
    let advice = "the file has too many documents; divide the file";
    check_limit(advice, texts.len(), VIEW_FILE_DOCUMENTS_MAX)?;
    let mut documents: Vec<ViewDocument> = Vec::new();
    for (first_line, text) in texts {
        let number = documents.len() + 1;
        let declaration = Declaration::read_if_any(text, first_line);
        let declaration = declaration.map_err(|error| in_document(number, error))?;
        let Some(declaration) = declaration else { continue };
        let name = declaration.spec.name.clone();
        if let Some(other) = documents.iter().find(|other| other.name == name) {
            let message = format!(
                "document {} declares the view `{name}`, too; declare each view once",
                other.number
            );
            let error = Error::invalid_argument(message);
            let error = declaration.locate(ViewSpecError { path: ViewSpecPath::View, error });
            return Err(in_document(number, error));
        }
        documents.push(ViewDocument { number, name, first_line, text: text.to_owned() });
    }
    if documents.is_empty() { Err(no_view(1)) } else { Ok(documents) }
}

fn check_limit(advice: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::limit_exceeded(advice, limit as u64, found as u64));
    }
    Ok(())
}

fn in_document(number: usize, error: Error) -> Error {
    error.while_doing(&format!("document {number}"))
}

/// Splits a file before each separator, or before the directives above it; returns each document
/// with the number of its first line.
fn split(file: &str) -> Vec<(u32, &str)> {
    let mut starts = vec![(1, 0)];
    let mut offset = 0;
    // Only comments and directives have followed the start of the file or the end of a document.
    let mut is_prefix = true;
    let mut directives = None;
    for (line, text) in (1..).zip(file.split_inclusive('\n')) {
        if is_marker(text, "---") {
            let start = directives.take().unwrap_or((line, offset));
            starts.extend((start.1 > 0).then_some(start));
            is_prefix = false;
        } else if is_marker(text, "...") {
            (is_prefix, directives) = (true, None);
        } else if is_prefix && text.starts_with('%') {
            directives.get_or_insert((line, offset));
        } else if !is_comment(text) {
            (is_prefix, directives) = (false, None);
        }
        offset += text.len();
    }
    let ends = starts.iter().skip(1).map(|(_, offset)| *offset).chain([file.len()]);
    starts.iter().zip(ends).map(|((line, from), to)| (*line, &file[*from..to])).collect()
}

/// Returns whether a line is a marker of YAML: `---` separates documents, `...` ends one. No YAML
/// text has such a line inside a document.
fn is_marker(line: &str, marker: &str) -> bool {
    let rest = line.strip_prefix(marker);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Returns whether a line is empty or only a comment.
fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    fn view(name: &str) -> String {
        format!(
            "apiVersion: forebay/v1\nkind: FeatureView\nname: {name}\nsource: orders\n\
             entity: [key]\nfeatures: {{n: {{count: '*'}}}}\n"
        )
    }

    fn error(file: &str) -> (ErrorCode, String) {
        let error = read_view_documents(file.as_bytes()).unwrap_err();
        (error.code(), error.message().to_owned())
    }

    #[test]
    fn documents_are_read_in_order_with_the_lines_of_their_file() {
        let file = format!("{}---\n{}--- # The last.\n{}", view("a"), view("b"), view("c"));
        let documents = read_view_documents(file.as_bytes()).unwrap();
        let numbered_names: Vec<_> =
            documents.iter().map(|one| (one.number, one.name.as_str())).collect();
        assert_eq!(numbered_names, [(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(documents[0].text, view("a"));
        assert_eq!(documents[1].text, format!("---\n{}", view("b")));
        let first_lines: Vec<_> = documents.iter().map(|one| one.first_line).collect();
        assert_eq!(first_lines, [1, 7, 14]);
        for ViewDocument { name, first_line, text, .. } in &documents {
            assert_eq!(Declaration::read(text, *first_line).unwrap().spec.name, *name);
        }
        let error = documents[2].locate(Error::not_found("line 16, column 7: no such stream"));
        assert_eq!(error.message(), "document 3: line 16, column 7: no such stream");
        assert_eq!(error.code(), ErrorCode::NotFound);
    }

    #[test]
    fn empty_documents_are_skipped() {
        let file = format!("---\n---\n{}---\n# Nothing.\n---\r\n\n{}---", view("a"), view("b"));
        let documents = read_view_documents(file.as_bytes()).unwrap();
        let numbered_names: Vec<_> =
            documents.iter().map(|one| (one.number, one.name.as_str())).collect();
        assert_eq!(numbered_names, [(1, "a"), (2, "b")]);
        for file in ["", "\n", "# Nothing.\n", "---\n---\n"] {
            assert!(error(file).1.contains("declares no view"), "{file:?}");
        }
    }

    #[test]
    fn directives_belong_to_the_document_below_them() {
        let (a, b) = (view("a"), view("b"));
        let directives = "# The next.\n%YAML 1.2\n%TAG !f! tag:forebay,2026:\n";
        for (file, expected) in [
            (format!("%YAML 1.2\n---\n{a}---\n{b}"), vec![("a", 1), ("b", 9)]),
            (format!("{directives}\n---\n{a}"), vec![("a", 2)]),
            (format!("---\n{a}...\n{directives}---\n{b}"), vec![("a", 1), ("b", 10)]),
            (format!("{a}...\n...\n%YAML 1.2\n---\n{b}...\n"), vec![("a", 1), ("b", 9)]),
        ] {
            let documents = read_view_documents(file.as_bytes()).unwrap();
            let found = documents.iter().map(|one| (one.name.as_str(), one.first_line));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{file}");
        }
        for (file, place) in [
            (format!("%YAML 2.0\n---\n{a}"), "document 1: line 1, column "),
            (format!("%YAML 1.2\n{a}"), "document 1: line 2, column "),
            (format!("{a}%YAML 1.2\n---\n{b}"), "document 1: line 7, column "),
            (format!("{a}...\n%YAML 2.0\n---\n{b}"), "document 2: line 8, column "),
        ] {
            let (code, message) = error(&file);
            assert_eq!(code, ErrorCode::InvalidArgument);
            assert!(message.starts_with(place), "{file}: {message}");
        }
    }

    #[test]
    fn one_invalid_document_refuses_the_file() {
        for (wrong, line) in [
            (view("b").replace("kind: FeatureView", "kind: Store"), 9),
            (view("b").replace("[key]", "{key: 1}"), 12),
            (view("a"), 10),
        ] {
            let (code, message) = error(&format!("{}---\n{wrong}---\n{}", view("a"), view("c")));
            assert_eq!(code, ErrorCode::InvalidArgument);
            let place = format!("document 2: line {line}, column ");
            assert!(message.starts_with(&place), "{message}");
        }
        let (_, message) = error(&format!("{}---\n{}", view("a"), view("a")));
        assert!(message.contains("document 1 declares the view `a`, too"), "{message}");
        let (_, message) = error(&format!("{}...\n{}", view("a"), view("b")));
        assert!(message.starts_with("document 1: line "), "{message}");
    }

    #[test]
    fn a_file_has_limits() {
        let long = "#".repeat(VIEW_FILE_BYTES_MAX + 1);
        assert_eq!(error(&long).0, ErrorCode::LimitExceeded);
        let latin = read_view_documents(b"\xe9").unwrap_err();
        assert_eq!(latin.code(), ErrorCode::InvalidArgument);
        let separators = "---\n".repeat(VIEW_FILE_DOCUMENTS_MAX + 1);
        assert_eq!(error(&separators).0, ErrorCode::LimitExceeded);
        let long_view = view("a") + &"#".repeat(forebay_core::limits::VIEW_DECLARATION_BYTES_MAX);
        let (code, message) = error(&format!("---\n{long_view}"));
        assert!(code == ErrorCode::LimitExceeded && message.starts_with("document 1: "));
    }
}
