//! Conversion of errors to and from messages (`error.proto`), in the results of a batch and in the
//! details of a status.

use forebay_core::error::ErrorContext;
use forebay_core::id::PartitionId;
use forebay_core::limits::NAME_BYTES_MAX;
use forebay_core::{Error, ErrorCode};

use crate::v1;

/// Longest error message on the wire, in bytes. A status travels in trailers, which peers limit,
/// some to 8 KiB. The trailers hold the message twice, once with up to three bytes for each byte.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 1_024;

impl From<&Error> for v1::Error {
    /// Truncates the message and the names at their limits, so that no caller can make a status too
    /// large to send.
    fn from(error: &Error) -> Self {
        let ErrorContext { store, partition, field, key_digest, limit, actual } = error.context();
        let name = |name: &Option<String>| {
            name.as_deref().map(|name| cut(name, NAME_BYTES_MAX).to_owned())
        };
        Self {
            code: error.code().number(),
            message: cut(error.message(), ERROR_MESSAGE_BYTES_MAX).to_owned(),
            store: name(store),
            partition: partition.map(|partition| partition.0),
            field: name(field),
            key_digest: *key_digest,
            limit: *limit,
            actual: *actual,
        }
    }
}

/// Returns the longest prefix of whole characters within this many bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

impl From<v1::Error> for Error {
    /// Converts a code that this build does not know to `Internal`, with the number in the message.
    fn from(wire: v1::Error) -> Self {
        if let Some(code) = ErrorCode::from_number(wire.code) {
            return error_with_code(code, wire);
        }
        let advice = "the peer answered with an error code that this build does not know; upgrade \
                      this process";
        let message = format!("{advice} (code {}: {})", wire.code, wire.message);
        Self::internal(message).with_context(context(wire))
    }
}

/// Returns the error of a message if this build knows its code.
pub(crate) fn known_error(wire: v1::Error) -> Option<Error> {
    ErrorCode::from_number(wire.code).map(|code| error_with_code(code, wire))
}

fn error_with_code(code: ErrorCode, mut wire: v1::Error) -> Error {
    let message = std::mem::take(&mut wire.message);
    Error::new(code, message).with_context(context(wire))
}

fn context(wire: v1::Error) -> ErrorContext {
    ErrorContext {
        store: wire.store,
        partition: wire.partition.map(PartitionId),
        field: wire.field,
        key_digest: wire.key_digest,
        limit: wire.limit,
        actual: wire.actual,
    }
}

/// Converts the error of a refused message that the sender cannot correct, because a log holds it
/// or a service returned it: `UpgradeNeeded` stays, any other error becomes `Corrupt`.
///
/// ```
/// use forebay_core::{Error, ErrorCode};
/// use forebay_wire::error::as_stored_error;
/// assert_eq!(as_stored_error(Error::invalid_argument("no type")).code(), ErrorCode::Corrupt);
/// assert_eq!(as_stored_error(Error::upgrade_needed("v9")).code(), ErrorCode::UpgradeNeeded);
/// ```
#[must_use]
pub fn as_stored_error(error: Error) -> Error {
    match error.code() {
        ErrorCode::UpgradeNeeded | ErrorCode::Corrupt => error,
        _ => Error::corrupt(error.message()).with_context(error.context().clone()),
    }
}
