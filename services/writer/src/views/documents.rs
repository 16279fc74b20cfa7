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
    /// The declaration, after as many line breaks as precede it in the file: errors then have the
    /// lines of the file.
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
    within("the file is too long; divide the file", file.len(), VIEW_FILE_BYTES_MAX)?;
    let file = std::str::from_utf8(file).map_err(|_| {
        Error::invalid_argument("the file is not UTF-8; write the declarations in UTF-8")
    })?;
    let texts = split(file);
    let advice = "the file has too many documents; divide the file";
    within(advice, texts.len(), VIEW_FILE_DOCUMENTS_MAX)?;
    let mut documents: Vec<ViewDocument> = Vec::new();
    for (line, text) in texts {
        let (number, text) = (documents.len() + 1, "\n".repeat(line) + text);
        let declaration = Declaration::read_if_any(&text);
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
        documents.push(ViewDocument { number, name, text });
    }
    if documents.is_empty() { Err(no_view()) } else { Ok(documents) }
}

fn within(advice: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::limit_exceeded(advice, limit as u64, found as u64));
    }
    Ok(())
}

fn in_document(number: usize, error: Error) -> Error {
    error.while_doing(&format!("document {number}"))
}

/// Splits a file before each separator; returns each document with the number of lines before it.
fn split(file: &str) -> Vec<(usize, &str)> {
    let mut starts = vec![(0, 0)];
    let mut at = 0;
    for (line, text) in file.split_inclusive('\n').enumerate() {
        if line > 0 && is_separator(text) {
            starts.push((line, at));
        }
        at += text.len();
    }
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([file.len()]);
    starts.iter().zip(ends).map(|((line, from), to)| (*line, &file[*from..to])).collect()
}

/// Returns whether a line separates documents. No YAML text has such a line inside a document.
fn is_separator(line: &str) -> bool {
    let rest = line.strip_prefix("---");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
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
        let named: Vec<_> = documents.iter().map(|one| (one.number, one.name.as_str())).collect();
        assert_eq!(named, [(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(documents[0].text, view("a"));
        assert_eq!(documents[1].text, format!("{}---\n{}", "\n".repeat(6), view("b")));
        for document in &documents {
            assert_eq!(Declaration::read(&document.text).unwrap().spec.name, document.name);
        }
        let error = documents[2].locate(Error::not_found("line 16, column 7: no such stream"));
        assert_eq!(error.message(), "document 3: line 16, column 7: no such stream");
        assert_eq!(error.code(), ErrorCode::NotFound);
    }

    #[test]
    fn empty_documents_are_skipped() {
        let file = format!("---\n---\n{}---\n# Nothing.\n---\r\n\n{}---", view("a"), view("b"));
        let documents = read_view_documents(file.as_bytes()).unwrap();
        let named: Vec<_> = documents.iter().map(|one| (one.number, one.name.as_str())).collect();
        assert_eq!(named, [(1, "a"), (2, "b")]);
        for file in ["", "\n", "# Nothing.\n", "---\n---\n"] {
            assert!(error(file).1.contains("declares no view"), "{file:?}");
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
        let many = "---\n".repeat(VIEW_FILE_DOCUMENTS_MAX + 1);
        assert_eq!(error(&many).0, ErrorCode::LimitExceeded);
        let one = view("a") + &"#".repeat(forebay_core::limits::VIEW_DECLARATION_BYTES_MAX);
        let (code, message) = error(&format!("---\n{one}"));
        assert!(code == ErrorCode::LimitExceeded && message.starts_with("document 1: "));
    }
}
