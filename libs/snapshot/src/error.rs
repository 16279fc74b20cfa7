//! Conversion of an object store's errors.

use std::error::Error as Cause;
use std::io;
use std::iter::successors;

use forebay_core::limits::SNAPSHOT_REFUSAL_CHARS_MAX;
use forebay_core::{Error, ErrorCode};
use object_store::path::Path;

/// Address of the machine's credential service, which clients ask if no credentials are set.
const MACHINES_OWN: &str = "http://169.254.";
/// Code and advice if the bucket does not exist.
const NO_BUCKET: (ErrorCode, &str) =
    (ErrorCode::InvalidArgument, "create the bucket, or name an existing one");
const NO_CREDENTIALS: (ErrorCode, &str) =
    (ErrorCode::Unauthenticated, "set the object store's credentials");
const NO_RIGHT: (ErrorCode, &str) =
    (ErrorCode::PermissionDenied, "give the credentials the permission to read and write there");
const NO_ROOM: (ErrorCode, &str) = (
    ErrorCode::LimitExceeded,
    "make room in the object store; all earlier snapshots and backups are still valid",
);
const NO_FOLDER: (ErrorCode, &str) =
    (ErrorCode::InvalidArgument, "name a folder that this process can create and write");
const NO_ANSWER: (ErrorCode, &str) =
    (ErrorCode::Unavailable, "look at the object store and its settings; the service tries again");

/// Converts an error that occurred while doing something.
pub(crate) fn refusal_error(doing: &str, error: &object_store::Error) -> Error {
    let words = error.to_string();
    let (code, advice) = code_and_advice(error, &words);
    Error::new(code, format!("{doing}: {}; {advice}", shorten(&words)))
}

/// Converts an error that occurred while writing into a folder of this machine.
pub(crate) fn unwritable(folder: &Path, error: &object_store::Error) -> Error {
    let (code, advice) = if is_full(error) { NO_ROOM } else { NO_FOLDER };
    Error::new(code, format!("writing into /{folder}: {}; {advice}", shorten(&error.to_string())))
}

fn code_and_advice(error: &object_store::Error, words: &str) -> (ErrorCode, &'static str) {
    use object_store::Error as Refused;
    if words.contains(MACHINES_OWN) {
        return NO_CREDENTIALS;
    }
    if is_full(error) {
        return NO_ROOM;
    }
    match name_of(words) {
        // A list reports a missing bucket as an error without a kind, and a read reports it as a
        // missing object.
        Some("NoSuchBucket" | "ContainerNotFound") => return NO_BUCKET,
        // Servers return 400 or 403 for these errors, as for a missing permission.
        Some(
            "AuthenticationFailed"
            | "ExpiredToken"
            | "InvalidAccessKeyId"
            | "InvalidToken"
            | "SignatureDoesNotMatch",
        ) => return NO_CREDENTIALS,
        // Another process is writing the same object; neither has succeeded yet.
        Some("ConditionalRequestConflict") => return NO_ANSWER,
        _ => {}
    }
    match error {
        Refused::NotFound { .. } => {
            (ErrorCode::NotFound, "garbage collection may have removed the object")
        }
        Refused::AlreadyExists { .. } => {
            (ErrorCode::Conflict, "another process wrote the object first")
        }
        Refused::PermissionDenied { .. } => NO_RIGHT,
        Refused::Unauthenticated { .. } => NO_CREDENTIALS,
        _ => match status_of(words) {
            Some("401") => NO_CREDENTIALS,
            Some("403") => NO_RIGHT,
            // Only a list reaches this arm, and a list requests the bucket.
            Some("404") => NO_BUCKET,
            Some("507") => NO_ROOM,
            _ => NO_ANSWER,
        },
    }
}

/// Returns whether a disk of this machine is full.
fn is_full(error: &object_store::Error) -> bool {
    let first: &(dyn Cause + 'static) = error;
    let mut causes = successors(Some(first), |cause: &&(dyn Cause + 'static)| (*cause).source());
    causes.any(|cause| {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let of_disk = cause.downcast_ref::<io::Error>();
        of_disk.is_some_and(|it| matches!(it.kind(), StorageFull | QuotaExceeded))
    })
}

/// Returns the server's own name of the failure, such as `NoSuchBucket`. The name is in the body of
/// the answer, which an error of `object_store` contains only as text.
fn name_of(words: &str) -> Option<&str> {
    element(words, "Code")
}

fn element<'w>(words: &'w str, tag: &str) -> Option<&'w str> {
    let rest = words.split_once(&format!("<{tag}>"))?.1;
    Some(rest.split_once(&format!("</{tag}>"))?.0)
}

/// Returns the status of the answer, if the error has no kind for it.
fn status_of(words: &str) -> Option<&str> {
    words.split_once("non-2xx status code: ")?.1.get(..3)
}

/// Returns the text in one line and shortened, with the body of an answer replaced by its name and
/// message.
fn shorten(words: &str) -> String {
    let text = match (words.split_once("<?xml"), name_of(words)) {
        (Some((before, _)), Some(name)) => {
            format!("{before}{name}: {}", element(words, "Message").unwrap_or_default())
        }
        _ => words.to_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SNAPSHOT_REFUSAL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use object_store::Error as Refused;

    use super::*;

    /// Returns an error without a kind, in the words that `object_store` uses for an answer.
    fn server_error(status: &str, name: &str) -> Refused {
        let body = format!("<?xml version=\"1.0\"?>\n<Error>\n  <Code>{name}</Code>\n</Error>");
        let words = format!("Server returned non-2xx status code: {status}: {body}");
        Refused::Generic { store: "S3", source: words.into() }
    }

    #[test]
    fn server_response_determines_the_error_code() {
        for (status, name, code) in [
            ("403 Forbidden", "AccessDenied", ErrorCode::PermissionDenied),
            ("403 Forbidden", "SignatureDoesNotMatch", ErrorCode::Unauthenticated),
            ("403 Forbidden", "AuthenticationFailed", ErrorCode::Unauthenticated),
            ("400 Bad Request", "ExpiredToken", ErrorCode::Unauthenticated),
            ("401 Unauthorized", "NoAuthenticationInformation", ErrorCode::Unauthenticated),
            ("404 Not Found", "NoSuchBucket", ErrorCode::InvalidArgument),
            ("404 Not Found", "ResourceNotFound", ErrorCode::InvalidArgument),
            ("503 Service Unavailable", "SlowDown", ErrorCode::Unavailable),
            ("507 Insufficient Storage", "XMinioStorageFull", ErrorCode::LimitExceeded),
            ("500 Internal Server Error", "", ErrorCode::Unavailable),
        ] {
            let error = refusal_error("trying", &server_error(status, name));
            assert_eq!(error.code(), code, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn missing_credentials_are_distinguished_from_store_errors() {
        let words = "Error performing PUT http://169.254.169.254/latest/api/token in 1.47 ms";
        let error = Refused::Generic { store: "S3", source: words.into() };
        assert_eq!(refusal_error("trying", &error).code(), ErrorCode::Unauthenticated);
    }

    #[test]
    fn error_shows_code_and_message_of_the_response_body() {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code>\n\
                    <Message>It is not\nthere.</Message><HostId>abc</HostId></Error>";
        let words = format!("Server returned non-2xx status code: 404 Not Found: {body}");
        let error = Refused::Generic { store: "S3", source: words.into() };
        let message = refusal_error("trying", &error).to_string();
        assert!(
            message.contains("404 Not Found: NoSuchBucket: It is not there.; create the"),
            "{message}"
        );
    }

    #[test]
    fn error_kind_applies_unless_the_response_says_more() {
        let (path, source) =
            ("a/b".to_owned(), || Box::new(server_error("404 Not Found", "NoSuchKey")));
        let not_found = Refused::NotFound { path: path.clone(), source: source() };
        assert_eq!(refusal_error("trying", &not_found).code(), ErrorCode::NotFound);
        let source = Box::new(server_error("404 Not Found", "ContainerNotFound"));
        let not_found = Refused::NotFound { path: path.clone(), source };
        let error = refusal_error("trying", &not_found);
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.to_string().contains("create the bucket"), "{error}");
        let source = Box::new(server_error("409 Conflict", "BlobAlreadyExists"));
        let already_exists = Refused::AlreadyExists { path: path.clone(), source };
        assert_eq!(refusal_error("trying", &already_exists).code(), ErrorCode::Conflict);
        let source = Box::new(server_error("409 Conflict", "ConditionalRequestConflict"));
        let already_exists = Refused::AlreadyExists { path, source };
        assert_eq!(refusal_error("trying", &already_exists).code(), ErrorCode::Unavailable);
    }

    #[test]
    fn unwritable_folder_is_refused_unless_its_disk_is_full() {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        for (kind, code, advice) in [
            (StorageFull, ErrorCode::LimitExceeded, "make room"),
            (QuotaExceeded, ErrorCode::LimitExceeded, "make room"),
            (PermissionDenied, ErrorCode::InvalidArgument, "name a folder"),
            (ReadOnlyFilesystem, ErrorCode::InvalidArgument, "name a folder"),
        ] {
            let source = io::Error::from(kind).into();
            let error = Refused::Generic { store: "LocalFileSystem", source };
            let refusal = unwritable(&Path::from("some/folder"), &error);
            assert_eq!(refusal.code(), code, "{refusal}");
            let message = refusal.message();
            assert!(message.contains("/some/folder") && message.contains(advice), "{refusal}");
        }
    }

    #[test]
    fn long_refusals_are_cut() {
        let source = "é ".repeat(SNAPSHOT_REFUSAL_CHARS_MAX).into();
        let error = refusal_error("trying", &Refused::Generic { store: "S3", source });
        assert!(error.to_string().chars().count() < SNAPSHOT_REFUSAL_CHARS_MAX + 200, "{error}");
    }
}
